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
//! A node of one pipe uses its share for reads and writes together. Where they have a channel each
//! (`duplex`), the busier one's share counts. A link between nodes is such a channel, too: it has its own
//! L, and what goes over it waits for both, idle latency times L of the node + L of the link - 1.
//!
//! What stays true: f never falls, f(0) = 1, and beyond full bandwidth f rises with the 200th power,
//! so that demand of up to twenty times what a node carries exceeds it by 1.5 %.

use super::ServedBy;
use super::law::{DEMAND_WEIGHT, Law};
use crate::page::MAX_NODES;
use crate::spec::{LoadedLatency, MachineSpec, MemorySpec};
use memtide_core::units::NodeId;

/// What carries lines in two directions: a node's reads and writes, or a link's two ways.
#[derive(Clone, Debug)]
struct Channel {
    law: Law,
    /// Highest sustained bytes a second of each direction.
    rates: [f64; 2],
    /// Whether directions do not share their time.
    duplex: bool,
    /// The factor in force.
    factor: f64,
    /// Lines since the quantum began, of the real machine.
    lines: [u64; 2],
    /// Bytes since the machine began.
    bytes: [u64; 2],
    /// Share of bandwidth in the last quantum.
    share: f64,
    /// The demand, averaged.
    demand: Option<f64>,
}

impl Channel {
    fn new(loaded: &LoadedLatency, rates: [f64; 2], duplex: bool) -> Channel {
        Channel {
            law: Law::new(loaded.clone()),
            rates,
            duplex,
            factor: 1.0,
            lines: [0; 2],
            bytes: [0; 2],
            share: 0.0,
            demand: None,
        }
    }

    fn reset(&mut self) {
        self.factor = 1.0;
        self.share = 0.0;
        self.demand = None;
        self.lines = [0; 2];
        self.bytes = [0; 2];
    }

    fn feedback(&mut self, seconds: f64, still: bool) {
        let moved = self.lines.map(|lines| lines * super::LINE_BYTES);
        self.lines = [0; 2];
        for (sum, bytes) in self.bytes.iter_mut().zip(moved) {
            *sum += bytes;
        }
        let [one, other] = [0, 1].map(|way| moved[way] as f64 / self.rates[way]);
        let busy = match self.duplex {
            true => one.max(other),
            false => one + other,
        };
        self.share = busy / seconds;
        if still {
            return;
        }
        let demand = self.share * self.factor;
        let before = self.demand.unwrap_or(demand);
        let demand = before + DEMAND_WEIGHT * (demand - before);
        self.demand = Some(demand);
        self.factor = self.law.settle(demand);
    }
}

/// A node's memory.
#[derive(Clone, Debug)]
struct NodeMemory {
    spec: MemorySpec,
    channel: Channel,
    /// Whether it has any memory.
    holds: bool,
    seen_from: [f64; MAX_NODES],
}

/// No link: what goes between two nodes is held up by their memory alone.
const NO_LINK: u8 = u8::MAX;

