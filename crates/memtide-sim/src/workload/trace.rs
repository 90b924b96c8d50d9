//! Recorded accesses again, in a closed loop: what a thread did between two of its accesses it does
//! again, and what memory takes is the simulated machine's. So a slower machine makes the replay longer,
//! as it would have made the program.
//!
//! A recording says when accesses were, not what they waited for. The time from one access of a thread to
//! its next counts as the thread's own; what the recorded machine's memory took of it (`recorded`, if it
//! is known) is taken off. Times of more than [`SLEEP_NS`] count as sleep: the thread gives its processor
//! away and uses none of its time. At a coarser scale rows that stay are further apart, and between two of
//! them the thread works and sleeps for as long as it did between all.
//!
//! Rows come from whoever can read the file. Addresses become mappings: pages that were touched within
//! 2 MiB of each other belong to one mapping. At scale 1/S, S neighbouring pages become one, and of each
//! S accesses to these one stays, picked by lot: whichever thread made it. So threads that take turns
//! stay, each with its share, and so does every page that was accessed S times.
//!
//! What the oracle knows of it are counts by page in windows of some [`WINDOW_NS`] of the recording.

use super::checks::some_operations;
use super::places::START_VPN;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::Nanos;
use serde::Deserialize;
use std::collections::HashMap;
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
    /// Time per access that needs no memory, beside what the recorded times leave.
    pub think: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
    /// What an access took where it was recorded, as far as known: it is no time of the thread's own.
    #[serde(default)]
    pub recorded: Nanos,
}

/// A thread that does nothing for longer than this sleeps.
pub const SLEEP_NS: u64 = 10_000_000;

/// How long a window is, at least, in recorded time; and how many there are at most.
const WINDOW_NS: u64 = 100_000_000;
const WINDOWS: u64 = 256;

/// Pages of the real machine that are this far apart are not of one mapping: a huge page.
const GAP_PAGES: u64 = crate::page::HUGE_PAGES as u64;

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
        let page_of = |row: &TraceRow| row.address / 4096 / scale;
        let origin = rows.iter().map(|row| row.time_ns).min().unwrap_or(0);
        let span_ns = rows.iter().map(|row| row.time_ns).max().unwrap_or(0) - origin;
        let kept = kept(rows, scale, self.recorded.0 as u64);
        let kept = kept.iter();
        let mut touched: Vec<u64> = kept.clone().map(|(row, _)| page_of(row)).collect();
        touched.sort_unstable();
        let runs = mappings(&touched, scale, self.huge);
        let mut threads: Vec<u32> = kept.clone().map(|(row, _)| row.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let mut accesses = vec![Vec::new(); threads.len()];
        for (row, before) in kept {
            let run = runs.partition_point(|&(first, _)| first <= page_of(row)) - 1;
            let thread = threads.partition_point(|&id| id < row.thread);
            accesses[thread].push(Recorded {
                before: *before,
                region: run as u32,
                page: (page_of(row) - runs[run].0) as u32,
                line: (row.address / 64 % 64) as u8,
                write: row.write,
            });
        }
        let mut at = START_VPN;
        let regions = runs.iter().map(|&(first, pages)| {
            let name = format!("{:#x}", first * 4096 * scale);
            let mut region = places.region(&name, pages as u32, self.node, self.on);
            region.start_vpn = at;
            at += pages.next_multiple_of(512);
            region.in_huge_pages(self.huge)
        });
        let plan = Plan {
            regions: regions.collect(),
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Random,
                    self.ops_per_access,
                    self.think
                );
                threads.len()
            ],
            ends_at_ns: None,
        };
        let counts = runs.iter().map(|&(_, pages)| vec![0u32; pages as usize]);
        let mut trace = Trace {
            slots: Vec::new(),
            next: vec![0; threads.len()],
            left: vec![None; threads.len()],
            counts: counts.collect(),
            windows: (span_ns / WINDOW_NS).clamp(1, WINDOWS) as usize,
            window: 0,
            all: accesses.iter().map(Vec::len).sum(),
            made: 0,
            accesses: Arc::new(accesses),
            node: self.node,
        };
        trace.count();
        (plan, trace)
    }
}

