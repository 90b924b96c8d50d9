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
use crate::page::MAX_NODES;
use crate::spec::{LoadedLatency, MachineSpec, MemorySpec};
use memtide_core::units::NodeId;

/// The share of bandwidth at which the curve's peak factor is reached.
pub const PEAK_SHARE: f64 = 0.995;
/// The power with which latency rises beyond it.
const OVERLOAD_POWER: f64 = 200.0;
/// How much of the averaged demand a quantum's replaces.
const DEMAND_WEIGHT: f64 = 0.25;

/// No load makes latency more than so many times that of an idle node. Only a scale at which one
/// access is more than a quantum's traffic comes near it.
const MOST: f64 = 1e4;

/// How latency follows load.
#[derive(Clone, Debug)]
struct Law(LoadedLatency);

impl Law {
    /// The factor at share `u` of full bandwidth.
    fn factor(&self, u: f64) -> f64 {
        let beyond = (u / PEAK_SHARE).max(1.0).powf(OVERLOAD_POWER);
        let u = u.clamp(0.0, PEAK_SHARE);
        let within = match &self.0 {
            LoadedLatency::Regions {
                flat_until,
                linear_until,
                linear_factor,
                peak_factor,
            } => {
                if u <= *flat_until {
                    1.0
                } else if u <= *linear_until {
                    1.0 + (linear_factor - 1.0) * (u - flat_until) / (linear_until - flat_until)
                } else {
                    let part = (u - linear_until) / (PEAK_SHARE - linear_until);
                    linear_factor * (peak_factor / linear_factor).powf(part)
                }
            }
            LoadedLatency::Measured(curve) => {
                let mbps = u * curve.peak_mbps() as f64;
                let low = curve.latency_at(mbps as u64);
                let high = curve.latency_at(mbps as u64 + 1);
                match (curve.idle_ns(), low, high) {
                    (Some(idle), Some(low), Some(high)) => {
                        (low + (high - low) * mbps.fract()) / idle
                    }
                    _ => 1.0,
                }
            }
        };
        within * beyond
    }

    /// The solution L of L = f(c / L).
    fn settle(&self, c: f64) -> f64 {
        // It lies between 1 and f(c); in logarithms.
        let (mut low, mut high) = (0.0, self.factor(c).min(MOST).ln());
        while high - low > 1e-6 {
            let middle = 0.5 * (low + high);
            match self.factor(c * (-middle).exp()).ln() > middle {
                true => low = middle,
                false => high = middle,
            }
        }
        low.exp()
    }
}

/// A node's memory.
#[derive(Clone, Debug)]
struct NodeMemory {
    spec: MemorySpec,
    law: Law,
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
    pooled: bool,
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
                law: Law(node.memory.loaded.clone()),
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
            pooled: false,
        }
    }

    /// Shares load between all nodes: the bound that moves pages at no cost also spreads them.
    pub fn pool(&mut self) {
        self.pooled = true;
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
        // All memory as one: no split of the traffic over the nodes carries more than the sums do, as
        // what a node carries of a mix is a concave function of its two bandwidths.
        let (mut read_all, mut written_all, mut reads, mut writes) = (0, 0, 0.0, 0.0);
        for memory in self.nodes.iter_mut().flatten() {
            let read = memory.read_lines * super::LINE_BYTES;
            let written = memory.written_lines * super::LINE_BYTES;
            memory.read_bytes += read;
            memory.written_bytes += written;
            (memory.read_lines, memory.written_lines) = (0, 0);
            let busy = read as f64 / memory.spec.read_bytes_per_s
                + written as f64 / memory.spec.write_bytes_per_s;
            memory.share = busy / seconds;
            read_all += read;
            written_all += written;
            reads += memory.spec.read_bytes_per_s;
            writes += memory.spec.write_bytes_per_s;
        }
        let pooled = (read_all as f64 / reads + written_all as f64 / writes) / seconds;
        for memory in self.nodes.iter_mut().flatten() {
            let u = if self.pooled { pooled } else { memory.share };
            let demand = u * memory.factor;
            let before = memory.demand.unwrap_or(demand);
            let demand = before + DEMAND_WEIGHT * (demand - before);
            memory.demand = Some(demand);
            memory.factor = memory.law.settle(demand);
        }
    }
}
