//! What becomes of each command: run here, run by a test in the guests, or not
//! run and why. Nothing is left out without a word.

use super::blocks::words;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Commands of ours that only read, or write what a copy of a machine has.
const ON_A_COPY: [&str; 9] = [
    "config", "doctor", "generate", "policy", "sim", "topology", "trace", "weights", "--help",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    /// Files and folders in which commands run; where a command makes one, it
    /// begins with `memtide`.
    pub given: BTreeMap<String, String>,
    here: BTreeMap<String, Here>,
    guest: BTreeMap<String, Guest>,
    nowhere: BTreeMap<String, String>,
}

/// How a command is run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Here {
    /// Words that make it shorter.
    pub and: String,
    /// On the host, not on a copy of a machine.
    pub host: bool,
}

/// `xtask/tests/book.rs` holds both against the tests that there are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guest {
    test: String,
    #[serde(default)]
    without: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub enum Class {
    Here(Here),
    /// The test in the guests, with what it leaves out.
    Guest(String),
    /// Why it is not run.
    Nowhere(String),
}

impl Classes {
    pub fn read() -> Classes {
        toml::from_str(include_str!("commands.toml")).expect("the classes of commands")
    }

    fn lines(&self) -> impl Iterator<Item = &String> {
        let named = self.guest.keys().chain(self.nowhere.keys());
        self.here.keys().chain(named)
    }

    /// The line that counts for this command.
    fn line(&self, command: &str) -> Option<&String> {
        let command = words(command).join(" ");
        let fits = |line: &&String| match line.strip_suffix(" ...") {
            None => **line == command,
            Some(start) => command
                .strip_prefix(start)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')),
        };
        self.lines().filter(fits).max_by_key(|line| line.len())
    }

    /// None if nobody said what becomes of it.
    pub fn of(&self, command: &str) -> Option<Class> {
        let Some(line) = self.line(command) else {
            let words = words(command);
            let ours = matches!(&words[..], [first, second, ..]
                if first == "memtide" && ON_A_COPY.contains(&second.as_str()));
            return ours.then(|| Class::Here(Here::default()));
        };
        if let Some(here) = self.here.get(line) {
            return Some(Class::Here(here.clone()));
        }
        if let Some(Guest { test, without }) = self.guest.get(line) {
            return Some(Class::Guest(match without.is_empty() {
                true => test.clone(),
                false => format!("{test}, without {}", without.join(" ")),
            }));
        }
        self.nowhere.get(line).cloned().map(Class::Nowhere)
    }

    /// Lines that no command fits, and those that stand in two tables.
    pub fn idle<'a>(&self, commands: impl Iterator<Item = &'a str>) -> Vec<String> {
        let used: BTreeSet<&String> = commands.filter_map(|command| self.line(command)).collect();
        let mut seen = BTreeSet::new();
        self.lines()
            .filter(|line| !used.contains(line) || !seen.insert(*line))
            .cloned()
            .collect()
    }
}
