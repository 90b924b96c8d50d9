//! The three ways in which the kernel picks the next node of an interleave.
//!
//! A [`Spread`] is a set of nodes with their weights, made ready for picking;
//! for plain interleave every weight is 1. A round is as many pages as the
//! weights sum to.
//!
//! - *By index* ([`Spread::node_at`]), for memory that a process maps: the page
//!   number in the round says the node. No state: the order in which pages are
//!   touched does not matter, their addresses do.
//! - *By counter* ([`Counter::next_node`]), for memory that the kernel takes on
//!   behalf of a task, page-table pages for example: the task remembers the
//!   node and how much of its weight is left.
//! - *In bulk* ([`Counter::bulk`]), for many such pages at once: whole rounds
//!   by division, the rest walks one round.
//!
//! By weights, bulk and counter may alternate at will: while the set and the
//! weights stay, every node has as many pages after N of them as after N single
//! ones. (After whole rounds a bulk has already begun the next node, where the
//! counter has ended the last; a change then meets them differently.) Plain bulk
//! does not promise it: it asks the counter once for each node, also for those
//! that get nothing, so that each call starts at the same node again.
//!
//! Index picks look the node up in a table with a slot for each page of a
//! round. The division by the round's length, always the same, is a
//! multiplication by its reciprocal.

use super::weights::Weights;
use crate::nodemask::NodeMask;
use crate::units::NodeId;

/// Nodes with weights, ready for picking.
#[derive(Clone, Debug)]
pub struct Spread {
    /// One entry a node of the set, ascending.
    nodes: Box<[NodeId]>,
    /// For each id up to the highest in the set: what a counter needs.
    steps: Box<[Step]>,
    /// The node of each page of a round.
    round: Box<[NodeId]>,
    /// `2^64 / round.len()`, rounded down, but `2^64 - 1` for 1.
    reciprocal: u64,
    weighted: bool,
}

/// From one node id to the next.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The next node of the set, cyclic.
    next: NodeId,
    /// The id's own weight; 0 if it is not in the set.
    weight: u8,
}

impl Spread {
    /// Plain interleave over `nodes`; `None` for the empty set.
    pub fn plain(nodes: &NodeMask) -> Option<Spread> {
        Spread::new(nodes, &Weights::ONES, false)
    }

    /// Weighted interleave over `nodes`; `None` for the empty set.
    pub fn weighted(nodes: &NodeMask, weights: &Weights) -> Option<Spread> {
        Spread::new(nodes, weights, true)
    }

    fn new(set: &NodeMask, weights: &Weights, weighted: bool) -> Option<Spread> {
        let nodes: Box<[NodeId]> = set.iter().collect();
        let (first, last) = (*nodes.first()?, *nodes.last()?);
        let mut steps = Vec::with_capacity(last.index() + 1);
        let mut next = first;
        for id in (0..=last.0).rev().map(NodeId) {
            let weight = match set.contains(id) {
                true => weights.get(id),
                false => 0,
            };
            steps.push(Step { next, weight });
            if weight > 0 {
                next = id;
            }
        }
        steps.reverse();
        let share = |&node: &NodeId| std::iter::repeat_n(node, weights.get(node).into());
        let round: Box<[NodeId]> = nodes.iter().flat_map(share).collect();
        Some(Spread {
            reciprocal: u64::MAX / round.len() as u64,
            nodes,
            steps: steps.into(),
            round,
            weighted,
        })
    }

    /// The nodes, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Pages in a round: the sum of the weights.
    pub fn total(&self) -> u64 {
        self.round.len() as u64
    }

    /// The weight of a node; 0 if it is not in the set.
    pub fn weight(&self, node: NodeId) -> u8 {
        self.steps.get(node.index()).map_or(0, |s| s.weight)
    }

    /// The node of the page with this index; for anonymous memory the index is
    /// the page's virtual address over the page size.
    #[inline]
    pub fn node_at(&self, index: u64) -> NodeId {
        self.round[self.position(index) as usize]
    }

