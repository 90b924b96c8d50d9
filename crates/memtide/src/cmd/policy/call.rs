//! One line of a replay as a call.
//!
//! The format is `docs/policy-replay.md`. Numbers go to the model as the
//! system call would get them: a mode word is 32 bits, whatever its sign in
//! the line; addresses and lengths wrap around at 2^64.

use super::fields::{Fields, Result, word};
use crate::shared::outside::{outside, quoted};
use memtide_core::mempolicy::{Family, Member, Query, RawMask};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use serde_json::Value;
use std::collections::BTreeMap;

/// A piece of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

impl Range {
    /// The pages that a range of whole pages names: the first, and how many.
    pub fn pages(self, page_size: u64) -> (u64, u64) {
        (self.start / page_size, self.length.div_ceil(page_size))
    }
}

/// A call, and the process that makes it; for what no process does, the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub process: Member,
    /// What.
    pub call: Call,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in docs/policy-replay.md
pub enum Call {
    Fork {
        child: String,
    },
    Exit,
    RunOn {
        node: NodeId,
    },
    Cpuset {
        nodes: NodeMask,
    },
    Weight {
        node: NodeId,
        text: String,
    },
    Auto {
        text: String,
    },
    SetMempolicy {
        mode: u32,
        mask: RawMask,
        maxnode: u64,
    },
    Mbind {
        range: Range,
        mode: u32,
        mask: RawMask,
        maxnode: u64,
        flags: u32,
    },
    SetMempolicyHomeNode {
        range: Range,
        node: u64,
        flags: u64,
    },
    GetMempolicy(Query),
    Mmap {
        range: Range,
    },
    Munmap {
        range: Range,
    },
    Touch {
        range: Range,
    },
    Where {
        range: Range,
    },
}

/// Names of regions that are kept; as many as mappings that Linux gives a
/// process by default.
const MOST_REGIONS: usize = 65_530;

/// Processes that there may be at once.
const MOST_PROCESSES: usize = 16;
/// What the first process goes by.
const FIRST: &str = "";

/// What the names in a replay mean.
#[derive(Debug)]
pub struct Names {
    page_size: u64,
    /// Where each region was mapped last.
    regions: BTreeMap<String, u64>,
    /// The processes that have not ended.
    processes: BTreeMap<String, Member>,
}

impl Names {
    /// No region yet, and one process.
    pub fn new(page_size: u64) -> Names {
        Names {
            page_size,
            regions: BTreeMap::new(),
            processes: BTreeMap::from([(FIRST.to_owned(), Family::FIRST)]),
        }
    }

    /// Reads a call.
    pub fn read(&mut self, line: &str) -> Result<Line> {
        let mut fields = Fields::parse(line)?;
        let name = fields.text("call")?;
        fields.is(&outside(&name));
        let ours = matches!(name.as_str(), "cpuset" | "weight" | "auto");
        let (of, process) = match ours {
            true => (FIRST.to_owned(), Family::FIRST),
            false => self.process(&mut fields)?,
        };
        let call = self.call(&name, &mut fields)?;
        fields.end()?;
        if call == Call::Exit {
            self.processes.remove(&of);
        }
        Ok(Line { process, call })
    }

