//! Scenarios and machines by name or path, with the files that they name.
//!
//! A word with a slash or the ending `.toml` is a path; any other is the name of one that comes with
//! memtide. Files that a file names are relative to it.
//!
//! What was read is kept in a list, for [`may_write`]: results do not replace what they come from.

use super::words::grouped;
use crate::shared::context::BadUsage;
use crate::shared::outside;
use crate::shared::overwriting::replaces;
use anyhow::Context as _;
use memtide_linux::files::{self, Output, input};
use memtide_sim::scenario::{MACHINES, SHIPPED, Scenario};
use memtide_sim::spec::MachineSpec;
use memtide_sim::text::{Source, nearest};
use memtide_sim::workload::{MAX_SPAN_NS, MAX_THREADS, TraceRow};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The most that a scenario or a machine may be, in bytes.
const LARGEST_TEXT: u64 = 16 << 20;

/// The most rows that a recording may have here: a replay holds them all. A small Parquet file may have
/// very many.
const MOST_ROWS: usize = 1 << 26;

/// The files that were read.
pub type Inputs = Vec<PathBuf>;

/// A scenario, ready to run.
pub fn scenario(word: &str, inputs: &mut Inputs) -> anyhow::Result<Scenario> {
    let scenario = without_trace(word, inputs)?;
    let Some(file) = scenario.trace_file() else {
        return Ok(scenario);
    };
    let rows = trace(&folder(word).join(file), inputs)?;
    Ok(scenario.with_trace(rows))
}

/// A scenario, without its trace.
pub fn without_trace(word: &str, inputs: &mut Inputs) -> anyhow::Result<Scenario> {
    if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == word) {
        return Ok(shipped.read()?);
    }
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let text = text(word, "scenario", &names, inputs).map_err(BadUsage)?;
    Scenario::read(&text, word, &mut |path| beside(word, path, inputs))
        .map_err(|error| BadUsage(error.to_string()).into())
}

/// A machine.
pub fn machine(word: &str, inputs: &mut Inputs) -> anyhow::Result<MachineSpec> {
    let text = machine_text(word, inputs).map_err(BadUsage)?;
    let source = Source {
        file: word,
        text: &text,
    };
    MachineSpec::read(source, &mut |path| beside(word, path, inputs))
        .map_err(|error| BadUsage(error.to_string()).into())
}

/// The text of a machine's file.
pub fn machine_text(word: &str, inputs: &mut Inputs) -> Result<String, String> {
    match MACHINES.iter().find(|shipped| shipped.name == word) {
        Some(shipped) => Ok(shipped.text.to_owned()),
        None => {
            let names: Vec<&str> = MACHINES.iter().map(|shipped| shipped.name).collect();
            text(word, "machine", &names, inputs)
        }
    }
}

/// The text of a file that is named by its path; `names` could have been meant instead.
fn text(word: &str, what: &str, names: &[&str], inputs: &mut Inputs) -> Result<String, String> {
    if !word.contains('/') && !word.ends_with(".toml") {
        let hint = match nearest(word, names) {
            Some(name) => format!("did you mean {name}? "),
            None => String::new(),
        };
        return Err(format!(
            "no {what} is called {word:?}; {hint}memtide sim list shows those that there are, and the \
             name of a file ends with .toml"
        ));
    }
    inputs.push(word.into());
    input::text(Path::new(word), LARGEST_TEXT).map_err(|error| format!("{word}: {error}"))
}

