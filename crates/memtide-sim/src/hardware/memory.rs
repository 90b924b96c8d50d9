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
//! Latency follows load a quantum late, so more may be asked in a quantum than can be carried in it: all
//! of it where a program begins. What is too much waits and is carried in the quanta after it, and who
//! asked waits as long for it ([`Memory::late_ns`]). Half a quantum's worth may stay: accesses do not come
//! evenly, and what comes too early in one quantum does not slow down those who come too late in the
//! next. Of what is beyond that, less than a quantum's worth is waited for by halves, or it would swing.
//! Where a thread ends, none stays.
//!
//! What stays true: f never falls, f(0) = 1, and nothing carries more in a quantum than its bandwidth
//! allows, from the first one on. Beyond full bandwidth f rises with the 200th power, so that little
//! waits in the long run.

use super::ServedBy;
use super::law::{DEMAND_WEIGHT, Law};
use crate::page::MAX_NODES;
use crate::spec::{MachineSpec, MemorySpec};
use memtide_core::units::NodeId;

/// Where so many times as much is asked as can be carried, demand is not averaged.
const OVERLOAD: f64 = 2.0;
/// Quanta of what waits that nobody waits for.
const SLACK: f64 = 0.5;

/// What happened in a quantum.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    /// How long it is, in nanoseconds.
    pub ns: u64,
    /// For how much of that threads ran that asked for memory; 0 if none did.
    pub active_ns: u64,
    /// Until when, from its beginning on, what they began is under way: longer where one access of a
    /// coarse scale stands for many.
    pub under_way_ns: u64,
    /// Whether one of them has ended.
    pub ended: bool,
}

impl Quantum {
    /// All of it threads ran, and they go on.
    #[must_use]
    pub fn full(ns: u64) -> Quantum {
        Quantum {
            ns,
            active_ns: ns,
            under_way_ns: ns,
            ended: false,
        }
    }
}

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
    /// How much longer who asked in the last quantum waits than latencies said, in nanoseconds.
    late_ns: f64,
    /// Lines that were asked since the quantum began, of the real machine.
    lines: [u64; 2],
    /// Of these, those that are copied for no thread that waits.
    copied: [u64; 2],
    /// Of accesses under way, the lines that are asked later than this quantum.
    ahead: [u64; 2],
    /// Lines that were asked before and are not carried yet.
    waiting: [u64; 2],
    /// The part of these for which no thread waits.
    waits_alone: f64,
    /// Bytes since the machine began.
    bytes: [u64; 2],
    /// Share of bandwidth in the last quantum.
    share: f64,
    /// The demand, averaged.
    demand: Option<f64>,
}

impl Channel {
    fn new(law: Law, rates: [f64; 2], duplex: bool) -> Channel {
        Channel {
            law,
            rates,
            duplex,
            factor: 1.0,
            late_ns: 0.0,
            lines: [0; 2],
            copied: [0; 2],
            ahead: [0; 2],
            waiting: [0; 2],
            waits_alone: 0.0,
            bytes: [0; 2],
            share: 0.0,
            demand: None,
        }
    }

    fn reset(&mut self) {
        *self = Channel::new(self.law.clone(), self.rates, self.duplex);
    }

    /// The part of a quantum for which so many lines keep it busy.
    fn busy(&self, lines: [u64; 2], seconds: f64) -> f64 {
        let of = |way: usize| (lines[way] * super::LINE_BYTES) as f64 / self.rates[way];
        let busy = match self.duplex {
            true => of(0).max(of(1)),
            false => of(0) + of(1),
        };
        busy / seconds
    }

    /// Of what was asked, the lines that can be carried in a quantum.
    fn carried(&self, asked: [u64; 2], seconds: f64) -> [u64; 2] {
        std::array::from_fn(|way| {
            let both = match self.duplex {
                true => std::array::from_fn(|other| asked[other] * u64::from(way == other)),
                false => asked,
            };
            match self.busy(both, seconds) {
                busy if busy > 1.0 => (asked[way] as f64 / busy) as u64,
                _ => asked[way],
            }
        })
    }

