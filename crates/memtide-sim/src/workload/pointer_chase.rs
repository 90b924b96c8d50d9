//! Pointer chasing: each address is read from the one before, so that no two misses overlap and every
//! nanosecond of latency counts.
//!
//! Each thread has a chain of its own, which goes through all pages in one cycle, by a stride near the
//! golden section of their number. Each round goes to another line of every page, so that the chain is as
//! long as the memory has lines. (On one chain threads would catch up with each other, and those
//! behind would find in the cache what those before them read.)

use super::checks::{some_accesses, some_operations, some_threads};
use super::lines::Lines;
use super::pace::Pace;
use super::zipf::coprime_stride;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointerChaseSpec {
    /// How many threads, each with its own chain.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory that the chains go through.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// Whether it has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Which lines of a page a chain goes through: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// Accesses of each thread.
    pub accesses: u64,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

impl PointerChaseSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        some_threads(self.threads)?;
        some_accesses(self.accesses)?;
        self.lines.check()?;
        some_operations(self.ops_per_access)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, PointerChase) {
        let count = pages(self.memory, scale, self.huge);
        let region = places.region("chain", count, self.node, self.on);
        let threads = self.threads as usize;
        let plan = Plan {
            regions: vec![region.in_huge_pages(self.huge)],
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Dependent,
                    self.ops_per_access,
                    self.think
                );
                threads
            ],
            ends_at_ns: None,
        };
        let begin = |n: u64| (n * u64::from(count) / threads as u64) as u32;
        let chase = PointerChase {
            base: 0,
            pages: count,
            // Where few strides share no factor with the pages, chains repeat.
            strides: (0..threads)
                .map(|n| coprime_stride(count, n * 7) % count.max(1))
                .collect(),
            at: (0..threads as u64).map(begin).collect(),
            begun: (0..threads as u64).map(begin).collect(),
            rounds: vec![0; threads],
            lines: self.lines,
            node: self.node,
            pace: Pace::new(threads, self.accesses / u64::from(scale)),
        };
        (plan, chase)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct PointerChase {
    base: Slot,
    pages: u32,
    strides: Vec<u32>,
    at: Vec<u32>,
    /// Where each chain begins.
    begun: Vec<u32>,
    /// How often each went through all pages.
    rounds: Vec<u32>,
    lines: Lines,
    node: u16,
    pace: Pace,
}

impl Acts for PointerChase {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, thread: usize, _: u64, _: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = self.pace.take(thread, batch.len());
        let (mut at, stride) = (self.at[thread], self.strides[thread]);
        let (begun, mut round) = (self.begun[thread], self.rounds[thread]);
        for access in &mut batch[..count] {
            // The line differs from page to page, as a node's place in its page would.
            let line = self.lines.nth(at.wrapping_mul(29).wrapping_add(round));
            *access = Access::new(self.base + at, line, 1, false);
            at += stride;
            if at >= self.pages {
                at -= self.pages;
            }
            round += u32::from(at == begun);
        }
        (self.at[thread], self.rounds[thread]) = (at, round);
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth {
            rate: 1.0,
            node: self.node,
        }
    }
}
