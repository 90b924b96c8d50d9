//! What is measured: which nodes, from which CPUs, with how much memory.
//!
//! A node is used from the CPUs nearest to it, because weights are for
//! programs that run where their memory is. Memory is bounded by default to a
//! quarter of what the node has free: what is not free would have to be taken
//! from somebody.

use super::MeasureError;
use crate::fs::cache::LastLevel;
use crate::fs::list;
use crate::fs::topology::Machine;
use memtide_core::topology::{Node, Topology};
use memtide_core::units::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Memory is used in pieces of this size: a huge page.
pub const PIECE_BYTES: u64 = 2 << 20;

/// The default, if the node has four times as much free.
const DEFAULT_BYTES: u64 = 1 << 30;

/// The default time for a node.
pub const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes to measure; all with memory if `None`.
    pub nodes: Option<BTreeSet<NodeId>>,
    /// CPUs to measure from; those nearest to each node if `None`.
    pub cpus: Option<BTreeSet<u32>>,
    /// How long a node may take.
    pub time: Duration,
    /// How much memory of a node may be used, in bytes; at most a quarter of
    /// what is free if `None`.
    pub memory_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodes: None,
            cpus: None,
            time: DEFAULT_TIME,
            memory_bytes: None,
        }
    }
}

/// How one node is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The node.
    pub node: NodeId,
    /// Whether it is near, see [`is_near`].
    pub near: bool,
    /// The CPUs, ascending; a thread on each.
    pub cpus: Vec<u32>,
    /// Memory for the chain, a multiple of [`PIECE_BYTES`].
    pub chain_bytes: u64,
    /// Memory for each thread's stream, a multiple of [`PIECE_BYTES`].
    pub stream_bytes: u64,
    /// What to know about the figures that will come out.
    pub notes: Vec<String>,
}

impl NodePlan {
    /// All memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.chain_bytes + self.stream_bytes * self.cpus.len() as u64
    }
}

/// Whether a node is near: memory beside CPUs, or in a faster tier than any
/// that is (HBM).
pub fn is_near(node: &Node, topology: &Topology) -> bool {
    let with_cpus = topology.nodes().iter().filter(|node| node.has_cpus());
    let fastest = with_cpus.filter_map(|node| node.tier).min();
    node.has_cpus()
        || node
            .tier
            .zip(fastest)
            .is_some_and(|(tier, cpus)| tier < cpus)
}

/// The plan for each node, ascending. `usable` are the CPUs that this process
/// may run on, `caches` tells of the last-level caches of some.
///
/// # Errors
///
/// [`MeasureError`], of what was asked for and cannot be had.
pub fn plan(
    machine: &Machine,
    usable: &BTreeSet<u32>,
    options: &Options,
    caches: impl Fn(&BTreeSet<u32>) -> Result<Option<LastLevel>, MeasureError>,
) -> Result<Vec<NodePlan>, MeasureError> {
    let topology = &machine.topology;
    let memory_nodes = topology.memory_nodes();
    let wanted: Vec<NodeId> = match &options.nodes {
        Some(nodes) => nodes.iter().copied().collect(),
        None => memory_nodes.iter().collect(),
    };
    let plan_of = |id: NodeId| {
        let with_memory = || memory_nodes.to_string();
        let node = topology.node(id).ok_or_else(|| MeasureError::NoNode {
            node: id,
            with_memory: with_memory(),
        })?;
        if !node.has_memory() {
            let with_memory = with_memory();
            return Err(MeasureError::NoMemory {
                node: id,
                with_memory,
            });
        }
        let cpus = cpus_for(id, topology, usable, options.cpus.as_ref())?;
        let caches = caches(&cpus)?.unwrap_or_default();
        let free = machine.node(id).and_then(|node| node.memory.free());
        let budget = budget(options.memory_bytes, free, caches);
        sizes(node, is_near(node, topology), &cpus, budget, caches)
    };
    wanted.into_iter().map(plan_of).collect()
}

/// The CPUs that were given, or those nearest to `node` that are usable.
fn cpus_for(
    node: NodeId,
    topology: &Topology,
    usable: &BTreeSet<u32>,
    given: Option<&BTreeSet<u32>>,
) -> Result<BTreeSet<u32>, MeasureError> {
    if let Some(given) = given {
        if let Some(&cpu) = given.iter().find(|cpu| !usable.contains(cpu)) {
            let usable = list::format(usable.iter().copied());
            return Err(MeasureError::Cpu { cpu, usable });
        }
        if !given.is_empty() {
            return Ok(given.clone());
        }
    }
    let of = |node: &Node| -> BTreeSet<u32> {
        let cpus = node.cpus.iter().copied();
        cpus.filter(|cpu| usable.contains(cpu)).collect()
    };
    let with_cpus = topology.nodes().iter().filter(|from| !of(from).is_empty());
    with_cpus
        .min_by_key(|from| {
            (
                topology.distance(from.id, node).unwrap_or(u32::MAX),
                from.id,
            )
        })
        .map(of)
        .ok_or(MeasureError::NoCpus)
}

