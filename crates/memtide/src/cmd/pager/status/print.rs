//! The status as text: a row for each process, then one for each of their files.

use super::super::print::{size, thousands};
use super::report::{Process, Report};
use crate::shared::outside::outside;
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use std::fmt::Write as _;

/// The whole of it; nothing if there is no process to show.
pub fn text(report: &Report, styled: bool) -> String {
    let mut text = String::new();
    if !report.processes.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", processes(&report.processes, styled));
        let _ = writeln!(text, "\n{}", files(&report.processes, styled));
    }
    for torn in report.processes.iter().filter(|process| process.torn) {
        let _ = writeln!(
            text,
            "\nThe numbers of process {} are not of one moment: it stopped while it wrote them.",
            torn.pid
        );
    }
    if report.hidden_processes > 0 {
        let _ = writeln!(
            text,
            "\nOthers may have pagers: {}.",
            hidden(report.hidden_processes)
        );
    }
    text
}

/// That so many processes may not be looked into, and what to do.
pub fn hidden(processes: u64) -> String {
    let processes = match processes {
        1 => "1 process".to_owned(),
        n => format!("{} processes", thousands(n)),
    };
    format!("{processes} may not be looked into; run as root, with CAP_SYS_PTRACE")
}

fn processes(processes: &[Process], styled: bool) -> String {
    let header = [
        ("pid", Right),
        ("program", Left),
        ("budget", Right),
        ("resident", Right),
        ("peak", Right),
        ("evicted", Right),
        ("refilled", Right),
        ("unmapped", Right),
        ("flushes", Right),
        ("overruns", Right),
        ("held back", Right),
        ("last turn", Right),
    ];
    let mut table = table(&header, styled);
    for process in processes {
        let pager = &process.pager;
        table.add_row([
            process.pid.to_string(),
            outside(&process.program).into_owned(),
            size(pager.budget_bytes),
            size(pager.resident_bytes),
            size(pager.peak_resident_bytes),
            thousands(pager.evicted_pages),
            thousands(pager.refilled_pages),
            thousands(pager.zapped_pages),
            thousands(pager.flush_calls),
            thousands(pager.budget_overruns),
            thousands(pager.held_back),
            last_turn(process),
        ]);
    }
    table.trim_fmt()
}

/// How long ago the evictor had a turn.
fn last_turn(process: &Process) -> String {
    match (process.ended, process.last_turn_ms) {
        (true, _) => "ended".to_owned(),
        (false, Some(ms)) => format!("{:.1} s", ms as f64 / 1000.0),
        (false, None) => "?".to_owned(),
    }
}

fn files(processes: &[Process], styled: bool) -> String {
    let header = [
        ("pid", Right),
        ("mapped", Right),
        ("resident", Right),
        ("evicted", Right),
        ("refilled", Right),
        ("file", Left),
    ];
    let mut table = table(&header, styled);
    for process in processes {
        let others = &process.other_files;
        let others = (others.count > 0).then(|| {
            (
                format!("{} others", thousands(others.count)),
                others.figures,
            )
        });
        let files = process.files.iter();
        let files = files.map(|file| (outside(&file.name).into_owned(), file.figures));
        for (name, figures) in files.chain(others) {
            table.add_row([
                process.pid.to_string(),
                size(figures.mapped_bytes),
                size(figures.resident_bytes),
                thousands(figures.evicted_pages),
                thousands(figures.refilled_pages),
                name,
            ]);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::pager::status::report::OtherFiles;
    use crate::shared::outside::{HOSTILE, shows_hostile};
    use memtide_pager::board::{Counts, Figures, File};

    fn figures(bytes: u64) -> Figures {
        Figures {
            mapped_bytes: bytes,
            resident_bytes: bytes / 4,
            evicted_pages: bytes >> 12,
            refilled_pages: 7,
        }
    }

    fn process(name: &str, others: u64) -> Process {
        Process {
            pid: 4711,
            program: name.to_owned(),
            last_turn_ms: Some(1260),
            ended: false,
            torn: false,
            machine_shootdowns: None,
            counts: Counts::default(),
            pager: statistics(),
            files: vec![File {
                name: name.to_owned(),
                figures: figures(16 << 20),
            }],
            other_files: OtherFiles {
                count: others,
                figures: figures(u64::MAX),
            },
        }
    }

    /// The type can be made in its crate only.
    fn statistics() -> memtide_pager::Statistics {
        let mut statistics = memtide_pager::Statistics::default();
        statistics.budget_bytes = 4 << 20;
        statistics.flush_calls = 1234;
        statistics.held_back = u64::MAX;
        statistics
    }

    #[test]
    fn a_row_for_each_process_and_each_file() {
        let mut report = Report::default();
        report.processes.push(process("llama-cli", 0));
        let shown = text(&report, false);
        let there = |line: &str| {
            shown
                .lines()
                .any(|l| l.split_whitespace().eq(line.split(' ')))
        };
        for line in [
            "pid program budget resident peak evicted refilled unmapped flushes overruns held back last turn",
            "4711 llama-cli 4.0 MiB 0.0 KiB 0.0 KiB 0 0 0 1,234 0 18,446,744,073,709,551,615 1.3 s",
            "4711 16.0 MiB 4.0 MiB 4,096 7 llama-cli",
        ] {
            assert!(there(line), "{line}\n{shown}");
        }
        assert_eq!(shown.lines().count(), 5, "{shown}");
        report.hidden_processes = 12;
        report.processes[0].other_files.count = 1000;
        let shown = text(&report, false);
        let end = "1,000 others\n\nOthers may have pagers: 12 processes may not be looked into; \
                   run as root, with CAP_SYS_PTRACE.\n";
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn what_ended_or_stopped_is_told_from_what_works() {
        let mut report = Report::default();
        report.processes.push(process("a", 0));
        report.processes[0].last_turn_ms = None;
        let last = |report: &Report| {
            let shown = text(report, false);
            let row = shown.lines().nth(1).unwrap().to_owned();
            row.split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!(last(&report), "?");
        (report.processes[0].ended, report.processes[0].torn) = (true, true);
        assert_eq!(last(&report), "ended");
        let end = "\n\nThe numbers of process 4711 are not of one moment: it stopped while it wrote \
                   them.\n";
        assert!(text(&report, false).ends_with(end));
    }

    #[test]
    fn what_others_chose_is_written_out() {
        let mut report = Report::default();
        report.processes.push(process(HOSTILE, 0));
        let shown = text(&report, false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown:?}");
        assert!(
            shows_hostile(lines[1]) && shows_hostile(lines[4]),
            "{shown:?}"
        );
    }
}
