//! The lines of `docs/policy-replay.md`, as the tests write and read them.
//!
//! memtide has its own reader; that the two understand each other is part of the test.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FirstLine {
    /// Where the calls are made.
    pub machine: Machine,
}

/// A machine as far as mempolicy depends on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Nodes that have memory, as a list.
    pub memory_nodes: String,
    /// Nodes that have CPUs, as a list.
    pub cpu_nodes: String,
    /// Nodes that there may ever be, as a list.
    pub possible_nodes: String,
    /// The kernel's version: `6.12`.
    pub kernel: String,
    /// The process's cpuset.mems.
    pub cpuset: String,
    /// The node of the CPU that the process runs on.
    pub run_on: u32,
    /// The kernel's weight table.
    pub weights: BTreeMap<u32, u32>,
    /// Whether the kernel computes it; null before 6.16.
    pub auto: Option<bool>,
    /// Row by row, a row for each possible node.
    pub distances: Vec<Vec<u32>>,
    /// The node that holds the kernel's page of zeros.
    pub zero_page_node: u32,
    /// Whether the process has CAP_SYS_NICE.
    pub capable: bool,
}

/// A 64-bit word, written in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format_args!("{text:?} is no word 0x...")))
    }
}

/// What a mask's pointer points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Mask {
    /// These words, and zeros behind them.
    Words(Vec<Word>),
    /// Something else, in a word.
    Named(NamedMask),
    /// Nothing: it is the null pointer.
    Null,
}

/// See [`Mask::Named`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedMask {
    /// Memory that cannot be read.
    Unreadable,
}

/// A piece of the address space: pages of a region, or an address; with an offset in bytes, and a
/// length in bytes instead of pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name given by `mmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Instead of a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Word>,
    /// Pages into the region.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first: u64,
    /// Bytes added to the address.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// How many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u64,
    /// In bytes, instead of pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call, and who makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Name given by `fork`; none for the first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// What is called.
    #[serde(flatten)]
    pub call: Call,
}

impl From<Call> for Line {
    fn from(call: Call) -> Self {
        Self {
            process: None,
            call,
        }
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// fork(2).
    Fork {
        /// The child's name from now on.
        child: String,
    },
    /// The process ends.
    Exit,
    /// From now on on a CPU of this node.
    RunOn {
        /// Which.
        node: u32,
    },
    /// The process's cgroup gets these cpuset.mems.
    Cpuset {
        /// A list.
        nodes: String,
    },
    /// A write to the weight table.
    Weight {
        /// Whose file.
        node: u32,
        /// What is written.
        text: String,
    },
    /// A write to the table's `auto`.
    Auto {
        /// What is written.
        text: String,
    },
    /// set_mempolicy(2).
    SetMempolicy {
        /// The raw word.
        mode: i64,
        /// What its pointer points to.
        mask: Mask,
        /// As passed.
        maxnode: u64,
    },
    /// mbind(2).
    Mbind {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// The raw word.
        mode: i64,
        /// What its pointer points to.
        mask: Mask,
        /// As passed.
        maxnode: u64,
        /// As passed.
        flags: u32,
    },
    /// set_mempolicy_home_node(2).
    SetMempolicyHomeNode {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// As passed.
        node: u64,
        /// As passed.
        flags: u64,
    },
    /// get_mempolicy(2).
    GetMempolicy {
        /// Whether a place for the mode is given.
        mode: bool,
        /// Whether a place for the mask is given.
        mask: bool,
        /// As passed.
        maxnode: u64,
        /// Where; address 0 if nothing is said.
        #[serde(flatten)]
        place: Place,
        /// As passed.
        flags: u64,
    },
    /// mmap(2) of private anonymous memory at a given address.
    Mmap {
        /// Its name from now on.
        region: String,
        /// Its first byte.
        address: Word,
        /// Its size.
        pages: u64,
    },
    /// munmap(2).
    Munmap {
        /// Where.
        #[serde(flatten)]
        place: Place,
    },
    /// One byte is written to each page.
    Touch {
        /// Where.
        #[serde(flatten)]
        place: Place,
    },
    /// On which nodes pages are.
    Where {
        /// Where.
        #[serde(flatten)]
        place: Place,
    },
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// 0, or a negative error number.
    pub ret: i64,
    /// The word that get_mempolicy(2) wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
    /// The words that get_mempolicy(2) wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Vec<Word>>,
    /// Runs: node (-1 for no page), pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<(i32, u64)>>,
    /// The weight table after a write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<BTreeMap<u32, u32>>,
    /// `auto` after a write to the table, where the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<bool>,
}

/// A machine and what is called on it.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The machine.
    pub machine: Machine,
    /// The calls in order.
    pub calls: Vec<Line>,
}

