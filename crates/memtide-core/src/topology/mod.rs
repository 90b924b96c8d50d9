//! The machine's memory: nodes, how fast each is, tiers, and where pages go.
//!
//! A *tier* is a class of nodes of about the same speed; tier numbers are the
//! kernel's (`memory_tier4` is DRAM), and a smaller one is faster. A *top tier*
//! node needs no promotion: its tier is at least as fast as the slowest tier
//! that has a CPU in it.
//!
//! Where the kernel shows its tiers (`/sys/devices/virtual/memory_tiering`),
//! they are taken as they are, because the kernel's own demotion follows them.
//! Where it does not, they are computed by the kernel's rule: a node's
//! *abstract distance* is 576 for DRAM and otherwise 576 scaled by how much
//! longer its latency and how much smaller its bandwidth is than DRAM's, in
//! integers; 128 units make one tier. If two DRAM nodes differ by more than a
//! tenth in any figure, there is no one DRAM to compare with, and the figures
//! are not used. Memory without CPUs and without usable figures gets 2880,
//! which is what the kernel's driver for attached memory assumes.
//!
//! Promotion goes to the nearest top-tier node in one step. Demotion goes one
//! tier down, to the nearest node there; any node further down is the fallback.
//!
//! All of it is validated once, here: a [`Topology`] has no distance row of the
//! wrong length, no node twice, and no target that is offline or without memory.

mod by_hand;
mod distance;
mod input;

pub use by_hand::{HandTiers, HandTiersError};
pub use distance::{ADISTANCE_DRAM, ADISTANCE_KMEM, TIER_CHUNK, abstract_distance};
pub use input::{AccessFigures, NodeInput, TopologyInput};

use crate::nodemask::NodeMask;
use crate::units::NodeId;
use serde::{Deserialize, Serialize};

/// A tier's number, the N of the kernel's `memory_tierN`. Smaller is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TierId(pub u32);

/// Where the tiers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierOrigin {
    /// Read from the kernel.
    Kernel,
    /// Computed from access figures by the kernel's rule.
    Figures,
    /// Computed without figures: DRAM where CPUs are, attached memory elsewhere.
    Assumed,
    /// Given by hand ([`HandTiers`]).
    ByHand,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Whether it is online.
    pub online: bool,
    /// Its memory in bytes; zero for a node of CPUs only.
    pub memory_bytes: u64,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Distances to the online nodes in ascending order of id, `None` if unknown.
    pub distances: Option<Vec<u32>>,
    /// Latency and bandwidth from its nearest CPUs.
    pub figures: AccessFigures,
    /// Its tier; `None` if it is offline, has no memory, or the kernel put it in none.
    pub tier: Option<TierId>,
    /// Whether promotion is done with a page that is here.
    pub top_tier: bool,
    /// Where its hot pages go if nobody names a node.
    pub promotion_target: Option<NodeId>,
    /// Where its cold pages go.
    pub demotion_targets: DemotionTargets,
}

impl Node {
    /// Whether pages can live here now.
    pub fn has_memory(&self) -> bool {
        self.online && self.memory_bytes > 0
    }

    /// Whether code can run here now.
    pub fn has_cpus(&self) -> bool {
        self.online && !self.cpus.is_empty()
    }
}

/// Where a node's cold pages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DemotionTargets {
    /// The nearest nodes of the next lower tier.
    pub preferred: NodeMask,
    /// Every node of every lower tier, the preferred ones among them.
    pub fallback: NodeMask,
}

impl DemotionTargets {
    /// What is left of them when only `allowed` nodes may be used.
    pub fn within(&self, allowed: &NodeMask) -> DemotionTargets {
        DemotionTargets {
            preferred: self.preferred.intersection(allowed),
            fallback: self.fallback.intersection(allowed),
        }
    }
}

/// The distance of a node to itself where no table says otherwise.
pub const LOCAL_DISTANCE: u32 = 10;
/// The distance between two nodes where no table says otherwise.
pub const REMOTE_DISTANCE: u32 = 20;

/// A machine's nodes, validated.
#[derive(Clone, Debug, Serialize)]
pub struct Topology {
    /// Where the tiers come from.
    tier_origin: TierOrigin,
    /// Ascending by id; ids may have holes.
    nodes: Vec<Node>,
}

