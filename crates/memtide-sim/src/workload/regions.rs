//! One thread that works through hot regions one after another, while other memory lies idle:
//! the pghot series' over-commit benchmark.
//!
//! "Every 1G region of allocated memory on CXL node is accessed at 4K granularity randomly and
//! repetitively to build up the notion of hotness in the 1GB region that is under access." The DRAM
//! is provisioned and idle; promoted pages need its room, so idle pages have to be demoted.

use super::checks::stores_of_100;
use super::lines::Lines;
use super::pace::Pace;
use super::random::{random_access, share_of_65536};
use super::{
    Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want, whole,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The benchmark's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionsSpec {
    /// The node on whose CPUs the thread runs.
    pub node: u16,
    /// Idle memory, on that node.
    pub idle: Bytes,
    /// The node of the hot regions.
    pub on: u16,
    /// How many hot regions.
    pub regions: u32,
    /// The size of each.
    pub region: Bytes,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Accesses to each region.
    pub accesses_per_region: u64,
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

impl RegionsSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("node", self.node)?;
        places.has_memory("on", self.on)?;
        want(
            self.regions > 0,
            "regions",
            "0 regions are no work; give at least 1",
        )?;
        let hot = self.region.0.saturating_mul(u64::from(self.regions));
        places.fit("region", hot.saturating_add(self.idle.0))?;
        stores_of_100(self.stores_percent)?;
        self.lines.check()?;
        want(
            self.accesses_per_region > 0 && self.ops_per_access > 0,
            "accesses_per_region",
            "needs at least 1 access of at least 1 operation",
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Regions) {
        let count = pages(self.region, scale, self.huge);
        let idle = pages(self.idle, scale, self.huge);
        let hot_pages = whole(count * self.regions, self.huge);
        let region = |name, count, on| {
            let region = places.region(name, count, self.node, on);
            region.in_huge_pages(self.huge)
        };
        let mut hot = region("hot", hot_pages, self.on);
        hot.start_vpn += u64::from(idle).next_multiple_of(512);
        let plan = Plan {
            regions: vec![region("idle", idle, self.node), hot],
            threads: vec![ThreadPlan::on(
                self.node,
                Pattern::Random,
                self.ops_per_access,
                self.think,
            )],
            ends_at_ns: None,
        };
        let each = (self.accesses_per_region / u64::from(scale)).max(1);
        let regions = Regions {
            base: 0,
            pages: count,
            each,
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
            pace: Pace::new(1, each * u64::from(self.regions)),
        };
        (plan, regions)
    }
}

/// The benchmark, running.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    base: Slot,
    pages: u32,
    each: u64,
    lines: Lines,
    stores: u32,
    node: u16,
    pace: Pace,
}

impl Regions {
    fn now_at(&self) -> u32 {
        (self.pace.made(0) / self.each) as u32
    }
}

impl Acts for Regions {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[1];
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let base = self.base + self.now_at() * self.pages;
        let until_next = self.each - self.pace.made(0) % self.each;
        let room = batch.len().min(until_next as usize);
        let count = self.pace.take(thread, room);
        for access in &mut batch[..count] {
            *access = random_access(rng, base, self.pages, self.lines, self.stores);
        }
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn phase(&self, _: u64) -> u64 {
        u64::from(self.now_at())
    }

    fn truth(&self, region: usize, page: u32, _: u64) -> Truth {
        let hot = region == 1 && page / self.pages == self.now_at();
        Truth {
            rate: if hot { 1.0 } else { 0.0 },
            node: self.node,
        }
    }
}
