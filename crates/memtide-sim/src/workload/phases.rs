//! The hot set changes all at once: what was hot is cold from one access to the next.
//!
//! Memory is cut into sets of equal size. In each phase one of them is hot; the rest of the accesses
//! go anywhere. Phases are counted in accesses, so that a faster machine does not get other work.

use super::checks::{some_operations, some_threads, stores_of_100};
use super::lines::Lines;
use super::pace::Pace;
use super::random::{access_by, share_of_65536};
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasesSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory they share.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// The size of a hot set.
    pub hot: Bytes,
    /// How many of 100 accesses go to it.
    pub hot_percent: u32,
    /// How many phases.
    pub phases: u32,
    /// Accesses of each thread in each phase.
    pub accesses_per_phase: u64,
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

impl PhasesSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        let fits = self.hot.0 > 0 && self.hot.0 <= self.memory.0;
        want(
            fits,
            "hot",
            "the hot set is larger than `memory`, or nothing; make it smaller",
        )?;
        some_threads(self.threads)?;
        want(self.phases > 0, "phases", "give at least 1")?;
        want(
            self.accesses_per_phase > 0,
            "accesses_per_phase",
            "give at least 1",
        )?;
        some_operations(self.ops_per_access)?;
        want(
            self.hot_percent <= 100,
            "hot_percent",
            "at most 100 of 100 accesses",
        )?;
        self.lines.check()?;
        stores_of_100(self.stores_percent)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Phases) {
        let count = pages(self.memory, scale, self.huge);
        let hot = pages(self.hot, scale, self.huge).min(count);
        let threads = self.threads as usize;
        let plan = Plan {
            regions: vec![
                places
                    .region("memory", count, self.node, self.on)
                    .in_huge_pages(self.huge),
            ],
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Random,
                    self.ops_per_access,
                    self.think
                );
                threads
            ],
            ends_at_ns: None,
        };
        let each = (self.accesses_per_phase / u64::from(scale)).max(1);
        let phases = Phases {
            base: 0,
            pages: count,
            hot,
            hot_share: share_of_65536(self.hot_percent),
            each,
            threads,
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
            pace: Pace::new(threads, each * u64::from(self.phases)),
        };
        (plan, phases)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    base: Slot,
    pages: u32,
    hot: u32,
    hot_share: u32,
    each: u64,
    threads: usize,
    lines: Lines,
    stores: u32,
    node: u16,
    pace: Pace,
}

impl Phases {
    /// The first page of the set that is hot for `thread`.
    fn hot_at(&self, thread: usize) -> u32 {
        let phase = self.pace.made(thread) / self.each;
        let sets = u64::from(self.pages / self.hot);
        (phase % sets) as u32 * self.hot
    }
}

impl Acts for Phases {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let hot = self.base + self.hot_at(thread);
        let until_next = self.each - self.pace.made(thread) % self.each;
        let room = batch.len().min(until_next as usize);
        let count = self.pace.take(thread, room);
        for access in &mut batch[..count] {
            let bits = rng.bits();
            let (base, pages) = match ((bits >> 16) as u32 & 0xffff) < self.hot_share {
                true => (hot, self.hot),
                false => (self.base, self.pages),
            };
            // All of the first number is spent: page, hot or not, store.
            let line = self.lines.pick(rng.bits());
            *access = access_by(bits, base, pages, line, self.stores);
        }
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn phase(&self, _: u64) -> u64 {
        // Threads change one by one.
        (0..self.threads)
            .map(|thread| self.pace.made(thread) / self.each)
            .sum()
    }

    fn truth(&self, _: usize, page: u32, _: u64) -> Truth {
        let anywhere = (65_536 - self.hot_share) as f32 / self.pages as f32;
        let hot = self.hot_share as f32 / self.hot as f32;
        let threads = (0..self.threads).filter(|&thread| {
            let begin = self.hot_at(thread);
            (begin..begin + self.hot).contains(&page)
        });
        Truth {
            rate: anywhere + hot * threads.count() as f32 / self.threads as f32,
            node: self.node,
        }
    }
}
