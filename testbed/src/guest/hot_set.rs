//! Which pages of a victim are hot: drawn from a seed, told as runs.
//!
//! Pure, so that the same words give the same hot set on every machine and in every run.

use std::collections::BTreeSet;

use super::random::SplitMix;

/// Page numbers as runs of neighbours; `pages` is sorted.
pub(crate) fn runs(pages: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((start, count)) if *start + *count == page => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

/// Draws hot set number `turn` (0, 1, ...) of `hot` units among `total`, sorted.
///
/// A contiguous set lies at a quarter of the memory, its successor at three quarters. Scattered sets
/// of consecutive turns share no unit, so that after a change everything has to move.
pub(crate) fn draw(
    total: usize,
    hot: usize,
    scattered: bool,
    seed: u64,
    turn: usize,
) -> Vec<usize> {
    if !scattered {
        let first = (total / 4 + turn % 2 * (total / 2)).min(total - hot);
        return (first..first + hot).collect();
    }
    let mut order: Vec<usize> = (0..total).collect();
    let mut random = SplitMix::new(seed);
    for at in (1..total).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let slots = (total / hot.max(1)).max(1);
    let first = turn % slots * hot;
    let set: BTreeSet<usize> = order[first..first + hot].iter().copied().collect();
    set.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_into_runs() {
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 1), (9, 2)]);
    }

    /// 100 pages, 10 hot: the run starts at 25, after a change at 25 + 50 = 75.
    #[test]
    fn a_contiguous_hot_set_moves_by_half_the_memory() {
        assert_eq!(draw(100, 10, false, 1, 0), (25..35).collect::<Vec<_>>());
        assert_eq!(draw(100, 10, false, 1, 1), (75..85).collect::<Vec<_>>());
        assert_eq!(draw(10, 10, false, 1, 1), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn scattered_hot_sets_are_seeded_and_disjoint() {
        let first = draw(1000, 100, true, 7, 0);
        assert_eq!(first, draw(1000, 100, true, 7, 0));
        assert_ne!(first, draw(1000, 100, true, 8, 0));
        let second = draw(1000, 100, true, 7, 1);
        assert_eq!((first.len(), second.len()), (100, 100));
        assert!(first.iter().all(|page| !second.contains(page)));
        assert!(first.is_sorted() && runs(&first).len() > 50);
    }
}
