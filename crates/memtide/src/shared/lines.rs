//! Output that goes on while a command runs: a line for each event, as text
//! with a status line below on a terminal, or as one JSON object a line.

use crate::shared::outside;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memtide_core::units::Millis;
use serde::Serialize;
use std::io::{IsTerminal, Write};

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

/// Where lines go.
pub struct Lines {
    json: bool,
    bar: ProgressBar,
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
        Lines { json, bar }
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

    /// A sentence with its time.
    pub fn text_line(&self, at: Millis, text: &str) {
        self.put(&sentence(at, text));
    }

    /// The status line.
    pub fn status_line(&self, text: &str) {
        self.bar.set_message(outside::line(text).into_owned());
        self.bar.tick();
    }

    /// No status line any more.
    pub fn clear_status(&self) {
        self.bar.finish_and_clear();
    }

    /// Lines for people.
    pub fn write(&self, text: &str) {
        self.put(&outside::screen(text, false));
    }

    /// A reader that went away (a closed pipe) is no reason to stop managing
    /// memory; the signal handling ends the run if it should end.
    fn put(&self, text: &str) {
        self.bar.suspend(|| {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{text}");
            let _ = out.flush();
        });
    }
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
