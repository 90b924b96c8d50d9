//! A last-level cache: which lines of memory it holds, by tag.
//!
//! Four ways in LRU order, most recent first; a set is one word of four tags of 16 bits, so that a
//! look-up and its update are a few operations on a register. A line's set and tag come from
//! mixing its physical number: any number of sets will do, and no stride falls into few of them, as
//! with the address hashes of real caches. (One multiplication spreads neighbouring frames more evenly
//! than chance, so that memory would be cached otherwise before its pages move than after.) Of lines that are not there, 4 in 65,536 are taken
//! for one that is.

use super::PTES_A_LINE;
use crate::host::fetch;
use crate::page::{Frame, HUGE_PAGES, Slot};

const WAYS: u64 = 4;

/// A line's place in a cache, and what is left of its number there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    set: u32,
    tag: u16,
}

impl Place {
    /// One of `blocks` blocks of sets, for statistics.
    #[inline(always)]
    #[must_use]
    pub fn block(self, blocks: usize) -> usize {
        self.set as usize % blocks
    }
}

/// Four tags of 16 bits, the most recent lowest; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set(u64);

impl Set {
    /// One in each lane.
    const LANES: u64 = 0x0001_0001_0001_0001;
    /// The highest bit of each lane.
    const HIGH: u64 = Set::LANES << 15;

    /// Highest bits of the lanes that hold `tag`.
    #[inline(always)]
    fn equal(self, tag: u16) -> u64 {
        let differs = self.0 ^ (u64::from(tag) * Set::LANES);
        !(((differs & !Set::HIGH) + !Set::HIGH) | differs) & Set::HIGH
    }

    /// Whether `tag` is there; afterwards it is, as the most recent. Without branches, for where hits
    /// are as likely as misses.
    #[inline(always)]
    pub fn access(&mut self, tag: u16) -> bool {
        let equal = self.equal(tag);
        // All bits below the lane that was found; all bits if none was, so that the oldest goes.
        let newer = ((equal & equal.wrapping_neg()) >> 15).wrapping_sub(1);
        let older = self.0 & !((newer << 16) | 0xffff);
        self.0 = u64::from(tag) | ((self.0 & newer) << 16) | older;
        equal != 0
    }

    /// Puts a tag in that is not there.
    #[inline(always)]
    pub fn push(&mut self, tag: u16) {
        self.0 = self.0 << 16 | u64::from(tag);
    }
}

/// A cache.
pub struct Llc {
    sets: Vec<Set>,
}

impl Llc {
    /// An empty cache of `bytes`; below one full set there is none.
    #[must_use]
    pub fn new(bytes: u64) -> Llc {
        let sets = bytes / super::LINE_BYTES / WAYS;
        Llc {
            sets: vec![Set::default(); sets as usize],
        }
    }

    /// Whether there is a cache.
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.sets.is_empty()
    }

    /// How many sets it has.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Where line `line` of `frame` goes.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, frame: Frame, line: u32) -> Place {
        self.place_of(u64::from(frame) << 6 | u64::from(line))
    }

    /// Where the line of a page table goes that holds the entry of `slot`.
    #[inline(always)]
    #[must_use]
    pub fn place_of_entry(&self, slot: Slot) -> Place {
        self.place_of(1 << 40 | u64::from(slot / PTES_A_LINE))
    }

    /// The same of the entry of a huge page.
    #[inline(always)]
    #[must_use]
    pub fn place_of_huge_entry(&self, slot: Slot) -> Place {
        self.place_of(1 << 41 | u64::from(slot / HUGE_PAGES / PTES_A_LINE))
    }

    #[inline(always)]
    fn place_of(&self, number: u64) -> Place {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Place {
            set: (((mixed >> 32) * self.sets.len() as u64) >> 32) as u32,
            // An empty way is 0. The low bits depend on the line's low bits alone, which are what
            // tells lines of one set apart; bits 16 to 31 are the best mixed of them.
            tag: ((mixed >> 16) as u16).max(1),
        }
    }

    /// Asks the host for a place's tags, which will be needed.
    #[inline(always)]
    pub fn fetch(&self, place: Place) {
        fetch(&self.sets, place.set as usize);
    }

    /// Whether the line is there; afterwards it is, as the most recent.
    #[inline(always)]
    pub fn access(&mut self, place: Place) -> bool {
        match self.sets.get_mut(place.set as usize) {
            Some(set) => set.access(place.tag),
            None => false,
        }
    }

    /// The same, where what the caller does next depends on it anyway.
    #[inline(always)]
    pub fn access_branching(&mut self, place: Place) -> bool {
        let Some(set) = self.sets.get_mut(place.set as usize) else {
            return false;
        };
        if set.equal(place.tag) == 0 {
            set.push(place.tag);
            return false;
        }
        set.access(place.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_of_four_goes() {
        // One set.
        let mut llc = Llc::new(256);
        let mut access = |n| {
            let place = llc.place(n, 0);
            llc.access(place)
        };
        assert!(![1, 2, 3, 4].map(&mut access).contains(&true));
        assert!(access(1) && access(3));
        // Order now 3, 1, 4, 2: a fifth line drives 2 out.
        assert!(!access(5));
        assert!(access(4) && access(1) && access(3) && !access(2));
    }

    #[test]
    fn no_cache_never_hits() {
        let mut llc = Llc::new(255);
        let place = llc.place(7, 7);
        assert!(!llc.exists() && !llc.access(place) && !llc.access(place));
    }
}
