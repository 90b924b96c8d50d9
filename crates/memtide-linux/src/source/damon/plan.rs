//! What to ask of DAMON so that it looks at exactly what we want.
//!
//! Problem. DAMON watches *regions*, samples one page of each, and keeps
//! splitting and merging them so that their number stays between a minimum
//! and a maximum. A scattered hot set drowns in that: a region of a thousand
//! pages of which one is hot is either all hot or all cold. memtide wants
//! page-exact answers (*look*) or the very regions that it named (*watch*).
//!
//! The two rules of DAMON that the tricks rest on:
//!
//! - Neighbours merge only while the merged region stays below total size /
//!   minimum number of regions (at least a page), and only if they touch and
//!   belong to the same target.
//! - Regions split only while there are at most half the maximum of them, and
//!   never below a page.
//!
//! **Look.** Minimum = number of pages, so the size limit is one page and
//! nothing merges; single pages do not split. How the regions become pages at
//! the start depends on the kernel:
//!
//! - [`LookBy::KernelSplits`]: newer kernels cut given ranges to honour the
//!   minimum by themselves. One folder a range.
//! - [`LookBy::WholeSpan`]: without ranges, older kernels take the three areas
//!   that remain when the two largest gaps are cut out of the address space,
//!   and cut each evenly to honour the minimum. No folders, but the holes
//!   inside the areas are looked at as well: a position-independent program
//!   has up to 1 GiB of hole between itself and its heap.
//! - [`LookBy::SinglePages`]: one folder and two writes a page.
//!
//! The last two can be mixed in one look, target by target ([`choose`]).
//!
//! **Watch.** Minimum 3 (the kernel's lowest), maximum = number of regions. So
//! nothing splits, and newer kernels have nothing to cut either, as long as no
//! region is larger than a third of all; larger ones are cut here. The size
//! limit is then high, so touching neighbours would merge: every second of
//! them goes to a second kernel target of the same process.
//!
//! **Pieces.** A watch over large ranges that the kernel cuts by itself, as it
//! cuts a look's into pages: the minimum is the number of pieces that fit into
//! all, so the size limit is a piece. For that the sum must be a whole number of
//! pieces: the last range is made longer by what is missing, less than a piece.
//!
//! **Passes.** Untouched regions are filtered out inside the kernel. To tell
//! where a pass ends, the last region of the last target, the *marker*, is
//! always reported.

use super::admin::{Config, Operations, TargetConfig};
use std::ops::Range;

/// DAMON's smallest region.
pub const PAGE: u64 = 4096;

/// The kernel's lowest `nr_regions/min`.
const FEWEST_REGIONS: u64 = 3;

/// By how much an address space may grow between our look at its mappings and
/// the kernel's, beyond doubling: 256 MiB.
const GROWTH_PAGES: u64 = 65_536;

/// A process and byte ranges of its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process.
    pub pid: u32,
    /// Ranges of virtual addresses, aligned to 4096 bytes, in any order.
    pub ranges: Vec<Range<u64>>,
}

/// How the regions of a look become single pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookBy {
    /// The kernel cuts the given ranges.
    KernelSplits,
    /// The kernel cuts the whole address space.
    WholeSpan,
    /// Every page is given as a region.
    SinglePages,
}

/// What was asked for cannot be asked of DAMON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is nothing to look at.
    #[error("target {target} (pid {pid}): no ranges; name at least one page")]
    Empty {
        /// The target's index.
        target: usize,
        /// Its process.
        pid: u32,
    },
    /// There are no targets.
    #[error("no targets; name at least one process")]
    NoTargets,
    /// A range is not a range of pages.
    #[error("target {target}: {:#x}-{:#x} is empty or not aligned to {PAGE} bytes", range.start, range.end)]
    BadRange {
        /// The target's index.
        target: usize,
        /// The range.
        range: Range<u64>,
    },
    /// Two ranges of a target overlap.
    #[error("target {target}: two ranges overlap at {at:#x}; give each page once")]
    Overlap {
        /// The target's index.
        target: usize,
        /// Where the second begins.
        at: u64,
    },
    /// More pages than a pass can visit.
    #[error("{pages} pages in one look; at most {limit}; look at them in turns")]
    TooMany {
        /// How many.
        pages: u64,
        /// How many there may be.
        limit: u64,
    },
    /// An address space has fewer than three mappings or cannot be read.
    #[error("target {target} (pid {pid}): its mappings cannot be read; it may be gone")]
    NoMappings {
        /// The target's index.
        target: usize,
        /// Its process.
        pid: u32,
    },
}