/// What is wrong with a [`TopologyInput`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A node id no kernel can have.
    #[error("node {0}: ids are below 1024; correct the id")]
    IdTooLarge(NodeId),
    /// An id twice.
    #[error("node {0} is given twice; give it once")]
    Duplicate(NodeId),
    /// A distance row of the wrong length.
    #[error(
        "node {node}: its distance row has {found} entries for {expected} online nodes; \
         give one distance per online node in ascending order of id"
    )]
    DistanceRow {
        /// Whose row.
        node: NodeId,
        /// Entries in it.
        found: usize,
        /// Online nodes.
        expected: usize,
    },
    /// A distance below the local one.
    #[error("node {node}: distance {distance} to node {to} is below 10, the least possible")]
    Distance {
        /// Whose row.
        node: NodeId,
        /// To which node.
        to: NodeId,
        /// The distance.
        distance: u32,
    },
    /// A CPU on two nodes.
    #[error("CPU {cpu} is on nodes {first} and {second}; a CPU is on one node")]
    CpuTwice {
        /// The CPU.
        cpu: u32,
        /// The node that had it first.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
    /// A tier by hand has a node that is no memory.
    #[error("node {0} is in a tier, but this machine has no memory there; leave it out")]
    TierWithoutMemory(NodeId),
    /// Tiers by hand leave a node out.
    #[error("node {0} has memory, but is in none of the tiers; put it into one")]
    InNoTier(NodeId),
    /// No memory anywhere.
    #[error("no online node has memory; give at least one")]
    NoMemory,
}

impl Topology {
    /// The nodes, ascending by id.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The same machine with these tiers. Hot pages go to the first.
    ///
    /// # Errors
    ///
    /// A node without memory that is in a tier, or one with memory that is in none.
    pub fn with_tiers(&self, tiers: &HandTiers) -> Result<Topology, TopologyError> {
        let memory = self.memory_nodes();
        if let Some(node) = tiers.nodes().find(|node| !memory.contains(*node)) {
            return Err(TopologyError::TierWithoutMemory(node));
        }
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            node.tier = tiers.tier_of(node.id);
            if node.has_memory() && node.tier.is_none() {
                return Err(TopologyError::InNoTier(node.id));
            }
        }
        Ok(input::targeted(nodes, TierOrigin::ByHand))
    }

    /// Where the tiers come from.
    pub fn tier_origin(&self) -> TierOrigin {
        self.tier_origin
    }

    /// The node of that id.
    #[inline]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        // Most machines have no holes.
        if let Some(node) = self.nodes.get(id.index()).filter(|node| node.id == id) {
            return Some(node);
        }
        let at = self.nodes.binary_search_by_key(&id, |n| n.id).ok()?;
        Some(&self.nodes[at])
    }

    /// The node that a CPU belongs to.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<NodeId> {
        self.nodes
            .iter()
            .find(|n| n.cpus.binary_search(&cpu).is_ok())
            .map(|n| n.id)
    }

    /// The nodes that hold memory now.
    pub fn memory_nodes(&self) -> NodeMask {
        self.nodes
            .iter()
            .filter(|n| n.has_memory())
            .map(|n| n.id)
            .collect()
    }

    /// Whether promotion is done with a page on `id`. False for a node that
    /// does not exist or is offline.
    #[inline]
    pub fn is_top_tier(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|n| n.top_tier)
    }

    /// The distance from `from` to `to`: the table's, else 10 to itself and 20
    /// to others. `None` if either is not an online node.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        input::distance(&self.nodes, from, to)
    }

    /// Where hot pages of `from` go if nobody names a node: the nearest top-tier
    /// node with memory, with CPUs if there is one, the lowest id among equals.
    /// `None` for a top-tier node.
    pub fn promotion_target(&self, from: NodeId) -> Option<NodeId> {
        self.node(from)?.promotion_target
    }

    /// The same among the `allowed` nodes.
    pub fn promotion_target_within(&self, from: NodeId, allowed: &NodeMask) -> Option<NodeId> {
        input::promotion_target(&self.nodes, from, allowed)
    }

    /// Where cold pages of `from` go. Empty sets for the lowest tier.
    pub fn demotion_targets(&self, from: NodeId) -> DemotionTargets {
        self.node(from)
            .map(|n| n.demotion_targets)
            .unwrap_or_default()
    }

    /// The tiers, fastest first, with their nodes.
    pub fn tiers(&self) -> Vec<(TierId, NodeMask)> {
        let mut tiers: std::collections::BTreeMap<TierId, NodeMask> = Default::default();
        for node in &self.nodes {
            if let Some(tier) = node.tier {
                tiers.entry(tier).or_default().insert(node.id);
            }
        }
        tiers.into_iter().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
