//! A last-level cache: which lines of memory it holds, by tag.
//!
//! Four ways, replaced in LRU order, kept in that order in 16 bytes a set. A line's set and tag come
//! from mixing its physical number, so that any number of sets will do and no stride falls into few of
//! them, as with the address hashes of real caches. One multiplication would not do: it spreads
//! neighbouring frames more evenly than chance, so memory would be cached worse before its pages moved
//! than after. Tags have 32 bits; together with
//! the set that tells apart all lines of a machine but for one chance in billions.

use super::PTES_A_LINE;
use crate::page::{Frame, HUGE_PAGES, Slot};

const WAYS: usize = 4;

/// A line's place in a cache, and what is left of its number there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    set: usize,
    tag: u32,
}

/// A cache.
pub struct Llc {
    sets: Vec<[u32; WAYS]>,
}

impl Llc {
    /// An empty cache of `bytes`; below one full set there is none.
    #[must_use]
    pub fn new(bytes: u64) -> Llc {
        let sets = bytes / super::LINE_BYTES / WAYS as u64;
        Llc {
            sets: vec![[0; WAYS]; sets as usize],
        }
    }

    /// Whether there is a cache.
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.sets.is_empty()
    }

    /// Where line `line` of `frame` goes.
    #[inline]
    #[must_use]
    pub fn place(&self, frame: Frame, line: u32) -> Place {
        self.place_of(u64::from(frame) << 6 | u64::from(line))
    }

    /// Where the line of a page table goes that holds the entry of `slot`.
    #[inline]
    #[must_use]
    pub fn place_of_entry(&self, slot: Slot) -> Place {
        self.place_of(1 << 40 | u64::from(slot / PTES_A_LINE))
    }

    /// The same of the entry of a huge page.
    #[inline]
    #[must_use]
    pub fn place_of_huge_entry(&self, slot: Slot) -> Place {
        self.place_of(1 << 41 | u64::from(slot / HUGE_PAGES / PTES_A_LINE))
    }

    #[inline]
    fn place_of(&self, number: u64) -> Place {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Place {
            set: ((mixed >> 32) * self.sets.len() as u64 >> 32) as usize,
            tag: mixed as u32 | 1,
        }
    }

    /// Reads a place's tags ahead of their use; the value means nothing.
    #[inline]
    #[must_use]
    pub fn peek(&self, place: Place) -> u32 {
        self.sets.get(place.set).map_or(0, |set| set[0])
    }

    /// Whether the line is there; afterwards it is, as the most recent.
    #[inline]
    pub fn access(&mut self, place: Place) -> bool {
        let Some(set) = self.sets.get_mut(place.set) else {
            return false;
        };
        let [a, b, c, d] = *set;
        let tag = place.tag;
        if a == tag {
            return true;
        }
        let (hit_b, hit_c, hit_d) = (b == tag, c == tag, d == tag);
        *set = [
            tag,
            a,
            if hit_b { c } else { b },
            if hit_b | hit_c { d } else { c },
        ];
        hit_b | hit_c | hit_d
    }

    /// Takes a line out: another cache has a newer one.
    pub fn forget(&mut self, place: Place) {
        if let Some(set) = self.sets.get_mut(place.set) {
            for tag in set {
                if *tag == place.tag {
                    *tag = 0;
                }
            }
        }
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
