//! What a run leaves: times, counters, costs by cause, and series over time.

use memtide_core::balancing::sampled::Cause;
use memtide_core::vmstat::Counters;
use serde::{Deserialize, Serialize};

/// Where the time of threads and kernel threads went, in nanoseconds summed over CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overhead {
    /// Hint faults, without moves.
    pub hint_fault_ns: u64,
    /// Moves inside hint faults.
    pub fault_migration_ns: u64,
    /// Moves that samples led to, in their task's time.
    pub sample_migration_ns: u64,
    /// Arming entries (`task_numa_work`).
    pub numa_scan_ns: u64,
    /// Other page faults, placement included.
    pub page_fault_ns: u64,
    /// Shootdowns: sending and receiving.
    pub shootdown_ns: u64,
    /// Waiting for pages that are being moved.
    pub migration_wait_ns: u64,
    /// Allocations that had to reclaim.
    pub direct_reclaim_ns: u64,
    /// Flushes that lazy flushing made before memory was used or because an event could not wait; they
    /// are part of `shootdown_ns`.
    pub lazy_flush_ns: u64,
    /// Waiting for a storage device.
    pub storage_ns: u64,
    /// Sampler interrupts.
    pub sampler_ns: u64,
    /// Recording samples.
    pub sample_work_ns: u64,
    /// Promotion threads (beside the application).
    pub kmigrated_ns: u64,
    /// Background reclaim (beside the application).
    pub kswapd_ns: u64,
    /// Accessed-bit scans (beside the application).
    pub page_table_scan_ns: u64,
}

/// What TLBs did, as perf counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbCounts {
    /// Shootdown interrupts, over all CPUs.
    pub shootdowns: u64,
    /// Flushes, over all CPUs.
    pub flushes: u64,
    /// Misses of loads,
    pub dtlb_load_misses: u64,
    /// of stores,
    pub dtlb_store_misses: u64,
    /// and of instruction fetches.
    pub itlb_misses: u64,
}

impl TlbCounts {
    /// The counts with what they are called in tables.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("shootdowns", self.shootdowns),
            ("TLB flushes", self.flushes),
            ("dTLB load misses", self.dtlb_load_misses),
            ("dTLB store misses", self.dtlb_store_misses),
            ("iTLB misses", self.itlb_misses),
        ]
    }
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// The configuration's name.
    pub configuration: String,
    /// Simulated seconds from the workload's start (after population) to its end.
    pub seconds: f64,
    /// The workload's own score, if time is not it (accesses a second, GB/s), and its unit.
    pub score: Option<Score>,
    /// Counters, in pages and events of the real machine (times S).
    pub counters: Counters,
    /// Shootdown interrupts received, times S.
    pub tlb_shootdowns: u64,
    /// Flushes that CPUs made, their own and those they were interrupted for, times S.
    pub tlb_flushes: u64,
    /// TLB misses of both levels, times S: of loads, stores and instruction fetches.
    pub tlb_misses: u64,
    /// Of them, loads.
    pub dtlb_load_misses: u64,
    /// Stores.
    pub dtlb_store_misses: u64,
    /// Fetches.
    pub itlb_misses: u64,
    /// What lazy unmap flush did, times S; `None` if it was off.
    pub luf: Option<LufCounts>,
    /// What the check of every access found; `None` if it was off.
    pub checked: Option<Checked>,
    /// When a hot set was home; `None` for workloads without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Home>,
    /// Costs by cause.
    pub overhead: Overhead,
    /// What NUMA balancing cost, and what it moved, the kernel's or `memtide balance`'s.
    pub balancing: Balancing,
    /// What `memtide tier` did, in a row where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiering: Option<Tiering>,
    /// What `memtide balance` met, in a row where it ran; what it cost is in `balancing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memtide_balance: Option<MemtideBalance>,
    /// Why the oracle's figures are an estimate; `None` in other rows, and if they are a bound: no placement is better
    /// that knows the rates of pages, but not the next access.
    pub estimate: Option<String>,
    /// Accesses that were simulated (not times S); in the oracle's row, that fit into the time.
    pub accesses: u64,
    /// Share of memory accesses (cache misses) that top-tier nodes served.
    pub fast_share: f64,
    /// Pages of the workload by node at the end, times S.
    pub pages_by_node: Vec<u64>,
    /// Page counts by region and node after population, times S (the page-count program).
    pub placed: Vec<Placed>,
    /// Average traffic by node, bytes a second.
    pub bytes_per_s: Vec<f64>,
    /// Series over time.
    pub series: Series,
    /// Seconds until the last thread of each group was done, by group.
    pub group_seconds: Vec<f64>,
    /// Each of several programs, in the scenario's order; none where one workload runs, and in the
    /// oracle's row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramResult>,
    /// Of several programs: Jain's index ([`jain`](memtide_core::fairness::jain)) of the shares of their
    /// memory accesses that the top tier served. Programs of one cgroup count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
}