    /// Where in its round a page lies: the index modulo [`Spread::total`].
    #[inline]
    pub fn position(&self, index: u64) -> u64 {
        // The estimate of the quotient is exact or one too small: it falls
        // short of index / total by less than index / 2^64, which is below 1.
        let quotient = (u128::from(index) * u128::from(self.reciprocal)) >> 64;
        let rest = index - quotient as u64 * self.total();
        match rest >= self.total() {
            true => rest - self.total(),
            false => rest,
        }
    }

    /// The node of the set that follows `node`, which need not be in it.
    #[inline]
    fn after(&self, node: NodeId) -> NodeId {
        self.steps
            .get(node.index())
            .map_or(self.nodes[0], |s| s.next)
    }
}

/// Where a task stands in its interleave (`il_prev` and `il_weight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The node that was picked last.
    previous: NodeId,
    /// How many more pages it gets.
    left: u8,
}

impl Counter {
    /// Before the first page: the next node is the set's lowest.
    pub const START: Counter = Counter {
        previous: NodeId(NodeId::LIMIT - 1),
        left: 0,
    };

    /// The node of the next page. What is left of a weight is kept when weights
    /// change; a new weight counts from the next node on.
    #[inline]
    pub fn next_node(&mut self, spread: &Spread) -> NodeId {
        if !spread.weighted {
            self.previous = spread.after(self.previous);
            return self.previous;
        }
        if self.left == 0 || spread.weight(self.previous) == 0 {
            self.previous = spread.after(self.previous);
            self.left = spread.weight(self.previous);
        }
        self.left -= 1;
        self.previous
    }

    /// The node that the next page would go to, as `get_mempolicy` says it.
    /// It does not ask whether the present node is still in the set.
    pub fn peek(&self, spread: &Spread) -> NodeId {
        match spread.weighted && self.left > 0 {
            true => self.previous,
            false => spread.after(self.previous),
        }
    }

    /// Places `pages` at once: calls `place` with a node and its pages, none
    /// with zero pages. A node may come twice.
    pub fn bulk(&mut self, spread: &Spread, pages: u64, mut place: impl FnMut(NodeId, u64)) {
        match (pages, spread.weighted) {
            (0, _) => {}
            (_, true) => self.bulk_weighted(spread, pages, &mut place),
            (_, false) => self.bulk_plain(spread, pages, &mut place),
        }
    }

    fn bulk_plain(&mut self, spread: &Spread, pages: u64, place: &mut impl FnMut(NodeId, u64)) {
        let nodes = spread.nodes.len() as u64;
        for i in 0..nodes {
            let node = self.next_node(spread);
            let share = pages / nodes + u64::from(i < pages % nodes);
            if share > 0 {
                place(node, share);
            }
        }
    }

    fn bulk_weighted(
        &mut self,
        spread: &Spread,
        mut pages: u64,
        place: &mut impl FnMut(NodeId, u64),
    ) {
        let left = u64::from(self.left);
        if left > 0 && spread.weight(self.previous) > 0 {
            place(self.previous, left.min(pages));
            if pages <= left {
                self.left -= pages as u8;
                return;
            }
            pages -= left;
        }
        let rounds = pages / spread.total();
        let mut rest = pages % spread.total();
        let mut node = spread.after(self.previous);
        // Without a rest the next page starts this node anew.
        let mut resume = Counter {
            previous: node,
            left: spread.weight(node),
        };
        for _ in 0..spread.nodes.len() {
            let weight = u64::from(spread.weight(node));
            let extra = rest.min(weight);
            if rounds == 0 && extra == 0 {
                break;
            }
            place(node, weight * rounds + extra);
            if extra > 0 && extra == rest {
                resume = Counter {
                    previous: node,
                    left: (weight - extra) as u8,
                };
            }
            rest -= extra;
            node = spread.after(node);
        }
        *self = resume;
    }
}

#[cfg(test)]
mod tests;
