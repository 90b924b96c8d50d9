//! The service's configuration: what its files say, and where each value comes from.
//!
//! # Shape
//!
//! A main file and drop-ins beside it, in TOML: [`files`] finds and reads them, the drop-ins in the
//! order of their names. [`read`] joins them key by key; the later file wins. What nobody sets has its
//! default. [`Settings`] are the same structs from which the command line is made, so a key has the
//! name, the values and the default of its option.
//!
//! # Properties
//!
//! - A configuration is right as a whole or an error: file, line, column, what is wrong there and,
//!   for a name that nobody knows, the one that is spelled most alike.
//! - Each value knows its place, for `memtide config --show` and for what a reload says.

mod classes;
mod files;
mod read;

// The fuzz target reads no files.
#[cfg_attr(fuzzing, allow(unused_imports))]
pub use files::Files;
#[cfg(any(test, fuzzing))]
pub use read::{Layer, read};

use super::control_args::ControlArgs;
use super::metrics_args::MetricsArgs;
use super::pagers_options::PagersOptions;
use super::weights_options::WeightsOptions;
use memtide_loop::options::{BalanceOptions, Classes, TierOptions, Tiered};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, PathBuf};

/// The commented file that packages install: everything in it is the default.
pub const DEFAULT: &str = include_str!("default.toml");

/// The tables, in the order in which they are shown.
const TABLES: [&str; 7] = [
    "select", "tier", "balance", "weights", "pagers", "metrics", "control",
];
/// And the tables of classes below this one.
const CLASS: &str = "class";
/// Their keys.
const CLASS_KEYS: [&str; 17] = [
    "cgroup",
    "unit",
    "pod_qos",
    "pod_uid",
    "pod_choice",
    "user",
    "executable",
    "priority",
    "leave_alone",
    "pressure",
    "tier",
    "demote",
    "demote_idle",
    "balance",
    "weights",
    "fast.low",
    "fast.high",
];

/// All that can be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Which processes.
    pub select: Select,
    /// How their pages are tiered.
    pub tier: TierOptions,
    /// How those are balanced that are.
    pub balance: BalanceOptions,
    /// The kernel's interleave weights, and how memory is moved to those of classes.
    pub weights: WeightsOptions,
    /// What is told of the pagers of running programs.
    pub pagers: PagersOptions,
    /// Where figures go.
    pub metrics: MetricsArgs,
    /// Who may ask the service.
    pub control: ControlArgs,
    /// Classes of processes, and their shares of fast memory.
    #[serde(skip_serializing_if = "Classes::is_empty")]
    pub class: Classes,
}

/// Which processes are managed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Select {
    /// Every process of the machine.
    pub all: bool,
    /// Those of this cgroup and of those below it.
    #[serde(deserialize_with = "hierarchical")]
    pub cgroup: Option<PathBuf>,
    /// Whether those are tiered whose class does not say, and so with the keys below.
    pub tier: bool,
    /// Whether pages of theirs are demoted.
    pub demote: bool,
    /// Whether those are, too, that nobody touched for long.
    pub demote_idle: bool,
    /// Whether they are balanced between fast nodes.
    pub balance: bool,
}

impl Select {
    /// What tiering does for processes whose class does not say.
    pub fn tiered(&self) -> Tiered {
        Tiered {
            tier: self.tier,
            demote: self.demote,
            demote_idle: self.demote_idle,
        }
    }
}

impl Default for Select {
    fn default() -> Select {
        Select {
            all: true,
            cgroup: None,
            tier: true,
            demote: true,
            demote_idle: true,
            balance: false,
        }
    }
}

/// The path of a cgroup, which may come later.
fn hierarchical<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    let up = path.components().any(|part| part == Component::ParentDir);
    match path.is_absolute() && !up {
        true => Ok(Some(path)),
        false => Err(D::Error::custom(
            "not a path that begins with / and has no \"..\" in it; write it as /sys/fs/cgroup/db.slice",
        )),
    }
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A key with its value and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its table.
    pub table: String,
    /// Its name.
    pub key: String,
    /// Null if it is not set and has no default.
    pub value: Value,
    /// Null of a default.
    pub from: Option<Place>,
}