/// The share of the accesses to hot pages that fast memory has to serve before a hot set is home.
pub const HOME_SHARE: f64 = 0.9;

/// When a hot set was home, and what finding it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Home {
    /// All of the memory.
    pub memory_bytes: u64,
    /// The size of a piece of the hot set.
    pub piece_bytes: u64,
    /// Seconds from the run's start until the top tier served [`HOME_SHARE`] of the accesses to hot pages;
    /// `None` if it never did.
    pub seconds: Option<f64>,
    /// Pages that were moved up and are not hot, over all that are not hot; `None` where that was not
    /// counted.
    pub cold_share: Option<f64>,
    /// The most that observing took of one CPU in any minute; `None` where memtide did not observe, or
    /// for less than a minute.
    pub minute_share: Option<f64>,
    /// Seconds that two passes over every page take at the share of a CPU that observing may use: nobody
    /// who has to see each page twice is faster. `None` where memtide did not observe.
    pub bound_s: Option<f64>,
    /// What memtide promises, in seconds; `None` in rows of others.
    pub promise_s: Option<f64>,
}

/// One of several programs.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramResult {
    /// Its name.
    pub name: String,
    /// Its cgroup; `None` for the root.
    pub cgroup: Option<String>,
    /// Seconds from the run's start to its own.
    pub started_s: f64,
    /// Seconds from its start to its end, or to the run's.
    pub seconds: f64,
    /// Accesses a second of the real machine, while it ran.
    pub accesses_per_s: f64,
    /// That over the same of the first configuration, if that was run.
    pub ratio: Option<f64>,
    /// Share of its memory accesses (cache misses) that top-tier nodes served.
    pub fast_share: f64,
    /// Its pages by node at its end, or at the run's, times S.
    pub pages_by_node: Vec<u64>,
    /// The program over time.
    pub series: ProgramSeries,
}

/// A program over time, by the time stamps of the run's [`Series`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramSeries {
    /// Accesses a second of the real machine in the interval.
    pub accesses_per_s: Vec<f64>,
    /// Share of its memory accesses in the interval that the top tier served; `None` if it made none.
    pub fast_share: Vec<Option<f64>>,
    /// Its pages on the top tier at the interval's end, times S.
    pub fast_pages: Vec<u64>,
}

/// NUMA balancing's account, in events, pages and nanoseconds of the real machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Balancing {
    /// What it did, and how long that took; all causes, in their order.
    pub causes: Vec<BalancingCause>,
    /// Pages that it moved.
    pub pages_moved: u64,
    /// Pages that it tried to move and could not.
    pub pages_failed: u64,
    /// Everything over the pages moved; `None` if none were.
    pub ns_a_page: Option<u64>,
    /// Pages moved over the whole run.
    pub pages_a_second: u64,
}

/// One cause of balancing's cost.
#[derive(Clone, Debug, Serialize)]
pub struct BalancingCause {
    /// Which.
    pub cause: Cause,
    /// How often.
    pub events: u64,
    /// How long in all.
    pub ns: u64,
}

/// What `memtide tier` cost and met, beside the pages that it moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tiering {
    /// Processor time of its own process, in nanoseconds.
    pub own_cpu_ns: u64,
    /// Processor time that the kernel spent on observing for it.
    pub observing_cpu_ns: u64,
    /// Passes of its source that were completed.
    pub passes: u64,
    /// Reports that were lost.
    pub lost: u64,
    /// Pages that the kernel did not move, times S.
    pub failed_pages: u64,
    /// Where the row's classes were at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResult>,
}

/// A class of programs and its share of fast memory at the end; pages are times S.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassResult {
    /// Its name.
    pub name: String,
    /// The class that contains it; `None` if none does.
    pub within: Option<String>,
    /// Pages of fast memory that it and the classes within it used; `None` if that was not known.
    pub fast_pages: Option<u64>,
    /// Pages that were not taken from it for others.
    pub low_pages: u64,
    /// The most that it might have; `None` without a bound.
    pub high_pages: Option<u64>,
    /// Pages of it that moved up.
    pub promoted_pages: u64,
    /// Pages of it that moved down.
    pub demoted_pages: u64,
    /// Hot pages that its bound kept down.
    pub waiting_pages: u64,
    /// Of its accesses that the loop sampled in the last half minute, those to fast memory, in
    /// thousandths; `None` if the loop did not know.
    pub fast_access_permille: Option<u32>,
    /// Of its pages that the loop saw touched in that time, those on fast memory, likewise.
    pub fast_touched_permille: Option<u32>,
}

/// What `memtide balance` met, beside the pages that it moved. Samples and pages are times S.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemtideBalance {
    /// Processor time of its own process, in nanoseconds.
    pub own_cpu_ns: u64,
    /// How long it rested to keep to its limit, in milliseconds.
    pub rested_ms: u64,
    /// Samples that counted.
    pub samples: u64,
    /// Of those, to pages on the node of the CPU.
    pub local_samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Operations between samples, at the end.
    pub period: u64,
    /// Pages that the kernel did not move.
    pub failed_pages: u64,
    /// Pages that their mempolicy kept.
    pub forbidden_pages: u64,
    /// Pages that found no room.
    pub no_room_pages: u64,
    /// Threads that had an affinity from it at the end, or would have.
    pub placed_tasks: u64,
    /// Threads that got back the CPUs that they had.
    pub freed_tasks: u64,
}