    fn call(&mut self, name: &str, fields: &mut Fields) -> Result<Call> {
        Ok(match name {
            "fork" => self.fork(fields)?,
            "exit" => Call::Exit,
            "run_on" => Call::RunOn {
                node: node(fields)?,
            },
            "cpuset" => Call::Cpuset {
                nodes: some_nodes(fields, "nodes")?,
            },
            "weight" => Call::Weight {
                node: node(fields)?,
                text: fields.text("text")?,
            },
            "auto" => Call::Auto {
                text: fields.text("text")?,
            },
            "set_mempolicy" => Call::SetMempolicy {
                mode: mode(fields)?,
                mask: mask(fields)?,
                maxnode: fields.number("maxnode")?,
            },
            "mbind" => Call::Mbind {
                range: self.range(fields)?,
                mode: mode(fields)?,
                mask: mask(fields)?,
                maxnode: fields.number("maxnode")?,
                flags: fields.small("flags")?,
            },
            "set_mempolicy_home_node" => Call::SetMempolicyHomeNode {
                range: self.range(fields)?,
                node: fields.number("node")?,
                flags: fields.number("flags")?,
            },
            "get_mempolicy" => Call::GetMempolicy(Query {
                mode: fields.truth("mode")?,
                mask: fields.truth("mask")?,
                maxnode: fields.number("maxnode")?,
                addr: self.start(fields)?.unwrap_or(0),
                flags: fields.number("flags")?,
            }),
            "mmap" => Call::Mmap {
                range: self.map(fields)?,
            },
            "munmap" => Call::Munmap {
                range: self.range(fields)?,
            },
            "touch" => Call::Touch {
                range: self.range(fields)?,
            },
            "where" => Call::Where {
                range: self.range(fields)?,
            },
            _ => return fields.wrong("call", "no call that is known here"),
        })
    }

    /// A child is called `name` from now on.
    pub fn born(&mut self, name: String, child: Member) {
        self.processes.insert(name, child);
    }

    /// Takes the name of a process, and gives it with its number.
    fn process(&self, fields: &mut Fields) -> Result<(String, Member)> {
        let given = fields.has("process");
        let name = match given {
            true => fields.text("process")?,
            false => FIRST.to_owned(),
        };
        let known = self.processes.get(&name);
        match known.filter(|_| given == (name != FIRST)) {
            Some(&process) => Ok((name, process)),
            None if given => fields.wrong(
                "process",
                &format!("no process is called {}", quoted(&name)),
            ),
            None => fields.wrong("process", "the first process has ended"),
        }
    }

    fn fork(&self, fields: &mut Fields) -> Result<Call> {
        let child = fields.text("child")?;
        if child == FIRST || self.processes.contains_key(&child) {
            return fields.wrong("child", &format!("{} is not a new name", quoted(&child)));
        }
        if self.processes.len() == MOST_PROCESSES {
            return fields.wrong(
                "child",
                &format!("more than {MOST_PROCESSES} processes at once"),
            );
        }
        Ok(Call::Fork { child })
    }

    fn map(&mut self, fields: &mut Fields) -> Result<Range> {
        let name = fields.text("region")?;
        let start = fields.must("address", ADDRESS, word)?;
        let pages = fields.number("pages")?;
        if self.regions.len() == MOST_REGIONS && !self.regions.contains_key(&name) {
            return fields.wrong("region", &format!("more than {MOST_REGIONS} names"));
        }
        self.regions.insert(name, start);
        let length = pages.wrapping_mul(self.page_size);
        Ok(Range { start, length })
    }

    /// Where a region or an address begins, with all that is added to it.
    fn start(&self, fields: &mut Fields) -> Result<Option<u64>> {
        let base = match (fields.has("region"), fields.has("address")) {
            (false, false) => None,
            (false, true) => Some(fields.must("address", ADDRESS, word)?),
            (true, true) => return fields.wrong("address", "there is a region as well"),
            (true, false) => {
                let name = fields.text("region")?;
                match self.regions.get(&name) {
                    Some(start) => Some(*start),
                    None => {
                        return fields
                            .wrong("region", &format!("no line above maps {}", quoted(&name)));
                    }
                }
            }
        };
        let first = fields.number_or_0("first")?;
        let offset = fields.number_or_0("offset")?;
        let add = first.wrapping_mul(self.page_size).wrapping_add(offset);
        Ok(base.map(|base| base.wrapping_add(add)))
    }

