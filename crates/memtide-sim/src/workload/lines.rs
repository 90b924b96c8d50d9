//! How accesses spread over a page's lines.
//!
//! A page has 64 lines, and a cache holds lines, not pages. A program that uses one field of a record on
//! each page needs one line of it; one that reads whole records needs all. Of a gigabyte of which one
//! line a page is used, a cache of 16 MiB holds everything that counts; of one whose lines are all used
//! it holds a sixty-fourth. So a workload says which: the first so many lines of each page, each as
//! often as the others, and all of them unless it says otherwise.

use super::{Wrong, want};
use serde::Deserialize;

/// Lines of a page.
const ALL: u32 = 64;

/// How many of a page's lines are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Lines(u32);

impl Default for Lines {
    fn default() -> Lines {
        Lines(ALL)
    }
}

impl Lines {
    /// That a page has so many.
    pub(super) fn check(self) -> Result<(), Wrong> {
        let good = (1..=ALL).contains(&self.0);
        let why = format!("{}: a page has 64 lines; give 1 to 64", self.0);
        want(good, "lines", why)
    }

    /// One of them, by the low 16 of `bits`.
    #[inline]
    pub(super) fn pick(self, bits: u64) -> u32 {
        ((bits & 0xffff) as u32 * self.0) >> 16
    }

    /// One of them, in turn.
    #[inline]
    pub(super) fn nth(self, n: u32) -> u32 {
        ((n & (ALL - 1)) * self.0) >> 6
    }

    /// In words, for a sentence about accesses to pages; empty for all lines.
    pub(super) fn about(self) -> String {
        match self.0 {
            ALL => String::new(),
            1 => " Each goes to the first line of its page.".to_owned(),
            lines => format!(" They go to the first {lines} of a page's 64 lines."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_as_likely_and_no_other_comes() {
        for lines in [1, 3, 16, 64] {
            let mut counts = [0u32; 64];
            for bits in 0..65_536 {
                counts[Lines(lines).pick(bits | 0xabcd_0000) as usize] += 1;
            }
            let share = 65_536 / lines;
            let (used, unused) = counts.split_at(lines as usize);
            assert!(used.iter().all(|&count| count.abs_diff(share) <= 1));
            assert!(unused.iter().all(|&count| count == 0));
        }
        let turns: Vec<u32> = (0..6).map(|n| Lines(32).nth(n)).collect();
        assert_eq!(turns, [0, 0, 1, 1, 2, 2]);
        assert_eq!((Lines(64).nth(63), Lines(64).nth(64)), (63, 0));
        assert_eq!(Lines(0).check().unwrap_err().key, "lines");
        assert_eq!(Lines(65).check().unwrap_err().key, "lines");
        assert!(Lines::default().check().is_ok());
    }
}