/// The region that is always reported, last of each pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The kernel's index of its target.
    pub target: u64,
    /// Where the region ends.
    pub end: u64,
    /// How many regions that target must have, at least.
    pub fewest: u64,
    /// And at most. If it has as many, the plan worked.
    pub most: u64,
}

/// Settings, and how to read what comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What DAMON is told.
    pub config: Config,
    /// The caller's target for each of the kernel's.
    pub owners: Vec<usize>,
    /// For each of the kernel's targets what the caller asked for, if the
    /// kernel looks at more than that. Sorted, disjoint.
    pub wanted: Option<Vec<Vec<Range<u64>>>>,
    /// Where a pass ends.
    pub marker: Marker,
    /// All regions of a pass.
    pub regions: u64,
    /// The largest region there may be, in bytes, if the kernel was to cut what
    /// it was given.
    pub largest: Option<u64>,
}

/// Sorts a target's ranges and checks them.
fn sorted(target: usize, given: &Target) -> Result<Vec<Range<u64>>, PlanError> {
    if given.ranges.is_empty() {
        return Err(PlanError::Empty {
            target,
            pid: given.pid,
        });
    }
    let mut ranges = given.ranges.clone();
    ranges.sort_by_key(|range| range.start);
    for range in &ranges {
        if range.is_empty() || range.start % PAGE != 0 || range.end % PAGE != 0 {
            return Err(PlanError::BadRange {
                target,
                range: range.clone(),
            });
        }
    }
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(PlanError::Overlap {
            target,
            at: pair[1].start,
        });
    }
    Ok(ranges)
}

/// Joins touching ranges.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range.clone()),
        }
    }
    out
}

/// Pages in `ranges`.
pub fn pages(ranges: &[Range<u64>]) -> u64 {
    ranges
        .iter()
        .map(|range| (range.end - range.start) / PAGE)
        .sum()
}

/// The three areas of an address space that DAMON picks when it is given no
/// ranges: what is left between the first and the last mapping without the
/// two largest gaps. `None` for fewer than three mappings.
pub fn three_areas(mappings: &[Range<u64>]) -> Option<[Range<u64>; 3]> {
    let mut gaps: Vec<Range<u64>> = mappings
        .windows(2)
        .map(|pair| pair[0].end..pair[1].start)
        .filter(|gap| !gap.is_empty())
        .collect();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.end - gap.start));
    let [a, b] = gaps.get(..2)? else { return None };
    let (low, high) = if a.start < b.start { (a, b) } else { (b, a) };
    let (first, last) = (mappings.first()?, mappings.last()?);
    Some([
        first.start..low.start,
        low.end..high.start,
        high.end..last.end,
    ])
}

/// Limits on a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookLimits {
    /// Most pages that may be wanted.
    pub pages: u64,
    /// Most pages beside the wanted ones that DAMON may visit a pass: a hole
    /// costs less than a page, but not nothing.
    pub holes: u64,
    /// Most pages that may be given one by one.
    pub single_pages: u64,
}

impl Default for LookLimits {
    fn default() -> Self {
        // 1 GiB a look; the hole between one position-independent program and
        // its heap, at most as large, and smaller ones; beyond 64 MiB writing
        // single pages takes longer than a look is worth.
        LookLimits {
            pages: 262_144,
            holes: 327_680,
            single_pages: 16_384,
        }
    }
}

/// Chooses how to look at each target on a kernel that does not cut given
/// ranges, from the pages wanted of it and the pages of its span, if that can
/// be used: the whole span, unless it is much larger than what is wanted and
/// that is little enough to be written page by page. `None` if that is too
/// much for one look.
pub fn choose(targets: &[(u64, Option<u64>)], limits: LookLimits) -> Option<Vec<LookBy>> {
    let mut pages = limits.pages;
    let mut holes = limits.holes;
    let mut singles = limits.single_pages;
    let mut ways = Vec::with_capacity(targets.len());
    for (wanted, span) in targets {
        pages = pages.checked_sub(*wanted)?;
        let gaps = span.map(|span| span.saturating_sub(*wanted));
        let gaps = gaps.filter(|gaps| *gaps <= holes);
        let fit = *wanted <= singles;
        ways.push(match gaps {
            Some(gaps) if gaps / 7 <= *wanted || !fit => {
                holes -= gaps;
                LookBy::WholeSpan
            }
            _ if fit => {
                singles -= wanted;
                LookBy::SinglePages
            }
            _ => return None,
        });
    }
    Some(ways)
}

