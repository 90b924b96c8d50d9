//! For how many rounds each page has been seen untouched, where the time is long.
//!
//! [`IdleStore`](super::IdleStore) counts passes, up to 255. These are a minute's worth
//! or two, and say nothing of ten minutes. So the long time is cut into *rounds*, which
//! the caller ends when it likes. One byte a page: seven bits count the rounds in which
//! a complete observation found the page untouched and none found it in use; the eighth
//! says that this round had such an observation.
//!
//! A touch takes the count back to nothing, and what is left of its round may begin the
//! next one. So a page of `n + 1` rounds has been seen untouched through `n` whole ones,
//! and at least once in each of `n + 1`. A round without any observation of a page adds
//! nothing to it and takes nothing away: it only makes the time longer.

use super::idle::{AGES, LOW, ONES, Section, age_in, for_words, section};
use crate::dense::{Directory, SECTION_PAGES, page_at, pieces};
use crate::sync::Ordering;
use crate::units::PageNumber;
use std::ops::Range;

/// The highest bit of each byte: this round saw the page untouched.
const SEEN: u64 = !LOW;

/// The most rounds that are counted.
pub const MAX_ROUNDS: u8 = 0x7f;

/// The rounds of each page of a dense space.
#[derive(Debug)]
pub struct IdleRounds {
    pages: Directory<Section>,
}

impl IdleRounds {
    /// A store of `pages` pages of which nothing is known.
    pub fn new(pages: u64) -> IdleRounds {
        IdleRounds {
            pages: Directory::new(pages),
        }
    }

    /// Somebody touched these pages, or they are not what they were.
    pub fn touched(&self, first: PageNumber, count: u64) {
        for (index, slots) in pieces(self.pages.pages(), first, count) {
            // A section that was never seen untouched is all zero already.
            if let Some(section) = self.pages.get(index) {
                for_words(section, slots, |word, bits| {
                    if word.load(Ordering::Relaxed) & bits != 0 {
                        word.fetch_and(!bits, Ordering::Relaxed);
                    }
                });
            }
        }
    }

    /// A complete observation found these pages untouched.
    pub fn untouched(&self, first: PageNumber, count: u64) {
        for (index, slots) in pieces(self.pages.pages(), first, count) {
            let section = self.pages.get_or_make(index, section);
            for_words(section, slots, |word, bits| {
                word.fetch_or(SEEN & bits, Ordering::Relaxed);
            });
        }
    }

    /// The round ends, and the next one begins. It costs by the pages ever seen.
    pub fn round_done(&mut self) {
        for (_, section) in self.pages.allocated(0..usize::MAX) {
            for word in section {
                let old = word.load(Ordering::Relaxed);
                if old != 0 {
                    word.store(grown(old), Ordering::Relaxed);
                }
            }
        }
    }

    /// In how many complete rounds the page was seen untouched, and not touched since.
    pub fn rounds(&self, page: PageNumber) -> u8 {
        let at = self.pages.locate(page);
        let byte = at.and_then(|(index, slot)| Some(age_in(self.pages.get(index)?, slot)));
        byte.unwrap_or(0) & MAX_ROUNDS
    }

    /// Visits the pages of `pages` of at least `least` rounds, ascending, until `visit`
    /// says stop. Where it stopped: the page that it was said of, or the end of `pages`.
    pub fn for_each(
        &self,
        pages: Range<u64>,
        least: u8,
        mut visit: impl FnMut(PageNumber) -> bool,
    ) -> u64 {
        let count = pages.end.saturating_sub(pages.start);
        for (index, slots) in pieces(self.pages.pages(), PageNumber(pages.start), count) {
            let Some(section) = self.pages.get(index) else {
                continue;
            };
            let mut slot = slots.start;
            while slot < slots.end {
                if section[slot / AGES].load(Ordering::Relaxed) & LOW == 0 && least > 0 {
                    slot = (slot / AGES + 1) * AGES;
                    continue;
                }
                let page = page_at(index, slot);
                if age_in(section, slot) & MAX_ROUNDS >= least && !visit(page) {
                    return page.0;
                }
                slot += 1;
            }
        }
        pages.end
    }

