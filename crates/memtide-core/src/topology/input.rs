//! From what was read about a machine to a [`Topology`].

use super::distance::{ADISTANCE_DRAM, ADISTANCE_KMEM, Complete, TIER_CHUNK, abstract_distance};
use super::{
    DemotionTargets, LOCAL_DISTANCE, Node, REMOTE_DISTANCE, TierId, TierOrigin, Topology,
    TopologyError,
};
use crate::nodemask::NodeMask;
use crate::units::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was read about a machine's nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TopologyInput {
    /// The nodes in any order.
    pub nodes: Vec<NodeInput>,
    /// Whether somebody gave the nodes' tiers by hand: then the first tier alone is the top
    /// tier, wherever the CPUs are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
}

impl TopologyInput {
    /// A machine with these nodes and its own tiers.
    pub fn new(nodes: Vec<NodeInput>) -> TopologyInput {
        TopologyInput {
            nodes,
            by_hand: false,
        }
    }
}

/// What was read about one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeInput {
    /// Its id.
    pub id: NodeId,
    /// Whether it is online.
    pub online: bool,
    /// Its memory in bytes, zero if it has none.
    pub memory_bytes: u64,
    /// Its CPUs in any order.
    pub cpus: Vec<u32>,
    /// Distances to the online nodes in ascending order of id, as
    /// `/sys/devices/system/node/nodeN/distance` prints them.
    pub distances: Option<Vec<u32>>,
    /// What the firmware says of its speed.
    #[serde(default)]
    pub figures: AccessFigures,
    /// The tier that the kernel put it in, if that was readable.
    pub tier: Option<TierId>,
}

/// Latency and bandwidth of a node from its nearest CPUs (HMAT, access class 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessFigures {
    /// Nanoseconds to read.
    pub read_latency_ns: Option<u32>,
    /// Nanoseconds to write.
    pub write_latency_ns: Option<u32>,
    /// Megabytes a second read.
    pub read_bandwidth_mbps: Option<u32>,
    /// Megabytes a second written.
    pub write_bandwidth_mbps: Option<u32>,
}

impl TryFrom<TopologyInput> for Topology {
    type Error = TopologyError;

    fn try_from(input: TopologyInput) -> Result<Topology, TopologyError> {
        let by_hand = input.by_hand;
        let mut nodes = validated(input)?;
        let tier_origin = match by_hand {
            true => TierOrigin::ByHand,
            false => assign_tiers(&mut nodes),
        };
        Ok(targeted(nodes, tier_origin))
    }
}

/// Draws the conclusions from the nodes' tiers.
pub(super) fn targeted(mut nodes: Vec<Node>, tier_origin: TierOrigin) -> Topology {
    match tier_origin {
        TierOrigin::ByHand => assign_first_tier(&mut nodes),
        _ => assign_top_tier(&mut nodes),
    }
    for i in 0..nodes.len() {
        nodes[i].promotion_target = promotion_target(&nodes, nodes[i].id, &NodeMask::ALL);
        nodes[i].demotion_targets = demotion_targets(&nodes, nodes[i].id);
    }
    Topology { tier_origin, nodes }
}

fn validated(input: TopologyInput) -> Result<Vec<Node>, TopologyError> {
    let mut inputs = input.nodes;
    inputs.sort_by_key(|n| n.id);
    let online: Vec<NodeId> = inputs.iter().filter(|n| n.online).map(|n| n.id).collect();
    let mut homes: BTreeMap<u32, NodeId> = BTreeMap::new();
    let mut nodes: Vec<Node> = Vec::with_capacity(inputs.len());
    for given in inputs {
        let id = given.id;
        if id.0 >= NodeId::LIMIT {
            return Err(TopologyError::IdTooLarge(id));
        }
        if nodes.last().is_some_and(|n| n.id == id) {
            return Err(TopologyError::Duplicate(id));
        }
        check_distances(&given, &online)?;
        let mut cpus = given.cpus;
        cpus.sort_unstable();
        cpus.dedup();
        for &cpu in &cpus {
            if let Some(first) = homes.insert(cpu, id) {
                let second = id;
                return Err(TopologyError::CpuTwice { cpu, first, second });
            }
        }
        nodes.push(Node {
            id,
            online: given.online,
            memory_bytes: given.memory_bytes,
            cpus,
            distances: given.distances.filter(|_| given.online),
            figures: given.figures,
            tier: given
                .tier
                .filter(|_| given.online && given.memory_bytes > 0),
            top_tier: false,
            promotion_target: None,
            demotion_targets: DemotionTargets::default(),
        });
    }
    if nodes.iter().any(Node::has_memory) {
        Ok(nodes)
    } else {
        Err(TopologyError::NoMemory)
    }
}

