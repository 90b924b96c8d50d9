//! `/proc/PID/numa_maps`: the policy of each mapping and where its pages are.
//!
//! A line is an address, a policy and words: `file=...`, `heap`, `stack`,
//! `huge`, counts such as `anon=3`, one `N<node>=<pages>` for each node that
//! holds pages, and `kernelpagesize_kB`. It has no end address: join with
//! `maps` by the start. A mapping without pages has no counts at all.
//!
//! A policy is `mode[=flags][:nodes]`, and two modes hold a space:
//! `prefer (many)` and `weighted interleave`. Of the flags, older kernels
//! know `static` and `relative` only and print the balancing flag, alone, as
//! an equals sign with nothing behind it; beside another flag they hide it.
//!
//! `N<node>` counts pages of `kernelpagesize_kB`: huge pages for hugetlb,
//! base pages for everything else, transparent huge pages included.

use crate::fs::list::{node, nodes_at_line};
use crate::fs::parse::{ParseError, Parsed, hex, lines, number, quoted, text, unescape};
use memtide_core::units::NodeId;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The placement rule of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// None of its own.
    Default,
    /// The node of the CPU that touches the page first.
    Local,
    /// One node first, any other after.
    Prefer,
    /// Several nodes first, any other after.
    PreferMany,
    /// These nodes only.
    Bind,
    /// These nodes in turn.
    Interleave,
    /// These nodes in turn, by weight.
    WeightedInterleave,
}

/// A mapping's policy as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The placement rule.
    pub mode: Mode,
    /// Node numbers are absolute and survive a change of the cpuset.
    pub static_nodes: bool,
    /// Node numbers count within the cpuset.
    pub relative_nodes: bool,
    /// NUMA balancing may move pages among the nodes; `None` where this
    /// kernel would hide it.
    pub balancing: Option<bool>,
    /// The nodes, empty for modes without any.
    pub nodes: BTreeSet<NodeId>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaMapping {
    /// Address of the mapping's first byte.
    pub start: u64,
    /// The policy in force: the mapping's own, or the process's.
    pub policy: Policy,
    /// The file that is mapped.
    pub file: Option<PathBuf>,
    /// The process's heap.
    pub heap: bool,
    /// The main thread's stack.
    pub stack: bool,
    /// Pages of hugetlbfs.
    pub huge: bool,
    /// Anonymous pages.
    pub anon: Option<u64>,
    /// Pages of a file that are mapped.
    pub mapped: Option<u64>,
    /// Pages a node, ascending by node; nodes without pages are left out.
    pub pages: Vec<(NodeId, u64)>,
    /// Size in bytes of the pages that are counted; `None` without pages.
    pub page_size: Option<u64>,
}

impl NumaMapping {
    /// Bytes on `node`, or `None` if the line has no page size.
    pub fn bytes_on(&self, node: NodeId) -> Option<u64> {
        let pages = self.pages.iter().find(|(id, _)| *id == node);
        pages
            .map_or(0, |(_, pages)| *pages)
            .checked_mul(self.page_size?)
    }
}

/// Parses the file.
pub fn parse(bytes: &[u8]) -> Result<Vec<NumaMapping>, ParseError> {
    lines(bytes)
        .map(|(line, content)| parse_line(content, line))
        .collect()
}

fn parse_line(content: &[u8], line: usize) -> Parsed<NumaMapping> {
    // Paths are printed with their spaces escaped, so a space separates.
    let mut words = content
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
        .peekable();
    let start = hex(words.next().unwrap_or_default(), line, "address")?;
    let first = words.next().unwrap_or_default();
    let second = words.next_if(|word| {
        (first == b"prefer" && word.starts_with(b"(many)"))
            || (first == b"weighted" && word.starts_with(b"interleave"))
    });
    let mut mapping = NumaMapping {
        start,
        policy: policy(first, second, line)?,
        file: None,
        heap: false,
        stack: false,
        huge: false,
        anon: None,
        mapped: None,
        pages: Vec::new(),
        page_size: None,
    };
    for word in words {
        let Some(equals) = word.iter().position(|byte| *byte == b'=') else {
            match word {
                b"heap" => mapping.heap = true,
                b"stack" => mapping.stack = true,
                b"huge" => mapping.huge = true,
                _ => {}
            }
            continue;
        };
        let (name, value) = (&word[..equals], &word[equals + 1..]);
        match name {
            b"file" => mapping.file = Some(unescape(value)),
            b"anon" => mapping.anon = Some(number(value, line, "anon")?),
            b"mapped" => mapping.mapped = Some(number(value, line, "mapped")?),
            b"kernelpagesize_kB" => {
                let kib = number(value, line, "kernelpagesize_kB")?;
                let bytes = kib.checked_mul(1024).ok_or_else(|| {
                    ParseError::new(line, "kernelpagesize_kB", format!("{kib} is too large"))
                })?;
                mapping.page_size = Some(bytes);
            }
            [b'N', id @ ..] if !id.is_empty() => {
                let node = node(number(id, line, "node")?, line, "node")?;
                mapping
                    .pages
                    .push((node, number(value, line, text(name, line, "node")?)?));
            }
            _ => {}
        }
    }
    mapping.pages.sort_unstable();
    if let Some(pair) = mapping.pages.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let problem = format!("node {} is counted twice", pair[0].0);
        return Err(ParseError::new(line, "node", problem));
    }
    Ok(mapping)
}

