//! The kernel's two ways to write a set of CPUs or nodes.
//!
//! A *list* is `0-3,8,10-11`: numbers and inclusive ranges, ascending. A
//! *mask* is `00000000,00000d0f`: 32-bit words in hexadecimal, the most
//! significant first. Both may be empty. The kernel accepts more when it
//! reads (`0-31:2/8`, `all`) but never prints that, so it is refused here.

use super::parse::{ParseError, Parsed, hex, quoted, small};
use memtide_core::units::NodeId;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Ids at or above this are refused, so that `0-4294967295` costs nothing.
/// The largest `NR_CPUS` of any architecture is 8192, of nodes 1024.
pub const ID_LIMIT: u32 = 1 << 16;

/// Parses a list. White space around it is ignored.
///
/// ```
/// let set = memtide_linux::fs::list::parse(b"0-2,5\n").unwrap();
/// assert_eq!(set.into_iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
/// ```
pub fn parse(bytes: &[u8]) -> Result<BTreeSet<u32>, ParseError> {
    at_line(bytes, 1, "list")
}

/// As [`parse`], for a list of nodes.
pub fn parse_nodes(bytes: &[u8]) -> Result<BTreeSet<NodeId>, ParseError> {
    nodes_at_line(bytes, 1, "node list")
}

/// As [`parse_nodes`], for a list inside a larger file.
pub(crate) fn nodes_at_line(bytes: &[u8], line: usize, item: &str) -> Parsed<BTreeSet<NodeId>> {
    at_line(bytes, line, item)?
        .into_iter()
        .map(|id| node(id.into(), line, item))
        .collect()
}

/// `id` as a node id, if the kernel could have such a node.
pub(crate) fn node(id: u64, line: usize, item: &str) -> Parsed<NodeId> {
    match u16::try_from(id) {
        Ok(id) if id < NodeId::LIMIT => Ok(NodeId(id)),
        _ => Err(ParseError::new(
            line,
            item,
            format!("node {id} is not below {}", NodeId::LIMIT),
        )),
    }
}

/// As [`parse`], for a list inside a larger file.
pub(crate) fn at_line(bytes: &[u8], line: usize, item: &str) -> Parsed<BTreeSet<u32>> {
    let bytes = bytes.trim_ascii();
    let mut set = BTreeSet::new();
    if bytes.is_empty() {
        return Ok(set);
    }
    for part in bytes.split(|byte| *byte == b',') {
        let (first, last) = match part.iter().position(|byte| *byte == b'-') {
            Some(dash) => (&part[..dash], &part[dash + 1..]),
            None => (part, part),
        };
        let first: u32 = small(first, line, item)?;
        let last: u32 = small(last, line, item)?;
        if first > last || last >= ID_LIMIT {
            let problem = format!("range {} is backwards or too large", quoted(part));
            return Err(ParseError::new(line, item, problem));
        }
        // Overlaps would let a short input ask for much work.
        if set.last().is_some_and(|highest| *highest >= first) {
            let problem = format!("{} does not come after the one before", quoted(part));
            return Err(ParseError::new(line, item, problem));
        }
        set.extend(first..=last);
    }
    Ok(set)
}

/// Parses a mask. White space around it is ignored.
///
/// ```
/// let set = memtide_linux::fs::list::parse_mask(b"1,00000005\n").unwrap();
/// assert_eq!(set.into_iter().collect::<Vec<_>>(), [0, 2, 32]);
/// ```
pub fn parse_mask(bytes: &[u8]) -> Result<BTreeSet<u32>, ParseError> {
    let bytes = bytes.trim_ascii();
    let mut set = BTreeSet::new();
    if bytes.is_empty() {
        return Ok(set);
    }
    for (word, index) in bytes.rsplit(|byte| *byte == b',').zip(0u32..) {
        let bits = hex(word, 1, "mask")?;
        let base = index.saturating_mul(32);
        if word.len() > 8 || base >= ID_LIMIT {
            let problem = format!("{} is too long", quoted(word));
            return Err(ParseError::new(1, "mask", problem));
        }
        set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|b| base + b));
    }
    Ok(set)
}

/// Writes a set as the kernel would write it as a list.
///
/// ```
/// assert_eq!(memtide_linux::fs::list::format([0, 1, 2, 5]), "0-2,5");
/// ```
pub fn format(ids: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut ids = ids.into_iter().peekable();
    while let Some(first) = ids.next() {
        let mut last = first;
        while let Some(next) = ids.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(list: &str) -> Vec<u32> {
        parse(list.as_bytes()).unwrap().into_iter().collect()
    }

    #[test]
    fn lists_of_all_shapes() {
        assert!(ids("").is_empty());
        assert!(ids("\n").is_empty());
        assert_eq!(ids("7\n"), [7]);
        assert_eq!(ids("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(ids("65535"), [65535]);
    }

    #[test]
    fn what_the_kernel_never_prints_is_refused() {
        for wrong in [
            "a", "1,", ",1", "1-", "-1", "3-1", "1--2", "0-65536", "1,1", "0-3,2", "0-3:1/2",
            "0 1", "all", "+1",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(
            parse(b"3-1").unwrap_err().to_string(),
            "1: list: range \"3-1\" is backwards or too large"
        );
        assert_eq!(
            parse_nodes(b"0,1024").unwrap_err().to_string(),
            "1: node list: node 1024 is not below 1024"
        );
    }

    #[test]
    fn masks_count_words_from_the_right() {
        // The kernel's mask of node 0 among 96: three words.
        let mask = parse_mask(b"00000000,00000000,00000001\n").unwrap();
        assert_eq!(mask.into_iter().collect::<Vec<_>>(), [0]);
        assert!(parse_mask(b"").unwrap().is_empty());
        for wrong in ["x", "1,", "100000000", "0x1", "-1"] {
            assert!(parse_mask(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_list_survives_the_round_trip(set in prop::collection::btree_set(0u32..400, 0..80)) {
            let text = format(set.iter().copied());
            prop_assert_eq!(parse(text.as_bytes()).unwrap(), set);
        }

        #[test]
        fn a_mask_means_the_same_as_its_list(set in prop::collection::btree_set(0u32..200, 0..80)) {
            let words: Vec<String> = (0..7u32)
                .rev()
                .map(|word| {
                    let bits = (0..32)
                        .filter(|bit| set.contains(&(word * 32 + bit)))
                        .fold(0u32, |bits, bit| bits | 1 << bit);
                    format!("{bits:08x}")
                })
                .collect();
            let mask = parse_mask(words.join(",").as_bytes()).unwrap();
            prop_assert_eq!(mask, set);
        }

        #[test]
        fn near_lists_never_panic(text in "[0-9,\\-a-f \\n]{0,60}") {
            let _ = parse(text.as_bytes());
            let _ = parse_mask(text.as_bytes());
        }
    }
}
