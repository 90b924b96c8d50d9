//! Accesses by a distribution that is given as data: ranges of memory, each with its share of the accesses, its
//! stores and the time in which it is there. So a measured histogram of page heat, or the map of a program's
//! memory, is a workload.
//!
//! A range that is there from the start is populated before it. Another one comes page by page, as its pages
//! are touched first, and what ends is given back: a program that allocates and frees. Pages of one range
//! are accessed equally often. Ranges lie one behind the other, or (`scattered`) their pages lie mixed, as those
//! of a histogram of pages do.

use super::alias::Alias;
use super::checks::{some_operations, some_threads, stores_of_100};
use super::limits::MAX_SCALE;
use super::lines::Lines;
use super::random::share_of_65536;
use super::zipf::{coprime_stride, inverse};
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// Most ranges of their own, each of which is a mapping, and most that lie mixed in one.
const MAX_RANGES: [usize; 2] = [64, 1024];
/// Weights are 0, or between one of so many and so many.
const MAX_WEIGHT: f64 = 1e9;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangesSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The node that ranges are populated on that are there from the start.
    pub on: u16,
    /// Whether they have huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Whether their pages lie mixed instead of one range behind the other.
    #[serde(default)]
    pub scattered: bool,
    /// The ranges.
    pub range: Vec<RangeSpec>,
    /// Which lines of a page are accessed: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How long.
    pub time: Nanos,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

/// A range.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeSpec {
    /// Its name in reports; its number if left out.
    pub name: Option<String>,
    /// Its size.
    pub memory: Bytes,
    /// Its part of the accesses, against the other ranges' that are there.
    pub weight: f64,
    /// How many of 100 accesses store.
    #[serde(default)]
    pub stores_percent: u32,
    /// From when on it is there.
    #[serde(default)]
    pub from: Nanos,
    /// Until when; the run's end if left out.
    pub until: Option<Nanos>,
}

impl RangeSpec {
    fn is_there(&self, now_ns: f64) -> bool {
        self.from.0 <= now_ns && self.until.is_none_or(|until| now_ns < until.0)
    }

    fn check(&self, of: &RangesSpec) -> Result<(), Wrong> {
        want(
            self.memory.0 >= 4096,
            "range",
            "a range is at least a page; give more `memory`",
        )?;
        let weighs = self.weight == 0.0 || (1.0 / MAX_WEIGHT..=MAX_WEIGHT).contains(&self.weight);
        want(
            weighs,
            "range",
            format!("a `weight` of {}; give 0, or 1e-9 to 1e9", self.weight),
        )?;
        stores_of_100(self.stores_percent)?;
        let until = self.until.unwrap_or(of.time).0;
        want(
            self.from.0 < until && until <= of.time.0,
            "range",
            "`from` is before `until`, and `until` not after `time`; change one of them",
        )?;
        let stays = self.from.0 == 0.0 && self.until.is_none();
        want(
            stays || !of.scattered,
            "range",
            "`scattered` ranges neither come nor go; leave out `from` and `until`",
        )
    }
}

