//! How the kernel describes its performance monitoring units.
//!
//! Every unit has a folder under `/sys/bus/event_source/devices`: its number
//! (`type`), where the fields of its event descriptions lie (`format/`), what
//! it can do (`caps/`), events that somebody named (`events/`), and, of a unit
//! that exists on some CPUs only, which (`cpus`). Bit positions differ between
//! generations, so none is written down here: an event is asked for by the
//! names of its terms (`event=0xcd,umask=0x1,ldlat=30`), and the folder says
//! which bits they are.
//!
//! A format file holds a word and ranges of its bits, `config:0-7,32-35`. A
//! value is spread over the ranges from its lowest bit on.

use crate::fs::{FsError, Root, list};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const DEVICES: &str = "sys/bus/event_source/devices";

/// Which word of `perf_event_attr` a field lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `config`.
    Config,
    /// `config1`.
    Config1,
    /// `config2`.
    Config2,
    /// `config3`.
    Config3,
}

/// Where a field of an event description lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    word: Word,
    /// Lowest and highest bit of each range.
    ranges: Vec<(u32, u32)>,
}

/// The words that describe an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `config`, `config1`, `config2`, `config3`.
    pub words: [u64; 4],
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its folder's name.
    pub name: String,
    /// What goes into `perf_event_attr.type`.
    pub kind: u32,
    /// The CPUs that have it; `None` if all do.
    pub cpus: Option<BTreeSet<u32>>,
    formats: BTreeMap<String, Format>,
    caps: BTreeMap<String, String>,
    events: BTreeMap<String, String>,
    folder: PathBuf,
}

/// Why a unit's description is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PmuError {
    /// A file could not be read, or holds something else than it should.
    #[error(transparent)]
    Read(#[from] FsError),
    /// A format file that makes no sense.
    #[error("{}: {text:?} is no format; expected a word and bits, such as config:0-7", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// An event is described by a term that the unit does not have.
    #[error("{}: no {term:?}; this unit cannot be asked for {event:?}", path.display())]
    NoTerm {
        /// The folder of formats.
        path: PathBuf,
        /// The term.
        term: String,
        /// The event's description.
        event: String,
    },
    /// A term's value is no number, or too large for its bits.
    #[error("{}: {term:?} has no room for its value in {event:?}", path.display())]
    Value {
        /// The folder of formats.
        path: PathBuf,
        /// The term.
        term: String,
        /// The event's description.
        event: String,
    },
}

impl Format {
    /// Parses `config:0-7,32-35`.
    pub fn parse(text: &str) -> Option<Format> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            "config3" => Word::Config3,
            _ => return None,
        };
        let ranges = bits
            .split(',')
            .map(|range| {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
                (low <= high && high < 64).then_some((low, high))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Format { word, ranges })
    }

    /// The largest value that fits.
    pub fn max(&self) -> u64 {
        let bits: u32 = self.ranges.iter().map(|(low, high)| high - low + 1).sum();
        1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1)
    }

    /// Writes `value` into its bits. False if it does not fit.
    pub fn put(&self, value: u64, config: &mut Config) -> bool {
        if value > self.max() {
            return false;
        }
        let mut rest = value;
        for (low, high) in &self.ranges {
            let bits = high - low + 1;
            let mask = 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
            let word = &mut config.words[self.word as usize];
            *word = *word & !(mask << low) | (rest & mask) << low;
            rest = rest.checked_shr(bits).unwrap_or(0);
        }
        true
    }
}

impl Pmu {
    /// Reads the unit `name`; `None` if there is no such unit here.
    ///
    /// # Errors
    ///
    /// It is there and cannot be read or understood.
    pub fn read(root: &Root, name: &str) -> Result<Option<Pmu>, PmuError> {
        let folder = format!("{DEVICES}/{name}");
        let Some(kind) = root.number(format!("{folder}/type"))? else {
            return Ok(None);
        };
        let mut formats = BTreeMap::new();
        for (term, text) in texts(root, &format!("{folder}/format"))? {
            let format = Format::parse(&text).ok_or_else(|| PmuError::Format {
                path: root.path(format!("{folder}/format/{term}")),
                text: text.clone(),
            })?;
            formats.insert(term, format);
        }
        Ok(Some(Pmu {
            name: name.to_owned(),
            // The kernel numbers units from zero; a larger one is refused by it.
            kind: u32::try_from(kind).unwrap_or(u32::MAX),
            cpus: root.parse(format!("{folder}/cpus"), list::parse)?,
            formats,
            caps: texts(root, &format!("{folder}/caps"))?,
            events: texts(root, &format!("{folder}/events"))?,
            folder: root.path(&folder),
        }))
    }

    /// The names of all units, sorted.
    ///
    /// # Errors
    ///
    /// The folder is there and cannot be listed.
    pub fn names(root: &Root) -> Result<Vec<String>, FsError> {
        Ok(root.names(DEVICES)?.unwrap_or_default())
    }

    /// Whether an event can be described with this term.
    pub fn has_term(&self, term: &str) -> bool {
        self.formats.contains_key(term)
    }

    /// The largest value of a term; `None` if the unit does not have it.
    pub fn term_max(&self, term: &str) -> Option<u64> {
        self.formats.get(term).map(Format::max)
    }

    /// What a file under `caps` says.
    pub fn cap(&self, name: &str) -> Option<&str> {
        self.caps.get(name).map(String::as_str)
    }

    /// The description of a named event.
    pub fn event(&self, name: &str) -> Option<&str> {
        self.events.get(name).map(String::as_str)
    }

    /// The unit's folder.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// The words that ask for `event`: terms with commas between them, each
    /// with a value or, without one, set to 1.
    ///
    /// # Errors
    ///
    /// A term that this unit does not have, or a value without room.
    pub fn config(&self, event: &str) -> Result<Config, PmuError> {
        let mut config = Config::default();
        let path = || self.folder.join("format");
        for term in event.split(',').filter(|term| !term.is_empty()) {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            };
            // The words themselves may be named, too.
            let words = ["config", "config1", "config2", "config3"];
            if let (Some(word), Some(value)) = (words.iter().position(|w| *w == name), value) {
                config.words[word] = value;
                continue;
            }
            let format = self.formats.get(name).ok_or_else(|| PmuError::NoTerm {
                path: path(),
                term: name.to_owned(),
                event: event.to_owned(),
            })?;
            if !value.is_some_and(|value| format.put(value, &mut config)) {
                return Err(PmuError::Value {
                    path: path(),
                    term: name.to_owned(),
                    event: event.to_owned(),
                });
            }
        }
        Ok(config)
    }
}

/// The files of a folder with their trimmed text; none if there is no folder.
/// What is not text is left out: nothing that is asked for here is.
fn texts(root: &Root, folder: &str) -> Result<BTreeMap<String, String>, FsError> {
    let mut texts = BTreeMap::new();
    for name in root.names(folder)?.unwrap_or_default() {
        let file = format!("{folder}/{name}");
        if root.path(&file).is_dir() {
            continue;
        }
        if let Some(bytes) = root.read(&file)?
            && let Ok(text) = String::from_utf8(bytes)
        {
            texts.insert(name, text.trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
#[path = "pmu_tests.rs"]
mod tests;