impl Sequence {
    /// The lines of a file for `memtide policy replay`.
    ///
    /// # Errors
    /// Never; the types have JSON forms.
    pub fn lines(&self) -> Result<Vec<String>> {
        let first = FirstLine {
            machine: self.machine.clone(),
        };
        let mut lines = vec![serde_json::to_string(&first)?];
        for call in &self.calls {
            lines.push(serde_json::to_string(call)?);
        }
        Ok(lines)
    }

    /// Reads such a file.
    ///
    /// # Errors
    /// At the first line that is none of the format's.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let first = lines.next().context("no line")?;
        let first: FirstLine = serde_json::from_str(first).context("line 1")?;
        let parse = |(number, line)| {
            serde_json::from_str(line).with_context(|| format!("line {}", number + 2))
        };
        Ok(Self {
            machine: first.machine,
            calls: lines.enumerate().map(parse).collect::<Result<_>>()?,
        })
    }

    /// Where each region was mapped last before call `before`, for finding a place's address.
    #[must_use]
    pub fn address_of(&self, before: usize, place: &Place) -> Option<u64> {
        let start = match (&place.region, place.address) {
            (_, Some(Word(address))) => address,
            (None, None) => 0,
            (Some(name), None) => self.calls[..before]
                .iter()
                .rev()
                .find_map(|line| match &line.call {
                    Call::Mmap {
                        region, address, ..
                    } if region == name => Some(address.0),
                    _ => None,
                })?,
        };
        Some(
            start
                .wrapping_add(place.first.wrapping_mul(4096))
                .wrapping_add(place.offset),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let lines = [
            r#"{"call":"run_on","node":0}"#,
            r#"{"call":"weight","node":2,"text":"5\n"}"#,
            r#"{"call":"set_mempolicy","mode":32770,"mask":["0x3"],"maxnode":1024}"#,
            r#"{"call":"set_mempolicy","mode":2,"mask":"unreadable","maxnode":1024}"#,
            r#"{"call":"mbind","region":"a","pages":16,"mode":2,"mask":null,"maxnode":64,"flags":0}"#,
            r#"{"call":"get_mempolicy","mode":true,"mask":true,"maxnode":1024,"region":"a","first":3,"flags":2}"#,
            r#"{"call":"mmap","region":"a","address":"0x200000000000","pages":64}"#,
            r#"{"call":"touch","region":"a","first":1,"pages":16}"#,
            r#"{"call":"fork","child":"b"}"#,
            r#"{"process":"b","call":"touch","region":"a","first":1,"pages":16}"#,
            r#"{"process":"b","call":"exit"}"#,
        ];
        for line in lines {
            let call: Line = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&call).unwrap(), line);
        }
    }

    /// Page 3 of a region at 0x2000, one byte on: 0x2000 + 0x3000 + 1.
    #[test]
    fn a_place_is_where_its_region_was_mapped_last() {
        let map = |address| Call::Mmap {
            region: "a".to_owned(),
            address: Word(address),
            pages: 1,
        };
        let machine = r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","possible_nodes":"0",
            "kernel":"6.12","cpuset":"0","run_on":0,"weights":{},"auto":null,"distances":[[10]],"zero_page_node":0,"capable":true}}"#;
        let mut sequence = Sequence::parse(&machine.replace('\n', "")).unwrap();
        sequence.calls = [map(0x1000), map(0x2000), map(0x9000)]
            .map(Line::from)
            .into();
        let place = Place {
            region: Some("a".to_owned()),
            first: 3,
            offset: 1,
            ..Place::default()
        };
        assert_eq!(sequence.address_of(2, &place), Some(0x5001));
        assert_eq!(sequence.address_of(0, &place), None);
        assert_eq!(sequence.address_of(2, &Place::default()), Some(0));
    }
}