impl RangesSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        let most = MAX_RANGES[usize::from(self.scattered)];
        let why = format!("{} ranges; give 1 to {most}", self.range.len());
        want((1..=most).contains(&self.range.len()), "range", why)?;
        want(self.time.0 >= 1e6, "time", "give at least 1 ms")?;
        want(
            !(self.scattered && self.huge),
            "huge",
            "a huge page of `scattered` ranges would have the heat of all of them; leave out one",
        )?;
        self.range.iter().try_for_each(|range| range.check(self))?;
        for at in std::iter::once(0.0).chain(self.changes()) {
            let there = || self.range.iter().filter(|range| range.is_there(at));
            let weight: f64 = there().map(|range| range.weight).sum();
            let why = format!(
                "nothing is accessed from {} s on; give a range there a `weight`",
                at / 1e9
            );
            want(weight > 0.0 || at >= self.time.0, "range", why)?;
            let bytes = there()
                .map(|range| u128::from(range.memory.0))
                .sum::<u128>();
            if at < self.time.0 {
                places.fit("range", u64::try_from(bytes).unwrap_or(u64::MAX))?;
            }
        }
        some_threads(self.threads)?;
        some_operations(self.ops_per_access)?;
        self.lines.check()
    }

    /// All memory of all ranges.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        let all = self.range.iter().map(|range| range.memory.0);
        Bytes(all.fold(0, u64::saturating_add))
    }

    /// The largest S at which the smallest range is a page.
    pub(super) fn max_scale(&self) -> u32 {
        let smallest = self.range.iter().map(|range| range.memory.0 / 4096).min();
        let pages = smallest.unwrap_or(1).clamp(1, u64::from(MAX_SCALE));
        1 << pages.ilog2()
    }

    /// When ranges come or go, in nanoseconds, ascending, each once, the start left out.
    fn changes(&self) -> Vec<f64> {
        let ends = self.range.iter().filter_map(|range| range.until);
        let all = self.range.iter().map(|range| range.from).chain(ends);
        let mut all: Vec<f64> = all.map(|at| at.0).filter(|&at| at > 0.0).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.dedup();
        all
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Ranges) {
        let sizes = self
            .range
            .iter()
            .map(|range| pages(range.memory, scale, self.huge));
        let sizes: Vec<u32> = sizes.collect();
        let mut plan = Plan {
            regions: Vec::new(),
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Random,
                    self.ops_per_access,
                    self.think
                );
                self.threads as usize
            ],
            ends_at_ns: Some(self.time.0 as u64),
        };
        let region = |name: &str, pages| {
            let region = places.region(name, pages, self.node, self.on);
            region.in_huge_pages(self.huge)
        };
        // More than fit are refused when they are mapped.
        let all = sizes
            .iter()
            .fold(0u32, |sum, &pages| sum.saturating_add(pages));
        let mut behind = 0;
        match self.scattered {
            true => plan.regions.push(region("memory", all)),
            false => {
                for (number, (range, &pages)) in self.range.iter().zip(&sizes).enumerate() {
                    let name = range.name.clone();
                    let name = name.unwrap_or_else(|| format!("range {}", number + 1));
                    let mut region = region(&name, pages);
                    region.start_vpn += behind;
                    behind += u64::from(pages).next_multiple_of(512);
                    if range.from.0 > 0.0 {
                        region.policy = places.default_policy();
                        (region.policy_after, region.populated_from) = (None, None);
                    }
                    region.freed_at_ns = range.until.map(|until| until.0 as u64);
                    plan.regions.push(region);
                }
            }
        }
        let mut from = vec![0.0];
        from.extend(self.changes());
        let phases = from.iter().map(|&at| {
            let weight = |range: &RangeSpec| match range.is_there(at) {
                true => range.weight,
                false => 0.0,
            };
            let weights: Vec<f64> = self.range.iter().map(weight).collect();
            // From the run's end on nobody asks.
            let alias = weights
                .iter()
                .any(|&w| w > 0.0)
                .then(|| Alias::new(&weights));
            Phase {
                from_ns: at as u64,
                alias,
                weights,
            }
        });
        let mut first = 0;
        let parts = self.range.iter().zip(&sizes).map(|(range, &pages)| {
            let part = Part {
                first,
                pages,
                stores: share_of_65536(range.stores_percent),
            };
            first = first.saturating_add(pages);
            part
        });
        let mixed = |pages| {
            let stride = coprime_stride(pages, 0);
            let inverse = inverse(stride, pages);
            Mixed {
                pages,
                stride,
                inverse,
            }
        };
        let ranges = Ranges {
            bases: Vec::new(),
            parts: parts.collect(),
            phases: phases.collect(),
            mixed: self.scattered.then(|| mixed(all)),
            lines: self.lines,
            node: self.node,
        };
        (plan, ranges)
    }
}

/// Where pages lie that are mixed.
#[derive(Clone, Copy, Debug)]
struct Mixed {
    pages: u32,
    stride: u32,
    inverse: u32,
}

/// A range at its scale.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Pages of the ranges before it.
    first: u32,
    pages: u32,
    stores: u32,
}

/// A time in which no range comes or goes.
#[derive(Clone, Debug)]
struct Phase {
    from_ns: u64,
    alias: Option<Alias>,
    weights: Vec<f64>,
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    bases: Vec<Slot>,
    parts: Vec<Part>,
    phases: Vec<Phase>,
    mixed: Option<Mixed>,
    lines: Lines,
    node: u16,
}