    /// Forgets a section whose pages are gone; false if nothing was known of it.
    pub fn remove_section(&mut self, section: usize) -> bool {
        self.pages.remove(section).is_some()
    }

    /// Bytes held now: a byte a page of what was ever seen untouched, and the directory.
    pub fn memory_bytes(&self) -> usize {
        let sections = self.pages.allocated(0..usize::MAX).count();
        self.pages.bytes() + sections * SECTION_PAGES
    }
}

/// The counts of a word after its round: one more where the round saw the page
/// untouched, up to the most.
fn grown(word: u64) -> u64 {
    let counts = word & LOW;
    let full = (counts + ONES) & SEEN;
    counts + (((word & SEEN) & !full) >> 7)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECTION: u64 = SECTION_PAGES as u64;

    #[test]
    fn a_round_counts_once_however_often_it_looks() {
        let mut store = IdleRounds::new(100);
        for round in 1..=3 {
            for _ in 0..50 {
                store.untouched(PageNumber(10), 5);
            }
            assert_eq!(store.rounds(PageNumber(12)), round - 1, "it goes on");
            store.round_done();
            assert_eq!(store.rounds(PageNumber(12)), round);
        }
        assert_eq!(store.rounds(PageNumber(15)), 0);
        assert_eq!(store.rounds(PageNumber(100)), 0, "outside the space");
    }

    /// Touched in the third round, before its last look: that one is the first of the next
    /// count, so that one more than the wanted rounds are needed for that many whole ones.
    #[test]
    fn a_touch_takes_all_back_and_no_look_takes_nothing() {
        let mut store = IdleRounds::new(100);
        for round in 0..4 {
            store.untouched(PageNumber(0), 3);
            if round == 2 {
                store.touched(PageNumber(1), 1);
                store.untouched(PageNumber(1), 1);
                store.touched(PageNumber(2), 1);
            }
            store.round_done();
        }
        let rounds = |store: &IdleRounds| [0, 1, 2].map(|page| store.rounds(PageNumber(page)));
        assert_eq!(rounds(&store), [4, 2, 1]);
        store.round_done();
        assert_eq!(rounds(&store), [4, 2, 1]);
    }

    #[test]
    fn counts_of_one_word_do_not_touch_each_other_and_end_at_the_most() {
        let mut store = IdleRounds::new(64);
        let times = |page: u64| [0, 1, 2, 126, 127, 128, 200, 64][(page % 8) as usize];
        for round in 0..200 {
            for page in (0..64).filter(|page| round < times(*page)) {
                store.untouched(PageNumber(page), 1);
            }
            store.round_done();
        }
        for page in 0..64 {
            let most = times(page).min(u64::from(MAX_ROUNDS));
            assert_eq!(u64::from(store.rounds(PageNumber(page))), most, "{page}");
        }
        let mut seen = Vec::new();
        let visit = |page: PageNumber| {
            seen.push(page.0);
            true
        };
        assert_eq!(store.for_each(4..20, 126, visit), 20);
        assert_eq!(seen, [4, 5, 6, 11, 12, 13, 14, 19]);
        assert_eq!(store.for_each(4..20, 126, |page| page.0 < 12), 12);
    }

    #[test]
    fn memory_is_a_byte_a_page_of_what_was_seen() {
        let mut store = IdleRounds::new(4 * SECTION);
        let empty = store.memory_bytes();
        store.touched(PageNumber(0), 4 * SECTION);
        assert_eq!(store.memory_bytes(), empty);
        store.untouched(PageNumber(SECTION - 1), 2);
        assert_eq!(store.memory_bytes(), empty + 2 * SECTION_PAGES);
        store.round_done();
        assert!(store.remove_section(0) && !store.remove_section(3));
        let both = [SECTION - 1, SECTION].map(|page| store.rounds(PageNumber(page)));
        assert_eq!(both, [0, 1]);
    }
}
