//! From a policy to the node that a page lands on.
//!
//! The policy says which node to prefer and sometimes a set to stay in; the
//! zonelists of the machine say where a page goes if that node has no memory
//! or may not be used. Nodes are taken to have room enough, so both together
//! give one node for each index. [`Landing`] is that answer made ready: the
//! place of a page is then one look-up.

use super::machine::Machine;
use super::mode::Mode;
use super::place::Spread;
use super::policy::Policy;
use super::weights::Weights;
use crate::nodemask::NodeMask;
use crate::units::NodeId;

/// Where the pages of one policy land.
#[derive(Clone, Debug)]
pub enum Landing {
    /// All on one node.
    Fixed {
        /// The node that the policy prefers.
        preferred: NodeId,
        /// The node that they land on.
        node: NodeId,
    },
    /// On one node after the other.
    Spread {
        /// Which node a page prefers.
        spread: Spread,
        /// Where a page lands that prefers node n; `None`: always on n itself.
        lands: Option<Box<[NodeId]>>,
    },
}

impl Landing {
    /// Makes ready `policy` for a task on a CPU of node `here` that `cpuset`
    /// confines.
    pub fn new(
        policy: &Policy,
        machine: &Machine,
        cpuset: &NodeMask,
        here: NodeId,
        weights: &Weights,
    ) -> Landing {
        let spread = match policy.mode {
            Mode::Interleave => Spread::plain(&policy.nodes),
            Mode::WeightedInterleave => Spread::weighted(&policy.nodes, weights),
            _ => None,
        };
        let Some(spread) = spread else {
            return Landing::fixed(policy, machine, cpuset, here);
        };
        let usable = cpuset.intersection(machine.memory_nodes());
        let all = spread.nodes().iter().all(|&n| usable.contains(n));
        let land = |n| land(machine, NodeId(n), &[&usable]);
        let lands = (!all).then(|| (0..machine.input().possible_nodes).map(land).collect());
        Landing::Spread { spread, lands }
    }

    fn fixed(policy: &Policy, machine: &Machine, cpuset: &NodeMask, here: NodeId) -> Landing {
        let preferred = match policy.mode {
            Mode::Preferred => policy.nodes.iter().next().unwrap_or(here),
            Mode::Bind | Mode::PreferredMany => policy.home.unwrap_or(here),
            _ => here,
        };
        // Outside the mask only where the cpuset leaves nothing of it: bind
        // gives way to the cpuset, preferred-many tries without its mask.
        let within = policy.nodes.intersection(cpuset);
        let node = match policy.mode {
            Mode::Bind | Mode::PreferredMany => land(machine, preferred, &[&within, cpuset]),
            _ => land(machine, preferred, &[cpuset]),
        };
        Landing::Fixed { preferred, node }
    }

    /// The node that the page with this index lands on.
    #[inline]
    pub fn node_at(&self, index: u64) -> NodeId {
        match self {
            Landing::Fixed { node, .. } => *node,
            Landing::Spread { spread, lands } => {
                let node = spread.node_at(index);
                lands.as_ref().map_or(node, |l| l[node.index()])
            }
        }
    }

    /// The node that the policy prefers for the page with this index.
    pub fn preferred_at(&self, index: u64) -> NodeId {
        match self {
            Landing::Fixed { preferred, .. } => *preferred,
            Landing::Spread { spread, .. } => spread.node_at(index),
        }
    }

    /// The spread of an interleave.
    pub fn spread(&self) -> Option<&Spread> {
        match self {
            Landing::Fixed { .. } => None,
            Landing::Spread { spread, .. } => Some(spread),
        }
    }
}

/// The first memory node in `from`'s fallback order that one of `sets` has,
/// the sets tried one after the other; the order's first if none has any.
fn land(machine: &Machine, from: NodeId, sets: &[&NodeMask]) -> NodeId {
    let order = machine.fallback(from);
    sets.iter()
        .find_map(|set| machine.nearest(from, set))
        .or_else(|| order.first().copied())
        .unwrap_or(from)
}
