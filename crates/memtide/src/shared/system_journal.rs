//! Lines of a service in systemd's journal, with the fields that they have as JSON.
//!
//! A service's standard output is a stream to the journal: each line is an entry that is nothing but text.
//! Where that is so, events go to the journal by its own protocol instead. Their keys are those of
//! `docs/json.md`, in capital letters and after `MEMTIDE_`, so that `journalctl MEMTIDE_PID=4711` finds
//! what was done about a process.
//!
//! # Properties
//!
//! - What the journal does not take is written to standard output as everywhere else.
//! - Lines that are for no event (the summary, usage) are plain text still.

use crate::shared::outside;
use log::{Level, Record};
use rustix::fs::fstat;
use serde::Serialize;
use serde_json::Value;
use systemd_journal_logger::JournalLog;

/// What stands before each key.
const PREFIX: &str = "MEMTIDE";

/// An event's line, and its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// With its time, where the journal is not there to have it.
    pub line: String,
    text: String,
    notice: bool,
    fields: Vec<(String, String)>,
}

impl Entry {
    /// `event`, which `line` tells of with its time, and `text` without. It has a key `event`, which says
    /// of something to know that it is a `notice`.
    pub fn new(line: String, text: &str, event: &impl Serialize) -> Entry {
        let event = serde_json::to_value(event).expect("plain data");
        let mut fields = Vec::new();
        flatten(PREFIX, &event, &mut fields);
        Entry {
            line,
            text: outside::line(text).into_owned(),
            notice: event["event"] == "notice",
            fields,
        }
    }

    /// How much it has, in bytes.
    pub fn bytes(&self) -> usize {
        let fields = self.fields.iter();
        let fields: usize = fields.map(|(key, value)| key.len() + value.len()).sum();
        self.line.len() + self.text.len() + fields
    }
}

/// Each value that is not an object, by the keys that lead to it.
fn flatten(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Null => return,
        Value::Object(keys) => {
            for (key, value) in keys {
                let name = format!("{name}_{}", key.to_ascii_uppercase());
                flatten(&name, value, into);
            }
            return;
        }
        Value::String(text) => outside::line(text).into_owned(),
        other => outside::line(&other.to_string()).into_owned(),
    };
    // The message has it.
    if name != "MEMTIDE_TEXT" {
        into.push((name.to_owned(), text));
    }
}

/// The journal.
pub struct SystemJournal(JournalLog);

impl SystemJournal {
    /// The journal, if that is where standard output goes.
    pub fn of_output() -> Option<SystemJournal> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let output = fstat(std::io::stdout()).ok()?;
        if !is_stream(&stream, output.st_dev, output.st_ino) {
            return None;
        }
        let journal = JournalLog::empty().ok()?;
        Some(SystemJournal(
            journal.with_syslog_identifier("memtide".to_owned()),
        ))
    }

    /// Whether it takes `entry`.
    pub fn takes(&self, entry: &Entry) -> bool {
        let fields = entry.fields.iter();
        let fields: Vec<(&str, &str)> = fields.map(|(key, value)| (&**key, &**value)).collect();
        // By the crate's mapping priority 5, notice, and 6, info.
        let level = match entry.notice {
            true => Level::Info,
            false => Level::Debug,
        };
        let mut record = Record::builder();
        record.level(level).target("memtide").key_values(&fields);
        let sent = self
            .0
            .journal_send(&record.args(format_args!("{}", entry.text)).build());
        sent.is_ok()
    }
}

/// Whether `JOURNAL_STREAM` names this file, by its device and its inode.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream == format!("{device}:{inode}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::units::NodeId;
    use memtide_loop::report::{Event, Range};

    #[test]
    fn an_entry_has_the_keys_of_its_event() {
        let event = Event::Moved {
            direction: None,
            dry_run: false,
            range: Range {
                pid: 7,
                address: 4096,
                pages: 3,
            },
            from: NodeId(0),
            to: NodeId(2),
            why: outside::HOSTILE.to_owned(),
        };
        let entry = Entry::new("   1.000 s  x".to_owned(), "x", &event);
        assert_eq!((&*entry.text, entry.notice), ("x", false));
        let field = |name: &str| {
            let found = entry.fields.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        for (name, value) in [
            ("MEMTIDE_EVENT", "moved"),
            ("MEMTIDE_RANGE_PID", "7"),
            ("MEMTIDE_RANGE_PAGES", "3"),
            ("MEMTIDE_DRY_RUN", "false"),
            ("MEMTIDE_TO", "2"),
        ] {
            assert_eq!(field(name), Some(value), "{name}");
        }
        assert_eq!(field("MEMTIDE_DIRECTION"), None);
        assert!(outside::shows_hostile(field("MEMTIDE_WHY").unwrap()));
    }

    #[test]
    fn a_notice_is_one_and_says_it_once() {
        let text = "tiering rests".to_owned();
        let entry = Entry::new(String::new(), &text.clone(), &Event::Notice { text });
        assert!(entry.notice);
        let only = ("MEMTIDE_EVENT".to_owned(), "notice".to_owned());
        assert_eq!(entry.fields, [only]);
    }

    #[test]
    fn another_file_is_not_the_journal() {
        assert!(is_stream("9:123", 9, 123));
        assert!(!is_stream("9:123", 9, 124) && !is_stream("9:1234", 9, 123));
        assert!(!is_stream("", 0, 0));
    }
}
