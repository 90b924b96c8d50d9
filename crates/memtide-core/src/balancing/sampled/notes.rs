//! What balancing itself notes of a page: who touched it last, whether it waits
//! for a batch, and when it last moved. The kernel has the first in the page's
//! flags; a backend outside of it has no such place.
//!
//! Eight bytes a page, in sections of 32768 pages that appear at first touch.
//!
//! *Rest.* A page that has moved `n` times in a row rests `rest << (n - 1)`, at
//! most 64 times the first rest. If it was left where it is for sixteen times its
//! rest, the row begins anew. So two nodes that fight over a page move it a few
//! times, and then about once in sixteen first rests.

use super::super::cpupid::Cpupid;
use crate::dense::{SECTION_PAGES, sections_for};
use crate::units::PageNumber;

/// Times are kept in so many milliseconds.
const UNIT_MS: u64 = 16;
const MOVES_SHIFT: u32 = 28;
const TIME_MASK: u32 = (1 << MOVES_SHIFT) - 1;
/// The longest rest is the first, doubled so many times.
const DOUBLINGS: u32 = 6;
/// A page at rest for so many rests begins anew.
const FORGIVEN: u64 = 16;
const QUEUED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Note {
    /// The last toucher, and whether the page is queued.
    last: u32,
    /// When it moved, in units plus 1, and how often in a row; 0: never.
    moved: u32,
}

/// The notes of all pages.
#[derive(Debug)]
pub(super) struct Notes {
    sections: Box<[Option<Box<[Note]>>]>,
    pages: u64,
    none: Cpupid,
}

impl Notes {
    /// No page has a toucher yet.
    pub(super) fn new(pages: u64, none: Cpupid) -> Notes {
        Notes {
            sections: (0..sections_for(pages)).map(|_| None).collect(),
            pages,
            none,
        }
    }

    /// Whether there is a note for the page.
    #[inline]
    pub(super) fn holds(&self, page: PageNumber) -> bool {
        page.0 < self.pages
    }

    /// The page's note; `page` must be held.
    #[inline]
    fn note(&mut self, page: PageNumber) -> &mut Note {
        let (section, slot) = place(page);
        let empty = Note {
            last: self.none.0,
            moved: 0,
        };
        &mut self.sections[section]
            .get_or_insert_with(|| vec![empty; SECTION_PAGES].into_boxed_slice())[slot]
    }

    fn existing(&mut self, page: PageNumber) -> Option<&mut Note> {
        let (section, slot) = place(page);
        Some(&mut self.sections.get_mut(section)?.as_mut()?[slot])
    }

    /// Notes a toucher; the one before, and whether the page is queued.
    #[inline]
    pub(super) fn touch(&mut self, page: PageNumber, by: Cpupid) -> (Cpupid, bool) {
        let note = self.note(page);
        let before = note.last;
        note.last = by.0 | before & QUEUED;
        (Cpupid(before & !QUEUED), before & QUEUED != 0)
    }

    /// Loads the pages' notes: see [`Store::glance`](crate::hotness::Store::glance).
    #[inline]
    pub(super) fn glance(&self, pages: impl Iterator<Item = PageNumber>) {
        std::hint::black_box(pages.fold(0, |sum, page| sum ^ self.last(page).0));
    }

    /// The last toucher.
    #[inline]
    pub(super) fn last(&self, page: PageNumber) -> Cpupid {
        let (section, slot) = place(page);
        let section = self.sections.get(section).and_then(Option::as_ref);
        section.map_or(self.none, |notes| Cpupid(notes[slot].last & !QUEUED))
    }

    pub(super) fn queue(&mut self, page: PageNumber) {
        self.note(page).last |= QUEUED;
    }

    pub(super) fn unqueue(&mut self, page: PageNumber) {
        if let Some(note) = self.existing(page) {
            note.last &= !QUEUED;
        }
    }

    /// Forgets all but that it is queued.
    pub(super) fn forget(&mut self, page: PageNumber) {
        let none = self.none.0;
        if let Some(note) = self.existing(page) {
            note.last = none | note.last & QUEUED;
            note.moved = 0;
        }
    }

