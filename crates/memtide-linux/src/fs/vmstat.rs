//! Event and page counters: `/proc/vmstat` and `nodeN/vmstat`.
//!
//! The set of names differs from kernel to kernel: `pgpromote_success` came
//! late, `pgdemote_proactive` later. So counters are looked up by the name
//! the kernel uses, and a name that is not there is `None`: unknown, which
//! is not the same as no event.

use super::parse::{ParseError, number, quoted, text, words};
use super::{FsError, Result, Root, parse};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// One reading of a counter file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStat(BTreeMap<String, u64>);

impl VmStat {
    /// The counter, or `None` if this kernel does not have it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// By how much the counter grew since `earlier`; `None` if either lacks
    /// it. Counters wrap around, so the difference does as well.
    pub fn since(&self, earlier: &VmStat, name: &str) -> Option<u64> {
        Some(self.get(name)?.wrapping_sub(earlier.get(name)?))
    }

    /// All counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// Parses lines of `name value`.
pub fn parse(bytes: &[u8]) -> std::result::Result<VmStat, ParseError> {
    let mut counters = BTreeMap::new();
    for (line, content) in parse::lines(bytes) {
        let mut fields = words(content);
        let (Some(name), Some(value), None) = (fields.next(), fields.next(), fields.next()) else {
            let problem = format!("{} is not \"name value\"", quoted(content));
            return Err(ParseError::new(line, "counter", problem));
        };
        let name = text(name, line, "counter")?;
        counters.insert(name.to_owned(), number(value, line, name)?);
    }
    Ok(VmStat(counters))
}

/// The whole system's counters.
pub fn system(root: &Root) -> Result<VmStat> {
    const FILE: &str = "proc/vmstat";
    root.parse(FILE, parse)?.ok_or_else(|| FsError::Missing {
        path: root.path(FILE),
        needed_for: "the system's memory counters; is procfs mounted?",
    })
}

/// One node's counters, or `None` if there is no such node.
pub fn node(root: &Root, node: NodeId) -> Result<Option<VmStat>> {
    root.parse(format!("sys/devices/system/node/node{node}/vmstat"), parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_kept_and_absent_ones_are_none() {
        let stat = parse(b"pgpromote_success 12\nnr_from_the_future 7\n").unwrap();
        assert_eq!(stat.get("pgpromote_success"), Some(12));
        assert_eq!(stat.get("nr_from_the_future"), Some(7));
        assert_eq!(stat.get("pgdemote_proactive"), None);
        assert_eq!(stat.iter().count(), 2);
    }

    #[test]
    fn differences_wrap_and_need_both_sides() {
        let earlier = parse(b"a 18446744073709551615\n").unwrap();
        let later = parse(b"a 4\nb 9\n").unwrap();
        // From 2^64 - 1 to 4 in steps of one: five steps.
        assert_eq!(later.since(&earlier, "a"), Some(5));
        assert_eq!(later.since(&earlier, "b"), None);
    }

    #[test]
    fn errors_name_line_and_counter() {
        assert_eq!(
            parse(b"a 1\nnuma_hit many\n").unwrap_err().to_string(),
            "2: numa_hit: \"many\" is not an unsigned number"
        );
        assert_eq!(
            parse(b"a\n").unwrap_err().to_string(),
            "1: counter: \"a\" is not \"name value\""
        );
    }
}