/// Plans a page-exact look at each target in its way. `areas` gives the three
/// areas of the targets whose whole span is looked at.
///
/// # Errors
///
/// The ranges are unusable or too many.
pub fn look(
    targets: &[Target],
    interval_us: u64,
    ways: &[LookBy],
    areas: &[Option<[Range<u64>; 3]>],
    limits: LookLimits,
) -> Result<Plan, PlanError> {
    let mut wanted = Vec::with_capacity(targets.len());
    for (n, target) in targets.iter().enumerate() {
        wanted.push(joined(&sorted(n, target)?));
    }
    let whole = |n: usize| match ways[n] {
        LookBy::WholeSpan => areas[n].as_ref(),
        _ => None,
    };
    let spanless = |n: &usize| ways[*n] == LookBy::WholeSpan && areas[*n].is_none();
    if let Some(target) = (0..targets.len()).find(spanless) {
        let pid = targets[target].pid;
        return Err(PlanError::NoMappings { target, pid });
    }
    let visited = |n: usize| whole(n).map_or(&wanted[n][..], |three| &three[..]);
    let total: u64 = (0..targets.len()).map(|n| pages(visited(n))).sum();
    check_limits(&wanted, total, ways, limits)?;
    let last = targets.len().checked_sub(1).ok_or(PlanError::NoTargets)?;
    let any_whole = ways.contains(&LookBy::WholeSpan);
    let min_regions = if any_whole {
        // Room to grow: were the areas larger than the minimum has pages, the
        // kernel would leave the end of each as one large region.
        2 * total + GROWTH_PAGES
    } else {
        total.max(FEWEST_REGIONS)
    };
    let last_wanted = pages(&wanted[last]);
    let marker = Marker {
        target: last as u64,
        end: visited(last).last().map_or(0, |range| range.end),
        fewest: last_wanted,
        most: whole(last).map_or(last_wanted, |_| min_regions),
    };
    let regions = |n: usize| match ways[n] {
        LookBy::KernelSplits => wanted[n].clone(),
        LookBy::WholeSpan => Vec::new(),
        LookBy::SinglePages => wanted[n]
            .iter()
            .flat_map(|range| range.clone().step_by(PAGE as usize))
            .map(|start| start..start + PAGE)
            .collect(),
    };
    let config = Config {
        operations: if any_whole {
            Operations::Vaddr
        } else {
            Operations::Fvaddr
        },
        sample_us: interval_us,
        aggregate_us: interval_us,
        min_regions,
        max_regions: min_regions + min_regions / 8 + 64,
        targets: targets
            .iter()
            .enumerate()
            .map(|(n, target)| TargetConfig {
                pid: target.pid,
                regions: regions(n),
            })
            .collect(),
    };
    Ok(Plan {
        config,
        owners: (0..targets.len()).collect(),
        wanted: any_whole.then_some(wanted),
        marker,
        regions: total,
        largest: Some(PAGE),
    })
}

/// Checks that `wanted` and the `visited` pages are not too many for one look.
fn check_limits(
    wanted: &[Vec<Range<u64>>],
    visited: u64,
    ways: &[LookBy],
    limits: LookLimits,
) -> Result<(), PlanError> {
    let all: u64 = wanted.iter().map(|ranges| pages(ranges)).sum();
    let single = ways.iter().zip(wanted);
    let singles = single
        .filter(|(way, _)| **way == LookBy::SinglePages)
        .map(|(_, ranges)| pages(ranges))
        .sum();
    let limited = [
        (all, limits.pages),
        (singles, limits.single_pages),
        (visited - all.min(visited), limits.holes),
    ];
    match limited.into_iter().find(|(have, limit)| have > limit) {
        Some((pages, limit)) => Err(PlanError::TooMany { pages, limit }),
        None => Ok(()),
    }
}