    fn range(&self, fields: &mut Fields) -> Result<Range> {
        let Some(start) = self.start(fields)? else {
            return fields.wrong("region", "missing; give a region or an address");
        };
        let length = match (fields.has("pages"), fields.has("length")) {
            (true, true) => return fields.wrong("length", "there are pages as well"),
            (false, true) => fields.number("length")?,
            _ => fields.number_or_0("pages")?.wrapping_mul(self.page_size),
        };
        Ok(Range { start, length })
    }
}

const ADDRESS: &str = "an address such as \"0x200000000000\"";

fn node(fields: &mut Fields) -> Result<NodeId> {
    fields.must("node", "a node from 0 to 1023", |value| {
        let id = u16::try_from(value.as_u64()?).ok()?;
        (id < NodeId::LIMIT).then_some(NodeId(id))
    })
}

/// Takes a node list.
pub fn nodes(fields: &mut Fields, name: &str) -> Result<NodeMask> {
    fields.must(name, "a node list such as \"0,2-3\"", node_list)
}

/// Takes a node list that is not empty.
fn some_nodes(fields: &mut Fields, name: &str) -> Result<NodeMask> {
    let nodes = nodes(fields, name)?;
    match nodes.is_empty() {
        true => fields.wrong(
            name,
            "no node; a cpuset without its own nodes is not modelled",
        ),
        false => Ok(nodes),
    }
}

/// A node list.
pub fn node_list(value: &Value) -> Option<NodeMask> {
    value.as_str()?.parse().ok()
}

fn mode(fields: &mut Fields) -> Result<u32> {
    fields.must("mode", "a number of 32 bits", |value| {
        let mode = value.as_i64()?;
        let fits = i64::from(i32::MIN) <= mode && mode <= i64::from(u32::MAX);
        fits.then_some(mode as u32)
    })
}

