//! Lists of nodes and CPUs as people write them on a command line.
//!
//! The words are numactl's: `0,2-3` these, `all` every one that may be used,
//! `!1` every one but these, `+0` counted among those that may be used instead
//! of by number. `!` and `+` stand once, in front of the whole list, `!` first.
//!
//! Reading happens twice. [`List::from_str`] knows no machine and refuses what
//! is no list; [`List::among`] knows one and refuses what is not there. Both
//! name the word that is wrong.

use memtide_core::numbers;
use memtide_core::units::NodeId;
use memtide_linux::fs::proc::Process;
use memtide_linux::fs::{FsError, Root, list, node};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// CPU and node ids are below this; nodes below [`NodeId::LIMIT`] besides.
const LARGEST: u32 = 65_535;

/// A list as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    inverted: bool,
    relative: bool,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    All,
    Range(RangeInclusive<u32>),
}

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<List, String> {
        let (inverted, rest) = strip(text, '!');
        let (relative, rest) = strip(rest, '+');
        if rest.is_empty() {
            return Err("the list is empty; write it as 0,2-3 or all".to_owned());
        }
        let items = rest.split(',').map(|word| match word {
            "all" => Ok(Item::All),
            _ => range(word).map(Item::Range),
        });
        Ok(List {
            inverted,
            relative,
            items: items.collect::<Result<_, _>>()?,
        })
    }
}

fn strip(text: &str, mark: char) -> (bool, &str) {
    match text.strip_prefix(mark) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// `3` or `2-5`.
fn range(word: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Err(match word.strip_prefix(['!', '+']) {
            Some(_) => format!("{word:?}: ! and + stand in front of the whole list"),
            None => format!("{word:?} is no number and no range; write the list as 0,2-3"),
        });
    }
    match (numbers::decimal(first), numbers::decimal(last)) {
        (Some(first), Some(last)) if first > last => Err(format!("{word:?} is backwards")),
        (Some(first), Some(last)) if last <= LARGEST => Ok(first..=last),
        _ => Err(format!("{word:?} is larger than any number of that kind")),
    }
}

/// What there is of one kind, nodes or CPUs, on a machine.
#[derive(Clone, Debug)]
pub struct Known {
    /// `node` or `CPU`.
    pub what: &'static str,
    /// Those that exist.
    pub exist: BTreeSet<u32>,
    /// Those of them that serve the purpose ...
    pub serve: BTreeSet<u32>,
    /// ... because they have this: `memory`, `CPUs`.
    pub having: &'static str,
    /// Those that the caller's cpuset allows.
    pub allowed: BTreeSet<u32>,
}

impl Known {
    /// Those that may be used, ascending: `all` and `+N` mean these.
    pub fn usable(&self) -> BTreeSet<u32> {
        self.serve.intersection(&self.allowed).copied().collect()
    }

    /// Why `id` may not be used, if so.
    pub fn check(&self, id: u32) -> Result<(), String> {
        let (what, having) = (self.what, self.having);
        let ids = |ids: &BTreeSet<u32>| list::format(ids.iter().copied());
        if !self.exist.contains(&id) {
            let exist = ids(&self.exist);
            Err(format!(
                "{what} {id} does not exist; the {what}s are {exist}"
            ))
        } else if !self.serve.contains(&id) {
            let serve = ids(&self.serve);
            Err(format!(
                "{what} {id} has no {having}; {what}s with {having}: {serve}"
            ))
        } else if !self.allowed.contains(&id) {
            let allowed = ids(&self.allowed);
            Err(format!("{what} {id} is outside of the cpuset, {allowed}"))
        } else {
            Ok(())
        }
    }
}

impl List {
    /// The ids that the list means among `known`: at least one.
    pub fn among(&self, known: &Known) -> Result<BTreeSet<u32>, String> {
        let usable = known.usable();
        let mut meant = BTreeSet::new();
        for item in &self.items {
            match item {
                Item::All => meant.extend(&usable),
                Item::Range(range) => {
                    for number in range.clone() {
                        meant.insert(self.one(number, known, &usable)?);
                    }
                }
            }
        }
        if self.inverted {
            meant = usable.difference(&meant).copied().collect();
        }
        if meant.is_empty() {
            return Err(format!("the list {self} leaves no {}", known.what));
        }
        Ok(meant)
    }

    fn one(&self, number: u32, known: &Known, usable: &BTreeSet<u32>) -> Result<u32, String> {
        if !self.relative {
            return known.check(number).map(|()| number);
        }
        let nth = usable.iter().nth(number as usize).copied();
        nth.ok_or_else(|| {
            let (what, count) = (known.what, usable.len());
            format!("{what} +{number} does not exist: {count} may be used, counted from +0")
        })
    }

    /// As [`List::among`], for nodes.
    pub fn nodes_among(&self, known: &Known) -> Result<BTreeSet<NodeId>, String> {
        let ids = self.among(known)?;
        Ok(ids.into_iter().map(|id| NodeId(id as u16)).collect())
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .items
            .iter()
            .map(|item| match item {
                Item::All => "all".to_owned(),
                Item::Range(range) if range.start() == range.end() => range.start().to_string(),
                Item::Range(range) => format!("{}-{}", range.start(), range.end()),
            })
            .collect();
        let invert = if self.inverted { "!" } else { "" };
        let relative = if self.relative { "+" } else { "" };
        write!(f, "{invert}{relative}{}", words.join(","))
    }
}

