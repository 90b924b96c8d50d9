//! Threads that read pages of a file, and check them.

use super::args::Pattern;
use super::content::{PAGE_WORDS, wrong_words};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something mapped that is read in words.
pub trait Words: Sync {
    /// Reads page `page`: how many of its words are not what they should be, or
    /// 0 if that is not known of this file.
    fn check(&self, page: u64, known: bool) -> usize;
}

/// Checks words, or only reads them.
pub fn check_words(words: impl Iterator<Item = u64>, page: u64, known: bool) -> usize {
    if known {
        return wrong_words(words, page);
    }
    black_box(words.fold(0, |sum: u64, word| sum ^ word));
    0
}

/// Which pages a thread reads, in order.
#[derive(Clone, Debug)]
pub struct Walk {
    pattern: Pattern,
    pages: u64,
    hot_pages: u64,
    at: u64,
    state: u64,
}

impl Walk {
    /// The walk of thread `thread` of `threads` over `pages` pages.
    pub fn new(pattern: Pattern, pages: u64, budget_pages: u64, thread: u64, threads: u64) -> Walk {
        Walk {
            pattern,
            pages,
            hot_pages: (budget_pages / 2).clamp(1, pages),
            at: pages * thread / threads,
            state: thread + 1,
        }
    }

    /// The next page.
    pub fn next(&mut self) -> u64 {
        match self.pattern {
            Pattern::Uniform => self.below(self.pages),
            Pattern::Hot => {
                let hot = self.below(100) < 98;
                // In the middle, so that no prefix is better than another.
                let first = (self.pages - self.hot_pages) / 2;
                match hot {
                    true => first + self.below(self.hot_pages),
                    false => self.below(self.pages),
                }
            }
            Pattern::Sweep => {
                let page = self.at;
                self.at = (self.at + 1) % self.pages;
                page
            }
        }
    }

    /// A random number below `limit`, by multiplication instead of division.
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(limit)) >> 64) as u64
    }
}

/// What all threads count; a line of its own for each, or they would slow each
/// other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Count {
    reads: AtomicU64,
    wrong_pages: AtomicU64,
}

/// Reads and wrong pages of all threads so far.
pub fn total(counts: &[Count]) -> (u64, u64) {
    let sum = |of: fn(&Count) -> &AtomicU64| {
        counts
            .iter()
            .map(|count| of(count).load(Ordering::Relaxed))
            .sum()
    };
    (sum(|count| &count.reads), sum(|count| &count.wrong_pages))
}

/// Reads until `stop`.
pub fn read(data: &impl Words, mut walk: Walk, known: bool, count: &Count, stop: &AtomicBool) {
    let (mut reads, mut wrong) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let page = walk.next();
        wrong += u64::from(data.check(page, known) > 0);
        reads += 1;
        count.reads.store(reads, Ordering::Relaxed);
        count.wrong_pages.store(wrong, Ordering::Relaxed);
    }
}

/// Words of a page.
pub fn first_word(page: u64) -> usize {
    page as usize * PAGE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pattern: Pattern, reads: usize) -> Vec<u64> {
        let mut walk = Walk::new(pattern, 1000, 200, 1, 2);
        (0..reads).map(|_| walk.next()).collect()
    }

    #[test]
    fn a_sweep_goes_round_from_its_own_start() {
        let sweep = pages(Pattern::Sweep, 1001);
        // The second of two threads begins in the middle.
        assert_eq!(
            (sweep[0], sweep[499], sweep[500], sweep[1000]),
            (500, 999, 0, 500)
        );
    }

    #[test]
    fn nearly_all_hot_reads_are_in_half_a_budget() {
        // 100 pages in the middle: 450 to 549. 98 %, and 0.2 % that hit them anyway.
        let hot = pages(Pattern::Hot, 100_000);
        let inside = hot.iter().filter(|page| (450..550).contains(*page)).count();
        assert!((98_000..98_400).contains(&inside), "{inside}");
        assert!(hot.iter().all(|page| *page < 1000));
    }

    #[test]
    fn uniform_reads_go_everywhere() {
        let mut seen = [0; 1000];
        for page in pages(Pattern::Uniform, 100_000) {
            seen[page as usize] += 1;
        }
        // 100 each, with a standard deviation of 10.
        assert!(seen.iter().all(|count| (50..150).contains(count)));
    }
}