/// Plans a watch over regions that stay as they are given, except that a
/// region larger than a third of all memory watched is cut.
///
/// # Errors
///
/// The regions are unusable.
pub fn watch(targets: &[Target], sample_us: u64, aggregate_us: u64) -> Result<Plan, PlanError> {
    let mut given = Vec::with_capacity(targets.len());
    for (n, target) in targets.iter().enumerate() {
        given.push(sorted(n, target)?);
    }
    let total: u64 = given.iter().map(|ranges| pages(ranges)).sum();
    let largest = (total / FEWEST_REGIONS).max(1) * PAGE;
    let mut kernel_targets = Vec::new();
    let mut owners = Vec::new();
    for (n, target) in targets.iter().enumerate() {
        let cut = given[n].iter().flat_map(|range| {
            range
                .clone()
                .step_by(largest as usize)
                .map(|start| start..(start + largest).min(range.end))
        });
        for regions in apart(cut) {
            kernel_targets.push(TargetConfig {
                pid: target.pid,
                regions,
            });
            owners.push(n);
        }
    }
    let regions: u64 = kernel_targets
        .iter()
        .map(|target| target.regions.len() as u64)
        .sum();
    let last = kernel_targets.last().ok_or(PlanError::NoTargets)?;
    let marker = Marker {
        target: kernel_targets.len() as u64 - 1,
        end: last.regions.last().map_or(0, |range| range.end),
        fewest: last.regions.len() as u64,
        most: last.regions.len() as u64,
    };
    let config = Config {
        operations: Operations::Fvaddr,
        sample_us,
        aggregate_us,
        min_regions: FEWEST_REGIONS,
        max_regions: regions.max(FEWEST_REGIONS),
        targets: kernel_targets,
    };
    Ok(Plan {
        config,
        owners,
        wanted: None,
        marker,
        regions,
        largest: None,
    })
}

/// Plans a watch over pieces of `piece` pages into which the kernel cuts the
/// ranges, each from its beginning; the last of a range may be smaller. Only for
/// kernels that cut.
///
/// # Errors
///
/// The ranges are unusable.
pub fn pieces(targets: &[Target], piece: u64, interval_us: u64) -> Result<Plan, PlanError> {
    let bytes = piece.max(1) * PAGE;
    let mut kernel_targets = Vec::new();
    let mut owners = Vec::new();
    let mut total = 0;
    for (n, target) in targets.iter().enumerate() {
        let ranges = sorted(n, target)?;
        total += pages(&ranges) * PAGE;
        for regions in apart(ranges.into_iter()) {
            let pid = target.pid;
            kernel_targets.push(TargetConfig { pid, regions });
            owners.push(n);
        }
    }
    if total < FEWEST_REGIONS * bytes {
        // The kernel would cut so little into smaller pieces.
        return watch(targets, interval_us, interval_us);
    }
    let last = kernel_targets.last_mut().ok_or(PlanError::NoTargets)?;
    if let Some(marked) = last.regions.last_mut() {
        let missing = total.next_multiple_of(bytes) - total;
        marked.end += missing;
        total += missing;
    }
    let cut = |target: &TargetConfig| -> u64 {
        let pieces = |range: &Range<u64>| (range.end - range.start).div_ceil(bytes);
        target.regions.iter().map(pieces).sum()
    };
    let last = kernel_targets.last().ok_or(PlanError::NoTargets)?;
    let marker = Marker {
        target: kernel_targets.len() as u64 - 1,
        end: last.regions.last().map_or(0, |range| range.end),
        fewest: cut(last),
        most: cut(last),
    };
    let regions: u64 = kernel_targets.iter().map(cut).sum();
    let config = Config {
        operations: Operations::Fvaddr,
        sample_us: interval_us,
        aggregate_us: interval_us,
        min_regions: total / bytes,
        max_regions: regions,
        targets: kernel_targets,
    };
    Ok(Plan {
        config,
        owners,
        wanted: None,
        marker,
        regions,
        largest: Some(bytes),
    })
}

/// Deals sorted regions out so that no two in one hand touch: one hand if none
/// touch, two otherwise.
fn apart(regions: impl Iterator<Item = Range<u64>>) -> Vec<Vec<Range<u64>>> {
    let mut hands: [Vec<Range<u64>>; 2] = Default::default();
    for region in regions {
        let touches = hands[0].last().is_some_and(|last| last.end == region.start);
        hands[usize::from(touches)].push(region);
    }
    hands.into_iter().filter(|hand| !hand.is_empty()).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