/// The pages of the mappings that rows become at scale 1/`scale`, with those in their gaps.
pub(crate) fn spread(rows: &[TraceRow], scale: u32, huge: bool) -> u64 {
    let scale = u64::from(scale.max(1));
    let page_of = |row: &TraceRow| row.address / 4096 / scale;
    let mut touched: Vec<u64> = rows.iter().map(page_of).collect();
    touched.sort_unstable();
    let mappings = mappings(&touched, scale, huge);
    mappings.iter().map(|&(_, pages)| pages).sum()
}

/// The mappings of pages in ascending order, each as its first page and how many. If `huge`, they are
/// widened to whole huge pages, which begin at multiples of their size as they did where it was recorded.
fn mappings(touched: &[u64], scale: u64, huge: bool) -> Vec<(u64, u64)> {
    // A huge page stands for as many.
    let gap = match huge {
        true => GAP_PAGES,
        false => (GAP_PAGES / scale).max(1),
    };
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &page in touched {
        match runs.last_mut() {
            Some((first, pages)) if page < *first + *pages + gap => {
                *pages = page - *first + 1;
            }
            _ => runs.push((page, 1)),
        }
    }
    if huge {
        // Runs are a huge page apart at least, so that none grows into the next.
        for (first, pages) in &mut runs {
            let end = (*first + *pages).next_multiple_of(GAP_PAGES);
            *first -= *first % GAP_PAGES;
            *pages = end - *first;
        }
    }
    runs
}

/// The pauses between rows in whole times of `unit_ns`, where none counts for more than one of `most`: a
/// sum for each.
pub(crate) fn pauses(rows: &[TraceRow], unit_ns: u64, most: &[u64]) -> Vec<u64> {
    let mut times: Vec<u64> = rows.iter().map(|row| row.time_ns).collect();
    times.sort_unstable();
    let units = || times.windows(2).map(|pair| (pair[1] - pair[0]) / unit_ns);
    let sum = |most: &u64| units().map(|pause| pause.min(*most)).sum();
    most.iter().map(sum).collect()
}

/// What a thread does between two accesses, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Between {
    work: u64,
    sleep: u64,
}