/// The memory of all nodes.
#[derive(Clone, Debug)]
pub struct Memory {
    nodes: Vec<Option<NodeMemory>>,
    /// Lines towards the first side, and towards the second.
    links: Vec<Channel>,
    /// The link between two nodes, and on which side the first of them is.
    over: [[(u8, u8); MAX_NODES]; MAX_NODES],
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
                channel: Channel::new(
                    &node.memory.loaded,
                    [node.memory.read_bytes_per_s, node.memory.write_bytes_per_s],
                    node.memory.duplex,
                ),
                holds: node.capacity_bytes > 0,
                seen_from,
            });
        }
        let mut over = [[(NO_LINK, 0); MAX_NODES]; MAX_NODES];
        for (number, link) in spec.links.iter().enumerate() {
            for &first in &link.sides[0] {
                for &second in &link.sides[1] {
                    over[usize::from(first)][usize::from(second)] = (number as u8, 0);
                    over[usize::from(second)][usize::from(first)] = (number as u8, 1);
                }
            }
        }
        let links = spec.links.iter();
        let links = links.map(|link| Channel::new(&link.loaded, link.bytes_per_s, link.duplex));
        let cpu_nodes = spec.nodes.iter().filter(|node| node.cpus > 0);
        Memory {
            nodes,
            links: links.collect(),
            over,
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
            memory.channel.reset();
        }
        self.links.iter_mut().for_each(Channel::reset);
    }

    /// Adds traffic to a node, in lines of the real machine.
    #[inline]
    pub fn add_lines(&mut self, node: NodeId, read: u64, written: u64) {
        if let Some(memory) = &mut self.nodes[node.index()] {
            memory.channel.lines[0] += read;
            memory.channel.lines[1] += written;
        }
    }

    /// Whether the machine has links.
    #[must_use]
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Adds traffic to the link between two nodes, if there is one: lines that go to `here`, and lines that
    /// go `there`.
    pub fn add_to_link(&mut self, here: NodeId, there: NodeId, to_here: u64, to_there: u64) {
        let (link, side) = self.over[here.index()][there.index()];
        if let Some(link) = self.links.get_mut(usize::from(link)) {
            link.lines[usize::from(side)] += to_here;
            link.lines[1 - usize::from(side)] += to_there;
        }
    }

    /// The factor of load of a node's memory as a node's CPUs see it, the link between them included.
    fn factor_between(&self, from: NodeId, to: NodeId) -> f64 {
        let node = self.factor(to);
        let (link, _) = self.over[from.index()][to.index()];
        match self.links.get(usize::from(link)) {
            Some(link) => node + link.factor - 1.0,
            None => node,
        }
    }

    /// The share of a link's bandwidth that was used in the last quantum, by its number in the machine's
    /// file.
    #[must_use]
    pub fn link_share(&self, link: usize) -> f64 {
        self.links.get(link).map_or(0.0, |link| link.share)
    }

    /// Bytes that went over a link so far: towards its first side, and towards its second.
    #[must_use]
    pub fn link_bytes(&self, link: usize) -> [u64; 2] {
        self.links.get(link).map_or([0; 2], |link| link.bytes)
    }

    /// Whether a node's reads and writes have a channel each.
    #[must_use]
    pub fn is_duplex(&self, node: NodeId) -> bool {
        let memory = self.nodes[node.index()].as_ref();
        memory.is_some_and(|memory| memory.channel.duplex)
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
            idle * memory.seen_from[from.index()] * self.factor_between(from, to)
        })
    }

    /// The same without load.
    #[must_use]
    pub fn idle_ns(&self, from: NodeId, to: NodeId, write: bool) -> f64 {
        self.latency_ns(from, to, write) / self.factor_between(from, to)
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
        self.nodes[node.index()]
            .as_ref()
            .map(|memory| &memory.channel.law)
    }

    /// The factor of load in force on a node.
    #[must_use]
    pub fn factor(&self, node: NodeId) -> f64 {
        let memory = self.nodes[node.index()].as_ref();
        memory.map_or(1.0, |memory| memory.channel.factor)
    }

    /// The share of a node's bandwidth that was used in the last quantum.
    #[must_use]
    pub fn share(&self, node: NodeId) -> f64 {
        let memory = self.nodes[node.index()].as_ref();
        memory.map_or(0.0, |memory| memory.channel.share)
    }

    /// Bytes read from and written to a node so far, of the real machine.
    #[must_use]
    pub fn bytes(&self, node: NodeId) -> (u64, u64) {
        self.nodes[node.index()]
            .as_ref()
            .map_or((0, 0), |m| m.channel.bytes.into())
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
        let nodes = self.nodes.iter_mut().flatten();
        let nodes = nodes.map(|memory| &mut memory.channel);
        for channel in nodes.chain(&mut self.links) {
            channel.feedback(seconds, self.still);
        }
    }
}
