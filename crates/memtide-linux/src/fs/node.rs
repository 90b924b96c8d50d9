//! Memory nodes: `/sys/devices/system/node`, tiers and interleave weights.
//!
//! This file reads; it decides nothing. What the numbers mean together is
//! the core's topology.
//!
//! Latency and bandwidth come from the firmware's HMAT table. The kernel
//! publishes them for the memory *target* node, seen from its best
//! initiators, in two access classes: class 0 counts every initiator, which
//! may be an accelerator, class 1 only those with CPUs. What the firmware
//! did not say the kernel prints as 0, which is `None` here.

use super::list::{parse as parse_list, parse_nodes};
use super::parse::{ParseError, lines, number, small, words};
use super::{FsError, Result, Root, meminfo};
use memtide_core::topology::AccessFigures;
use memtide_core::units::NodeId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";
pub(crate) const WEIGHTS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

/// What the switch for computed weights is called. The second name is how
/// kernel 6.18 spells the first one: there `auto` was a macro when the file's
/// name was made from it.
pub const AUTO_NAMES: [&str; 2] = ["auto", "__auto_type"];

/// The kernel's sets of nodes by state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSets {
    /// Nodes in use.
    pub online: BTreeSet<NodeId>,
    /// Nodes that could ever appear.
    pub possible: Option<BTreeSet<NodeId>>,
    /// Nodes with CPUs.
    pub has_cpu: Option<BTreeSet<NodeId>>,
    /// Nodes with memory.
    pub has_memory: Option<BTreeSet<NodeId>>,
    /// Nodes with memory that the kernel can use for itself.
    pub has_normal_memory: Option<BTreeSet<NodeId>>,
}

/// One node as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its CPUs; empty for memory without CPUs.
    pub cpus: BTreeSet<u32>,
    /// Distances to the online nodes, in ascending order of their ids.
    pub distances: Option<Vec<u32>>,
    /// Its memory's totals.
    pub memory: meminfo::MemInfo,
    /// Seen from the best initiators of any kind.
    pub access0: Option<AccessFigures>,
    /// Seen from the best initiators with CPUs.
    pub access1: Option<AccessFigures>,
}

impl Node {
    /// Latency and bandwidth as a CPU sees them: class 1, or class 0 where
    /// the kernel says nothing in class 1. All `None` if the firmware said
    /// nothing.
    pub fn figures(&self) -> AccessFigures {
        [self.access1, self.access0]
            .into_iter()
            .flatten()
            .find(|figures| *figures != AccessFigures::default())
            .unwrap_or_default()
    }
}

/// The kernel's table of interleave weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// A node's weight, 1 to 255.
    pub weights: BTreeMap<NodeId, u8>,
    /// Whether the kernel computes them; `None` on kernels that never do.
    pub auto: Option<bool>,
}

/// The sets of nodes.
///
/// # Errors
///
/// [`FsError::Missing`] on a kernel built without NUMA, which has no such
/// directory.
pub fn sets(root: &Root) -> Result<NodeSets> {
    let set = |name: &str| root.parse(format!("{NODES}/{name}"), parse_nodes);
    Ok(NodeSets {
        online: set("online")?.ok_or_else(|| FsError::Missing {
            path: root.path(format!("{NODES}/online")),
            needed_for: "the list of memory nodes; the kernel needs CONFIG_NUMA and sysfs mounted",
        })?,
        possible: set("possible")?,
        has_cpu: set("has_cpu")?,
        has_memory: set("has_memory")?,
        has_normal_memory: set("has_normal_memory")?,
    })
}

/// One node, or `None` if it is not there (any more).
pub fn node(root: &Root, id: NodeId) -> Result<Option<Node>> {
    let file = |name: &str| format!("{NODES}/node{id}/{name}");
    let Some(cpus) = root.parse(file("cpulist"), parse_list)? else {
        return Ok(None);
    };
    let needed = |name: &str, needed_for| FsError::Missing {
        path: root.path(file(name)),
        needed_for,
    };
    Ok(Some(Node {
        id,
        cpus,
        distances: root.parse(file("distance"), parse_distances)?,
        memory: root
            .parse(file("meminfo"), meminfo::parse)?
            .ok_or_else(|| needed("meminfo", "the size of the node's memory"))?,
        access0: access(root, id, 0)?,
        access1: access(root, id, 1)?,
    }))
}

/// One access class of a node, or `None` if the kernel has none for it.
pub fn access(root: &Root, id: NodeId, class: u32) -> Result<Option<AccessFigures>> {
    let directory = format!("{NODES}/node{id}/access{class}/initiators");
    let read = |name: &str| -> Result<Option<u32>> {
        let value = root.parse(format!("{directory}/{name}"), |bytes| {
            small(bytes.trim_ascii(), 1, name)
        })?;
        Ok(value.filter(|value| *value != 0))
    };
    if root.names(&directory)?.is_none() {
        return Ok(None);
    }
    Ok(Some(AccessFigures {
        read_latency_ns: read("read_latency")?,
        write_latency_ns: read("write_latency")?,
        read_bandwidth_mbps: read("read_bandwidth")?,
        write_bandwidth_mbps: read("write_bandwidth")?,
    }))
}