    /// `part` of the lines under way are asked in this quantum.
    fn feedback(&mut self, quantum: Quantum, part: f64, still: bool) {
        let seconds = quantum.ns as f64 * 1e-9;
        let new = std::mem::take(&mut self.lines);
        let copied = std::mem::take(&mut self.copied);
        if still {
            // The oracle reckons with what was asked.
            self.share = self.busy(new, seconds);
            self.carry(new);
            return;
        }
        let under_way = [0, 1].map(|way| self.ahead[way] + new[way] - copied[way]);
        let for_threads = under_way.map(|lines| (lines as f64 * part) as u64);
        self.ahead = [0, 1].map(|way| under_way[way] - for_threads[way]);
        let new = [0, 1].map(|way| for_threads[way] + copied[way]);
        let asked = [0, 1].map(|way| self.waiting[way] + new[way]);
        let (old, new) = (self.busy(self.waiting, seconds), self.busy(new, seconds));
        let alone = old * self.waits_alone + self.busy(copied, seconds);
        self.waits_alone = alone / (old + new).max(f64::MIN_POSITIVE);
        let carried = self.carried(asked, seconds);
        self.waiting = [0, 1].map(|way| asked[way] - carried[way]);
        self.share = self.busy(carried, seconds);
        self.carry(carried);
        let slack = if quantum.ended { 0.0 } else { SLACK };
        let queue_ns = (old + new - alone - slack) * quantum.ns as f64;
        let late_ns = match quantum.active_ns {
            0 => 0.0,
            active_ns => (queue_ns - active_ns as f64).max(0.0),
        };
        let little = !quantum.ended && late_ns < quantum.ns as f64;
        let late_ns = if little { 0.5 * late_ns } else { late_ns };
        // For so long of this quantum nobody asked, since they were still waiting.
        let waited = std::mem::replace(&mut self.late_ns, late_ns) / quantum.ns as f64;
        // While much waits, so do those who would ask for more: the demand is as it was.
        if old >= 1.0 || waited >= 1.0 {
            return;
        }
        let demand = new * self.factor / (1.0 - waited);
        let before = self.demand.filter(|_| new <= OVERLOAD).unwrap_or(demand);
        let demand = before + DEMAND_WEIGHT * (demand - before);
        self.demand = Some(demand);
        self.factor = self.law.settle(demand);
    }

    fn carry(&mut self, lines: [u64; 2]) {
        for (sum, lines) in self.bytes.iter_mut().zip(lines) {
            *sum += lines * super::LINE_BYTES;
        }
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
    /// How long what is under way was to be so after the last quantum.
    under_way_ns: u64,
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
                    Law::new(node.memory.loaded.clone()),
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
        let links = links
            .map(|link| Channel::new(Law::new(link.loaded.clone()), link.bytes_per_s, link.duplex));
        let cpu_nodes = spec.nodes.iter().filter(|node| node.cpus > 0);
        Memory {
            nodes,
            links: links.collect(),
            over,
            cpu_nodes: cpu_nodes.map(|node| usize::from(node.id)).collect(),
            under_way_ns: 0,
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
        self.under_way_ns = 0;
    }

    /// Adds traffic to a node, in lines of the real machine.
    #[inline]
    pub fn add_lines(&mut self, node: NodeId, read: u64, written: u64) {
        if let Some(memory) = &mut self.nodes[node.index()] {
            memory.channel.lines[0] += read;
            memory.channel.lines[1] += written;
        }
    }

    /// The same of pages that the kernel copies or clears: that takes its time, but no thread waits for the
    /// last of it.
    pub fn add_pages(&mut self, node: NodeId, read: u64, written: u64) {
        self.add_lines(node, read, written);
        if let Some(memory) = &mut self.nodes[node.index()] {
            memory.channel.copied[0] += read;
            memory.channel.copied[1] += written;
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

    /// The same of pages that are copied from one node to another.
    pub fn copy_over_link(&mut self, from: NodeId, to: NodeId, lines: u64) {
        self.add_to_link(to, from, lines, 0);
        let (link, side) = self.over[to.index()][from.index()];
        if let Some(link) = self.links.get_mut(usize::from(link)) {
            link.copied[usize::from(side)] += lines;
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

    /// How much longer a CPU of `from` that did nothing in the last quantum but wait for node `to` waits
    /// than latencies said, in nanoseconds: 0 if all that was asked could be carried.
    #[must_use]
    pub fn late_ns(&self, from: NodeId, to: NodeId) -> f64 {
        let Some(memory) = &self.nodes[to.index()] else {
            return 0.0;
        };
        let (link, _) = self.over[from.index()][to.index()];
        let link = self.links.get(usize::from(link));
        link.map_or(0.0, |link| link.late_ns)
            .max(memory.channel.late_ns)
    }

    /// Whether anybody has to wait, since more was asked than could be carried.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let nodes = self.nodes.iter().flatten().map(|memory| &memory.channel);
        nodes
            .chain(&self.links)
            .any(|channel| channel.late_ns > 0.0)
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

    /// Carries all that was asked: whoever asked has waited for it.
    pub fn finish(&mut self) {
        let nodes = self.nodes.iter_mut().flatten();
        let nodes = nodes.map(|memory| &mut memory.channel);
        for channel in nodes.chain(&mut self.links) {
            let rest = [0, 1].map(|way| channel.ahead[way] + channel.waiting[way]);
            (channel.ahead, channel.waiting) = ([0; 2], [0; 2]);
            channel.carry(rest);
        }
    }

    /// Ends a quantum: latencies follow the traffic that it had.
    pub fn feedback(&mut self, quantum: Quantum) {
        let under_way_ns = quantum.under_way_ns.max(self.under_way_ns);
        self.under_way_ns = under_way_ns.saturating_sub(quantum.ns);
        let part = quantum.ns as f64 / under_way_ns.max(quantum.ns) as f64;
        let nodes = self.nodes.iter_mut().flatten();
        let nodes = nodes.map(|memory| &mut memory.channel);
        for channel in nodes.chain(&mut self.links) {
            channel.feedback(quantum, part, self.still);
        }
    }
}
