//! How late each node answers under the load of the moment: a few loads of our own.
//!
//! # Problem
//!
//! A node's latency rises with what all programs ask of it, to several times its idle
//! latency (Vuppalapati and Agarwal, ["Tiered Memory Management: Access Latency is the
//! Key!"](https://dl.acm.org/doi/10.1145/3694715.3695968)). Counters of the memory
//! controllers would tell, where there are any and one may read them.
//!
//! # Approach
//!
//! A *canary*: 2 MiB on each node with a chain through them, of which each step has to
//! wait for the one before ([`chain`]). A reading follows it for [`BATCHES`] times
//! [`STEPS`] steps and is the median of the batches, so that an interrupt in one of
//! them is none of it. Lines that were read leave the caches at once: when the
//! chain comes back to them, they come from memory. So a reading takes some ten
//! microseconds, and the canary no more memory than a huge page.
//!
//! # Properties
//!
//! - The calling thread reads on a CPU that is near the node, and gets the CPUs that it
//!   had back. Where it may not run there, it reads from where it is.
//! - Memory is taken on a node only if that leaves [`SPARED_BYTES`] above the node's
//!   watermark. A node that this process may not use has no canary.
//! - Nor has one whose lines come no later from memory than from a cache. An emulated processor has
//!   no caches to flush, so that its readings are those of the emulator: two nodes differ by a
//!   fifth and more, for seconds.

use crate::measure::chain;
use crate::sys::flush_line;
use crate::sys::node_memory::NodeMemory;
use memtide_core::pages::NodeSpace;
use memtide_core::topology::Topology;
use memtide_core::units::{NodeId, PageSize};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps between two looks at the clock.
const STEPS: usize = 32;
/// Batches of a reading; odd, so that there is one in the middle.
const BATCHES: usize = 5;
/// A huge page.
const BYTES: usize = 2 << 20;
/// Times that a batch is read from memory and from a cache, to tell the two apart.
const PROBES: usize = 5;
/// What a node has to have free above its high watermark.
const SPARED_BYTES: u64 = 32 << 20;

/// The canaries of a machine's nodes.
#[derive(Debug, Default)]
pub struct Canaries {
    /// `None`: this process may not use the node.
    nodes: BTreeMap<NodeId, Option<Canary>>,
}

/// One node's.
#[derive(Debug)]
struct Canary {
    memory: NodeMemory,
    /// The line from which the next reading goes on.
    at: usize,
    /// What the clock itself takes.
    clock: Duration,
}

impl Canaries {
    /// Whether this kind of processor can have any.
    pub const POSSIBLE: bool = flush_line::SUPPORTED;

    /// A dependent load from `node` at this moment, in nanoseconds, read near it on a machine of this
    /// `topology`. `space` is the node's room. `None` where there is no canary, or not yet room for it.
    pub fn read(
        &mut self,
        node: NodeId,
        topology: &Topology,
        space: impl FnOnce() -> Option<NodeSpace>,
        page: PageSize,
    ) -> Option<u32> {
        if !Self::POSSIBLE {
            return None;
        }
        if let Entry::Vacant(new) = self.nodes.entry(node) {
            let space = space()?;
            let spare = space.free.saturating_sub(space.high) << page.shift();
            if spare < SPARED_BYTES {
                return None;
            }
            new.insert(Canary::new(node));
        }
        let canary = self.nodes.get_mut(&node)?.as_mut()?;
        Some(near(node, topology, || canary.read()))
    }
}

impl Canary {
    fn new(node: NodeId) -> Option<Canary> {
        let mut memory = NodeMemory::map(BYTES, node).ok()?;
        chain::link(memory.lines_mut());
        memory.lines().iter().for_each(flush_line::flush);
        flush_line::wait();
        let clock = (0..16).map(|_| Instant::now().elapsed()).min();
        let mut canary = Canary {
            memory,
            at: 0,
            clock: clock.unwrap_or_default(),
        };
        canary.comes_from_memory().then_some(canary)
    }

    /// Whether lines that were flushed take twice as long as lines that were just read. They take
    /// ten times as long and more on any processor.
    fn comes_from_memory(&mut self) -> bool {
        let (mut memory, mut cache) = (Duration::MAX, Duration::MAX);
        for _ in 0..PROBES {
            let began = self.at;
            // Of the first access to a page an emulator, too, takes longer.
            self.batch();
            self.at = began;
            cache = cache.min(self.batch());
            self.flush(began, STEPS);
            self.at = began;
            memory = memory.min(self.batch());
            self.flush(began, STEPS);
        }
        memory > 2 * cache
    }

    fn read(&mut self) -> u32 {
        let began = self.at;
        let mut batches = [Duration::ZERO; BATCHES];
        batches.fill_with(|| self.batch());
        self.flush(began, BATCHES * STEPS);
        batches.sort_unstable();
        let median = batches[BATCHES / 2];
        let ns = (median.as_nanos() + STEPS as u128 / 2) / STEPS as u128;
        u32::try_from(ns).unwrap_or(u32::MAX).max(1)
    }