/// The nodes and CPUs of a machine, by what they can serve.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Nodes that pages can go to.
    pub memory_nodes: Known,
    /// Nodes that programs can run on.
    pub cpu_nodes: Known,
    /// The CPUs.
    pub cpus: Known,
    /// The CPUs of each node.
    pub cpus_of: BTreeMap<u32, BTreeSet<u32>>,
}

impl Machine {
    /// Reads what is there, and what this process's cpuset allows of it;
    /// `beyond_cpuset` takes everything as allowed.
    pub fn read(root: &Root, beyond_cpuset: bool) -> Result<Machine, FsError> {
        let sets = node::sets(root)?;
        let ids = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|n| u32::from(n.0)).collect();
        let nodes: BTreeSet<u32> = ids(&sets.online);
        let mut cpus_of = BTreeMap::new();
        for id in &sets.online {
            let cpus = node::node(root, *id)?.map_or_else(BTreeSet::new, |node| node.cpus);
            cpus_of.insert(u32::from(id.0), cpus);
        }
        let cpus: BTreeSet<u32> = cpus_of.values().flatten().copied().collect();
        let status = match beyond_cpuset {
            true => None,
            false => Some(Process::current_status(root)?),
        };
        let (mems, may_run) = status.map_or((None, None), |s| (s.mems_allowed, s.cpus_allowed));
        let allowed = mems.map_or_else(|| nodes.clone(), |mems| ids(&mems));
        let may_run = may_run.unwrap_or_else(|| cpus.clone());
        let runs = |node: &&u32| !cpus_of[*node].is_disjoint(&may_run);
        Ok(Machine {
            memory_nodes: Known {
                what: "node",
                exist: nodes.clone(),
                serve: sets
                    .has_memory
                    .map_or_else(|| nodes.clone(), |nodes| ids(&nodes)),
                having: "memory",
                allowed,
            },
            cpu_nodes: Known {
                what: "node",
                exist: nodes.clone(),
                serve: nodes
                    .iter()
                    .filter(|n| !cpus_of[*n].is_empty())
                    .copied()
                    .collect(),
                having: "CPUs",
                allowed: nodes.iter().filter(runs).copied().collect(),
            },
            cpus: Known {
                what: "CPU",
                exist: cpus.clone(),
                serve: cpus,
                having: "node",
                allowed: may_run,
            },
            cpus_of,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 0 to 3; node 1 has no memory, and the cpuset excludes node 3.
    fn known() -> Known {
        Known {
            what: "node",
            exist: BTreeSet::from([0, 1, 2, 3]),
            serve: BTreeSet::from([0, 2, 3]),
            having: "memory",
            allowed: BTreeSet::from([0, 1, 2]),
        }
    }

    fn among(text: &str) -> Result<Vec<u32>, String> {
        let list: List = text.parse()?;
        assert_eq!(list.to_string(), text);
        list.among(&known()).map(|ids| ids.into_iter().collect())
    }

    #[test]
    fn lists_mean_what_numactl_means() {
        for (text, meant) in [
            ("0", &[0][..]),
            ("0,2", &[0, 2]),
            ("2,0,0", &[0, 2]),
            ("all", &[0, 2]),
            ("!0", &[2]),
            ("!+0", &[2]),
            ("+0", &[0]),
            ("+1", &[2]),
            ("+0-1", &[0, 2]),
        ] {
            assert_eq!(among(text).as_deref(), Ok(meant), "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, why) in [
            ("0,7", "node 7 does not exist; the nodes are 0-3"),
            ("4-9", "node 4 does not exist; the nodes are 0-3"),
            ("!9", "node 9 does not exist; the nodes are 0-3"),
            ("1", "node 1 has no memory; nodes with memory: 0,2-3"),
            ("3", "node 3 is outside of the cpuset, 0-2"),
            (
                "+2",
                "node +2 does not exist: 2 may be used, counted from +0",
            ),
            ("!all", "the list !all leaves no node"),
            ("!0,2", "the list !0,2 leaves no node"),
        ] {
            assert_eq!(among(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_named() {
        for (text, word) in [
            ("", "the list is empty"),
            ("!", "the list is empty"),
            ("x", "\"x\" is no number"),
            ("-1", "\"-1\" is no number"),
            ("0,", "\"\" is no number"),
            ("0,!1", "\"!1\": ! and + stand in front"),
            ("1,+0", "\"+0\": ! and + stand in front"),
            ("3-1", "\"3-1\" is backwards"),
            ("0-", "\"0-\" is no number"),
            ("0 1", "\"0 1\" is no number"),
            ("99999999999", "\"99999999999\" is larger"),
            ("0-65536", "\"0-65536\" is larger"),
        ] {
            let error = text.parse::<List>().unwrap_err();
            assert!(error.starts_with(word), "{text}: {error}");
        }
    }
}
