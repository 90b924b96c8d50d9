//! The lists from which a benchmark's threads take their next page.
//!
//! "The number of accesses per thread and the randomness pattern for each thread are fixed beforehand"
//! (the pghot series): so each thread has a list, one entry of eight bytes for each page of the memory, and
//! reads it in order, over and over. Its lines are prefetched, and reading them is part of the thread's
//! time between accesses. What it does beside that: at each 512th access another page of the list
//! takes an entry of the TLB, and drives one of the benchmark's own out. Without that, memory of no more
//! pages than the TLB has entries would never be walked to again once it was in there, and nobody could
//! read from its accessed bits that it is used.

use super::{Access, Places, RegionPlan};
use crate::page::Slot;

/// Accesses for each page of a list.
const ENTRIES_A_PAGE: u64 = 4096 / 8;

/// Every thread's list.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    base: Slot,
    /// Pages of one list.
    pages: u32,
    /// Pages that each thread has begun.
    begun: Vec<u64>,
}

impl Lists {
    /// Lists of `entries` entries.
    pub fn new(threads: usize, entries: u32) -> Lists {
        Lists {
            base: 0,
            pages: (u64::from(entries) / ENTRIES_A_PAGE).max(1) as u32,
            begun: vec![0; threads],
        }
    }

    /// Their memory, on the threads' own node, behind another mapping.
    pub fn region(&self, places: &Places, node: u16, behind: &RegionPlan) -> RegionPlan {
        let pages = self.pages * self.begun.len() as u32;
        let mut region = places.region("lists", pages, node, node);
        region.start_vpn = behind.start_vpn + u64::from(behind.pages).next_multiple_of(512);
        region
    }

    /// How many threads have one.
    pub fn threads(&self) -> usize {
        self.begun.len()
    }

    /// They begin at `base`.
    pub fn mapped(&mut self, base: Slot) {
        self.base = base;
    }

    /// The page of the list that a thread turns to once it has made `made` accesses, if it does.
    #[inline]
    pub fn turn(&mut self, thread: usize, made: u64) -> Option<Access> {
        let begun = &mut self.begun[thread];
        if *begun > made / ENTRIES_A_PAGE {
            return None;
        }
        let page = (*begun % u64::from(self.pages)) as u32;
        *begun += 1;
        let slot = self.base + thread as u32 * self.pages + page;
        Some(Access::new(slot, 0, 1, false))
    }

    /// Accesses before the next page, after `made`.
    #[inline]
    pub fn until_next(made: u64) -> u64 {
        ENTRIES_A_PAGE - made % ENTRIES_A_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_list_comes_each_512_accesses_and_then_the_first_again() {
        // 1024 entries are two pages a thread; thread 1's are the third and the fourth.
        let mut lists = Lists::new(2, 1024);
        lists.mapped(100);
        let mut slots = Vec::new();
        for made in 0..2000 {
            slots.extend(lists.turn(1, made).map(Access::slot));
        }
        assert_eq!(slots, [102, 103, 102, 103]);
        assert_eq!(Lists::until_next(0), 512);
        assert_eq!(Lists::until_next(1023), 1);
    }
}