/// The folder of a file that was named by its path.
fn folder(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

/// A file by its path relative to another.
pub(super) fn beside(file: &str, path: &str, inputs: &mut Inputs) -> Result<String, String> {
    let path = folder(file).join(path);
    let text = input::text(&path, LARGEST_TEXT);
    let text = text.map_err(|error| format!("{}: {error}", path.display()));
    inputs.push(path);
    text
}

/// The rows of a recording.
pub fn trace(path: &Path, inputs: &mut Inputs) -> anyhow::Result<Vec<TraceRow>> {
    inputs.push(path.to_owned());
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        let what = "it is no file; a recording is read more than once";
        return Err(BadUsage(format!("{}: {what}", path.display())).into());
    }
    // The Parquet library panics on some damaged files. memtide-trace makes an error of that; what
    // the library would write to standard error says nothing more.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let rows = memtide_trace::Rows::open(path)
        .map_err(|error| error.to_string())
        .and_then(|rows| held(rows, path, MOST_ROWS));
    std::panic::set_hook(hook);
    let rows = rows.map_err(BadUsage)?;
    let times = rows.iter().map(|row| row.time_ns);
    let Some((first, last)) = times.clone().min().zip(times.max()) else {
        return Err(BadUsage(format!("{}: it has no rows", path.display())).into());
    };
    if last - first > MAX_SPAN_NS {
        let what = "its rows are more than 100 days apart; cut it";
        return Err(BadUsage(format!("{}: {what}", path.display())).into());
    }
    Ok(rows)
}

/// All rows, if they are not more than `most`.
fn held(rows: memtide_trace::Rows, path: &Path, most: usize) -> Result<Vec<TraceRow>, String> {
    let mut held = Vec::new();
    let mut threads = HashSet::new();
    for row in rows {
        let row = row.map_err(|error| error.to_string())?;
        if held.len() == most {
            let what = format!("it has more than {} rows; cut it", grouped(most as u64));
            return Err(format!("{}: {what}", path.display()));
        }
        threads.insert(row.thread);
        if threads.len() as u64 > MAX_THREADS {
            let what = format!("it has more than {} threads; cut it", grouped(MAX_THREADS));
            return Err(format!("{}: {what}", path.display()));
        }
        held.push(TraceRow {
            time_ns: row.time_ns,
            thread: row.thread,
            address: row.address,
            write: row.write,
        });
    }
    Ok(held)
}

/// Endings of what results come from.
const ENDINGS_OF_INPUTS: [&str; 3] = ["toml", "csv", "parquet"];

/// An error if the file that an option names is one of the `inputs`, looks like one, or cannot be written:
/// after an hour's runs it is too late for that.
pub fn may_write(inputs: &Inputs, option: &str, file: &Path) -> anyhow::Result<()> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let what = match ending {
        _ if inputs.iter().any(|input| replaces(file, input)) => {
            "one of the inputs; name another file".to_owned()
        }
        Some(ending) if ENDINGS_OF_INPUTS.contains(&ending) => {
            format!("results are not written to .{ending} files; name another file")
        }
        _ => {
            // What is no file, as a pipe, is opened once.
            let special = file.metadata().is_ok_and(|about| !about.is_file());
            if !special {
                Output::create(file).with_context(|| cannot_write(file))?;
            }
            return Ok(());
        }
    };
    Err(BadUsage(format!("{option} {}: {what}", outside::path(file))).into())
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", outside::path(file))
}

/// Writes a file that an option names.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    files::write(path, text.as_bytes()).with_context(|| cannot_write(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::failing::leaves_the_old_or_the_new;

    #[test]
    fn a_recording_has_rows_within_limits() {
        let path = Path::new("a.csv");
        let rows = |rows: &str| {
            let text = format!("time_ns,thread,address,write\n{rows}");
            memtide_trace::Rows::from_csv(std::io::Cursor::new(text), path)
        };
        let two = "0,0,0,0\n1,0,0,0\n";
        assert_eq!(held(rows(two), path, 2).unwrap().len(), 2);
        // What is wrong with a row beyond it is not looked at.
        for more in ["2,0,0,0\n", "2,0,0,0\nx\n"] {
            let error = held(rows(&format!("{two}{more}")), path, 2).unwrap_err();
            assert_eq!(error, "a.csv: it has more than 2 rows; cut it");
        }
    }

    /// `--json FILE`, `--report FILE` and `--make`.
    #[test]
    fn the_nth_failure_leaves_the_old_file_or_the_new() {
        leaves_the_old_or_the_new("out.json", |path| write(path, "{}\n"));
    }
}
