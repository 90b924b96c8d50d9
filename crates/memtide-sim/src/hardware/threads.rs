//! Which thread runs on which CPU.
//!
//! A thread gets a CPU when it starts and keeps it until the kernel moves it to another node
//! ([`Hardware::move_thread`]). Of the nodes that it may use, the first with an idle CPU is taken; of
//! a node's CPUs, the one with the fewest threads, and among these one of the least busy cache domain.
//! With more threads than CPUs, CPUs are shared.

use super::{Hardware, cpu::Cpu};
use crate::workload::ThreadPlan;
use memtide_core::units::NodeId;

/// A thread's place.
#[derive(Clone, Debug)]
pub struct ThreadPlace {
    /// Its CPU.
    pub cpu: u32,
    nodes: Vec<u16>,
    /// The one of them to which it is held for a while.
    lent: Option<NodeId>,
    done: bool,
}

/// Places of all threads.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    places: Vec<ThreadPlace>,
    /// Threads that are not done, by CPU.
    load: Vec<u32>,
    /// The same by cache domain.
    domain_load: Vec<u32>,
    /// Rises with every change.
    generation: u64,
}

impl Threads {
    pub(super) fn new(cpus: &[Cpu]) -> Threads {
        let domains = cpus.iter().map(|cpu| cpu.domain as usize + 1).max();
        Threads {
            places: Vec::new(),
            load: vec![0; cpus.len()],
            domain_load: vec![0; domains.unwrap_or(0)],
            generation: 0,
        }
    }

    fn least(&self, cpus: &[Cpu], range: std::ops::Range<u32>) -> Option<u32> {
        range.min_by_key(|&cpu| {
            let domain = cpus[cpu as usize].domain as usize;
            (self.load[cpu as usize], self.domain_load[domain], cpu)
        })
    }

    fn add_load(&mut self, cpus: &[Cpu], cpu: u32, by: i32) {
        let domain = cpus[cpu as usize].domain as usize;
        self.load[cpu as usize] = self.load[cpu as usize].wrapping_add_signed(by);
        self.domain_load[domain] = self.domain_load[domain].wrapping_add_signed(by);
        self.generation += 1;
    }
}

impl Hardware {
    /// Gives the next thread a CPU.
    pub(super) fn place_thread(&mut self, plan: &ThreadPlan) {
        let idle = plan.nodes.iter().find_map(|&node| {
            let range = self.cpus_of_node(NodeId(node));
            let cpu = self.threads.least(&self.cpus, range)?;
            (self.threads.load[cpu as usize] == 0).then_some(cpu)
        });
        let cpu = idle.or_else(|| {
            let ranges = plan.nodes.iter().map(|&n| self.cpus_of_node(NodeId(n)));
            let least = ranges.filter_map(|range| self.threads.least(&self.cpus, range));
            least.min_by_key(|&cpu| self.threads.load[cpu as usize])
        });
        let cpu = cpu.unwrap_or(0);
        self.threads.add_load(&self.cpus, cpu, 1);
        self.threads.places.push(ThreadPlace {
            cpu,
            nodes: plan.nodes.clone(),
            lent: None,
            done: false,
        });
        self.enter_space(plan.space, cpu);
    }

    /// The CPU of a thread.
    #[must_use]
    pub fn cpu_of_thread(&self, thread: u32) -> u32 {
        self.threads.places[thread as usize].cpu
    }

    /// Rises whenever a thread changed its CPU or ended.
    #[must_use]
    pub fn thread_generation(&self) -> u64 {
        self.threads.generation
    }

    /// The threads that are not done, with their CPUs.
    pub fn running_threads(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let places = self.threads.places.iter().enumerate();
        places
            .filter(|(_, place)| !place.done)
            .map(|(thread, place)| (thread as u32, place.cpu))
    }

    /// Whether a thread may run on a node.
    #[must_use]
    pub fn may_run_on(&self, thread: u32, node: NodeId) -> bool {
        let place = &self.threads.places[thread as usize];
        place.nodes.contains(&node.0) && place.lent.is_none_or(|lent| lent == node)
    }

    /// Whether a thread may run on every node that has CPUs, but for what it is lent.
    #[must_use]
    pub fn is_free(&self, thread: u32) -> bool {
        let nodes = &self.threads.places[thread as usize].nodes;
        let all = self.has_cpus.iter().zip(0..);
        all.filter(|(has, _)| **has)
            .all(|(_, node)| nodes.contains(&node))
    }

    /// Holds a thread to the CPUs of `node`, as an affinity does: it runs there from now on, beside
    /// others if none is idle.
    pub fn lend_node(&mut self, thread: u32, node: NodeId) {
        let range = self.cpus_of_node(node);
        let there = self.node_of_cpu(self.cpu_of_thread(thread)) == node;
        if let Some(cpu) = self.threads.least(&self.cpus, range).filter(|_| !there) {
            self.put_on(thread, cpu);
        }
        self.threads.places[thread as usize].lent = Some(node);
    }

    /// Threads that are held to a node.
    #[must_use]
    pub fn lent(&self) -> usize {
        let places = self.threads.places.iter();
        places.filter(|place| place.lent.is_some()).count()
    }

    /// Frees all that are held to a node; they stay where they are. How many of them still run.
    pub fn free_lent(&mut self) -> usize {
        let places = self.threads.places.iter_mut();
        places
            .filter_map(|place| place.lent.take().filter(|_| !place.done))
            .count()
    }

    fn put_on(&mut self, thread: u32, cpu: u32) {
        let from = self.cpu_of_thread(thread);
        self.threads.add_load(&self.cpus, from, -1);
        self.threads.add_load(&self.cpus, cpu, 1);
        self.threads.places[thread as usize].cpu = cpu;
    }

    /// Moves a thread to an idle CPU of `node`, if there is one and the thread may run there.
    pub fn move_thread(&mut self, thread: u32, node: NodeId) -> bool {
        if self.threads.places[thread as usize].done || !self.may_run_on(thread, node) {
            return false;
        }
        if self.node_of_cpu(self.cpu_of_thread(thread)) == node {
            return true;
        }
        let range = self.cpus_of_node(node);
        let Some(cpu) = self.threads.least(&self.cpus, range) else {
            return false;
        };
        if self.threads.load[cpu as usize] > 0 {
            return false;
        }
        self.put_on(thread, cpu);
        true
    }

    /// Exchanges the CPUs of two threads, if both may run where the other does.
    pub fn swap_threads(&mut self, one: u32, other: u32) -> bool {
        let (at, to) = (self.cpu_of_thread(one), self.cpu_of_thread(other));
        let may = self.may_run_on(one, self.node_of_cpu(to))
            && self.may_run_on(other, self.node_of_cpu(at));
        if may {
            self.threads.places[one as usize].cpu = to;
            self.threads.places[other as usize].cpu = at;
            self.threads.generation += 1;
        }
        may
    }

    /// A thread has made its last access: its CPU is idle, and no longer interrupted, unless another
    /// thread runs there.
    pub fn end_thread(&mut self, thread: u32) {
        let cpu = self.cpu_of_thread(thread);
        self.threads.places[thread as usize].done = true;
        self.threads.add_load(&self.cpus, cpu, -1);
        if self.threads.load[cpu as usize] == 0 {
            self.leave(cpu);
        }
    }
}
