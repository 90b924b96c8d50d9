//! A hot set that threads use over and over, and one thread that scans much more memory, touching each
//! page once a round: the trap for whoever takes a page for hot that was touched a moment ago.
//!
//! The scanner keeps a pace of its own, so that what slows it does not help the others.

use super::checks::{some_accesses, some_operations, some_threads, stores_of_100};
use super::lines::Lines;
use super::pace::Pace;
use super::places::START_VPN;
use super::random::{random_access, share_of_65536};
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanOverHotSpec {
    /// How many threads use the hot set.
    pub threads: u32,
    /// The node on whose CPUs they and the scanner run.
    pub node: u16,
    /// The hot set.
    pub hot: Bytes,
    /// What is scanned.
    pub scanned: Bytes,
    /// The node both are populated on.
    pub on: u16,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses to the hot set store.
    pub stores_percent: u32,
    /// Accesses of each thread to the hot set.
    pub accesses: u64,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access to the hot set that needs no memory.
    pub think: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
    /// Time from one page of the scan to the next.
    pub scan_interval: Nanos,
}

impl ScanOverHotSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("hot", self.hot.0)?;
        places.fit("scanned", self.scanned.0.saturating_add(self.hot.0))?;
        want(
            self.scan_interval.0 >= 1.0,
            "scan_interval",
            "give at least 1 ns",
        )?;
        some_threads(self.threads)?;
        some_accesses(self.accesses)?;
        some_operations(self.ops_per_access)?;
        self.lines.check()?;
        stores_of_100(self.stores_percent)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, ScanOverHot) {
        let hot = pages(self.hot, scale, self.huge);
        let scanned = pages(self.scanned, scale, self.huge);
        let region = |name, count| {
            let region = places.region(name, count, self.node, self.on);
            region.in_huge_pages(self.huge)
        };
        let mut regions = vec![region("hot", hot), region("scanned", scanned)];
        regions[1].start_vpn = START_VPN + u64::from(hot).next_multiple_of(512);
        let count = self.threads as usize;
        let user = ThreadPlan::on(self.node, Pattern::Random, self.ops_per_access, self.think);
        let scanner = ThreadPlan {
            pattern: Pattern::Sequential,
            ops_per_access: 512,
            think_ns: 0.0,
            misses_at_once: None,
            group: 1,
            ..user.clone()
        };
        let mut threads = vec![user; count];
        threads.push(scanner);
        let plan = Plan {
            regions,
            threads,
            ends_at_ns: None,
        };
        let scan_over_hot = ScanOverHot {
            bases: [0, 0],
            pages: [hot, scanned],
            users: count,
            scanned: 0,
            interval_ns: self.scan_interval.0 * f64::from(scale),
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
            pace: Pace::new(count, self.accesses / u64::from(scale)),
        };
        (plan, scan_over_hot)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct ScanOverHot {
    bases: [Slot; 2],
    pages: [u32; 2],
    users: usize,
    /// Pages that the scanner has read.
    scanned: u64,
    interval_ns: f64,
    lines: Lines,
    stores: u32,
    node: u16,
    pace: Pace,
}

impl Acts for ScanOverHot {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = [slots[0], slots[1]];
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        if thread < self.users {
            let count = self.pace.take(thread, batch.len());
            for access in &mut batch[..count] {
                *access = random_access(rng, self.bases[0], self.pages[0], self.lines, self.stores);
            }
            return Filled::of(count);
        }
        if self.pace.done() >= 1.0 {
            return Filled::Done;
        }
        let due = (now_ns as f64 / self.interval_ns) as u64;
        let count = due.saturating_sub(self.scanned).min(batch.len() as u64);
        for access in &mut batch[..count as usize] {
            let page = self.scanned % u64::from(self.pages[1]);
            *access = Access::new(self.bases[1] + page as u32, 0, 64, false);
            self.scanned += 1;
        }
        match count {
            0 => Filled::Waits,
            _ => Filled::Accesses(count as usize),
        }
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        // The scan touches each page once a round; against the hot set that is next to nothing.
        Truth {
            rate: if region == 0 { 1.0 } else { 0.01 },
            node: self.node,
        }
    }
}
