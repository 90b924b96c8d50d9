//! Scenarios by name or path, with the files that they name.
//!
//! A word with a slash or the ending `.toml` is a path; any other is a name of a shipped file, or
//! else a file of the current folder. Files that a scenario or machine names are relative to it, and
//! beside a shipped one they are shipped as well.

use super::shipped::{self, Shipped};
use crate::cli::BadUsage;
use anyhow::Context as _;
use memtide_sim::scenario::Scenario;
use memtide_sim::text::{Source, nearest};
use memtide_sim::workload::TraceRow;
use std::path::{Path, PathBuf};

/// Where a file's neighbours are.
#[derive(Clone, Debug)]
pub enum Folder {
    /// In the program.
    Shipped,
    /// On disk.
    Disk(PathBuf),
}

impl Folder {
    /// The text of a file by its path from here.
    pub fn read(&self, path: &str) -> Result<String, String> {
        match self {
            Folder::Shipped => match shipped::at(path) {
                Some(file) => Ok(file.text.to_owned()),
                None => Err(format!("{path} does not come with memtide")),
            },
            Folder::Disk(folder) => {
                let path = folder.join(path);
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))
            }
        }
    }
}

/// A file that was named on the command line.
pub struct Found {
    /// How errors call it.
    pub file: String,
    /// What it holds.
    pub text: String,
    /// Where its neighbours are.
    pub folder: Folder,
}

/// Looks for what a word names; `known` are the shipped files that it may name.
pub fn find(word: &str, what: &str, known: &[&'static Shipped]) -> anyhow::Result<Found> {
    let is_path = word.contains('/') || word.ends_with(".toml");
    if !is_path && let Some(file) = known.iter().find(|file| file.name() == word) {
        return Ok(Found {
            file: file.path.to_owned(),
            text: file.text.to_owned(),
            folder: Folder::Shipped,
        });
    }
    let path = Path::new(word);
    if !is_path && !path.exists() {
        let names: Vec<&str> = known.iter().map(|file| file.name()).collect();
        let hint = match nearest(word, &names) {
            Some(name) => format!("did you mean {name}? "),
            None => String::new(),
        };
        return Err(BadUsage(format!(
            "no {what} is called {word:?}; {hint}memtide sim list shows them, and a file ends with .toml"
        ))
        .into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| BadUsage(format!("{word}: {error}")))?;
    Ok(Found {
        file: word.to_owned(),
        text,
        folder: Folder::Disk(path.parent().unwrap_or(Path::new("")).to_owned()),
    })
}

/// A scenario, ready to run.
pub fn scenario(word: &str) -> anyhow::Result<Scenario> {
    let known: Vec<_> = shipped::scenarios().collect();
    let found = find(word, "scenario", &known)?;
    let mut scenario = parse(&found)?;
    if let Some(file) = scenario.trace_file() {
        let path = match &found.folder {
            Folder::Disk(folder) => folder.join(file),
            Folder::Shipped => PathBuf::from(file),
        };
        scenario.set_trace(trace(&path)?);
    }
    Ok(scenario)
}

/// A scenario without its trace.
pub fn parse(found: &Found) -> anyhow::Result<Scenario> {
    let source = Source {
        file: &found.file,
        text: &found.text,
    };
    let mut read = |path: &str| found.folder.read(path);
    Scenario::read(source, &mut read).map_err(|error| BadUsage(error.to_string()).into())
}

/// The rows of a recording.
pub fn trace(path: &Path) -> anyhow::Result<Vec<TraceRow>> {
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
    match rows.is_empty() {
        true => Err(BadUsage(format!("{}: it has no rows", path.display())).into()),
        false => Ok(rows),
    }
}

/// Writes a file that an option names.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
