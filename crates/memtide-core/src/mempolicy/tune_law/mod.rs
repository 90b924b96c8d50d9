//! Interleave weights by the bandwidth law of measured curves.
//!
//! Problem. A program that is short of bandwidth gets more of it if its pages
//! lie on several nodes, but only in the right proportion: at 1:1 with a CXL
//! expander, STREAM lost 78 % (*mm/mempolicy: weighted interleave mempolicy with sysfs extension*). The proportion of the
//! nodes' peaks is a guess at it. Near its peak a node answers late, and the
//! threads that wait for it leave the other nodes idle; how near is too near
//! differs from node to node and with the share of writes.
//!
//! Approach. Each node has a [`Curve`]: the latency at each bandwidth, at the
//! wanted mix of reads and writes. Its *usable* bandwidth `B` is what it
//! carries before latency has doubled from idle, which the document names as
//! the beginning of the steep part, or its peak if latency never doubles. The
//! *law*: weights `w` send the share `w_i / W` of all traffic to node `i`, so
//! the whole carries
//!
//! ```text
//! T(w) = min over i of  B_i * W / w_i        with W the sum of the weights
//! ```
//!
//! The best integer weights are found exactly. If the minimum is at node `j`
//! with weight `k`, every other node may have as much weight as leaves it
//! there, `w_i = floor(B_i * k / B_j)`, and more weight is more traffic. So
//! one try for each node and each `k` from 1 to 255 sees the best. Of those
//! within half a percent of it, or within a quarter of the measurement's noise,
//! the one with the smallest sum is taken: small weights repeat sooner, a mapping
//! of few pages gets its proportion too, and nothing looks more exact than it is.
//!
//! A node can also be too slow to help at all: even at a weight of 1 in 256 it
//! would hold up the rest. Sets of nodes are tried from all down to the fastest
//! alone; slower nodes are left out only if that is better.
//!
//! What stays true:
//!
//! - Weights are from 1 to 255, and no weights carry more by the law, the half
//!   percent or quarter of the noise aside.
//! - Interleaving with far nodes is advised only if it gains more than the
//!   measurement's noise over the near nodes alone.
//! - Bandwidths are integers and compared exactly; the same curves give the
//!   same weights everywhere.
//!
//! Not covered: the law speaks of programs that want all the bandwidth there
//! is. One that needs less than the near nodes give is better off there, since
//! their latency is lower.

use super::curve::Curve;
use crate::units::NodeId;
use std::collections::BTreeMap;

/// The largest weight.
const LARGEST: u128 = 255;

/// Of how many parts [`near_enough`] speaks.
const WHOLE: u128 = 1_000_000;

/// How much of the best is enough for smaller weights, out of [`WHOLE`].
fn near_enough(noise: f64) -> u128 {
    // Noise above 1 would be no measurement; a cast from NaN gives 0.
    let noise = (noise.clamp(0.0, 1.0) * WHOLE as f64) as u128;
    WHOLE - (noise / 4).max(5_000)
}

/// A node as the law sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCurve {
    /// The node.
    pub node: NodeId,
    /// Whether it is near: memory beside CPUs, or faster.
    pub near: bool,
    /// Latency by bandwidth at the wanted mix.
    pub curve: Curve,
}

/// What a set of weights is expected to carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The weights, ascending by node.
    pub weights: BTreeMap<NodeId, u8>,
    /// Total bandwidth by the law, in MB/s.
    pub bandwidth_mbps: u64,
    /// Mean latency of an access at that load, if the curves tell.
    pub latency_ns: Option<f64>,
}

/// What is best to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Interleave over near and far nodes.
    Interleave,
    /// Near nodes alone: the far ones would gain less than the noise.
    NearAlone,
    /// There is nothing to choose between: all nodes are near, or all far.
    OneKind,
}

/// The choice, and what it was compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What is best to do.
    pub advice: Advice,
    /// The weights that are advised; nodes that are not in them are better left
    /// out of the nodemask.
    pub best: Expected,
    /// The best over near and far nodes, even if it is not advised.
    pub best_of_all: Expected,
    /// The near nodes alone, at their best weights; `None` without near nodes.
    pub near_alone: Option<Expected>,
    /// All nodes alike.
    pub one_to_one: Expected,
}

/// Chooses weights for `nodes`. `noise` is the relative gain that must be
/// exceeded: 0.02 is 2 %. `None` if there are no nodes or two with one id.
pub fn choose(nodes: &[NodeCurve], noise: f64) -> Option<Choice> {
    let mut ids: Vec<NodeId> = nodes.iter().map(|node| node.node).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != nodes.len() {
        return None;
    }
    let near: Vec<NodeCurve> = nodes.iter().filter(|node| node.near).cloned().collect();
    let enough = near_enough(noise);
    let best_of_all = best(nodes, enough)?;
    let near_alone = best(&near, enough);
    let ones = ids.iter().map(|node| (*node, 1)).collect();
    let one_to_one = expect(nodes, ones)?;
    let advice = match &near_alone {
        Some(_) if near.len() == nodes.len() => Advice::OneKind,
        None => Advice::OneKind,
        Some(alone) => {
            let wanted = alone.bandwidth_mbps as f64 * (1.0 + noise.max(0.0));
            match best_of_all.bandwidth_mbps as f64 > wanted {
                true => Advice::Interleave,
                false => Advice::NearAlone,
            }
        }
    };
    let best = match (&advice, &near_alone) {
        (Advice::NearAlone, Some(alone)) => alone.clone(),
        _ => best_of_all.clone(),
    };
    Some(Choice {
        advice,
        best,
        best_of_all,
        near_alone,
        one_to_one,
    })
}