    /// Whether the page rests from its last moves.
    pub(super) fn rests(&self, page: PageNumber, rest_ms: u32, now_ms: u64) -> bool {
        let (section, slot) = place(page);
        let section = self.sections.get(section).and_then(Option::as_ref);
        let moved = section.map_or(0, |notes| notes[slot].moved);
        moved != 0 && since_ms(moved, now_ms) < rest_of(moved, rest_ms)
    }

    /// The page moved.
    pub(super) fn moved(&mut self, page: PageNumber, rest_ms: u32, now_ms: u64) {
        if !self.holds(page) {
            return;
        }
        let note = self.note(page);
        let rested = note.moved == 0
            || since_ms(note.moved, now_ms) >= FORGIVEN * rest_of(note.moved, rest_ms);
        let moves = match rested {
            true => 1,
            false => (note.moved >> MOVES_SHIFT)
                .saturating_add(1)
                .min(DOUBLINGS + 1),
        };
        note.moved = moves << MOVES_SHIFT | stamp(now_ms);
    }
}

fn place(page: PageNumber) -> (usize, usize) {
    let pages = SECTION_PAGES as u64;
    ((page.0 / pages) as usize, (page.0 % pages) as usize)
}

fn stamp(now_ms: u64) -> u32 {
    (now_ms / UNIT_MS) as u32 & TIME_MASK
}

fn since_ms(moved: u32, now_ms: u64) -> u64 {
    u64::from(stamp(now_ms).wrapping_sub(moved) & TIME_MASK) * UNIT_MS
}

fn rest_of(moved: u32, rest_ms: u32) -> u64 {
    let moves = moved >> MOVES_SHIFT;
    u64::from(rest_ms) << moves.saturating_sub(1).min(DOUBLINGS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGE: PageNumber = PageNumber(7);

    #[test]
    fn touchers_pass_through_and_the_queue_mark_stays() {
        let mut notes = Notes::new(8, Cpupid(0xffff));
        assert!(notes.holds(PAGE) && !notes.holds(PageNumber(8)));
        assert_eq!(notes.last(PAGE), Cpupid(0xffff));
        assert_eq!(notes.touch(PAGE, Cpupid(1)), (Cpupid(0xffff), false));
        notes.queue(PAGE);
        assert_eq!(notes.touch(PAGE, Cpupid(2)), (Cpupid(1), true));
        notes.forget(PAGE);
        assert_eq!(notes.last(PAGE), Cpupid(0xffff));
        notes.unqueue(PAGE);
        assert_eq!(notes.touch(PAGE, Cpupid(3)), (Cpupid(0xffff), false));
    }

    #[test]
    fn rests_double_and_are_forgiven() {
        let mut notes = Notes::new(8, Cpupid(0xffff));
        let rest = 1024;
        assert!(!notes.rests(PAGE, rest, 0));
        notes.moved(PAGE, rest, 1600);
        assert!(notes.rests(PAGE, rest, 1600 + 1023));
        assert!(!notes.rests(PAGE, rest, 1600 + 1024));
        // The second in a row: 2048 ms; the third: 4096 ms.
        notes.moved(PAGE, rest, 3200);
        assert!(notes.rests(PAGE, rest, 3200 + 2047) && !notes.rests(PAGE, rest, 3200 + 2048));
        notes.moved(PAGE, rest, 6400);
        assert!(notes.rests(PAGE, rest, 6400 + 4080) && !notes.rests(PAGE, rest, 6400 + 4096));
        // Sixteen rests of 4096 ms later it is as if it had never moved.
        let later = 6400 + 16 * 4096;
        notes.moved(PAGE, rest, later);
        assert!(!notes.rests(PAGE, rest, later + 1024));
        // At most 64 times the first.
        for n in 1..20 {
            notes.moved(PAGE, rest, later + n * 16);
        }
        let last = later + 19 * 16;
        assert!(notes.rests(PAGE, rest, last + 64 * 1024 - 16));
        assert!(!notes.rests(PAGE, rest, last + 64 * 1024));
    }
}
