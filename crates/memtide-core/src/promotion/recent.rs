//! Which pages moved lately, and which way.
//!
//! Two levels of memory can pass a page to and fro for ever, each move paid and
//! none earned. Whoever is about to move a page asks here whether it just came
//! from there. A fixed table of recent moves is enough: migration is rate
//! limited, and a move that the table has forgotten only loses its damping.
//!
//! The table also tells how much comes back ([`RecentMoves::returning`]). What it
//! has forgotten is not counted then, so that this is never too much.

use crate::pages::Folio;
use crate::units::{Millis, PageNumber};
use serde::Serialize;

/// The way that a page moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moved {
    /// To a faster tier.
    Up,
    /// To a slower tier.
    Down,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    page: u64,
    at: Millis,
    /// Base pages that moved with it.
    pages: u32,
    way: Moved,
    /// Whether it was in use, for all that is known.
    in_use: bool,
}

/// The last move of pages that moved lately. Of two pages that share a slot
/// the later one stays.
#[derive(Clone, Debug)]
pub struct RecentMoves {
    slots: Box<[Option<Entry>]>,
    shift: u32,
    /// When any page moved down.
    down_at: Option<Millis>,
}

impl RecentMoves {
    /// A table with `slots` places, rounded up to a power of two.
    pub fn new(slots: usize) -> RecentMoves {
        let slots = slots.max(2).next_power_of_two();
        RecentMoves {
            slots: vec![None; slots].into_boxed_slice(),
            shift: 64 - slots.trailing_zeros(),
            down_at: None,
        }
    }

    /// Notes that `folio` moved at `now`. It is known by its first page.
    pub fn note(&mut self, folio: Folio, way: Moved, now: Millis) {
        if way == Moved::Down {
            self.down_at = Some(now);
        }
        let slot = self.slot(folio.first);
        self.slots[slot] = Some(Entry {
            page: folio.first.0,
            at: now,
            pages: folio.pages,
            way,
            in_use: way == Moved::Up,
        });
    }

    /// The page that was noted just now is not known to be idle although it moved down:
    /// no idle one was to be had.
    pub fn is_in_use(&mut self, page: PageNumber) {
        let slot = self.slot(page);
        if let Some(entry) = self.slots[slot].as_mut().filter(|it| it.page == page.0) {
            entry.in_use = true;
        }
    }

    /// Whether the page moved down as an idle one within the last `within_ms`.
    pub fn left_idle_within(&self, page: PageNumber, within_ms: u64, now: Millis) -> bool {
        let entry = self.slots[self.slot(page)].filter(|entry| entry.page == page.0);
        entry.is_some_and(|entry| !entry.in_use && now.since(entry.at) <= within_ms)
    }

    /// Whether the page moved down last and was not known to be idle.
    pub fn left_in_use(&self, page: PageNumber) -> bool {
        let entry = self.slots[self.slot(page)].filter(|entry| entry.page == page.0);
        entry.is_some_and(|entry| entry.in_use)
    }

    /// The page's last move and how many ms ago it was.
    pub fn last(&self, page: PageNumber, now: Millis) -> Option<(Moved, u64)> {
        let entry = self.slots[self.slot(page)]?;
        (entry.page == page.0).then(|| (entry.way, now.since(entry.at)))
    }

    /// Whether the page moved that way within the last `within_ms`.
    pub fn moved_within(&self, page: PageNumber, way: Moved, within_ms: u64, now: Millis) -> bool {
        self.last(page, now)
            .is_some_and(|(w, ago)| w == way && ago <= within_ms)
    }

    /// Base pages of `folio` that come back if it moves that `way` now: its last move
    /// was the other way, and later than `after`. No more than moved then, whatever
    /// has become one folio since.
    pub fn returning(&self, folio: Folio, way: Moved, after: Millis) -> u64 {
        let entry = self.slots[self.slot(folio.first)]
            .filter(|entry| entry.page == folio.first.0 && entry.way != way && entry.at > after);
        entry.map_or(0, |entry| u64::from(entry.pages.min(folio.pages)))
    }

    /// Whether any page moved down within the last `within_ms`: if not, none need be
    /// asked about.
    pub fn any_down_within(&self, within_ms: u64, now: Millis) -> bool {
        self.down_at.is_some_and(|at| now.since(at) <= within_ms)
    }

    /// Spreads neighbouring pages over the table (Fibonacci hashing).
    fn slot(&self, page: PageNumber) -> usize {
        (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folio(page: u64, pages: u32) -> Folio {
        Folio {
            first: PageNumber(page),
            pages,
        }
    }

    #[test]
    fn pages_in_use_that_moved_down_did_not_leave_idle() {
        let mut moves = RecentMoves::new(64);
        for page in [1, 2] {
            moves.note(folio(page, 1), Moved::Down, Millis(100));
        }
        moves.note(folio(3, 1), Moved::Up, Millis(100));
        moves.is_in_use(PageNumber(2));
        moves.is_in_use(PageNumber(4));
        let left = |page| moves.left_idle_within(PageNumber(page), 50, Millis(150));
        assert_eq!([1, 2, 3, 4].map(left), [true, false, false, false]);
        assert!(!moves.left_idle_within(PageNumber(1), 49, Millis(150)));
        assert!(moves.moved_within(PageNumber(2), Moved::Down, 50, Millis(150)));
    }

    #[test]
    fn a_move_is_remembered_until_another_page_needs_its_place() {
        let mut moves = RecentMoves::new(2);
        moves.note(folio(1, 1), Moved::Up, Millis(100));
        assert_eq!(
            moves.last(PageNumber(1), Millis(150)),
            Some((Moved::Up, 50))
        );
        assert!(moves.moved_within(PageNumber(1), Moved::Up, 50, Millis(150)));
        assert!(!moves.moved_within(PageNumber(1), Moved::Up, 49, Millis(150)));
        assert!(!moves.moved_within(PageNumber(1), Moved::Down, 50, Millis(150)));
        let rival = (2..)
            .map(PageNumber)
            .find(|&p| moves.slot(p) == moves.slot(PageNumber(1)));
        assert!(!moves.any_down_within(1000, Millis(200)));
        moves.note(folio(rival.unwrap().0, 1), Moved::Down, Millis(200));
        assert!(moves.any_down_within(50, Millis(250)));
        assert!(!moves.any_down_within(49, Millis(250)));
        assert_eq!(moves.last(PageNumber(1), Millis(200)), None);
    }

    #[test]
    fn what_moves_the_other_way_comes_back_if_its_last_move_is_no_longer_ago() {
        let mut moves = RecentMoves::new(64);
        moves.note(folio(512, 512), Moved::Up, Millis(100));
        let returning = |moves: &RecentMoves, pages, way, after| {
            moves.returning(folio(512, pages), way, Millis(after))
        };
        assert_eq!(returning(&moves, 512, Moved::Down, 99), 512);
        assert_eq!(returning(&moves, 512, Moved::Down, 100), 0);
        assert_eq!(returning(&moves, 512, Moved::Up, 99), 0);
        assert_eq!(moves.returning(folio(513, 1), Moved::Down, Millis(99)), 0);
        // The huge page was split; then a base page became one of a huge page.
        assert_eq!(returning(&moves, 1, Moved::Down, 99), 1);
        moves.note(folio(512, 1), Moved::Down, Millis(200));
        assert_eq!(returning(&moves, 512, Moved::Up, 100), 1);
    }
}