/// How much memory a node's measurement may take.
fn budget(asked: Option<u64>, free: Option<u64>, caches: LastLevel) -> u64 {
    let free = free.unwrap_or(u64::MAX);
    // Streams that fit the caches would be measured there.
    let enough = DEFAULT_BYTES.max(8 * caches.total_bytes);
    asked.unwrap_or(enough.min(free / 4))
}

/// Divides the budget between the chain and the threads' streams.
fn sizes(
    node: &Node,
    near: bool,
    cpus: &BTreeSet<u32>,
    budget: u64,
    caches: LastLevel,
) -> Result<NodePlan, MeasureError> {
    let pieces = |bytes: u64| bytes / PIECE_BYTES;
    let all = pieces(budget);
    if all < 2 {
        return Err(MeasureError::TooLittle {
            node: node.id,
            bytes: budget,
        });
    }
    // A cycle through twice the cache's lines, every second line a step, finds
    // each of them gone when it comes back.
    let chain_enough = pieces(8 * caches.largest_bytes).max(1);
    let chain = chain_enough.min(all / 2);
    let threads = (cpus.len() as u64).min(all - chain);
    let stream = (all - chain) / threads;
    let mut notes = Vec::new();
    let short = |what: &str| {
        format!(
            "{what} may be partly the cache's ({} MiB): give more --memory",
            caches.total_bytes >> 20
        )
    };
    if chain < chain_enough {
        notes.push(short("latency"));
    }
    if threads * stream * PIECE_BYTES < 4 * caches.total_bytes {
        notes.push(short("bandwidth"));
    }
    if threads < cpus.len() as u64 {
        notes.push(format!(
            "{threads} of {} CPUs, the memory being divided",
            cpus.len()
        ));
    }
    if threads == 1 {
        notes.push("one CPU: no latency under load".to_owned());
    }
    Ok(NodePlan {
        node: node.id,
        near,
        cpus: cpus.iter().copied().take(threads as usize).collect(),
        chain_bytes: chain * PIECE_BYTES,
        stream_bytes: stream * PIECE_BYTES,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Root, topology};
    use std::path::Path;

    fn machine(name: &str) -> Machine {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        topology::read(&Root::new(fixtures.join(name))).unwrap()
    }

    fn plans(name: &str, options: &Options, mib: u64) -> Result<Vec<NodePlan>, MeasureError> {
        let caches = LastLevel {
            largest_bytes: mib << 20,
            total_bytes: mib << 20,
        };
        let machine = machine(name);
        let nodes = machine.topology.nodes().iter();
        let usable = nodes.flat_map(|node| node.cpus.clone()).collect();
        plan(&machine, &usable, options, |_| Ok(Some(caches)))
    }

    #[test]
    fn each_node_is_measured_from_the_nearest_cpus() {
        let name = "two-sockets-cxl-hmat";
        let plans = plans(name, &Options::default(), 32).unwrap();
        let machine = machine(name);
        let ids: Vec<u16> = plans.iter().map(|plan| plan.node.0).collect();
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(
            plans.iter().map(|plan| plan.near).collect::<Vec<_>>(),
            [true, true, false]
        );
        for plan in &plans {
            let from = machine.topology.node_of_cpu(plan.cpus[0]).unwrap();
            let distance = |from| machine.topology.distance(from, plan.node);
            let others = machine
                .topology
                .nodes()
                .iter()
                .filter(|node| node.has_cpus());
            assert_eq!(
                distance(from),
                others.map(|node| distance(node.id)).min().unwrap()
            );
            let free = machine.node(plan.node).unwrap().memory.free().unwrap();
            assert!(plan.memory_bytes() <= free / 4);
            assert_eq!(plan.chain_bytes, 256 << 20);
        }
    }

    #[test]
    fn memory_is_never_more_than_asked_for() {
        for mib in [4, 6, 64, 100, 1000, 5000] {
            let options = Options {
                memory_bytes: Some(mib << 20),
                ..Options::default()
            };
            for plan in plans("hbm", &options, 32).unwrap() {
                assert!(plan.memory_bytes() <= mib << 20, "{plan:?}");
                assert!(plan.memory_bytes() > (mib << 20) / 2, "{plan:?}");
                assert!(plan.stream_bytes >= PIECE_BYTES && plan.chain_bytes >= PIECE_BYTES);
                assert_eq!(plan.notes.is_empty(), mib >= 512, "{plan:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let error = |options| plans("node-offline", &options, 1).unwrap_err().to_string();
        let nodes = |id| Options {
            nodes: Some([NodeId(id)].into()),
            ..Options::default()
        };
        assert_eq!(
            error(nodes(7)),
            "node 7 does not exist; nodes with memory: 0"
        );
        assert_eq!(
            error(nodes(1)),
            "node 1 has no memory; nodes with memory: 0"
        );
        let options = Options {
            cpus: Some([9999].into()),
            ..Options::default()
        };
        assert!(
            error(options).starts_with("CPU 9999 is not online or not allowed here; there are ")
        );
        let options = Options {
            memory_bytes: Some(1 << 20),
            ..Options::default()
        };
        assert_eq!(
            error(options),
            "node 0: 1 MiB are too little to measure with, it takes 4 MiB at least"
        );
    }
}
