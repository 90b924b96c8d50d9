//! Recorded accesses again: each at its recorded time, or later if the simulated machine is slower.
//!
//! Rows come from whoever can read the file. Addresses become mappings: pages that were touched within
//! 2 MiB of each other belong to one mapping. At scale 1/S, S neighbouring pages become one and every
//! S-th access stays.

use super::checks::some_operations;
use super::places::START_VPN;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::Nanos;
use serde::Deserialize;
use std::sync::Arc;

/// One recorded access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// When, in nanoseconds.
    pub time_ns: u64,
    /// By which thread.
    pub thread: u32,
    /// Its virtual address.
    pub address: u64,
    /// Whether it stored.
    pub write: bool,
}

/// The replay's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The file with the rows.
    pub file: String,
    /// The node on whose CPUs the threads run.
    pub node: u16,
    /// The node that memory is populated on.
    pub on: u16,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory, where the recorded times leave none.
    pub think: Nanos,
}

/// Pages this far apart are not of one mapping.
const GAP_PAGES: u64 = 512;

impl TraceSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        some_operations(self.ops_per_access)
    }

    pub(super) fn build(
        &self,
        places: &Places,
        scale: u32,
        rows: &Arc<Vec<TraceRow>>,
    ) -> (Plan, Trace) {
        let scale = u64::from(scale);
        let kept = rows.iter().step_by(scale as usize);
        let page_of = |row: &TraceRow| row.address / 4096 / scale;
        let mut touched: Vec<u64> = kept.clone().map(page_of).collect();
        touched.sort_unstable();
        touched.dedup();
        // Runs of pages, as (first page, pages).
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in touched {
            match runs.last_mut() {
                Some((first, pages)) if page < *first + *pages + GAP_PAGES => {
                    *pages = page - *first + 1;
                }
                _ => runs.push((page, 1)),
            }
        }
        let mut threads: Vec<u32> = kept.clone().map(|row| row.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let origin = kept.clone().map(|row| row.time_ns).min().unwrap_or(0);
        let mut accesses = vec![Vec::new(); threads.len()];
        for row in kept {
            let run = runs.partition_point(|&(first, _)| first <= page_of(row)) - 1;
            let thread = threads.partition_point(|&id| id < row.thread);
            accesses[thread].push(Recorded {
                at_ns: row.time_ns - origin,
                region: run as u32,
                page: (page_of(row) - runs[run].0) as u32,
                line: (row.address / 64 % 64) as u8,
                write: row.write,
            });
        }
        for list in &mut accesses {
            list.sort_by_key(|recorded| recorded.at_ns);
        }
        let mut at = START_VPN;
        let regions = runs.iter().map(|&(first, pages)| {
            let name = format!("{:#x}", first * 4096 * scale);
            let mut region = places.region(&name, pages as u32, self.node, self.on);
            region.start_vpn = at;
            at += pages.next_multiple_of(512);
            region
        });
        let plan = Plan {
            regions: regions.collect(),
            threads: vec![
                ThreadPlan {
                    space: 0,
                    nodes: vec![self.node],
                    pattern: Pattern::Random,
                    ops_per_access: self.ops_per_access,
                    think_ns: self.think.0,
                    group: 0,
                };
                threads.len()
            ],
            ends_at_ns: None,
        };
        let counts = runs.iter().map(|&(_, pages)| vec![0u32; pages as usize]);
        let mut counts: Vec<Vec<u32>> = counts.collect();
        for recorded in accesses.iter().flatten() {
            counts[recorded.region as usize][recorded.page as usize] += 1;
        }
        let trace = Trace {
            slots: Vec::new(),
            next: vec![0; threads.len()],
            accesses: Arc::new(accesses),
            counts: Arc::new(counts),
            node: self.node,
        };
        (plan, trace)
    }
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    at_ns: u64,
    region: u32,
    page: u32,
    line: u8,
    write: bool,
}

/// The replay, running.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    slots: Vec<Slot>,
    next: Vec<usize>,
    accesses: Arc<Vec<Vec<Recorded>>>,
    counts: Arc<Vec<Vec<u32>>>,
    node: u16,
}

impl Acts for Trace {
    fn mapped(&mut self, slots: &[Slot]) {
        self.slots = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, now_ns: u64, _: &mut Rng, batch: &mut [Access]) -> Filled {
        let rows = &self.accesses[thread][self.next[thread]..];
        let due = rows.iter().take(batch.len());
        let mut count = 0;
        for (row, access) in due.take_while(|row| row.at_ns <= now_ns).zip(batch) {
            let slot = self.slots[row.region as usize] + row.page;
            *access = Access::new(slot, u32::from(row.line), 1, row.write);
            count += 1;
        }
        self.next[thread] += count;
        match (count, rows.len()) {
            (0, 0) => Filled::Done,
            (0, _) => Filled::Waits,
            _ => Filled::Accesses(count),
        }
    }

    fn done(&self) -> f64 {
        let shares = self.accesses.iter().zip(&self.next);
        shares
            .map(|(rows, &next)| next as f64 / rows.len().max(1) as f64)
            .fold(1.0, f64::min)
    }

    fn truth(&self, region: usize, page: u32, _: u64) -> Truth {
        Truth {
            rate: self.counts[region][page as usize] as f32,
            node: self.node,
        }
    }
}
