//! Output that goes on while a command runs: a line for each event, as text
//! with a status line below on a terminal, or as one JSON object a line.

use crate::shared::context::complain;
use crate::shared::outlet::{Outlet, Patience, Piece};
use crate::shared::outside;
use crate::shared::system_journal::{Entry, SystemJournal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memtide_core::units::Millis;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// An event's line.
#[derive(Serialize)]
pub struct Line<'a, T: Serialize> {
    /// Since the start.
    pub at_ms: u64,
    /// What has a key `event` of its own.
    #[serde(flatten)]
    pub content: &'a T,
}

/// A line of what has no key `event`.
#[derive(Serialize)]
pub struct Named<'a, T: Serialize> {
    /// The key.
    pub event: &'static str,
    /// The rest.
    #[serde(flatten)]
    pub content: &'a T,
}

/// How long a reader who takes nothing, or little, holds up the loop and the end of the command.
const PATIENCE: Patience = Patience {
    room: Duration::from_secs(1),
    piece: Duration::from_secs(3),
    all: Duration::from_secs(10),
};

/// Where lines go.
pub struct Lines {
    json: bool,
    /// Whether lines of events go to the journal.
    journal: bool,
    /// None at the end.
    outlet: Option<Outlet>,
}

impl Lines {
    /// To standard output; the status line to standard error, if that is a
    /// terminal.
    pub fn new(json: bool) -> Lines {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a valid template"));
        if json || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let system_journal = match json {
            true => None,
            false => SystemJournal::of_output(),
        };
        let journal = system_journal.is_some();
        let shows = move |bar: &ProgressBar, mut text: String| {
            text.push('\n');
            bar.suspend(|| goes(&text))
        };
        let outlet = Outlet::new(PATIENCE, move |piece| match piece {
            Piece::Text(text) => shows(&bar, text),
            Piece::Entry(entry) => {
                let journal = system_journal.as_ref();
                journal.is_some_and(|journal| journal.takes(&entry)) || shows(&bar, entry.line)
            }
            Piece::Status(text) => {
                // Another run after a summary.
                if bar.is_finished() {
                    bar.reset();
                }
                bar.set_message(text);
                bar.tick();
                true
            }
            Piece::NoStatus => {
                bar.finish_and_clear();
                true
            }
        });
        let outlet = Some(outlet);
        Lines {
            json,
            journal,
            outlet,
        }
    }

    /// Whether lines are JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// One JSON object.
    pub fn json_line(&self, content: &impl Serialize) {
        let line = serde_json::to_string(content).expect("plain data");
        self.put(&outside::json(&line));
    }

    /// A sentence with its time, which tells of `event`.
    pub fn text_line(&self, at: Millis, text: &str, event: &impl Serialize) {
        let line = sentence(at, text);
        match &self.outlet {
            Some(outlet) if self.journal => outlet.entry(Entry::new(line, text, event)),
            _ => self.put(&line),
        }
    }

    /// The status line.
    pub fn status_line(&self, text: &str) {
        if let Some(outlet) = &self.outlet {
            outlet.status(outside::line(text).into_owned());
        }
    }

    /// No status line any more.
    pub fn clear_status(&self) {
        if let Some(outlet) = &self.outlet {
            outlet.no_status();
        }
    }

    /// Lines for people.
    pub fn write(&self, text: &str) {
        self.put(&outside::screen(text, false));
    }

    /// How many lines were lost since this was asked last.
    pub fn lost(&self) -> u64 {
        self.outlet.as_ref().map_or(0, Outlet::lost)
    }

    fn put(&self, text: &str) {
        if let Some(outlet) = &self.outlet {
            outlet.text(text.to_owned());
        }
    }
}

/// What was handed over is written before anything else is said.
impl Drop for Lines {
    fn drop(&mut self) {
        let lost = self.outlet.take().map_or(0, Outlet::end);
        // Standard error may be as full as standard output.
        if lost > 0 && takes_bytes(std::io::stderr().as_fd()) {
            complain(&lost_lines(lost));
        }
    }
}

/// That lines were lost, and why.
pub fn lost_lines(lost: u64) -> String {
    format!("output lost, nobody read it or it could not be written: {lost} lines")
}

/// Whether `text` is written. A reader that went away (a closed pipe) has seen enough: it is no reason to
/// stop managing memory, and nothing is lost. The signal handling ends the run if it should end.
fn goes(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::BrokenPipe,
    }
}

/// Whether a write can go on at once.
fn takes_bytes(to: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
    let ready = poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    ready && asked[0].revents().contains(PollFlags::OUT)
}

/// A sentence with its time: one line, whatever the sentence holds.
fn sentence(at: Millis, text: &str) -> String {
    format!("{:8.3} s  {}", at.0 as f64 / 1000.0, outside::line(text))
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn a_sentence_is_one_line() {
        let text = sentence(Millis(1500), &format!("a  {}", outside::HOSTILE));
        assert!(outside::shows_hostile(&text), "{text:?}");
        assert!(text.starts_with("   1.500 s  a  a"), "{text:?}");
    }

    /// A command's section of docs/json.md, and the keys in its table.
    pub fn documented(command: &str) -> (String, BTreeSet<String>) {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let title = format!("{command}\n");
        let section = guide.split("\n## ").find(|s| s.starts_with(&title));
        let section = section.expect("docs/json.md has a section of the command");
        let keys = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        (section.to_owned(), keys.map(str::to_owned).collect())
    }

    /// The paths of a value's keys.
    pub fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        if let Value::Array(elements) = value {
            let path = format!("{path}[]");
            elements
                .iter()
                .for_each(|element| keys(element, &path, into));
        }
        let Value::Object(fields) = value else {
            return;
        };
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            keys(value, &path, into);
            into.insert(path);
        }
    }

    /// As docs/json.md writes them: `event` and `at_ms` once, others behind
    /// the name of their event.
    pub fn printed(line: &impl Serialize, into: &mut BTreeSet<String>) -> String {
        let mut line = serde_json::to_value(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        let event = fields.remove("event").unwrap();
        assert!(fields.remove("at_ms").is_some_and(|at| at.is_u64()));
        let event = event.as_str().unwrap().to_owned();
        keys(&line, &event, into);
        event
    }
}