impl Balancing {
    /// Books what somebody beside the kernel did: time by cause, and pages.
    pub(crate) fn book(&mut self, spent: &[(Cause, u64, u64)], pages: (u64, u64), seconds: f64) {
        for &(cause, events, ns) in spent {
            let entry = self.causes.iter_mut().find(|entry| entry.cause == cause);
            if let Some(entry) = entry {
                entry.events += events;
                entry.ns += ns;
            }
        }
        let (moved, failed) = pages;
        self.pages_moved += moved;
        self.pages_failed += failed;
        let ns: u64 = self.causes.iter().map(|entry| entry.ns).sum();
        self.ns_a_page = ns.checked_div(self.pages_moved);
        self.pages_a_second = (self.pages_moved as f64 / seconds.max(1e-9)) as u64;
    }
}

impl RunResult {
    /// A run of which nothing is known but its configuration's name.
    #[must_use]
    pub fn of(configuration: &str) -> RunResult {
        RunResult {
            configuration: configuration.to_owned(),
            seconds: 0.0,
            score: None,
            counters: Counters::ZERO,
            tlb_shootdowns: 0,
            tlb_flushes: 0,
            tlb_misses: 0,
            dtlb_load_misses: 0,
            dtlb_store_misses: 0,
            itlb_misses: 0,
            luf: None,
            checked: None,
            home: None,
            overhead: Overhead::default(),
            balancing: Balancing::default(),
            tiering: None,
            memtide_balance: None,
            estimate: None,
            accesses: 0,
            fast_share: 0.0,
            pages_by_node: Vec::new(),
            placed: Vec::new(),
            bytes_per_s: Vec::new(),
            series: Series::default(),
            group_seconds: Vec::new(),
            programs: Vec::new(),
            fairness: None,
        }
    }

    /// What TLBs did, in the words that published tables have.
    #[must_use]
    pub fn tlb(&self) -> TlbCounts {
        TlbCounts {
            shootdowns: self.tlb_shootdowns,
            flushes: self.tlb_flushes,
            dtlb_load_misses: self.dtlb_load_misses,
            dtlb_store_misses: self.dtlb_store_misses,
            itlb_misses: self.itlb_misses,
        }
    }
}

/// What lazy unmap flush did, in events of the real machine. Pages and what happens to each are counted times S;
/// flushes that serve all that is pending come as often at each scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LufCounts {
    /// Pages unmapped whose flush was put off.
    pub deferred: u64,
    /// Pages that had to be flushed at once because memory was short.
    pub paused: u64,
    /// Pages that had to be flushed at once because they were not fit, by why.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Flushes because a page was about to be used.
    pub at_use: u64,
    /// Pages used whose flush was done already.
    pub satisfied: u64,
    /// Generations that flushes of others did for nothing.
    pub covered: u64,
    /// Flushes that could not wait, by cause.
    pub forced: std::collections::BTreeMap<String, u64>,
}

/// What the check of every access found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Accesses looked at, as they were simulated (not times S).
    pub accesses: u64,
    /// Of them, those that found content that is not the page's.
    pub wrong: u64,
    /// The first of these, in words.
    pub first: Option<String>,
}

/// A workload's own score.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// Higher is better.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// Where a region's pages were placed.
#[derive(Clone, Debug, Serialize)]
pub struct Placed {
    /// The region.
    pub region: String,
    /// Pages by node.
    pub pages: Vec<u64>,
}

/// Series with common time stamps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Seconds since the workload's start.
    pub seconds: Vec<f64>,
    /// Pages promoted and moved by NUMA balancing so far, times S.
    pub pages_migrated: Vec<u64>,
    /// Share of the workload done by its slowest thread group, 0 to 1.
    pub done: Vec<f64>,
    /// Share of memory accesses in the interval that the top tier served.
    pub fast_share: Vec<f64>,
    /// Traffic by node in the interval, bytes a second: `[node][time]`.
    pub bytes_per_s: Vec<Vec<f64>>,
    /// Loaded read latency by node: `[node][time]`.
    pub latency_ns: Vec<Vec<f64>>,
    /// Accesses by group of pages in the interval: `[group][time]`, 64 groups.
    pub heat: Vec<Vec<u32>>,
    /// Which pages the groups of `heat` hold, in the order of their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heat_parts: Vec<HeatPart>,
}

/// Pages of one region in one group of the heat series. A group may have parts of several regions, and a
/// region parts in several groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeatPart {
    /// The group's position in [`Series::heat`].
    pub group: usize,
    /// The region's name.
    pub region: String,
    /// How many pages, times S.
    pub pages: u64,
}
