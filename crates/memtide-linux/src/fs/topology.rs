//! A machine's nodes, put together from sysfs.
//!
//! Problem: the files change under the reader. A node that goes online adds
//! a number to every other node's distance row, and rows read before and
//! after do not fit each other.
//!
//! Approach: the list of online nodes is read before and after all else; if
//! it changed, everything is read again, a few times. What then still does
//! not fit is reported. The core checks the whole and draws the conclusions
//! (tiers, targets); nothing is decided here.
//!
//! Only online nodes are taken in. sysfs shows nothing of an offline one but
//! its id, and some hypervisors announce a thousand that never appear.

use super::node::{self, Node, NodeSets, Weights};
use super::{FsError, ParseError, Result, Root, numa};
use memtide_core::topology::{NodeInput, TierId, Topology, TopologyInput};
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// How often a machine that changes is read before the reader gives up.
const ATTEMPTS: u32 = 4;

/// A machine as its sysfs describes it at one moment.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What the core makes of it.
    pub topology: Topology,
    /// The kernel's sets of nodes.
    pub sets: NodeSets,
    /// The online nodes, ascending by id.
    pub nodes: Vec<Node>,
    /// The interleave weights, `None` on kernels without a table.
    pub weights: Option<Weights>,
    /// Whether reclaim demotes, `None` on kernels that never do.
    pub demotion_enabled: Option<bool>,
}

impl Machine {
    /// The node of that id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

/// Reads the machine.
///
/// # Errors
///
/// [`FsError::Missing`] on a kernel without NUMA, [`FsError::Malformed`] and
/// [`FsError::Contradiction`] if its sysfs makes no sense.
pub fn read(root: &Root) -> Result<Machine> {
    let mut attempt = 1;
    loop {
        let sets = node::sets(root)?;
        let machine = read_once(root, sets.clone());
        if attempt == ATTEMPTS || node::sets(root)? == sets {
            return machine;
        }
        attempt += 1;
    }
}

fn read_once(root: &Root, sets: NodeSets) -> Result<Machine> {
    let mut nodes = Vec::new();
    for id in &sets.online {
        nodes.extend(node::node(root, *id)?);
    }
    let input = input(root, &nodes)?;
    let topology = Topology::try_from(input).map_err(|cause| FsError::Contradiction {
        path: root.path(node::NODES),
        cause,
    })?;
    Ok(Machine {
        topology,
        sets,
        nodes,
        weights: node::weights(root)?,
        demotion_enabled: numa::demotion_enabled(root)?,
    })
}

/// What the core wants to know of `nodes`.
fn input(root: &Root, nodes: &[Node]) -> Result<TopologyInput> {
    let tiers: BTreeMap<NodeId, TierId> = node::tiers(root)?
        .into_iter()
        .flatten()
        .flat_map(|(tier, nodes)| nodes.into_iter().map(move |node| (node, TierId(tier))))
        .collect();
    let nodes = nodes
        .iter()
        .map(|node| {
            Ok(NodeInput {
                id: node.id,
                online: true,
                memory_bytes: total(root, node)?,
                cpus: node.cpus.iter().copied().collect(),
                distances: node.distances.clone(),
                figures: node.figures(),
                tier: tiers.get(&node.id).copied(),
            })
        })
        .collect::<Result<_>>()?;
    Ok(TopologyInput::new(nodes))
}

fn total(root: &Root, node: &Node) -> Result<u64> {
    node.memory.total().ok_or_else(|| FsError::Malformed {
        path: root.path(format!("{}/node{}/meminfo", node::NODES, node.id)),
        cause: ParseError::new(1, "MemTotal", "missing"),
    })
}