    /// Goes on by as many steps as a batch has; how long they took.
    fn batch(&mut self) -> Duration {
        let lines = self.memory.lines();
        let before = Instant::now();
        self.at = black_box(chain::follow(lines, self.at, STEPS));
        before.elapsed().saturating_sub(self.clock)
    }

    /// Flushes the lines of so many steps from `began` on.
    fn flush(&self, began: usize, steps: usize) {
        let lines = self.memory.lines();
        let mut at = began;
        for _ in 0..steps {
            let line = &lines[at];
            at = chain::follow(lines, at, 1);
            flush_line::flush(line);
        }
        flush_line::wait();
    }
}

/// Does `read` on a CPU that is as near to `node` as any, if the calling thread may run there.
fn near<T>(node: NodeId, topology: &Topology, read: impl FnOnce() -> T) -> T {
    let cpus = nearest_cpus(node, topology);
    if cpus.contains(&(sched_getcpu() as u32)) {
        return read();
    }
    let Ok(had) = sched_getaffinity(None) else {
        return read();
    };
    // Not where the user did not let us run.
    let mut wanted = CpuSet::new();
    let known = cpus.iter().map(|cpu| *cpu as usize);
    let allowed = known.filter(|cpu| *cpu < CpuSet::MAX_CPU && had.is_set(*cpu));
    allowed.for_each(|cpu| wanted.set(cpu));
    if wanted.count() == 0 {
        return read();
    }
    let went = sched_setaffinity(None, &wanted).is_ok();
    let done = read();
    if went {
        // It was in force a moment ago; a cpuset that changed since has its own way.
        let _ = sched_setaffinity(None, &had);
    }
    done
}

/// All CPUs of the nodes that have any and are nearest to `node`.
fn nearest_cpus(node: NodeId, topology: &Topology) -> Vec<u32> {
    let with_cpus = || topology.nodes().iter().filter(|from| from.has_cpus());
    let distance = |from: NodeId| topology.distance(from, node).unwrap_or(u32::MAX);
    let least = with_cpus().map(|from| distance(from.id)).min();
    let nearest = with_cpus().filter(|from| Some(distance(from.id)) == least);
    nearest.flat_map(|from| from.cpus.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Root, topology};
    use std::path::Path;

    fn fixture(name: &str) -> Topology {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        topology::read(&Root::new(fixtures.join(name)))
            .unwrap()
            .topology
    }

    const ROOMY: NodeSpace = NodeSpace {
        free: 1 << 20,
        high: 0,
        promo: 0,
        present: 1 << 20,
    };

    #[test]
    fn this_machine_answers_and_the_thread_may_run_where_it_could() {
        let topology = topology::read(&Root::default()).unwrap().topology;
        let before = sched_getaffinity(None).unwrap();
        let mut canaries = Canaries::default();
        let node = topology.memory_nodes().iter().next().unwrap();
        let page = PageSize::KIB_4;
        for _ in 0..3 {
            let ns = canaries.read(node, &topology, || Some(ROOMY), page);
            assert_eq!(ns.is_some(), Canaries::POSSIBLE, "an emulated machine?");
            assert!(ns.is_none_or(|ns| ns > 0));
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_node_that_cannot_be_used_or_is_full_has_none() {
        let topology = fixture("two-sockets-cxl-hmat");
        let (mut canaries, page) = (Canaries::default(), PageSize::KIB_4);
        // No kernel has this node.
        let nowhere = NodeId(1023);
        assert_eq!(
            canaries.read(nowhere, &topology, || Some(ROOMY), page),
            None
        );
        // It is not asked for again.
        let again = canaries.read(nowhere, &topology, || panic!("asked again"), page);
        assert_eq!(again, None);
        // 31 MiB are less than is spared, and later there may be more.
        let full = NodeSpace {
            free: 31 << 8,
            ..ROOMY
        };
        assert_eq!(
            canaries.read(NodeId(0), &topology, || Some(full), page),
            None
        );
        assert!(!canaries.nodes.contains_key(&NodeId(0)));
    }

    /// Node 2 has no CPUs; those of node 0 are the nearest.
    #[test]
    fn it_is_read_near_the_node() {
        let topology = fixture("two-sockets-cxl-hmat");
        let cpus = |node| topology.node(NodeId(node)).unwrap().cpus.clone();
        assert_eq!(nearest_cpus(NodeId(0), &topology), cpus(0));
        assert_eq!(nearest_cpus(NodeId(1), &topology), cpus(1));
        let near = nearest_cpus(NodeId(2), &topology);
        let distance = |from| topology.distance(NodeId(from), NodeId(2)).unwrap();
        let least = distance(0).min(distance(1));
        let expected: Vec<u32> = [0, 1]
            .into_iter()
            .filter(|from| distance(*from) == least)
            .flat_map(cpus)
            .collect();
        assert_eq!(near, expected);
    }
}