fn check_distances(given: &NodeInput, online: &[NodeId]) -> Result<(), TopologyError> {
    let node = given.id;
    let (true, Some(row)) = (given.online, &given.distances) else {
        return Ok(());
    };
    if row.len() != online.len() {
        return Err(TopologyError::DistanceRow {
            node,
            found: row.len(),
            expected: online.len(),
        });
    }
    match row.iter().zip(online).find(|(d, _)| **d < LOCAL_DISTANCE) {
        Some((&distance, &to)) => Err(TopologyError::Distance { node, to, distance }),
        None => Ok(()),
    }
}

/// Gives every node with memory a tier unless the kernel gave any.
fn assign_tiers(nodes: &mut [Node]) -> TierOrigin {
    if nodes.iter().any(|n| n.tier.is_some()) {
        return TierOrigin::Kernel;
    }
    let dram = dram_figures(nodes);
    let mut origin = TierOrigin::Assumed;
    for node in nodes.iter_mut().filter(|n| n.has_memory()) {
        let adistance = if node.has_cpus() {
            ADISTANCE_DRAM
        } else if let Some(computed) = dram.and_then(|d| abstract_distance(&node.figures, &d)) {
            origin = TierOrigin::Figures;
            computed
        } else {
            ADISTANCE_KMEM
        };
        node.tier = Some(TierId(adistance / TIER_CHUNK));
    }
    origin
}

/// The first DRAM node's figures, unless another DRAM node contradicts them.
fn dram_figures(nodes: &[Node]) -> Option<AccessFigures> {
    let mut dram = nodes
        .iter()
        .filter(|n| n.has_memory() && n.has_cpus())
        .filter_map(|n| Some((n.figures, Complete::of(&n.figures)?)));
    let (figures, first) = dram.next()?;
    dram.all(|(_, other)| first.agrees(&other))
        .then_some(figures)
}

/// A node is top tier if its tier is no slower than the slowest that has a CPU.
/// A node that is in no tier is top tier too: there is nothing to compare.
fn assign_top_tier(nodes: &mut [Node]) {
    let slowest = nodes
        .iter()
        .filter(|n| n.has_cpus())
        .filter_map(|n| n.tier)
        .max();
    for node in nodes.iter_mut().filter(|n| n.online) {
        node.top_tier = match (node.tier, slowest) {
            (Some(tier), Some(limit)) => tier <= limit,
            _ => true,
        };
    }
}

/// Who gives tiers says which is fast: the first, and no other that has CPUs.
fn assign_first_tier(nodes: &mut [Node]) {
    let first = nodes.iter().filter_map(|n| n.tier).min();
    for node in nodes.iter_mut().filter(|n| n.online) {
        node.top_tier = !node.has_memory() || node.tier == first;
    }
}

pub(super) fn distance(nodes: &[Node], from: NodeId, to: NodeId) -> Option<u32> {
    let mut online = nodes.iter().filter(|n| n.online);
    let to_at = online.clone().position(|n| n.id == to)?;
    let from = online.find(|n| n.id == from)?;
    Some(match &from.distances {
        Some(row) => row[to_at],
        None if from.id == to => LOCAL_DISTANCE,
        None => REMOTE_DISTANCE,
    })
}

pub(super) fn promotion_target(nodes: &[Node], from: NodeId, allowed: &NodeMask) -> Option<NodeId> {
    let source = nodes.iter().find(|n| n.id == from)?;
    if !source.has_memory() || source.top_tier {
        return None;
    }
    nodes
        .iter()
        .filter(|n| n.has_memory() && n.top_tier && allowed.contains(n.id))
        .filter_map(|n| Some((!n.has_cpus(), distance(nodes, from, n.id)?, n.id)))
        .min()
        .map(|(_, _, id)| id)
}

fn demotion_targets(nodes: &[Node], from: NodeId) -> DemotionTargets {
    let Some(tier) = nodes.iter().find(|n| n.id == from).and_then(|n| n.tier) else {
        return DemotionTargets::default();
    };
    let lower = || {
        nodes
            .iter()
            .filter_map(move |n| Some((n.tier.filter(|&t| t > tier)?, n.id)))
    };
    let nearest = lower()
        .filter_map(|(t, id)| Some((t, distance(nodes, from, id)?)))
        .min();
    DemotionTargets {
        preferred: lower()
            .filter(|&(t, id)| distance(nodes, from, id).map(|d| (t, d)) == nearest)
            .map(|(_, id)| id)
            .collect(),
        fallback: lower().map(|(_, id)| id).collect(),
    }
}
