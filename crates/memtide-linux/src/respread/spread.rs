//! Which node the page of an index belongs to.
//!
//! The rule is weighted interleave's for pages that the kernel places by address
//! ([`mempolicy::Spread`]): with weights 9 and 1 on nodes 0 and 2,
//! indices 0 to 8 of every ten go to node 0 and index 9 to node 2. An *index*
//! counts pages of one size from the beginning of the address space or of the
//! file; it has no state, so new pages and moved ones come out alike.

use memtide_core::mempolicy::{self, Weights};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use std::fmt;

/// A weight a node, each named, and the pattern that follows.
#[derive(Clone, Debug)]
pub struct Spread {
    weights: Vec<(NodeId, u8)>,
    by_index: mempolicy::Spread,
}

impl Spread {
    /// A spread by `weights`, one entry a node; `None` if there is no node, a
    /// weight is 0, or a node is named twice.
    pub fn new(weights: impl IntoIterator<Item = (NodeId, u8)>) -> Option<Spread> {
        let mut weights: Vec<(NodeId, u8)> = weights.into_iter().collect();
        weights.sort_unstable();
        let twice = weights.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if twice || weights.iter().any(|(_, weight)| *weight == 0) {
            return None;
        }
        let mut table = Weights::default();
        weights
            .iter()
            .for_each(|(node, weight)| table.set(*node, *weight));
        let nodes = weights.iter().map(|(node, _)| *node).collect();
        let by_index = mempolicy::Spread::weighted(&nodes, &table)?;
        Some(Spread { weights, by_index })
    }

    /// Where the page of index `index` belongs.
    pub fn node_at(&self, index: u64) -> NodeId {
        self.by_index.node_at(index)
    }

    /// The weights, ascending by node.
    pub fn weights(&self) -> &[(NodeId, u8)] {
        &self.weights
    }

    /// The nodes.
    pub fn nodes(&self) -> NodeMask {
        self.weights.iter().map(|(node, _)| *node).collect()
    }

    /// This spread with the numbers that the kernel's table has for its nodes,
    /// if those are in the same proportion: 9:1 where the table says 18:2. Then
    /// pages that are moved lie as the kernel would have placed them.
    pub fn as_in_table(&self, table: impl Fn(NodeId) -> Option<u8>) -> Option<Spread> {
        let theirs = self
            .weights
            .iter()
            .map(|(node, _)| Some((*node, table(*node)?)));
        let theirs = Spread::new(theirs.collect::<Option<Vec<_>>>()?)?;
        let (first, their_first) = (self.weights[0].1, theirs.weights[0].1);
        let mut pairs = self.weights.iter().zip(&theirs.weights);
        pairs
            .all(|((_, ours), (_, theirs))| {
                u16::from(*ours) * u16::from(their_first) == u16::from(*theirs) * u16::from(first)
            })
            .then_some(theirs)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self
            .weights
            .iter()
            .map(|(node, weight)| format!("{node}={weight}"));
        f.write_str(&words.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAM: NodeId = NodeId(0);
    const CXL: NodeId = NodeId(2);

    #[test]
    fn a_round_gives_each_node_its_weight_in_ascending_order() {
        let spread = Spread::new([(CXL, 1), (DRAM, 3)]).unwrap();
        let nodes: Vec<u16> = (0..9).map(|index| spread.node_at(index).0).collect();
        assert_eq!(nodes, [0, 0, 0, 2, 0, 0, 0, 2, 0]);
        assert_eq!(
            (spread.nodes().to_string(), spread.to_string()),
            ("0,2".into(), "0=3,2=1".into())
        );
    }

    #[test]
    fn a_spread_that_cannot_be_is_refused() {
        assert!(Spread::new([]).is_none());
        assert!(Spread::new([(DRAM, 0)]).is_none());
        assert!(Spread::new([(DRAM, 1), (CXL, 1), (DRAM, 2)]).is_none());
    }

    #[test]
    fn the_tables_numbers_are_taken_where_the_proportion_is_the_same() {
        let spread = Spread::new([(DRAM, 9), (CXL, 1)]).unwrap();
        let with = |dram, cxl| {
            let table = |node: NodeId| Some(if node == DRAM { dram } else { cxl });
            spread.as_in_table(table).map(|spread| spread.to_string())
        };
        assert_eq!(with(18, 2).as_deref(), Some("0=18,2=2"));
        assert_eq!(with(9, 1).as_deref(), Some("0=9,2=1"));
        assert_eq!(with(9, 2), None);
        assert!(spread.as_in_table(|_| None).is_none());
        // A single node has any proportion to itself.
        let alone = Spread::new([(CXL, 7)]).unwrap();
        assert_eq!(alone.as_in_table(|_| Some(3)).unwrap().to_string(), "2=3");
    }
}