/// One of each `scale` rows of each group of `scale` neighbouring pages, in order of time, with what its thread
/// did since its last one that stays. `recorded_ns` of the time before each row were memory's.
fn kept(rows: &[TraceRow], scale: u64, recorded_ns: u64) -> Vec<(TraceRow, Between)> {
    let group_of = |row: &TraceRow| row.address / 4096 / scale;
    // A lot for each block of rows: which of them stays.
    let lot = |group: u64, block: u64| {
        let mixed =
            (group.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32
    };
    let mut order: Vec<&TraceRow> = rows.iter().collect();
    order.sort_by_key(|row| row.time_ns);
    let mut seen = HashMap::new();
    let mut stays = |row: &TraceRow| {
        let count: &mut u64 = seen.entry(group_of(row)).or_default();
        let (block, at) = (*count / scale, *count % scale);
        *count += 1;
        lot(group_of(row), block) % scale == at
    };
    let origin = order.first().map_or(0, |row| row.time_ns);
    // By thread: when it accessed last, and what it did since a row of it stayed.
    let mut threads: HashMap<u32, (u64, Between)> = HashMap::new();
    let mut kept = Vec::new();
    for row in &order {
        let known = threads.get(&row.thread).copied();
        let (last_ns, mut between) = known.unwrap_or((origin, Between::default()));
        // Nobody knows what it did before its first.
        let taken_ns = known.map_or(0, |_| recorded_ns);
        let ns = (row.time_ns - last_ns).saturating_sub(taken_ns);
        match ns > SLEEP_NS {
            true => between.sleep += ns,
            false => between.work += ns,
        }
        if scale == 1 || stays(row) {
            kept.push((**row, std::mem::take(&mut between)));
        }
        threads.insert(row.thread, (row.time_ns, between));
    }
    match (kept.is_empty(), rows.first()) {
        // Something stays of every recording.
        (true, Some(&first)) => vec![(first, Between::default())],
        _ => kept,
    }
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    before: Between,
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
    /// What each thread has still to do before its next access, once it is at it.
    left: Vec<Option<Between>>,
    accesses: Arc<Vec<Vec<Recorded>>>,
    /// Accesses of the window, by mapping and page.
    counts: Vec<Vec<u32>>,
    windows: usize,
    window: usize,
    /// Accesses in all, and made.
    all: usize,
    made: usize,
    node: u16,
}

impl Trace {
    /// Counts what each thread accesses in the window: an equal part of its rows.
    fn count(&mut self) {
        for counts in &mut self.counts {
            counts.fill(0);
        }
        for rows in self.accesses.iter() {
            let edge = |window: usize| rows.len() * window / self.windows;
            for row in &rows[edge(self.window)..edge(self.window + 1)] {
                self.counts[row.region as usize][row.page as usize] += 1;
            }
        }
    }

    /// Goes on to the window that the threads are in on the whole.
    fn made(&mut self, count: usize) {
        self.made += count;
        let window = (self.made * self.windows / self.all.max(1)).min(self.windows - 1);
        if window != self.window {
            self.window = window;
            self.count();
        }
    }
}

impl Acts for Trace {
    fn mapped(&mut self, slots: &[Slot]) {
        self.slots = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, _: &mut Rng, batch: &mut [Access]) -> Filled {
        let all = &self.accesses[thread];
        let next = self.next[thread];
        let mut count = 0;
        for (row, access) in all[next..].iter().zip(batch) {
            let left = self.left[thread].get_or_insert(row.before);
            if *left != Between::default() {
                if count > 0 {
                    break;
                }
                // Whoever thinks for longer sleeps.
                let work = left.work.min(SLEEP_NS);
                left.work -= work;
                return Filled::Thinks(match work {
                    0 => std::mem::take(&mut left.sleep),
                    work => work,
                });
            }
            self.left[thread] = None;
            let slot = self.slots[row.region as usize] + row.page;
            *access = Access::new(slot, u32::from(row.line), 1, row.write);
            count += 1;
        }
        self.next[thread] += count;
        self.made(count);
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        let shares = self.accesses.iter().zip(&self.next);
        shares
            .map(|(rows, &next)| next as f64 / rows.len().max(1) as f64)
            .fold(1.0, f64::min)
    }

    fn phase(&self, _: u64) -> u64 {
        self.window as u64
    }

    fn truth(&self, region: usize, page: u32, _: u64) -> Truth {
        Truth {
            rate: self.counts[region][page as usize] as f32,
            node: self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::machine;

    #[test]
    fn the_spread_is_that_of_the_mappings() {
        // Gaps of 512 pages belong to a mapping, and of 513 do not: 513 pages, two, and one.
        let pages = [0, 512, 1025, 1026, 9000, 9000];
        let row = |page: u64| TraceRow {
            time_ns: 0,
            thread: 0,
            address: page << 12,
            write: false,
        };
        let rows = Arc::new(pages.map(row).to_vec());
        assert_eq!(spread(&rows, 1, false), 516);
        assert_eq!(spread(&[], 1, false), 0);
        let spec = TraceSpec {
            file: String::new(),
            node: 0,
            on: 0,
            ops_per_access: 1,
            think: Nanos(0.0),
            recorded: Nanos(0.0),
            huge: false,
            misses_at_once: None,
        };
        let machine = machine(&[(16_384, 1)], 64);
        let (plan, _) = spec.build(&Places::new(&machine), 1, &rows);
        let built: Vec<u32> = plan.regions.iter().map(|region| region.pages).collect();
        assert_eq!(built, [513, 2, 1]);
    }

    /// A row a millisecond, and a pause of a second: coarser recordings work and sleep for as long.
    #[test]
    fn what_is_left_out_takes_its_time() {
        let row = |n: u64| TraceRow {
            time_ns: n * 1_000_000 + if n >= 500 { 1_000_000_000 } else { 0 },
            thread: 0,
            address: (n % 64) << 12,
            write: false,
        };
        let rows: Vec<TraceRow> = (0..1000).map(row).collect();
        for scale in [1, 16, 64] {
            let kept = kept(&rows, scale, 0);
            assert!(kept.len() as u64 <= 1000 / scale + 1, "1/{scale}");
            let sum = |of: fn(&Between) -> u64| kept.iter().map(|(_, b)| of(b)).sum::<u64>();
            assert_eq!(sum(|b| b.sleep), 1_001_000_000, "1/{scale}");
            // All but what came after the last one that stays.
            let (work, all) = (sum(|b| b.work), 998_000_000);
            assert!(
                work <= all && work >= all - 4_000_000 * (scale - 1),
                "{work}"
            );
        }
        // Pages 3 MiB apart do not become one mapping.
        let apart: Vec<TraceRow> = (0..8)
            .map(|n| TraceRow {
                address: (n * 768) << 12,
                ..row(n)
            })
            .collect();
        assert_eq!(spread(&apart, 64, false), 8);
    }
}
