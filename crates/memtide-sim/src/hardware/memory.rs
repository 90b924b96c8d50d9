//! Memory: how late each node answers, by how much it is asked.
//!
//! A node's latency is its idle latency, times how far the asking node is, times a factor L that grows
//! with the share u of its bandwidth in use: L = f(u). The share follows from the traffic, and the
//! traffic from the latency: threads that wait longer ask less. Were all the time spent waiting for one
//! node, u L would be constant: that is the *demand* c, the share that would be used if latency did not
//! grow. [`Memory::feedback`] takes it from each quantum, averages it a little, and solves
//! L = f(c / L), which has one solution, as the left side rises and the right side falls.
//!
//! That is stable. L follows c with an elasticity e / (1 + e) below 1, where e is that of f; and c
//! itself follows L, where part of the time goes elsewhere, with a positive elasticity below 1. So steps
//! never swing, and noise in the traffic of a quantum comes out smaller than it went in, however steep
//! f is.
//!
//! What stays true: f never falls, f(0) = 1, and beyond full bandwidth f rises with the 200th power,
//! so that demand of up to twenty times what a node carries exceeds it by 1.5 %.

use super::ServedBy;
use super::law::{DEMAND_WEIGHT, Law};
use crate::page::MAX_NODES;
use crate::spec::{MachineSpec, MemorySpec};
use memtide_core::units::NodeId;

/// A node's memory.
#[derive(Clone, Debug)]
struct NodeMemory {
    spec: MemorySpec,
    law: Law,
    /// Whether it has any memory.
    holds: bool,
    seen_from: [f64; MAX_NODES],
    /// The factor in force.
    factor: f64,
    /// Lines since the quantum began, of the real machine.
    read_lines: u64,
    written_lines: u64,
    /// Bytes since the machine began.
    read_bytes: u64,
    written_bytes: u64,
    /// Share of bandwidth in the last quantum.
    share: f64,
    /// The demand, averaged.
    demand: Option<f64>,
}

/// The memory of all nodes.
#[derive(Clone, Debug)]
pub struct Memory {
    nodes: Vec<Option<NodeMemory>>,
    cpu_nodes: Vec<usize>,
    still: bool,
}

impl Memory {
    /// The memory of a machine, idle.
    #[must_use]
    pub fn new(spec: &MachineSpec) -> Memory {
        let mut nodes = vec![None; MAX_NODES];
        for node in &spec.nodes {
            let mut seen_from = [1.0; MAX_NODES];
            for (other, &factor) in spec.nodes.iter().zip(&node.seen_from) {
                seen_from[usize::from(other.id)] = factor;
            }
            nodes[usize::from(node.id)] = Some(NodeMemory {
                spec: node.memory.clone(),
                law: Law::new(node.memory.loaded.clone()),
                holds: node.capacity_bytes > 0,
                seen_from,
                factor: 1.0,
                read_lines: 0,
                written_lines: 0,
                read_bytes: 0,
                written_bytes: 0,
                share: 0.0,
                demand: None,
            });
        }
        let cpu_nodes = spec.nodes.iter().filter(|node| node.cpus > 0);
        Memory {
            nodes,
            cpu_nodes: cpu_nodes.map(|node| usize::from(node.id)).collect(),
            still: false,
        }
    }

    /// Answers as if nobody asked: for the oracle, which reckons with load afterwards.
    pub fn keep_still(&mut self) {
        self.still = true;
    }

