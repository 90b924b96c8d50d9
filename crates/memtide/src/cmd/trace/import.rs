//! `memtide trace import`: a `perf.data` file becomes a trace.
//!
//! A trace is one process's: addresses mean something only within it. So a
//! recording of several needs `--pid`; the error lists them. The file is gone
//! through twice, first to see what is in it. The trace comes to its place when
//! it is whole; until then, what was there stays.

use crate::shared::context::{BadUsage, Context};
use crate::shared::outside::{self, outside};
use crate::shared::overwriting::replaces;
use crate::shared::words::pid;
use anyhow::Context as _;
use memtide_linux::files::Output;
use memtide_linux::perf::recording::{Recording, Summary};
use memtide_trace::{Format, Row, Writer};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a trace of a perf.data file: perf mem record, raw IBS, page faults
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What perf recorded
    #[arg(value_name = "PERF.DATA")]
    recording: PathBuf,

    /// The trace; its name ends with .parquet or .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The process, where several were recorded
    #[arg(long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pid: Option<u32>,
}

/// What was found and written; the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    recording: PathBuf,
    output: PathBuf,
    pid: u32,
    name: Option<String>,
    events: Vec<String>,
    accesses: u64,
    threads: u64,
    seconds: f64,
    other_processes: u64,
    other_samples: u64,
    lost: u64,
    throttled: u64,
    late: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let format = Format::of(&args.output)
        .ok_or_else(|| BadUsage("a trace's name ends with .parquet or .csv".to_owned()))?;
    let shown = args.recording.display();
    if replaces(&args.output, &args.recording) {
        let output = outside::path(&args.output);
        let why = format!("{output}: the recording itself; name another file for the trace");
        return Err(BadUsage(why).into());
    }
    let open = || Recording::open(&args.recording).with_context(|| shown.to_string());
    let mut recording = open()?;
    let summary = recording.read(|_| {}).with_context(|| shown.to_string())?;
    let pid = process(args.pid, &summary).map_err(|why| BadUsage(format!("{shown}: {why}")))?;
    let (threads, seconds) = write(&mut open()?, pid, &args.output, format)?;
    let accesses = summary.by_process[&pid];
    let report = Report {
        recording: args.recording.clone(),
        output: args.output.clone(),
        pid,
        name: summary.names.get(&pid).map(|name| name.to_string()),
        events: (recording.events().iter())
            .map(|event| event.name.clone().unwrap_or_else(|| "unnamed".to_owned()))
            .collect(),
        accesses,
        threads,
        seconds,
        other_processes: summary.accesses - accesses,
        other_samples: summary.other_samples,
        lost: summary.walk.lost,
        throttled: summary.walk.throttled,
        late: summary.late,
        refused: (summary.refused.iter())
            .map(|(why, times)| (why.words(), times))
            .collect(),
    };
    match context.json {
        true => context.print_json(&report)?,
        false => context.print(&text(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whose accesses are taken.
fn process(asked: Option<u32>, summary: &Summary) -> Result<u32, String> {
    let list = || {
        let named = |(pid, accesses): (&u32, &u64)| {
            let name = outside(summary.names.get(pid).map_or("unnamed", |name| name));
            format!("{pid} ({name}, {accesses})")
        };
        let mut most: Vec<_> = summary.by_process.iter().collect();
        most.sort_by_key(|(pid, accesses)| (std::cmp::Reverse(**accesses), **pid));
        let shown: Vec<String> = most.iter().take(8).map(|one| named(*one)).collect();
        let rest = match most.len() {
            0..=8 => String::new(),
            more => format!(" and {} more", more - 8),
        };
        format!("{}{rest}", shown.join(", "))
    };
    match (asked, summary.by_process.len()) {
        (_, 0) => Err(format!(
            "no accesses in it; {} samples were refused",
            summary.refused.total()
        )),
        (Some(pid), _) if summary.by_process.contains_key(&pid) => Ok(pid),
        (Some(pid), _) => Err(format!("no accesses of process {pid}; it has {}", list())),
        (None, 1) => Ok(*summary.by_process.keys().next().expect("there is one")),
        (None, _) => Err(format!("choose a process with --pid: {}", list())),
    }
}

/// How many threads there were, and over how many seconds.
fn write(
    recording: &mut Recording<impl std::io::Read + std::io::Seek>,
    pid: u32,
    output: &Path,
    format: Format,
) -> anyhow::Result<(u64, f64)> {
    let shown = || output.display().to_string();
    let file = BufWriter::new(Output::create(output).with_context(shown)?);
    let mut writer = Writer::new(file, format).with_context(shown)?;
    let (mut failed, mut threads) = (None, BTreeSet::new());
    let (mut first, mut last) = (None, 0);
    recording.read(|access| {
        if access.pid != pid || failed.is_some() {
            return;
        }
        threads.insert(access.tid);
        last = access.time_ns;
        first.get_or_insert(last);
        let row = Row {
            time_ns: access.time_ns,
            thread: access.tid,
            address: access.address,
            write: access.operation.writes(),
        };
        failed = writer.write(&row).err();
    })?;
    if let Some(error) = failed {
        return Err(error).with_context(shown);
    }
    let file = writer.finish().with_context(shown)?;
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    file.and_then(Output::commit).with_context(shown)?;
    let nanoseconds = last - first.unwrap_or(last);
    Ok((threads.len() as u64, nanoseconds as f64 / 1e9))
}

fn text(report: &Report) -> String {
    let Report {
        accesses,
        threads,
        seconds,
        pid,
        ..
    } = report;
    let name = outside(report.name.as_deref().unwrap_or("unnamed"));
    let es = if *accesses == 1 { "" } else { "es" };
    let s = if *threads == 1 { "" } else { "s" };
    let mut text = format!(
        "{}: {accesses} access{es} of {threads} thread{s} in {seconds:.3} s, process {pid} ({name})\n",
        outside::path(&report.output)
    );
    let left_out = [
        (report.other_processes, "accesses of other processes"),
        (report.other_samples, "samples of events without addresses"),
        (report.lost, "records lost while recording"),
        (report.throttled, "times throttled while recording"),
        (report.late, "accesses out of order"),
    ];
    for (times, what) in left_out.into_iter().filter(|(times, _)| *times > 0) {
        text += &format!("  {times} {what}\n");
    }
    for (why, times) in &report.refused {
        text += &format!("  {times} samples {why}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::failing::leaves_the_old_or_the_new;

    fn summary(processes: &[(u32, u64)]) -> Summary {
        Summary {
            by_process: processes.iter().copied().collect(),
            names: [(5, "redis".into())].into(),
            ..Summary::default()
        }
    }

    #[test]
    fn a_name_cannot_draw_on_the_terminal() {
        let mut both = summary(&[(5, 10), (7, 90)]);
        both.names.insert(7, "\x1b[2J\nmemtide: all is well".into());
        let why = process(None, &both).unwrap_err();
        assert!(
            why.contains(r"7 (\u{1b}[2J\nmemtide: all is well, 90)"),
            "{why}"
        );
    }

    #[test]
    fn the_nth_failure_leaves_the_old_trace_or_the_new() {
        let recording = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../memtide-linux/tests/recordings/minor-faults.perf.data"
        );
        let open = || Recording::open(Path::new(recording)).unwrap();
        let summary = open().read(|_| {}).unwrap();
        let pid = *summary.by_process.keys().next().unwrap();
        for (name, format) in [("t.csv", Format::Csv), ("t.parquet", Format::Parquet)] {
            leaves_the_old_or_the_new(name, |path| write(&mut open(), pid, path, format).map(drop));
        }
    }

    #[test]
    fn several_processes_are_listed_the_busiest_first() {
        let both = summary(&[(5, 10), (7, 90)]);
        let why = process(None, &both).unwrap_err();
        let says = "choose a process with --pid: 7 (unnamed, 90), 5 (redis, 10)";
        assert_eq!(why, says);
        assert_eq!(process(Some(5), &both), Ok(5));
        let why = process(Some(6), &both).unwrap_err();
        assert!(
            why.starts_with("no accesses of process 6; it has 7"),
            "{why}"
        );
        assert_eq!(process(None, &summary(&[(5, 1)])), Ok(5));
        assert!(process(Some(5), &summary(&[])).is_err());
        let many: Vec<(u32, u64)> = (1..=10).map(|pid| (pid, 1)).collect();
        let why = process(None, &summary(&many)).unwrap_err();
        assert!(why.ends_with("8 (unnamed, 1) and 2 more"), "{why}");
    }
}
