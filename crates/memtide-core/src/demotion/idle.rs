//! How long each page has been seen untouched.
//!
//! One byte a page: the number of complete observations in a row that found it
//! untouched, up to 255. Nothing seen means nothing known: a page starts at 0,
//! and only an observation that covered it whole may make it older. An observer
//! that looks at the whole space calls a *pass*; the store keeps when the last
//! 255 began, so that an age in passes is also an age in time.
//!
//! Not to see a page is not to see it idle. An observer that could not look says
//! so with [`IdleStore::unknown`], and the page's age starts again.

use crate::dense::{Directory, SECTION_PAGES, page_at, pieces};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Millis, PageNumber};
use std::collections::VecDeque;
use std::ops::Range;

/// Eight ages a word: an observation of a gibibyte is told of in words.
pub(super) type Section = Box<[AtomicU64]>;

/// Ages in a word.
pub(super) const AGES: usize = 8;
/// The lowest bit of each age.
pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
/// All bits of each age but the highest.
pub(super) const LOW: u64 = 0x7f * ONES;

/// The idle age of each page of a dense space.
#[derive(Debug)]
pub struct IdleStore {
    ages: Directory<Section>,
    /// When the last passes began, the latest first.
    passes: VecDeque<Millis>,
}

/// The largest age, in passes.
pub const MAX_AGE: u8 = u8::MAX;