impl Row {
    /// Its value as it is written in a file.
    pub fn text(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            value => toml::Value::try_from(value)
                .map_or_else(|_| value.to_string(), |value| value.to_string()),
        }
    }

    /// Where its value comes from, for people.
    pub fn origin(&self) -> String {
        match &self.from {
            Some(place) => place.to_string(),
            None => "default".to_owned(),
        }
    }
}

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The values.
    pub settings: Settings,
    /// Where those stand that a file sets, by table and key.
    places: BTreeMap<(String, String), Place>,
}

impl Configuration {
    /// Every key.
    pub fn rows(&self) -> Vec<Row> {
        let settings = serde_json::to_value(&self.settings).expect("plain data");
        let mut rows = Vec::new();
        for table in TABLES {
            let Some(Value::Object(keys)) = settings.get(table) else {
                unreachable!("each table is one of the settings");
            };
            rows.extend(keys.iter().map(|(key, value)| Row {
                table: table.to_owned(),
                key: key.clone(),
                value: value.clone(),
                from: self.place(table, key).cloned(),
            }));
        }
        for name in self.settings.class.keys() {
            let table = classes::table(name);
            let class = &settings[CLASS][name];
            let keys = CLASS_KEYS.map(|key| {
                let value = match key.split_once('.') {
                    Some((table, key)) => &class[table][key],
                    None => &class[key],
                };
                (key, value)
            });
            rows.extend(keys.map(|(key, value)| Row {
                table: table.clone(),
                key: key.to_owned(),
                value: value.clone(),
                from: self.place(&table, key).cloned(),
            }));
        }
        rows
    }

    /// Where a file sets `key`.
    pub fn place(&self, table: &str, key: &str) -> Option<&Place> {
        self.places.get(&(table.to_owned(), key.to_owned()))
    }

    /// Where a file sets `key` of a class.
    #[cfg_attr(fuzzing, allow(dead_code))]
    pub fn class_place(&self, name: &str, key: &str) -> Option<&Place> {
        self.place(&classes::table(name), key)
    }

    /// Whether the shares of classes fit a machine with so many bytes of fast memory.
    ///
    /// # Errors
    /// What does not, with its place.
    pub fn fits(&self, fast: u64) -> anyhow::Result<()> {
        let place = |table: &str, key: &str| self.place(table, key).cloned();
        classes::fit(&self.settings, &place, Some(fast))
    }

    /// A line for each value that is another one in `next`.
    pub fn changes(&self, next: &Configuration) -> Vec<String> {
        let key = |row: &Row| (row.table.clone(), row.key.clone());
        let mut old: BTreeMap<_, _> = self
            .rows()
            .into_iter()
            .map(|row| (key(&row), row))
            .collect();
        let mut changes = Vec::new();
        for new in next.rows() {
            let was = old.remove(&key(&new));
            let same = match &was {
                Some(was) => was.value == new.value,
                // Of a class that is new.
                None => new.value.is_null() || new.from.is_none(),
            };
            if !same {
                let was = was.map_or("nothing".to_owned(), |was| was.text());
                let Row { table, key, .. } = &new;
                let line = format!(
                    "{table}.{key} was {was}, is {} ({})",
                    new.text(),
                    new.origin()
                );
                changes.push(line);
            }
        }
        // The keys of classes that are gone.
        let gone = old.values();
        let gone = gone.filter(|row| !row.value.is_null() && row.from.is_some());
        let gone = gone.map(|row| {
            let Row { table, key, .. } = row;
            format!("{table}.{key} was {}, is nothing", row.text())
        });
        changes.extend(gone);
        changes
    }
}

