//! Memory totals: `/proc/meminfo` and `nodeN/meminfo`.
//!
//! Both print `Name: 123 kB`, the node's file with `Node N ` in front. The
//! kernel's "kB" are KiB; everything is handed out in bytes, except the
//! `HugePages_*` counts, which carry no unit in the file and none here.

use super::parse::{ParseError, number, quoted, text, words};
use super::{FsError, Result, Root, parse};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    bytes: BTreeMap<String, u64>,
    counts: BTreeMap<String, u64>,
}

impl MemInfo {
    /// The entry in bytes, or `None` if this kernel does not print it.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.bytes.get(name).copied()
    }

    /// An entry without a unit, such as `HugePages_Total`.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }

    /// All memory in bytes.
    pub fn total(&self) -> Option<u64> {
        self.bytes("MemTotal")
    }

    /// Unused memory in bytes.
    pub fn free(&self) -> Option<u64> {
        self.bytes("MemFree")
    }
}

/// Parses either file.
pub fn parse(bytes: &[u8]) -> std::result::Result<MemInfo, ParseError> {
    let mut info = MemInfo::default();
    for (line, content) in parse::lines(bytes) {
        let mut fields = words(content).peekable();
        if fields.next_if_eq(b"Node").is_some() {
            let id = fields.next().unwrap_or_default();
            number(id, line, "node id")?;
        }
        let name = fields
            .next()
            .and_then(|name| name.strip_suffix(b":"))
            .ok_or_else(|| {
                let problem = format!("{} is not \"Name: value\"", quoted(content));
                ParseError::new(line, "entry", problem)
            })?;
        let name = text(name, line, "entry")?;
        let value = number(fields.next().unwrap_or_default(), line, name)?;
        match (fields.next(), fields.next()) {
            (None, None) => info.counts.insert(name.to_owned(), value),
            (Some(b"kB"), None) => {
                let value = value
                    .checked_mul(1024)
                    .ok_or_else(|| ParseError::new(line, name, format!("{value} is too large")))?;
                info.bytes.insert(name.to_owned(), value)
            }
            _ => {
                let problem = format!("{} is not in kB", quoted(content));
                return Err(ParseError::new(line, name, problem));
            }
        };
    }
    Ok(info)
}

/// The whole system.
pub fn system(root: &Root) -> Result<MemInfo> {
    const FILE: &str = "proc/meminfo";
    root.parse(FILE, parse)?.ok_or_else(|| FsError::Missing {
        path: root.path(FILE),
        needed_for: "the system's memory totals; is procfs mounted?",
    })
}

/// One node, or `None` if there is no such node.
pub fn node(root: &Root, node: NodeId) -> Result<Option<MemInfo>> {
    root.parse(format!("sys/devices/system/node/node{node}/meminfo"), parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_give_bytes() {
        let system = parse(b"MemTotal:    4 kB\nHugePages_Total:  3\n").unwrap();
        assert_eq!(system.total(), Some(4096));
        assert_eq!(system.count("HugePages_Total"), Some(3));
        assert_eq!(system.bytes("HugePages_Total"), None);
        assert_eq!(system.free(), None);
        let node = parse(b"Node 2 MemFree:  10 kB\nNode 2 Active(anon):  1 kB\n").unwrap();
        assert_eq!(node.free(), Some(10240));
        assert_eq!(node.bytes("Active(anon)"), Some(1024));
    }

    #[test]
    fn errors_name_line_and_entry() {
        let says = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert_eq!(
            says(b"MemTotal: 4 MB\n"),
            "1: MemTotal: \"MemTotal: 4 MB\" is not in kB"
        );
        assert_eq!(
            says(b"Node x MemTotal: 4 kB"),
            "1: node id: \"x\" is not an unsigned number"
        );
        assert_eq!(
            says(b"MemTotal: 18446744073709551615 kB"),
            "1: MemTotal: 18446744073709551615 is too large"
        );
        assert_eq!(
            says(b"MemTotal 4"),
            "1: entry: \"MemTotal 4\" is not \"Name: value\""
        );
    }
}
