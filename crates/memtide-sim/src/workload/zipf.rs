//! Few pages get most accesses: the page of rank r is accessed in proportion to r^-s, and which pages
//! those are changes slowly.
//!
//! A draw costs the same whatever the number of pages. Ranks are grouped by octaves (1, 2-3, 4-7, ...),
//! each of which is cut into eighths; an alias table picks the range by its true weight, and within it
//! every rank is as likely, which is at most a factor (9/8)^s from Zipf's law and right on average. One
//! random number serves both: its high half the range, its low half the rank. At scale 1/S a page of
//! rank r stands for the S real pages of ranks r S + 1 to (r + 1) S, and weighs what they weigh: so the
//! share of the accesses that go to the hottest gigabyte is the same at every scale. A rank's page is (rank + shift) * stride modulo the pages, with a stride that has no factor in
//! common with them, so hot pages lie all over; drift moves the shift.

use super::alias::Alias;
use super::checks::{some_accesses, some_operations, some_threads, stores_of_100};
use super::lines::Lines;
use super::pace::Pace;
use super::random::share_of_65536;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZipfSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory they share.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// s: 0 is uniform, 1 is Zipf's own.
    pub exponent: f64,
    /// How often the ranks shift.
    pub drift_every: Nanos,
    /// By how many of 1000 pages.
    pub drift_permille: u32,
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

impl ZipfSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        some_threads(self.threads)?;
        some_accesses(self.accesses)?;
        some_operations(self.ops_per_access)?;
        stores_of_100(self.stores_percent)?;
        self.lines.check()?;
        want(
            (0.0..=3.0).contains(&self.exponent),
            "exponent",
            "give 0 (uniform) to 3",
        )?;
        want(
            self.drift_permille <= 1000,
            "drift_permille",
            "at most 1000 of 1000 pages",
        )?;
        want(
            self.drift_every.0 >= 1e6,
            "drift_every",
            "give at least 1 ms",
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Zipf) {
        let count = pages(self.memory, scale, self.huge);
        let stride = coprime_stride(count, 0);
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
        let zipf = Zipf {
            base: 0,
            pages: count,
            ranges: Ranges::new(count, scale, self.exponent),
            stride,
            inverse: inverse(stride, count),
            drift_ns: self.drift_every.0 as u64,
            drift_pages: (u64::from(count) * u64::from(self.drift_permille) / 1000) as u32,
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
            pace: Pace::new(threads, self.accesses / u64::from(scale)),
        };
        (plan, zipf)
    }
}