/// What `weights` carry by the law. Nodes without a weight get no traffic.
/// `None` if no node has a weight, or one has a weight and no curve.
pub fn expect(nodes: &[NodeCurve], weights: BTreeMap<NodeId, u8>) -> Option<Expected> {
    let of = |id: NodeId| nodes.iter().find(|node| node.node == id);
    let sum: u128 = weights.values().map(|&weight| u128::from(weight)).sum();
    let mut carried: Option<u128> = None;
    for (&id, &weight) in weights.iter().filter(|(_, weight)| **weight > 0) {
        let usable = u128::from(of(id)?.curve.usable_mbps());
        let here = usable * sum / u128::from(weight);
        carried = Some(carried.map_or(here, |least| least.min(here)));
    }
    let bandwidth_mbps = u64::try_from(carried?).unwrap_or(u64::MAX);
    let latencies = weights.iter().map(|(&id, &weight)| {
        let share = f64::from(weight) / sum as f64;
        let load = (bandwidth_mbps as f64 * share) as u64;
        Some(share * of(id)?.curve.latency_at(load)?)
    });
    Some(Expected {
        latency_ns: latencies.sum(),
        weights,
        bandwidth_mbps,
    })
}

/// The best weights over any set of these nodes.
fn best(nodes: &[NodeCurve], enough: u128) -> Option<Expected> {
    let mut usable: Vec<(u128, NodeId)> = nodes
        .iter()
        .map(|node| (u128::from(node.curve.usable_mbps()), node.node))
        .filter(|(mbps, _)| *mbps > 0)
        .collect();
    // The fastest first; of the same number of nodes the fastest carry most.
    usable.sort_unstable_by_key(|&(mbps, node)| (std::cmp::Reverse(mbps), node));
    let mbps: Vec<u128> = usable.iter().map(|(mbps, _)| *mbps).collect();
    // Larger sets last, so that they are kept only if they carry more.
    let sets = (1..=mbps.len()).filter_map(|nodes| best_weights(&mbps[..nodes], enough));
    let chosen = sets.reduce(|kept, next| match next.carries_more(&kept) {
        true => next,
        false => kept,
    })?;
    let weights = chosen.weights.iter().zip(&usable);
    expect(nodes, weights.map(|(&w, &(_, node))| (node, w)).collect())
}

/// Weights, and what they carry as an exact fraction.
#[derive(Clone, Debug)]
struct Try {
    weights: Vec<u8>,
    sum: u128,
    /// `sum * slowest / of` is what they carry.
    slowest: u128,
    of: u128,
}

impl Try {
    /// Node `j` has the weight `k` and is the slowest for its weight.
    fn new(mbps: &[u128], j: usize, k: u128) -> Option<Try> {
        let weight = |b: &u128| match (b * k / mbps[j]).min(LARGEST) {
            0 => None,
            weight => Some(weight as u8),
        };
        let weights: Vec<u8> = mbps.iter().map(weight).collect::<Option<_>>()?;
        Some(Try {
            sum: weights.iter().map(|&weight| u128::from(weight)).sum(),
            weights,
            slowest: mbps[j],
            of: k,
        })
    }

    fn carries_more(&self, other: &Try) -> bool {
        self.sum * self.slowest * other.of > other.sum * other.slowest * self.of
    }

    fn is_near(&self, best: &Try, enough: u128) -> bool {
        self.sum * self.slowest * best.of * WHOLE >= best.sum * best.slowest * self.of * enough
    }
}

/// The best weights with every one of these nodes; `None` if the slowest is
/// beyond 255 times slower than the fastest.
fn best_weights(mbps: &[u128], enough: u128) -> Option<Try> {
    let each = (0..mbps.len()).flat_map(|j| (1..=LARGEST).map(move |k| (j, k)));
    let tries: Vec<Try> = each.filter_map(|(j, k)| Try::new(mbps, j, k)).collect();
    let best = tries
        .iter()
        .reduce(|kept, next| if next.carries_more(kept) { next } else { kept })?;
    let near = tries.iter().filter(|near| near.is_near(best, enough));
    // Of equal sums the one that carries more; of those the first.
    near.reduce(|kept, next| {
        match next.sum < kept.sum || next.sum == kept.sum && next.carries_more(kept) {
            true => next,
            false => kept,
        }
    })
    .cloned()
}

#[cfg(test)]
mod tests;
