//! A set of nodes.

use crate::numbers;
use crate::units::NodeId;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

const WORDS: usize = NodeId::LIMIT as usize / 64;

/// A set of node ids below [`NodeId::LIMIT`]; ids at or above it are never in it.
///
/// Prints and serialises as the kernel writes node lists: `0-3,8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeMask([u64; WORDS]);

impl NodeMask {
    /// The set of no node.
    pub const EMPTY: NodeMask = NodeMask([0; WORDS]);
    /// The set of every node that can exist.
    pub const ALL: NodeMask = NodeMask([u64::MAX; WORDS]);

    /// Puts `node` in; false if its id is too large for any kernel.
    pub fn insert(&mut self, node: NodeId) -> bool {
        match self.0.get_mut(node.index() / 64) {
            Some(word) => {
                *word |= 1 << (node.index() % 64);
                true
            }
            None => false,
        }
    }

    /// Takes `node` out.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(node.index() / 64) {
            *word &= !(1 << (node.index() % 64));
        }
    }

    /// Whether `node` is in.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0
            .get(node.index() / 64)
            .is_some_and(|w| w >> (node.index() % 64) & 1 == 1)
    }

    /// Whether no node is in.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    /// How many nodes are in.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The nodes in both sets.
    pub fn intersection(&self, other: &NodeMask) -> NodeMask {
        NodeMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The nodes in either set.
    pub fn union(&self, other: &NodeMask) -> NodeMask {
        NodeMask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    NodeId((i * 64) as u16 + bit as u16)
                })
            })
        })
    }
}

impl Default for NodeMask {
    fn default() -> NodeMask {
        NodeMask::EMPTY
    }
}

impl FromIterator<NodeId> for NodeMask {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeMask {
        let mut mask = NodeMask::EMPTY;
        for node in nodes {
            mask.insert(node);
        }
        mask
    }
}

/// What is wrong with a node list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node list {list:?}: {item:?} is no node or range of nodes below 1024; write it as 0-3,8")]
pub struct NodeListError {
    list: String,
    item: String,
}

impl std::str::FromStr for NodeMask {
    type Err = NodeListError;

    /// Reads a list as the kernel writes it; the empty list is the empty set.
    fn from_str(list: &str) -> Result<NodeMask, NodeListError> {
        let mut mask = NodeMask::EMPTY;
        let list = list.trim();
        for item in list.split(',').filter(|_| !list.is_empty()) {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let ends = numbers::decimal::<u16>(first).zip(numbers::decimal(last));
            match ends.filter(|&(a, b)| a <= b && b < NodeId::LIMIT) {
                Some((a, b)) => mask = mask.union(&(a..=b).map(NodeId).collect()),
                None => {
                    return Err(NodeListError {
                        list: list.to_owned(),
                        item: item.to_owned(),
                    });
                }
            }
        }
        Ok(mask)
    }
}

impl fmt::Display for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes = self.iter().map(|n| n.0).peekable();
        let mut first = true;
        while let Some(start) = nodes.next() {
            let mut end = start;
            while nodes.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            let comma = if first { "" } else { "," };
            first = false;
            if start == end {
                write!(f, "{comma}{start}")?;
            } else {
                write!(f, "{comma}{start}-{end}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeMask({self})")
    }
}

impl Serialize for NodeMask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeMask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodeMask, D::Error> {
        struct List;
        impl Visitor<'_> for List {
            type Value = NodeMask;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes as in 0-3,8")
            }

            fn visit_str<E: Error>(self, list: &str) -> Result<NodeMask, E> {
                list.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_the_kernel_writes_lists() {
        let mask: NodeMask = [0, 1, 2, 8, 63, 64, 1023].map(NodeId).into_iter().collect();
        assert_eq!(mask.to_string(), "0-2,8,63-64,1023");
        assert_eq!(mask.len(), 7);
        assert_eq!(mask.iter().count(), 7);
        assert_eq!(NodeMask::ALL.to_string(), "0-1023");
        assert_eq!(NodeMask::EMPTY.to_string(), "");
    }

    #[test]
    fn reads_what_it_prints_and_refuses_the_rest() {
        for list in ["", "0", "0-2,8,63-64,1023"] {
            assert_eq!(list.parse::<NodeMask>().unwrap().to_string(), list);
        }
        assert_eq!("0-1\n".parse::<NodeMask>().unwrap().len(), 2);
        assert_eq!("00-01".parse::<NodeMask>().unwrap().len(), 2);
        for list in [
            "0,", "3-1", "1024", "a", "0-", "1 2", "-1", "+1", "0-+1", "+0-1",
        ] {
            let error = list.parse::<NodeMask>().unwrap_err().to_string();
            assert!(error.starts_with("node list"), "{error}");
        }
    }

    #[test]
    fn ids_beyond_the_limit_are_never_in() {
        let mut mask = NodeMask::ALL;
        assert!(!mask.contains(NodeId(1024)));
        assert!(!mask.insert(NodeId(1024)));
        mask.remove(NodeId(1024));
        mask.remove(NodeId(3));
        assert!(!mask.contains(NodeId(3)));
        assert_eq!(
            mask.intersection(&[NodeId(3)].into_iter().collect()),
            NodeMask::EMPTY
        );
    }
}