fn mask(fields: &mut Fields) -> Result<RawMask> {
    let what = "a list of words such as [\"0x3\"], null or \"unreadable\"";
    fields.must("mask", what, |value| match value {
        Value::Null => Some(RawMask::Null),
        Value::String(text) if text == "unreadable" => Some(RawMask::Unreadable),
        Value::Array(words) => Some(RawMask::Words(
            words.iter().map(word).collect::<Option<_>>()?,
        )),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::new(4096);
        let map = r#"{"call":"mmap","region":"a","address":"0x10000","pages":4}"#;
        names.read(map).unwrap();
        names
    }

    fn error(line: &str) -> String {
        names().read(line).unwrap_err().to_string()
    }

    /// Page 2 and 8 bytes into a region at 0x10000: 0x10000 + 0x2000 + 8.
    #[test]
    fn a_range_is_pages_of_a_region_or_bytes_from_an_address() {
        let touch = |place: &str| {
            let line = format!(r#"{{"call":"touch",{place}}}"#);
            names().read(&line).unwrap().call
        };
        let range = |start, length| Call::Touch {
            range: Range { start, length },
        };
        assert_eq!(
            touch(r#""region":"a","first":2,"pages":3,"offset":8"#),
            range(0x12008, 0x3000)
        );
        assert_eq!(
            touch(r#""address":"0x7000","length":18446744073709551615"#),
            range(0x7000, u64::MAX)
        );
        assert_eq!(touch(r#""region":"a""#), range(0x10000, 0));
    }

    #[test]
    fn a_mode_word_is_32_bits_with_or_without_a_sign() {
        let read = |mode: &str| {
            let line = format!(
                r#"{{"call":"set_mempolicy","mode":{mode},"mask":"unreadable","maxnode":0}}"#
            );
            names().read(&line).map(|line| line.call)
        };
        let with = |mode| {
            Ok(Call::SetMempolicy {
                mode,
                mask: RawMask::Unreadable,
                maxnode: 0,
            })
        };
        assert_eq!(read("-1"), with(u32::MAX));
        assert_eq!(read("4294967295"), with(u32::MAX));
        assert_eq!(read("32770"), with(0x8002));
        assert!(read("4294967296").is_err());
    }

    #[test]
    fn errors_name_the_call_the_field_and_what_it_should_be() {
        let cases = [
            (r#"{"region":"a"}"#, r#"line: "call": missing; give a text"#),
            (
                r#"{"call":"jump"}"#,
                r#"jump: "call": no call that is known here"#,
            ),
            (
                r#"{"call":"touch","region":"b"}"#,
                r#"touch: "region": no line above maps "b""#,
            ),
            (
                r#"{"call":"touch","pages":1}"#,
                r#"touch: "region": missing; give a region or an address"#,
            ),
            (
                r#"{"call":"touch","region":"a","address":"0x0"}"#,
                r#"touch: "address": there is a region as well"#,
            ),
            (
                r#"{"call":"touch","region":"a","length":1,"pages":1}"#,
                r#"touch: "length": there are pages as well"#,
            ),
            (
                r#"{"call":"run_on","node":1024}"#,
                r#"run_on: "node": 1024 is not a node from 0 to 1023"#,
            ),
            (
                r#"{"call":"cpuset","nodes":"0,x"}"#,
                r#"cpuset: "nodes": "0,x" is not a node list such as "0,2-3""#,
            ),
            (
                r#"{"call":"set_mempolicy","mode":0,"mask":[3],"maxnode":0}"#,
                r#"set_mempolicy: "mask": [3] is not a list of words such as ["0x3"], null or "unreadable""#,
            ),
            (
                r#"{"call":"touch","region":"a","process":"b"}"#,
                r#"touch: "process": no process is called "b""#,
            ),
            (
                r#"{"call":"fork"}"#,
                r#"fork: "child": missing; give a text"#,
            ),
            (
                r#"{"call":"fork","child":""}"#,
                r#"fork: "child": "" is not a new name"#,
            ),
            (
                r#"{"call":"cpuset","nodes":"0","process":"b"}"#,
                r#"cpuset: "process": unknown"#,
            ),
            (
                r#"{"call":"auto","text":"1","node":0}"#,
                r#"auto: "node": unknown"#,
            ),
        ];
        for (line, text) in cases {
            assert_eq!(error(line), text);
        }
    }

    /// Reads a line, and lets children be.
    fn read(names: &mut Names, line: &str) -> Result<Member> {
        let line = names.read(line)?;
        if let Call::Fork { child } = line.call {
            names.born(child, Family::FIRST);
        }
        Ok(line.process)
    }

    #[test]
    fn a_process_has_its_name_until_it_ends() {
        let mut names = names();
        let mut who = |line: &str| read(&mut names, line);
        let fork = r#"{"call":"fork","child":"b"}"#;
        assert!(who(fork).is_ok());
        assert!(who(fork).is_err());
        assert!(who(r#"{"call":"exit","process":"b"}"#).is_ok());
        assert!(who(r#"{"call":"exit","process":"b"}"#).is_err());
        assert!(who(fork).is_ok());
        assert!(who(r#"{"call":"run_on","process":"b","node":0}"#).is_ok());
        assert!(who(r#"{"call":"exit","process":""}"#).is_err());
        assert!(who(r#"{"call":"exit"}"#).is_ok());
        let ended = who(r#"{"call":"exit"}"#).unwrap_err().to_string();
        assert_eq!(ended, r#"exit: "process": the first process has ended"#);
        // What belongs to no process goes on.
        assert!(who(r#"{"call":"cpuset","nodes":"0"}"#).is_ok());
    }

    #[test]
    fn sixteen_processes_at_once() {
        let mut names = names();
        let mut fork = |n| read(&mut names, &format!(r#"{{"call":"fork","child":"{n}"}}"#));
        assert!((1..16).all(|n| fork(n).is_ok()));
        let error = fork(16).unwrap_err().to_string();
        assert_eq!(error, r#"fork: "child": more than 16 processes at once"#);
    }
}
