//! Proofs that a part of the kernel does what memtide needs of it.
//!
//! # Problem
//!
//! Whether an interface opens says little. A kernel may offer DAMON and report
//! nothing, count hint faults that never reach us, or accept pages for a node
//! and leave them. Who manages memory by such reports does harm and cannot
//! tell.
//!
//! # Approach
//!
//! Each proof does the thing itself, on a few pages of this process, with an
//! outcome that is known beforehand, and compares. A thread touches 64 of 512
//! pages, and exactly these must be reported ([`source`] and [`samples`], judged
//! by [`judge`]);
//! pages go to another node and back and are asked for ([`mover`]); a page map
//! must show exactly what was touched ([`pagemap`]).
//!
//! # Properties
//!
//! - Nothing but this process's own pages is touched or moved. Of the kernel's
//!   settings, only those change that the source itself changes, and closing the
//!   source puts them back; [`standing`] tells beforehand, only by reading, who
//!   has DAMON.
//! - Every proof has a time limit, and judging takes the time as an argument.

pub mod judge;
pub mod mover;
pub mod pagemap;
pub mod samples;
pub mod source;
pub mod standing;
pub mod toucher;

/// One page in this many is touched.
pub const ONE_IN: usize = 8;

/// How many pages a source must tell apart.
pub const PAGES: usize = 512;

/// The pages of `pages` that are touched: one of every [`ONE_IN`], each time at
/// another place, so that no rule of the kernel's ("every eighth", "the first
/// of each region") gives the same answer.
pub fn hot_pages(pages: usize) -> Vec<usize> {
    (0..pages / ONE_IN)
        .map(|group| group * ONE_IN + group * 5 % ONE_IN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_of_each_group_is_touched() {
        // Offsets 0, 5, 10 % 8 = 2, 15 % 8 = 7 in groups 0, 8, 16, 24.
        assert_eq!(hot_pages(32), [0, 13, 18, 31]);
        assert_eq!(hot_pages(PAGES).len(), 64);
    }
}