/// `first` is the mode's first word, with flags and nodes unless `second`,
/// the mode's second word, carries them.
fn policy(first: &[u8], second: Option<&[u8]>, line: usize) -> Parsed<Policy> {
    let refuse = |what: &[u8], problem: &str| {
        ParseError::new(line, "policy", format!("{} {problem}", quoted(what)))
    };
    let tail = second.unwrap_or(first);
    let end = tail
        .iter()
        .position(|byte| matches!(byte, b'=' | b':'))
        .unwrap_or(tail.len());
    let (name, rest) = tail.split_at(end);
    let mode = match (second.is_some(), first, name) {
        (true, b"prefer", b"(many)") => Mode::PreferMany,
        (true, b"weighted", b"interleave") => Mode::WeightedInterleave,
        (false, _, b"default") => Mode::Default,
        (false, _, b"local") => Mode::Local,
        (false, _, b"prefer") => Mode::Prefer,
        (false, _, b"bind") => Mode::Bind,
        (false, _, b"interleave") => Mode::Interleave,
        _ => return Err(refuse(tail, "is no policy known here")),
    };
    let (flags, nodes) = match rest.iter().position(|byte| *byte == b':') {
        Some(colon) => (&rest[..colon], &rest[colon + 1..]),
        None => (rest, &rest[rest.len()..]),
    };
    let mut policy = Policy {
        mode,
        static_nodes: false,
        relative_nodes: false,
        balancing: Some(false),
        nodes: nodes_at_line(nodes, line, "policy's nodes")?,
    };
    let Some(flags) = flags.strip_prefix(b"=") else {
        return Ok(policy);
    };
    policy.balancing = flags.is_empty().then_some(true);
    for flag in flags.split(|byte| *byte == b'|') {
        match flag {
            b"" => {}
            b"static" => policy.static_nodes = true,
            b"relative" => policy.relative_nodes = true,
            b"balancing" => policy.balancing = Some(true),
            other => return Err(refuse(other, "is no policy flag known here")),
        }
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn policy_of(text: &str) -> Policy {
        let line = format!("1000 {text} anon=1 N0=1 kernelpagesize_kB=4\n");
        parse(line.as_bytes()).unwrap().remove(0).policy
    }

    #[test]
    fn every_mode_the_kernel_prints() {
        let nodes = |ids: &[u16]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        for (text, mode, ids) in [
            ("default", Mode::Default, &[][..]),
            ("local", Mode::Local, &[]),
            ("prefer:1", Mode::Prefer, &[1]),
            ("prefer (many):0,2", Mode::PreferMany, &[0, 2]),
            ("bind:0-1", Mode::Bind, &[0, 1]),
            ("interleave:0-2", Mode::Interleave, &[0, 1, 2]),
            ("weighted interleave:0,2", Mode::WeightedInterleave, &[0, 2]),
        ] {
            let policy = policy_of(text);
            assert_eq!((policy.mode, &policy.nodes), (mode, &nodes(ids)), "{text}");
            assert_eq!(policy.balancing, Some(false), "{text}");
        }
    }

    #[test]
    fn flags_of_newer_and_older_kernels() {
        let flags = |text| {
            let p = policy_of(text);
            (p.static_nodes, p.relative_nodes, p.balancing)
        };
        assert_eq!(flags("bind=balancing:0-1"), (false, false, Some(true)));
        assert_eq!(flags("bind=static|balancing:0"), (true, false, Some(true)));
        // An older kernel: balancing alone, then balancing possibly hidden.
        assert_eq!(flags("bind=:0-1"), (false, false, Some(true)));
        assert_eq!(flags("prefer (many)=relative:0,1"), (false, true, None));
        assert_eq!(policy_of("bind=static:0,3").nodes.len(), 2);
    }

    #[test]
    fn counts_and_names() {
        let maps = parse(
            b"7f00 default file=/tmp/a\\040b mapped=5 N0=2 N2=3 kernelpagesize_kB=4\n\
              8f00 bind:1 huge dirty=7 N1=7 kernelpagesize_kB=2048\n\
              9f00 default heap\n",
        )
        .unwrap();
        assert_eq!(maps[0].file.as_deref(), Some(Path::new("/tmp/a b")));
        assert_eq!(maps[0].pages, [(NodeId(0), 2), (NodeId(2), 3)]);
        assert_eq!(maps[0].bytes_on(NodeId(2)), Some(3 * 4096));
        assert_eq!(maps[0].bytes_on(NodeId(1)), Some(0));
        assert!(maps[1].huge);
        // Seven huge pages of 2 MiB.
        assert_eq!(maps[1].bytes_on(NodeId(1)), Some(7 * 2048 * 1024));
        assert!(maps[2].heap && maps[2].pages.is_empty());
        assert_eq!(maps[2].bytes_on(NodeId(0)), None);
    }

    #[test]
    fn errors_name_line_and_item() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            says("1000 magic:0"),
            "1: policy: \"magic:0\" is no policy known here"
        );
        assert_eq!(
            says("1000 weighted"),
            "1: policy: \"weighted\" is no policy known here"
        );
        assert_eq!(
            says("1000 bind=hot:0"),
            "1: policy: \"hot\" is no policy flag known here"
        );
        assert_eq!(
            says("1000 default\n2000 default N0=1 N0=2"),
            "2: node: node 0 is counted twice"
        );
        assert_eq!(
            says("1000 default N0=x"),
            "1: N0: \"x\" is not an unsigned number"
        );
        assert_eq!(
            says("x default"),
            "1: address: \"x\" is not a hexadecimal number"
        );
    }
}