/// Any text as the main file and as a drop-in, for the fuzz target: values that can be shown and read
/// again, or an error of one line that begins with a place.
#[cfg(fuzzing)]
pub fn fuzz(text: &str) {
    let (main, drop_in) = text.split_once('\0').unwrap_or((text, ""));
    let layer = |file: &str, text: &str| Layer {
        file: file.to_owned(),
        text: text.to_owned(),
    };
    match read(&[layer("main.toml", main), layer("drop-in.toml", drop_in)]) {
        Ok(configuration) => {
            let shown = toml::to_string(&configuration.settings).expect("a table");
            assert_eq!(
                toml::from_str::<Settings>(&shown).expect("what was shown"),
                configuration.settings
            );
            assert!(configuration.changes(&configuration).is_empty());
        }
        Err(error) => {
            let said = super::outside::message(&super::outside::causes(&error));
            assert!(said.contains(".toml:") && !said.contains('\n'), "{said}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Configuration {
        let file = "a.toml".to_owned();
        let text = text.to_owned();
        read(&[Layer { file, text }]).unwrap()
    }

    /// The lines of the commented default that set something: `#key = value`, no blank before the key.
    fn uncommented() -> String {
        let bare = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with([' ', '#']) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        DEFAULT.lines().map(bare).collect()
    }

    #[test]
    fn the_default_file_sets_nothing_and_shows_every_key_with_its_default() {
        assert_eq!(of(DEFAULT), Configuration::default());
        // These have no default; the file has an example of each.
        let examples = [
            ("select", "cgroup"),
            ("tier", "demote_idle"),
            ("tier", "demote_idle_only"),
            ("tier", "tiers"),
            ("balance", "tasks"),
            ("balance", "rate"),
            ("weights", "table"),
            ("metrics", "listen"),
            ("metrics", "file"),
            ("metrics", "socket"),
            ("control", "group"),
        ];
        // What is left out here are classes, too.
        let mut table = String::new();
        let text: String = uncommented()
            .lines()
            .filter(|line| {
                if let Some(name) = line.strip_prefix('[') {
                    table = name.trim_end_matches(']').to_owned();
                }
                let example = |(of, key): &(&str, &str)| {
                    *of == table && line.starts_with(&format!("{key} ="))
                };
                !table.starts_with("class.") && !examples.iter().any(example)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let configuration = of(&text);
        assert_eq!(configuration.settings, Settings::default());
        for row in configuration.rows() {
            match examples.contains(&(row.table.as_str(), row.key.as_str())) {
                true => assert!(uncommented().contains(&format!("\n{} = ", row.key))),
                false => assert!(row.from.is_some(), "{}.{} is missing", row.table, row.key),
            }
        }
        for key in CLASS_KEYS.into_iter().filter(|key| *key != "pressure") {
            assert!(uncommented().contains(&format!("\n{key} = ")), "{key}");
        }
        // The examples are right, too; only they select twice.
        let all = of(&uncommented().replace("\nall = true\n", "\n"));
        assert_eq!(all.settings.class.len(), 4);
        assert!(all.settings.class["backup"].leave_alone);
    }

    #[test]
    fn a_change_is_a_line_with_both_values_and_the_place() {
        let one = of("[tier]\nrate_limit = '1GiB'\nexplain = true\n");
        let two = of("[tier]\nrate_limit = '1 GiB'\n[metrics]\nfile = '/a \"b\"'\n");
        assert_eq!(
            one.changes(&two),
            [
                "tier.explain was true, is false (default)",
                "metrics.file was nothing, is '/a \"b\"' (a.toml:4:8)"
            ]
        );
        assert!(two.changes(&two).is_empty());
        let share = of("[class.db]\ncgroup = '/db'\nfast.high = '50%'\n");
        let less = of("[class.db]\ncgroup = '/db'\nfast.high = '40%'\n");
        assert_eq!(
            share.changes(&less),
            ["class.db.fast.high was \"50%\", is \"40%\" (a.toml:3:13)"]
        );
        assert_eq!(of("").changes(&share).len(), 2);
        assert_eq!(
            share.changes(&of("")),
            [
                "class.db.cgroup was \"/db\", is nothing",
                "class.db.fast.high was \"50%\", is nothing"
            ]
        );
    }
}