pub(super) fn section() -> Section {
    let words = SECTION_PAGES.div_ceil(AGES);
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Calls `change` with the words of `section` that hold `slots`, and the bits in each that are theirs.
#[inline]
pub(super) fn for_words(section: &Section, slots: Range<usize>, change: impl Fn(&AtomicU64, u64)) {
    let (first, end) = (slots.start / AGES, slots.end.div_ceil(AGES));
    let head = u64::MAX << (8 * (slots.start % AGES));
    let tail = u64::MAX >> (8 * (end * AGES - slots.end));
    match &section[first..end] {
        [] => {}
        [only] => change(only, head & tail),
        [begin, whole @ .., last] => {
            change(begin, head);
            whole.iter().for_each(|word| change(word, u64::MAX));
            change(last, tail);
        }
    }
}

/// The age in `slot`.
pub(super) fn age_in(section: &Section, slot: usize) -> u8 {
    let word = section[slot / AGES].load(Ordering::Relaxed);
    (word >> (8 * (slot % AGES))) as u8
}

/// All bits of each age of `word` that is zero.
fn zeros(word: u64) -> u64 {
    let high = !(((word & LOW) + LOW) | word | LOW);
    (high >> 7) * 0xff
}

impl IdleStore {
    /// A store of `pages` pages of which nothing is known.
    pub fn new(pages: u64) -> IdleStore {
        IdleStore {
            ages: Directory::new(pages),
            passes: VecDeque::with_capacity(usize::from(MAX_AGE)),
        }
    }

    /// Pages in the space.
    pub fn pages(&self) -> u64 {
        self.ages.pages()
    }

    /// Sections in the space, allocated or not.
    pub fn sections(&self) -> usize {
        self.ages.len()
    }

    /// Notes that a pass that began at `began` is complete: its `touched` and
    /// `untouched` reports are in.
    pub fn pass_done(&mut self, began: Millis) {
        self.passes.truncate(usize::from(MAX_AGE) - 1);
        self.passes.push_front(began);
    }

    /// Passes done, up to 255.
    pub fn passes(&self) -> usize {
        self.passes.len()
    }

    /// Somebody touched these pages. True if all lie within the space.
    pub fn touched(&self, first: PageNumber, count: u64) -> bool {
        self.reset(first, count)
    }

    /// Nobody could look at these pages.
    pub fn unknown(&self, first: PageNumber, count: u64) -> bool {
        self.reset(first, count)
    }

    fn reset(&self, first: PageNumber, count: u64) -> bool {
        let mut done = 0;
        for (index, slots) in pieces(self.ages.pages(), first, count) {
            done += slots.len() as u64;
            // A section that was never aged is all zero already.
            if let Some(section) = self.ages.get(index) {
                for_words(section, slots, |word, bits| {
                    if word.load(Ordering::Relaxed) & bits != 0 {
                        word.fetch_and(!bits, Ordering::Relaxed);
                    }
                });
            }
        }
        done == count
    }

    /// A complete observation found these pages untouched. True if all lie
    /// within the space.
    pub fn untouched(&self, first: PageNumber, count: u64) -> bool {
        let mut done = 0;
        for (index, slots) in pieces(self.ages.pages(), first, count) {
            done += slots.len() as u64;
            let section = self.ages.get_or_make(index, section);
            for_words(section, slots, grow_older);
        }
        done == count
    }

    /// How many complete observations in a row found the page untouched.
    pub fn age(&self, page: PageNumber) -> u8 {
        self.ages
            .locate(page)
            .and_then(|(index, slot)| Some(age_in(self.ages.get(index)?, slot)))
            .unwrap_or(0)
    }

    /// For how long a page of this age has been untouched at least, in ms: since
    /// the first of those observations began. `None` for age 0 or if no pass was
    /// noted that long ago.
    pub fn age_ms(&self, age: u8, now: Millis) -> Option<u64> {
        let began = *self.passes.get(usize::from(age).checked_sub(1)?)?;
        Some(now.since(began))
    }

    /// The least age that means at least `ms` untouched, `None` if no pass noted
    /// is that old.
    pub fn age_for_ms(&self, ms: u64, now: Millis) -> Option<u8> {
        let at = self
            .passes
            .iter()
            .position(|&began| now.since(began) >= ms)?;
        u8::try_from(at + 1).ok()
    }

    /// Pages by age; pages of which nothing was ever seen are not counted.
    pub fn histogram(&self) -> Box<[u64; 256]> {
        let mut counts = Box::new([0; 256]);
        for (_, section) in self.ages.allocated(0..usize::MAX) {
            for word in section {
                match word.load(Ordering::Relaxed) {
                    0 => counts[0] += AGES as u64,
                    ages => {
                        for age in ages.to_le_bytes() {
                            counts[usize::from(age)] += 1;
                        }
                    }
                }
            }
        }
        counts
    }

    /// Visits the pages of `pages` that are at least `min_age` old, ascending,
    /// until `visit` says stop. Sections that were never aged cost nothing.
    pub(super) fn for_each_idle(
        &self,
        pages: Range<u64>,
        min_age: u8,
        mut visit: impl FnMut(PageNumber, u8) -> bool,
    ) -> u64 {
        let count = pages.end.saturating_sub(pages.start);
        let mut last = pages.start;
        for (index, slots) in pieces(self.ages.pages(), PageNumber(pages.start), count) {
            last = page_at(index, slots.end).0;
            let Some(section) = self.ages.get(index) else {
                continue;
            };
            let mut slot = slots.start;
            while slot < slots.end {
                let young = section[slot / AGES].load(Ordering::Relaxed) == 0;
                if young && min_age > 0 {
                    slot = (slot / AGES + 1) * AGES;
                    continue;
                }
                let age = age_in(section, slot);
                let page = page_at(index, slot);
                if age >= min_age && !visit(page, age) {
                    return page.0 + 1;
                }
                slot += 1;
            }
        }
        last
    }

    /// Drops a section's ages, for memory that goes offline; false if it had none.
    pub fn remove_section(&mut self, section: usize) -> bool {
        self.ages.remove(section).is_some()
    }

    /// Bytes held now: ages and directory.
    pub fn memory_bytes(&self) -> usize {
        let sections = self.ages.allocated(0..usize::MAX).count();
        self.ages.bytes() + sections * SECTION_PAGES
    }
}

/// One more observation without a touch, of the ages in `bits`. A touch that
/// comes in between wins: the exchange fails, and an age that has become zero
/// stays so.
fn grow_older(word: &AtomicU64, mut bits: u64) {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        // No age that grows is at its largest, so none overflows into the next.
        let new = old + (bits & !zeros(!old) & ONES);
        if new == old {
            return;
        }
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => {
                // Touched just now: for those this observation is over.
                bits &= !(zeros(seen) & !zeros(old));
                old = seen;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECTION: u64 = SECTION_PAGES as u64;

    #[test]
    fn a_page_grows_older_with_each_complete_observation_until_touched() {
        let store = IdleStore::new(100);
        for expected in 1..=3 {
            assert!(store.untouched(PageNumber(10), 5));
            assert_eq!(store.age(PageNumber(12)), expected);
        }
        assert!(store.touched(PageNumber(12), 1));
        assert_eq!(store.age(PageNumber(12)), 0);
        assert_eq!(store.age(PageNumber(13)), 3);
        assert!(store.unknown(PageNumber(13), 1));
        assert_eq!(store.age(PageNumber(13)), 0);
        // Nobody ever looked at these.
        assert_eq!(store.age(PageNumber(15)), 0);
        assert_eq!(store.age(PageNumber(100)), 0);
    }

    #[test]
    fn ages_of_one_word_do_not_touch_each_other() {
        // Each page by itself, so many times that neighbours differ; some at the limit.
        let store = IdleStore::new(64);
        let times = |page: u64| [0, 1, 127, 128, 254, 255, 256, 300][(page * 5 % 8) as usize];
        for page in 0..64 {
            for _ in 0..times(page) {
                store.untouched(PageNumber(page), 1);
            }
        }
        let expect = |more: u64| {
            for page in 0..64 {
                let inside = (3..53).contains(&page);
                let age = (times(page) + if inside { more } else { 0 }).min(255);
                assert_eq!(u64::from(store.age(PageNumber(page))), age, "page {page}");
            }
        };
        expect(0);
        store.untouched(PageNumber(3), 50);
        expect(1);
        store.untouched(PageNumber(3), 50);
        expect(2);
        let mut idle = Vec::new();
        store.for_each_idle(0..64, 200, |page, age| {
            idle.push((page.0, age));
            true
        });
        let old = (0..64).map(|page| (page, store.age(PageNumber(page))));
        assert_eq!(idle, old.filter(|(_, age)| *age >= 200).collect::<Vec<_>>());
        store.touched(PageNumber(10), 3);
        let ages: Vec<u8> = (9..14).map(|page| store.age(PageNumber(page))).collect();
        let kept = |page: u64| (times(page) + 2).min(255) as u8;
        assert_eq!(ages, [kept(9), 0, 0, 0, kept(13)]);
    }

    #[test]
    fn the_age_stays_at_its_largest() {
        let store = IdleStore::new(1);
        for _ in 0..300 {
            store.untouched(PageNumber(0), 1);
        }
        assert_eq!(store.age(PageNumber(0)), 255);
    }

    #[test]
    fn a_run_outside_the_space_is_said_to_be() {
        let store = IdleStore::new(SECTION + 1);
        assert!(!store.untouched(PageNumber(SECTION - 1), 3));
        assert_eq!(store.age(PageNumber(SECTION - 1)), 1);
        assert_eq!(store.age(PageNumber(SECTION)), 1);
        assert!(!store.touched(PageNumber(SECTION + 1), 1));
    }

    #[test]
    fn passes_become_time_from_when_they_began() {
        // Passes began at 0, 1000 and 3000. At 3500 an age of 1 is 500 ms, of 2
        // is 2500 ms, of 3 is 3500 ms; of a fourth nothing is known.
        let mut store = IdleStore::new(1);
        for began in [0, 1000, 3000] {
            store.pass_done(Millis(began));
        }
        let now = Millis(3500);
        let ages: Vec<_> = (0..5).map(|age| store.age_ms(age, now)).collect();
        assert_eq!(ages, [None, Some(500), Some(2500), Some(3500), None]);
        assert_eq!(store.age_for_ms(2000, now), Some(2));
        assert_eq!(store.age_for_ms(2500, now), Some(2));
        assert_eq!(store.age_for_ms(2501, now), Some(3));
        assert_eq!(store.age_for_ms(4000, now), None);
        for began in 0..1000 {
            store.pass_done(Millis(4000 + began));
        }
        assert_eq!(store.passes(), 255);
    }

    #[test]
    fn memory_is_a_byte_a_page_of_what_was_aged() {
        let mut store = IdleStore::new(1 << 28);
        let empty = store.memory_bytes();
        assert!(empty <= 8192 * 32);
        store.touched(PageNumber(5), 1);
        assert_eq!(store.memory_bytes(), empty);
        store.untouched(PageNumber(5), 1);
        assert_eq!(store.memory_bytes(), empty + SECTION_PAGES);
        let histogram = store.histogram();
        assert_eq!((histogram[0], histogram[1]), (SECTION - 1, 1));
        assert!(store.remove_section(0));
        assert_eq!(store.age(PageNumber(5)), 0);
    }
}
