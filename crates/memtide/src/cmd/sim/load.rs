//! Scenarios and machines by name or path, with the files that they name.
//!
//! A word with a slash or the ending `.toml` is a path; any other is the name of one that comes with
//! memtide. Files that a file names are relative to it.

use crate::shared::context::BadUsage;
use anyhow::Context as _;
use memtide_linux::files::{self, input};
use memtide_sim::scenario::{MACHINES, SHIPPED, Scenario};
use memtide_sim::spec::MachineSpec;
use memtide_sim::text::{Source, nearest};
use memtide_sim::workload::{MAX_SPAN_NS, TraceRow};
use std::path::Path;

/// The most that a scenario or a machine may be, in bytes.
const LARGEST_TEXT: u64 = 16 << 20;

/// A scenario, ready to run.
pub fn scenario(word: &str) -> anyhow::Result<Scenario> {
    let scenario = without_trace(word)?;
    let Some(file) = scenario.trace_file() else {
        return Ok(scenario);
    };
    let rows = trace(&folder(word).join(file))?;
    Ok(scenario.with_trace(rows))
}

/// A scenario, without its trace.
pub fn without_trace(word: &str) -> anyhow::Result<Scenario> {
    if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == word) {
        return Ok(shipped.read()?);
    }
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let text = text(word, "scenario", &names).map_err(BadUsage)?;
    Scenario::read(&text, word, &mut |path| beside(word, path))
        .map_err(|error| BadUsage(error.to_string()).into())
}

/// A machine.
pub fn machine(word: &str) -> anyhow::Result<MachineSpec> {
    let text = machine_text(word).map_err(BadUsage)?;
    let source = Source {
        file: word,
        text: &text,
    };
    MachineSpec::read(source, &mut |path| beside(word, path))
        .map_err(|error| BadUsage(error.to_string()).into())
}

/// The text of a machine's file.
pub fn machine_text(word: &str) -> Result<String, String> {
    match MACHINES.iter().find(|shipped| shipped.name == word) {
        Some(shipped) => Ok(shipped.text.to_owned()),
        None => {
            let names: Vec<&str> = MACHINES.iter().map(|shipped| shipped.name).collect();
            text(word, "machine", &names)
        }
    }
}

/// The text of a file that is named by its path; `names` could have been meant instead.
fn text(word: &str, what: &str, names: &[&str]) -> Result<String, String> {
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
    input::text(Path::new(word), LARGEST_TEXT).map_err(|error| format!("{word}: {error}"))
}

/// The folder of a file that was named by its path.
fn folder(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

/// A file by its path relative to another.
fn beside(file: &str, path: &str) -> Result<String, String> {
    let path = folder(file).join(path);
    input::text(&path, LARGEST_TEXT).map_err(|error| format!("{}: {error}", path.display()))
}

/// The rows of a recording.
pub fn trace(path: &Path) -> anyhow::Result<Vec<TraceRow>> {
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        let what = "it is no file; a recording is read more than once";
        return Err(BadUsage(format!("{}: {what}", path.display())).into());
    }
    // The Parquet library panics on some damaged files. memtide-trace makes an error of that; what
    // the library would write to standard error says nothing more.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let rows = memtide_trace::Rows::open(path).and_then(|rows| {
        rows.map(|row| {
            row.map(|row| TraceRow {
                time_ns: row.time_ns,
                thread: row.thread,
                address: row.address,
                write: row.write,
            })
        })
        .collect::<Result<Vec<_>, _>>()
    });
    std::panic::set_hook(hook);
    let rows = rows.map_err(|error| BadUsage(error.to_string()))?;
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

/// Writes a file that an option names.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    files::write(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::failing::leaves_the_old_or_the_new;

    /// `--json FILE`, `--report FILE` and `--make`.
    #[test]
    fn the_nth_failure_leaves_the_old_file_or_the_new() {
        leaves_the_old_or_the_new("out.json", |path| write(path, "{}\n"));
    }
}