/// The `nth` stride from the golden section of `pages` on that shares no factor with it.
pub(super) fn coprime_stride(pages: u32, nth: usize) -> u32 {
    let near = (u64::from(pages) * 40_503 / 65_536) as u32;
    (near.max(1)..)
        .filter(|&stride| gcd(stride, pages) == 1)
        .nth(nth)
        .unwrap_or(1)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// x with a * x = 1 modulo n.
pub(super) fn inverse(a: u32, n: u32) -> u32 {
    let (mut r, mut next_r) = (i64::from(n), i64::from(a % n.max(1)));
    let (mut t, mut next_t) = (0i64, 1i64);
    while next_r != 0 {
        let q = r / next_r;
        (r, next_r) = (next_r, r - q * next_r);
        (t, next_t) = (next_t, t - q * next_t);
    }
    t.rem_euclid(i64::from(n.max(1))) as u32
}

/// Parts of an octave.
const PARTS: u32 = 8;

/// Which range of ranks, by an alias table.
#[derive(Clone, Debug)]
struct Ranges {
    alias: Alias,
    /// First rank (from 0) and number of ranks by range.
    ranks: Vec<(u32, u32)>,
    /// Weight of one rank by range.
    rate: Vec<f32>,
}

/// The sum of r^-s over ranks r from `first` + 1 to `end`.
fn weight(first: u64, end: u64, exponent: f64) -> f64 {
    // One by one where the function is steep; from there on the integral around each rank, which is
    // right to a part in ten million.
    let steep = end.min(1024);
    let of = |rank: u64| ((rank + 1) as f64).powf(-exponent);
    let one_by_one: f64 = (first..steep).map(of).sum();
    let (from, to) = (first.max(steep) as f64 + 0.5, end as f64 + 0.5);
    let integral = match exponent == 1.0 {
        true => (to / from).ln(),
        false => (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent),
    };
    one_by_one + integral.max(0.0)
}

/// The range of a rank from 0.
fn range_of(rank: u32) -> usize {
    let octave = (rank + 1).ilog2();
    // Ranges before it: an octave of up to eight ranks has as many ranges as ranks.
    let before = match octave {
        0..=3 => (1 << octave) - 1,
        _ => PARTS - 1 + (octave - 3) * PARTS,
    };
    let within = rank + 1 - (1 << octave);
    let parts = PARTS.min(1 << octave);
    let part = (u64::from(within) * u64::from(parts)) >> octave;
    (before + part as u32) as usize
}

impl Ranges {
    /// For `pages` pages that stand for `scale` real ones each.
    fn new(pages: u32, scale: u32, exponent: f64) -> Ranges {
        let mut ranks: Vec<(u32, u32)> = Vec::new();
        let mut first = 0u32;
        while first < pages {
            let octave = (first + 1).ilog2();
            let size = (1u32 << octave) / PARTS.min(1 << octave);
            ranks.push((first, size.min(pages - first)));
            first += size.min(pages - first);
        }
        let scale = u64::from(scale);
        let weights = ranks.iter().map(|&(first, size)| {
            let first = u64::from(first);
            weight(first * scale, (first + u64::from(size)) * scale, exponent)
        });
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let rate = ranks.iter().zip(&weights);
        let rate = rate
            .map(|(r, w)| (w / sum / f64::from(r.1)) as f32)
            .collect();
        Ranges {
            alias: Alias::new(&weights),
            ranks,
            rate,
        }
    }

    /// A rank from 0.
    #[inline]
    fn rank(&self, bits: u64) -> u32 {
        let range = self.alias.pick(bits);
        let (first, size) = self.ranks[range];
        let within = (bits & 0xffff_ffff) * u64::from(size);
        first + (within >> 32) as u32
    }

    /// The weight of a rank.
    fn rate(&self, rank: u32) -> f32 {
        self.rate[range_of(rank)]
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    base: Slot,
    pages: u32,
    ranges: Ranges,
    stride: u32,
    inverse: u32,
    drift_ns: u64,
    drift_pages: u32,
    lines: Lines,
    stores: u32,
    node: u16,
    pace: Pace,
}

impl Zipf {
    fn shift(&self, now_ns: u64) -> u64 {
        now_ns / self.drift_ns * u64::from(self.drift_pages) % u64::from(self.pages)
    }
}

impl Acts for Zipf {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = self.pace.take(thread, batch.len());
        let (shift, stride) = (self.shift(now_ns), u64::from(self.stride));
        for access in &mut batch[..count] {
            let rank = self.ranges.rank(rng.bits());
            let page = (u64::from(rank) + shift) * stride % u64::from(self.pages);
            let bits = rng.bits();
            let store = ((bits >> 48) as u32) < self.stores;
            *access = Access::new(self.base + page as u32, self.lines.pick(bits), 1, store);
        }
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn phase(&self, now_ns: u64) -> u64 {
        match self.drift_pages {
            0 => 0,
            _ => now_ns / self.drift_ns,
        }
    }

    fn truth(&self, _: usize, page: u32, now_ns: u64) -> Truth {
        let pages = u64::from(self.pages);
        let place = u64::from(page) * u64::from(self.inverse) % pages;
        let rank = (place + pages - self.shift(now_ns)) % pages;
        Truth {
            rate: self.ranges.rate(rank as u32),
            node: self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_where_they_are_looked_for() {
        for pages in [1, 2, 7, 8, 100, 4097, 1 << 20] {
            let ranges = Ranges::new(pages, 1, 1.0);
            assert!(ranges.ranks.len() < 256);
            for (index, &(first, size)) in ranges.ranks.iter().enumerate() {
                assert_eq!(range_of(first), index);
                assert_eq!(range_of(first + size - 1), index);
            }
        }
    }

    #[test]
    fn the_hottest_tenth_weighs_the_same_at_every_scale() {
        // H(n) = ln n + 0.5772 + 1 / 2n: the hottest 104,858 of 1,048,576 pages get
        // H(104,858) / H(1,048,576) = 12.1377 / 14.4402 of the accesses.
        let law = 12.137_7 / 14.440_2;
        for scale in [1, 16, 256] {
            let pages = (1 << 20) / scale;
            let ranges = Ranges::new(pages, scale, 1.0);
            let hottest = (f64::from(pages) / 10.0).round() as u32;
            let share: f64 = (0..hottest).map(|rank| f64::from(ranges.rate(rank))).sum();
            assert!((share - law).abs() < 0.002, "1/{scale}: {share}, not {law}");
            let mut rng = Rng::new(1, 0);
            let drawn = (0..200_000).filter(|_| ranges.rank(rng.bits()) < hottest);
            // Standard deviation sqrt(0.84 * 0.16 / 200,000) = 0.0008; five of them.
            let drawn = drawn.count() as f64 / 200_000.0;
            assert!(
                (drawn - share).abs() < 0.004,
                "1/{scale}: {drawn} drawn of {share}"
            );
        }
    }
}
