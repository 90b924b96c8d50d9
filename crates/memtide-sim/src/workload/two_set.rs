//! Two sets of threads on two nodes, each with its own half of memory that all begins on the first
//! node: the IBS balancing series' benchmark.
//!
//! "The benchmark touches each page in the chunk iteratively for a fixed number of iterations." Each
//! thread of a set goes over its set's whole chunk, page after page from its beginning. Half of the memory is local from the beginning, the other half has to move.

use super::checks::{each_node_once, some_operations, stores_of_100};
use super::lines::Lines;
use super::pace::Pace;
use super::places::START_VPN;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The benchmark's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoSetSpec {
    /// The nodes of the two sets; all memory begins on the first.
    pub nodes: [u16; 2],
    /// Threads of each set.
    pub threads_per_set: u32,
    /// Memory of each set.
    pub memory_per_set: Bytes,
    /// How often each thread goes over its set's memory.
    pub iterations: u32,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

impl TwoSetSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        each_node_once("nodes", &self.nodes)?;
        for node in self.nodes {
            places.has_cpus("nodes", node)?;
            places.has_memory("nodes", node)?;
        }
        places.fit("memory_per_set", self.memory_per_set.0.saturating_mul(2))?;
        want(
            self.threads_per_set > 0,
            "threads_per_set",
            "give at least 1",
        )?;
        want(self.iterations > 0, "iterations", "give at least 1")?;
        some_operations(self.ops_per_access)?;
        self.lines.check()?;
        stores_of_100(self.stores_percent)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, TwoSet) {
        let count = pages(self.memory_per_set, scale, self.huge);
        let [first, second] = self.nodes;
        let region = |name| {
            let region = places.region(name, count, first, first);
            region.in_huge_pages(self.huge)
        };
        let mut regions = vec![region("first set"), region("second set")];
        regions[1].start_vpn = START_VPN + u64::from(count).next_multiple_of(512);
        let per_set = self.threads_per_set as usize;
        let thread = |group: u16, node| ThreadPlan {
            group,
            ..ThreadPlan::on(node, Pattern::Sweep, self.ops_per_access, self.think)
        };
        let mut threads = vec![thread(0, first); per_set];
        threads.extend(vec![thread(1, second); per_set]);
        let two_set = TwoSet {
            bases: [0, 0],
            pages: count,
            per_set,
            next: vec![0; 2 * per_set],
            lines: self.lines,
            stores: super::random::share_of_65536(self.stores_percent),
            nodes: self.nodes,
            pace: Pace::new(2 * per_set, u64::from(self.iterations) * u64::from(count)),
        };
        let plan = Plan {
            regions,
            threads,
            ends_at_ns: None,
        };
        (plan, two_set)
    }
}

/// The benchmark, running.
#[derive(Clone, Debug)]
pub(super) struct TwoSet {
    bases: [Slot; 2],
    pages: u32,
    per_set: usize,
    next: Vec<u32>,
    lines: Lines,
    stores: u32,
    nodes: [u16; 2],
    pace: Pace,
}

impl Acts for TwoSet {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = [slots[0], slots[1]];
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = self.pace.take(thread, batch.len());
        let base = self.bases[usize::from(thread >= self.per_set)];
        let mut next = self.next[thread];
        for access in &mut batch[..count] {
            let bits = rng.bits();
            let store = ((bits >> 48) as u32) < self.stores;
            *access = Access::new(base + next, self.lines.pick(bits), 1, store);
            next = if next + 1 == self.pages { 0 } else { next + 1 };
        }
        self.next[thread] = next;
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        Truth {
            rate: 1.0,
            node: self.nodes[region.min(1)],
        }
    }
}
