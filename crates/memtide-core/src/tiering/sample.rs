//! Which pages a glance observes.
//!
//! Of the slow tier a glance observes single pages, drawn so that every page
//! has the same chance and no stretch of memory goes unobserved: the pages are
//! numbered through all runs, the numbers cut into as many equal strata as
//! there are samples, and one page drawn from each. If a share `p` of the pages
//! is hot, none of `n` samples is with chance `(1 - p)^n`: 256 samples overlook
//! a hot set of 2 % once in 176 times.
//!
//! Of the fast tier it observes whole stretches, to find those that nobody
//! touches: runs are cut into pieces of about equal length.

use super::space::VirtualPage;
use std::ops::Range;

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first page.
    pub first: VirtualPage,
    /// Its length.
    pub pages: u64,
}

/// The pages of stratum `k` of `samples`, counted from the first of `total`.
pub fn stratum(total: u64, samples: u64, k: u64) -> Range<u64> {
    // In 128 bits: a stratum's borders are exact for any size of memory.
    let border = |k: u64| (u128::from(total) * u128::from(k) / u128::from(samples)) as u64;
    border(k)..border(k + 1)
}

/// One page of each of `samples` strata of `runs`, in order. `draw(n)` gives a
/// number below `n`. All pages if there are no more than `samples`.
pub fn pages(runs: &[Run], samples: u64, mut draw: impl FnMut(u64) -> u64) -> Vec<VirtualPage> {
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    let samples = samples.min(total);
    let mut chosen = Vec::with_capacity(samples as usize);
    let (mut run, mut before) = (0, 0);
    for k in 0..samples {
        let Range { start, end } = stratum(total, samples, k);
        let number = start + draw(end - start).min(end - start - 1);
        while number - before >= runs[run].pages {
            before += runs[run].pages;
            run += 1;
        }
        chosen.push(VirtualPage(runs[run].first.0 + (number - before)));
    }
    chosen
}

/// `runs` cut into at most about `pieces` pieces of equal length, none shorter
/// than `least` pages but where a run is.
pub fn stretches(runs: &[Run], pieces: u64, least: u64) -> Vec<Run> {
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    let length = total.div_ceil(pieces.max(1)).max(least).max(1);
    let mut cut = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.pages {
            let pages = length.min(run.pages - done);
            cut.push(Run {
                first: VirtualPage(run.first.0 + done),
                pages,
            });
            done += pages;
        }
    }
    cut
}

/// `runs` with the smallest gaps between them closed, until at most `most` are
/// left or half as many pages again have been taken in. Whoever observes runs
/// pays for each page and for each run; scattered pages cost less as one
/// stretch with some that nobody asked for.
pub fn joined(runs: &[Run], most: usize) -> Vec<Run> {
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    let gap = |pair: &[Run]| pair[1].first.0 - (pair[0].first.0 + pair[0].pages);
    let mut gaps: Vec<(u64, usize)> = runs.windows(2).map(gap).zip(0..).collect();
    gaps.sort_unstable();
    gaps.truncate(runs.len().saturating_sub(most));
    let mut closed = vec![false; runs.len()];
    let mut spare = total / 2;
    for (pages, at) in gaps {
        if pages > spare {
            break;
        }
        spare -= pages;
        closed[at] = true;
    }
    let mut joined: Vec<Run> = Vec::new();
    for (n, run) in runs.iter().enumerate() {
        match joined.last_mut() {
            Some(last) if closed[n - 1] => last.pages = run.first.0 + run.pages - last.first.0,
            _ => joined.push(*run),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(first: u64, pages: u64) -> Run {
        Run {
            first: VirtualPage(first),
            pages,
        }
    }

    #[test]
    fn ten_pages_in_three_strata() {
        // Strata of 3, 3 and 4: numbers 0-2, 3-5, 6-9; pages 100-103, 200-205.
        let runs = [run(100, 4), run(200, 6)];
        let lowest = pages(&runs, 3, |_| 0);
        assert_eq!(
            lowest,
            [VirtualPage(100), VirtualPage(103), VirtualPage(202)]
        );
        let highest = pages(&runs, 3, |n| n - 1);
        assert_eq!(
            highest,
            [VirtualPage(102), VirtualPage(201), VirtualPage(205)]
        );
    }

    #[test]
    fn ten_pages_in_pieces() {
        // ceil(10 / 3) = 4.
        let cut = stretches(&[run(100, 4), run(200, 6)], 3, 1);
        assert_eq!(cut, [run(100, 4), run(200, 4), run(204, 2)]);
        assert_eq!(stretches(&[run(100, 4)], 4, 64), [run(100, 4)]);
        assert_eq!(stretches(&[], 4, 64), []);
    }

    #[test]
    fn the_smallest_gaps_are_closed_first() {
        // Gaps of 1, 90 and 2; 40 pages may be taken in besides the 80.
        let runs = [run(0, 20), run(21, 20), run(131, 20), run(153, 20)];
        assert_eq!(joined(&runs, 2), [run(0, 41), run(131, 42)]);
        assert_eq!(joined(&runs, 3), [run(0, 41), run(131, 20), run(153, 20)]);
        // 90 would be too many.
        assert_eq!(joined(&runs, 1), [run(0, 41), run(131, 42)]);
        assert_eq!(joined(&runs, 4), runs);
        assert_eq!(joined(&[], 4), []);
    }

    proptest! {
        #[test]
        fn samples_are_distinct_pages_of_the_runs(
            lengths in prop::collection::vec(1u64..500, 0..20),
            samples in 0u64..600,
            seed in any::<u64>(),
        ) {
            let runs: Vec<Run> =
                lengths.iter().enumerate().map(|(n, len)| run(n as u64 * 1000, *len)).collect();
            let total: u64 = lengths.iter().sum();
            let chosen = pages(&runs, samples, |n| seed % n);
            prop_assert_eq!(chosen.len() as u64, samples.min(total));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            for page in chosen {
                prop_assert!(page.0 % 1000 < lengths[(page.0 / 1000) as usize]);
            }
        }

        #[test]
        fn pieces_cover_the_runs_exactly(
            lengths in prop::collection::vec(1u64..500, 0..20),
            pieces in 0u64..100,
            least in 0u64..100,
        ) {
            let runs: Vec<Run> =
                lengths.iter().enumerate().map(|(n, len)| run(n as u64 * 1000, *len)).collect();
            let mut covered = Vec::new();
            for piece in stretches(&runs, pieces, least) {
                covered.extend(piece.first.0..piece.first.0 + piece.pages);
            }
            let all: Vec<u64> =
                runs.iter().flat_map(|run| run.first.0..run.first.0 + run.pages).collect();
            prop_assert_eq!(covered, all);
        }
    }
}
