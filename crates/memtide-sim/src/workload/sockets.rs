//! One program over several sockets: each thread has memory of its own, all share some. The three ends
//! of that, all own, all shared, half and half, are the cases of the autonumabench set, which says
//! whether balancing does harm where it cannot help.
//!
//! Threads are spread over the nodes in turn and stay there, as on a machine with other work on all
//! nodes: were they free, all could run where the memory is, and its place would not matter. All memory
//! begins on one node, as a program leaves it that sets its memory up before it starts its threads. An
//! access goes to a random line of a random page, of the thread's own or of the shared memory by the
//! given share.

use super::checks::{each_node_once, some_accesses, some_operations, some_threads, stores_of_100};
use super::lines::Lines;
use super::pace::Pace;
use super::places::START_VPN;
use super::random::share_of_65536;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketsSpec {
    /// How many threads.
    pub threads: u32,
    /// The nodes over whose CPUs they are spread.
    pub nodes: Vec<u16>,
    /// Memory of each thread.
    pub memory_per_thread: Bytes,
    /// Memory of all.
    pub shared: Bytes,
    /// The node that all memory begins on.
    pub on: u16,
    /// How many of 100 accesses go to the shared memory.
    pub shared_percent: u32,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Accesses of each thread.
    pub accesses: u64,
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

impl SocketsSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        each_node_once("nodes", &self.nodes)?;
        want(!self.nodes.is_empty(), "nodes", "name at least one")?;
        for &node in &self.nodes {
            places.has_cpus("nodes", node)?;
        }
        places.has_memory("on", self.on)?;
        some_threads(self.threads)?;
        let own = self
            .memory_per_thread
            .0
            .saturating_mul(u64::from(self.threads));
        places.fit("memory_per_thread", own.saturating_add(self.shared.0))?;
        want(
            self.shared_percent <= 100,
            "shared_percent",
            "at most 100 of 100 accesses go to the shared memory",
        )?;
        some_accesses(self.accesses)?;
        some_operations(self.ops_per_access)?;
        self.lines.check()?;
        stores_of_100(self.stores_percent)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Sockets) {
        let own = pages(self.memory_per_thread, scale, self.huge);
        let shared = pages(self.shared, scale, self.huge);
        let mut start_vpn = START_VPN;
        let mut region = |name: &str, count: u32| {
            let region = places.region(name, count, self.on, self.on);
            let mut region = region.in_huge_pages(self.huge);
            region.start_vpn = start_vpn;
            start_vpn += u64::from(count).next_multiple_of(512);
            region
        };
        let mut regions = vec![region("shared", shared)];
        regions.extend((0..self.threads).map(|_| region("own", own)));
        let count = self.nodes.len();
        let thread = |n: usize| ThreadPlan {
            group: (n % count) as u16,
            ..ThreadPlan::on(
                self.nodes[n % count],
                Pattern::Random,
                self.ops_per_access,
                self.think,
            )
        };
        let threads = self.threads as usize;
        let plan = Plan {
            regions,
            threads: (0..threads).map(thread).collect(),
            ends_at_ns: None,
        };
        let sockets = Sockets {
            bases: Vec::new(),
            own,
            shared,
            share: share_of_65536(self.shared_percent),
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            nodes: self.nodes.clone(),
            pace: Pace::new(threads, self.accesses / u64::from(scale)),
        };
        (plan, sockets)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Sockets {
    bases: Vec<Slot>,
    own: u32,
    shared: u32,
    share: u32,
    lines: Lines,
    stores: u32,
    nodes: Vec<u16>,
    pace: Pace,
}

impl Acts for Sockets {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = self.pace.take(thread, batch.len());
        let (shared, own) = (self.bases[0], self.bases[thread + 1]);
        for access in &mut batch[..count] {
            let (base, pages) = match rng.chance(self.share) {
                true => (shared, self.shared),
                false => (own, self.own),
            };
            let bits = rng.bits();
            let page = ((bits >> 32) * u64::from(pages)) >> 32;
            let (line, store) = (
                self.lines.pick(bits >> 16),
                bits & 0xffff < u64::from(self.stores),
            );
            *access = Access::new(base + page as u32, line, 1, store);
        }
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, region: usize, page: u32, _: u64) -> Truth {
        let nodes = self.nodes.len();
        let share = f64::from(self.share) / 65_536.0;
        let threads = (self.bases.len().saturating_sub(1)).max(1) as f64;
        // Shared pages are used from everywhere alike: any spread is as good as any other.
        let (rate, at) = match region {
            0 => (share * threads / f64::from(self.shared), page as usize),
            own => ((1.0 - share) / f64::from(self.own), own - 1),
        };
        Truth {
            rate: rate as f32,
            node: self.nodes[at % nodes],
        }
    }
}