impl Acts for Ranges {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, _: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let Some(alias) = &self.phases[self.phase(now_ns) as usize].alias else {
            return Filled::Waits;
        };
        for access in &mut *batch {
            let bits = rng.bits();
            let range = alias.pick(bits);
            let part = self.parts[range];
            let page = (((bits & 0xffff_ffff) * u64::from(part.pages)) >> 32) as u32;
            let slot = match self.mixed {
                None => self.bases[range] + page,
                Some(mixed) => {
                    let place = u64::from(part.first + page) * u64::from(mixed.stride);
                    self.bases[0] + (place % u64::from(mixed.pages)) as u32
                }
            };
            let bits = rng.bits();
            let store = ((bits >> 48) as u32) < part.stores;
            *access = Access::new(slot, self.lines.pick(bits), 1, store);
        }
        Filled::Accesses(batch.len())
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn phase(&self, now_ns: u64) -> u64 {
        let begun = self.phases.partition_point(|phase| phase.from_ns <= now_ns);
        begun as u64 - 1
    }

    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        let range = match self.mixed {
            None => region,
            Some(mixed) => {
                let place = u64::from(page) * u64::from(mixed.inverse) % u64::from(mixed.pages);
                let begun = self
                    .parts
                    .partition_point(|part| u64::from(part.first) <= place);
                begun - 1
            }
        };
        let weight = self.phases[self.phase(now_ns) as usize].weights[range];
        let rate = weight / f64::from(self.parts[range].pages);
        // Pages of one region and rate count as alike, and ranges that lie mixed may differ in their stores.
        let own = match self.mixed {
            None => 1.0,
            Some(_) => 1.0 + range as f64 / f64::from(1 << 22),
        };
        Truth {
            rate: (rate * own) as f32,
            node: self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WorkloadSpec;
    use super::*;
    use crate::spec::tests::small_machine;

    const HEAD: &str =
        "threads = 2\nnode = 0\non = 0\ntime = '4 s'\nops_per_access = 1\nthink = '0 ns'\n";

    fn spec(ranges: &str) -> Result<RangesSpec, Wrong> {
        let spec: RangesSpec = toml::from_str(&format!("{HEAD}{ranges}")).unwrap();
        spec.check(&Places::new(&small_machine())).map(|()| spec)
    }

    fn built(ranges: &str) -> (Plan, Ranges) {
        spec(ranges)
            .unwrap()
            .build(&Places::new(&small_machine()), 1)
    }

    /// How often each page was accessed in a million accesses, and how many of them stored, at `now_ns`.
    fn counts(ranges: &mut Ranges, pages: usize, now_ns: u64) -> (Vec<u32>, u32) {
        let mut rng = Rng::new(1, 1);
        let (mut counts, mut stores) = (vec![0; pages], 0);
        let mut batch = [Access(0); 4096];
        for _ in 0..256 {
            let filled = ranges.fill(0, now_ns, &mut rng, &mut batch);
            assert_eq!(filled, Filled::Accesses(4096));
            for access in batch {
                counts[access.slot() as usize] += 1;
                stores += u32::from(access.is_write());
            }
        }
        (counts, stores)
    }

    /// What the oracle is told is what is done, page by page within five standard deviations.
    fn truth_is_told(ranges: &Ranges, regions: &[u32], counts: &[u32], now_ns: u64) {
        let rates = regions.iter().enumerate().flat_map(|(region, &pages)| {
            (0..pages).map(move |page| f64::from(ranges.truth(region, page, now_ns).rate))
        });
        let rates: Vec<f64> = rates.collect();
        let sum: f64 = rates.iter().sum();
        for (&count, rate) in counts.iter().zip(rates) {
            let mean = rate / sum * f64::from(1 << 20);
            let off = (f64::from(count) - mean).abs();
            assert!(off <= 5.0 * mean.sqrt().max(0.1), "{count} of {mean}");
        }
    }

    #[test]
    fn ranges_get_their_share_while_they_are_there() {
        let (plan, mut ranges) = built(
            "range = [\n\
             { name = 'index', memory = '1 MiB', weight = 6, stores_percent = 50 },\n\
             { memory = '2 MiB', weight = 2, until = '3 s' },\n\
             { memory = '512 KiB', weight = 2, from = '1 s' },\n]",
        );
        let sizes: Vec<u32> = plan.regions.iter().map(|region| region.pages).collect();
        assert_eq!(sizes, [256, 512, 128]);
        let names: Vec<&str> = plan.regions.iter().map(|region| &*region.name).collect();
        assert_eq!(names, ["index", "range 2", "range 3"]);
        let freed: Vec<Option<u64>> = plan.regions.iter().map(|r| r.freed_at_ns).collect();
        assert_eq!(freed, [None, Some(3_000_000_000), None]);
        let from_the_start = plan.regions.iter().map(|r| r.populated_from.is_some());
        assert_eq!(from_the_start.collect::<Vec<_>>(), [true, true, false]);
        ranges.mapped(&[0, 256, 768]);
        // Parts of the accesses: 6 and 2; 6, 2 and 2; 6 and 2.
        for (now_ns, phase, third) in [
            (0, 0, 0.0),
            (1_000_000_000, 1, 0.2),
            (3_000_000_000, 2, 0.25),
        ] {
            assert_eq!(ranges.phase(now_ns), phase);
            let (counts, stores) = counts(&mut ranges, 896, now_ns);
            truth_is_told(&ranges, &sizes, &counts, now_ns);
            let share = |range: std::ops::Range<usize>| {
                f64::from(counts[range].iter().sum::<u32>()) / f64::from(1 << 20)
            };
            assert!((share(768..896) - third).abs() < 0.002, "{now_ns}");
            // Half of the index's.
            let stores = f64::from(stores) / f64::from(1 << 20);
            assert!((stores - share(0..256) / 2.0).abs() < 0.003, "{stores}");
        }
    }

    #[test]
    fn a_histogram_lies_all_over() {
        let (plan, mut ranges) = built(
            "scattered = true\nrange = [{ memory = '400 KiB', weight = 90 }, { memory = '3696 KiB', weight = 10 }]",
        );
        assert_eq!(plan.regions.len(), 1);
        ranges.mapped(&[0]);
        let (counts, _) = counts(&mut ranges, 1024, 0);
        truth_is_told(&ranges, &[1024], &counts, 0);
        let hot: Vec<usize> = (0..1024).filter(|&page| counts[page] > 5000).collect();
        assert_eq!(hot.len(), 100);
        // In each quarter of the memory about a quarter of them.
        let in_quarter = |n: usize| hot.iter().filter(|&&page| page / 256 == n).count();
        assert!((0..4).all(|n| (20..=30).contains(&in_quarter(n))));
    }

    #[test]
    fn the_smallest_range_is_a_page_at_the_coarsest_scale() {
        let smallest = |memory: &str, more: &str| {
            let text = format!(
                "{more}range = [{{ memory = '4 MiB', weight = 1 }}, {{ memory = '{memory}', weight = 1 }}]"
            );
            WorkloadSpec::Ranges(spec(&text).unwrap()).max_scale()
        };
        assert_eq!(smallest("100 KiB", ""), 16);
        assert_eq!(smallest("4 KiB", ""), 1);
        assert_eq!(smallest("2 MiB", "huge = true\n"), 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong = |ranges: &str| spec(ranges).unwrap_err().why;
        assert!(wrong("range = []").starts_with("0 ranges"));
        assert!(wrong("range = [{ memory = '1 MiB', weight = -1 }]").contains("weight"));
        assert!(wrong("range = [{ memory = '1 MiB', weight = nan }]").contains("weight"));
        assert!(wrong("range = [{ memory = '1 MiB', weight = 1e300 }]").contains("weight"));
        let huge = "scattered = true\nhuge = true\nrange = [{ memory = '2 MiB', weight = 1 }]";
        assert!(wrong(huge).contains("heat of all"));
        assert!(
            wrong("range = [{ memory = '1 MiB', weight = 0 }]").contains("nothing is accessed")
        );
        assert!(wrong("range = [{ memory = '0 B', weight = 1 }]").contains("at least a page"));
        let late = "range = [{ memory = '1 MiB', weight = 1, from = '2 s' }]";
        assert!(wrong(late).contains("nothing is accessed from 0 s"));
        let over = "range = [{ memory = '1 MiB', weight = 1, until = '5 s' }]";
        assert!(wrong(over).contains("not after `time`"));
        let mixed = "scattered = true\nrange = [{ memory = '1 MiB', weight = 1 }, \
                     { memory = '1 MiB', weight = 1, until = '2 s' }]";
        assert!(wrong(mixed).contains("neither come nor go"));
        assert!(
            wrong("range = [{ memory = '900 GiB', weight = 1 }]").contains("more than the machine")
        );
        let fast = "misses_at_once = 0.5\nrange = [{ memory = '1 MiB', weight = 1 }]";
        let fast: RangesSpec = toml::from_str(&format!("{HEAD}{fast}")).unwrap();
        let wrong = WorkloadSpec::Ranges(fast);
        let wrong = wrong.check(&Places::new(&small_machine())).unwrap_err();
        assert_eq!(wrong.key, "misses_at_once");
    }
}