    /// Whether latency does not follow load.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.still
    }

    /// Forgets traffic and load.
    pub fn reset(&mut self) {
        for memory in self.nodes.iter_mut().flatten() {
            memory.factor = 1.0;
            memory.share = 0.0;
            memory.demand = None;
            (memory.read_lines, memory.written_lines) = (0, 0);
            (memory.read_bytes, memory.written_bytes) = (0, 0);
        }
    }

    /// Adds traffic to a node, in lines of the real machine.
    #[inline]
    pub fn add_lines(&mut self, node: NodeId, read: u64, written: u64) {
        if let Some(memory) = &mut self.nodes[node.index()] {
            memory.read_lines += read;
            memory.written_lines += written;
        }
    }

    /// Latency of one access of a CPU of `from` to node `to` at the present load.
    #[must_use]
    pub fn latency_ns(&self, from: NodeId, to: NodeId, write: bool) -> f64 {
        self.nodes[to.index()].as_ref().map_or(0.0, |memory| {
            let idle = if write {
                memory.spec.write_ns
            } else {
                memory.spec.read_ns
            };
            idle * memory.seen_from[from.index()] * memory.factor
        })
    }

    /// The same without load.
    #[must_use]
    pub fn idle_ns(&self, from: NodeId, to: NodeId, write: bool) -> f64 {
        let factor = self.nodes[to.index()].as_ref().map_or(1.0, |m| m.factor);
        self.latency_ns(from, to, write) / factor
    }

    /// Latency from the CPUs that are nearest to a node.
    #[must_use]
    pub fn nearest_ns(&self, to: NodeId, write: bool) -> f64 {
        let from = self.cpu_nodes.iter();
        from.map(|&cpu| self.latency_ns(NodeId(cpu as u16), to, write))
            .fold(f64::INFINITY, f64::min)
            .min(1e9)
    }

    /// Latency without load of the nearest of all nodes to the nearest of the CPUs of `from`.
    #[must_use]
    pub fn least_ns(&self, from: &[u16], write: bool) -> f64 {
        let nodes = self.nodes.iter().enumerate();
        let present = nodes.filter(|(_, memory)| memory.as_ref().is_some_and(|m| m.holds));
        present
            .map(|(to, _)| self.least_to_ns(from, NodeId(to as u16), write))
            .fold(f64::INFINITY, f64::min)
    }

    /// The same of one node.
    #[must_use]
    pub fn least_to_ns(&self, from: &[u16], to: NodeId, write: bool) -> f64 {
        from.iter()
            .map(|&from| self.idle_ns(NodeId(from), to, write))
            .fold(f64::INFINITY, f64::min)
    }

    /// How long a node is busy with one line.
    #[must_use]
    pub fn line_ns(&self, node: NodeId, write: bool) -> f64 {
        let memory = self.nodes[node.index()].as_ref();
        memory.map_or(0.0, |memory| {
            let rate = match write {
                true => memory.spec.write_bytes_per_s,
                false => memory.spec.read_bytes_per_s,
            };
            super::LINE_BYTES as f64 / rate * 1e9
        })
    }

    /// How a node's latency follows its load.
    #[must_use]
    pub fn law(&self, node: NodeId) -> Option<&Law> {
        self.nodes[node.index()].as_ref().map(|memory| &memory.law)
    }

    /// The factor of load in force on a node.
    #[must_use]
    pub fn factor(&self, node: NodeId) -> f64 {
        self.nodes[node.index()].as_ref().map_or(1.0, |m| m.factor)
    }

    /// The share of a node's bandwidth that was used in the last quantum.
    #[must_use]
    pub fn share(&self, node: NodeId) -> f64 {
        self.nodes[node.index()].as_ref().map_or(0.0, |m| m.share)
    }

    /// Bytes read from and written to a node so far, of the real machine.
    #[must_use]
    pub fn bytes(&self, node: NodeId) -> (u64, u64) {
        self.nodes[node.index()]
            .as_ref()
            .map_or((0, 0), |m| (m.read_bytes, m.written_bytes))
    }

    /// What kind of memory a node is to a CPU's node.
    #[must_use]
    pub fn served_by(&self, from: NodeId, to: NodeId) -> ServedBy {
        if from == to {
            ServedBy::LocalDram
        } else if self.cpu_nodes.contains(&to.index()) {
            ServedBy::RemoteDram
        } else {
            ServedBy::Extension
        }
    }

    /// Ends a quantum of `dt_ns`: latencies follow the traffic that it had.
    pub fn feedback(&mut self, dt_ns: u64) {
        let seconds = dt_ns as f64 * 1e-9;
        for memory in self.nodes.iter_mut().flatten() {
            let read = memory.read_lines * super::LINE_BYTES;
            let written = memory.written_lines * super::LINE_BYTES;
            memory.read_bytes += read;
            memory.written_bytes += written;
            (memory.read_lines, memory.written_lines) = (0, 0);
            let busy = read as f64 / memory.spec.read_bytes_per_s
                + written as f64 / memory.spec.write_bytes_per_s;
            memory.share = busy / seconds;
            if self.still {
                continue;
            }
            let demand = memory.share * memory.factor;
            let before = memory.demand.unwrap_or(demand);
            let demand = before + DEMAND_WEIGHT * (demand - before);
            memory.demand = Some(demand);
            memory.factor = memory.law.settle(demand);
        }
    }
}