/// The memory tiers: nodes by tier number, the fastest first. `None` on
/// kernels without tiers.
pub fn tiers(root: &Root) -> Result<Option<BTreeMap<u32, BTreeSet<NodeId>>>> {
    let Some(names) = root.names(TIERS)? else {
        return Ok(None);
    };
    let mut tiers = BTreeMap::new();
    for name in names {
        let id = name.strip_prefix("memory_tier");
        let Some(id) = id.and_then(|id| id.parse().ok()) else {
            continue;
        };
        // A tier goes away with its last node, between two reads as well.
        if let Some(nodes) = root.parse(format!("{TIERS}/{name}/nodelist"), parse_nodes)? {
            tiers.insert(id, nodes);
        }
    }
    Ok(Some(tiers))
}

/// The interleave weights, or `None` on kernels before 6.9.
pub fn weights(root: &Root) -> Result<Option<Weights>> {
    let Some(names) = root.names(WEIGHTS)? else {
        return Ok(None);
    };
    let mut weights = BTreeMap::new();
    for name in names {
        let id = name.strip_prefix("node").and_then(|id| id.parse().ok());
        let Some(id) = id.filter(|id| *id < NodeId::LIMIT).map(NodeId) else {
            continue;
        };
        if let Some(weight) = root.parse(format!("{WEIGHTS}/{name}"), parse_weight)? {
            weights.insert(id, weight);
        }
    }
    let mut auto = None;
    for name in AUTO_NAMES {
        auto = auto.or(root.parse(format!("{WEIGHTS}/{name}"), super::numa::parse_bool)?);
    }
    Ok(Some(Weights { weights, auto }))
}

/// Parses a weight: 1 to 255.
pub fn parse_weight(bytes: &[u8]) -> std::result::Result<u8, ParseError> {
    match small(bytes.trim_ascii(), 1, "weight")? {
        0 => Err(ParseError::new(1, "weight", "0 is not in 1-255")),
        weight => Ok(weight),
    }
}

/// Parses a node's distances: one number for each online node.
pub fn parse_distances(bytes: &[u8]) -> std::result::Result<Vec<u32>, ParseError> {
    let mut distances = Vec::new();
    for (line, content) in lines(bytes) {
        for word in words(content) {
            distances.push(match number(word, line, "distance")? {
                // 10 is local by definition, 255 is unreachable.
                distance @ 10..=255 => distance as u32,
                distance => {
                    let problem = format!("{distance} is not in 10-255");
                    return Err(ParseError::new(line, "distance", problem));
                }
            });
        }
    }
    Ok(distances)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_and_weights_are_checked() {
        assert_eq!(parse_distances(b"10 20 255\n"), Ok(vec![10, 20, 255]));
        assert_eq!(
            parse_distances(b"10 9\n").unwrap_err().to_string(),
            "1: distance: 9 is not in 10-255"
        );
        assert_eq!(parse_weight(b"255\n"), Ok(255));
        assert_eq!(
            parse_weight(b"0\n").unwrap_err().to_string(),
            "1: weight: 0 is not in 1-255"
        );
        assert_eq!(
            parse_weight(b"256\n").unwrap_err().to_string(),
            "1: weight: 256 is too large"
        );
    }

    #[test]
    fn the_auto_switch_goes_by_two_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let folder = root.path(WEIGHTS);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("node3"), "7\n").unwrap();
        let read = || weights(&root).unwrap().unwrap();
        assert_eq!(read().weights, BTreeMap::from([(NodeId(3), 7)]));
        assert_eq!(read().auto, None);
        for (name, content, auto) in [("__auto_type", "true\n", true), ("auto", "false\n", false)] {
            std::fs::write(folder.join(name), content).unwrap();
            assert_eq!(read().auto, Some(auto));
        }
    }

    #[test]
    fn a_cpu_prefers_its_own_access_class() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(NODES).join("node2").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpulist", "\n");
        write("distance", "20 10\n");
        write("meminfo", "Node 2 MemTotal: 1024 kB\n");
        let read = || {
            let node = node(&Root::new(dir.path()), NodeId(2)).unwrap().unwrap();
            node.figures()
        };
        assert_eq!(read(), AccessFigures::default());
        write("access1/initiators/read_latency", "0\n");
        write("access0/initiators/read_latency", "90\n");
        // Class 1 is there and says nothing: class 0 stands in.
        assert_eq!(read().read_latency_ns, Some(90));
        write("access1/initiators/read_latency", "250\n");
        assert_eq!(read().read_latency_ns, Some(250));
        assert_eq!(read().read_bandwidth_mbps, None);
    }
}
