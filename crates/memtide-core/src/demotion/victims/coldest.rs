//! The coldest folios that make up a number of pages.

use super::Evidence;
use crate::pages::Folio;
use crate::promotion::Moved;
use crate::units::{Millis, PageNumber};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How little a folio is in use: what is greater goes first. It ranks folios of
/// which some have to leave, however warm they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coldness {
    /// No page of it was recorded within the window.
    cold: bool,
    /// Its idle age, 0 if that is not known.
    age: u8,
    /// It was not promoted lately.
    settled: bool,
}

impl Coldness {
    /// Whether nothing speaks for its being in use: no access was recorded within the
    /// window, and it was not promoted lately.
    pub fn may_be_idle(&self) -> bool {
        self.cold && self.settled
    }
}

impl Evidence<'_> {
    /// How little `folio` is in use at `now`; it counts as settled if it was not
    /// promoted within `settle_ms`.
    pub fn coldness(&self, folio: Folio, settle_ms: u64, now: Millis) -> Coldness {
        let members = || (0..u64::from(folio.pages)).map(|i| PageNumber(folio.first.0 + i));
        let promoted = self
            .recent
            .moved_within(folio.first, Moved::Up, settle_ms, now);
        Coldness {
            cold: !members().any(|page| self.is_warm(page, now)),
            age: members().map(|page| self.idle.age(page)).min().unwrap_or(0),
            settled: !promoted,
        }
    }
}

/// Keeps the coldest of the folios that it is offered: no more than it takes to
/// make up so many base pages. Of equals it keeps the lower page.
#[derive(Debug)]
pub struct Coldest<C> {
    wanted: u64,
    pages: u64,
    /// The warmest on top, the highest page among equals.
    heap: BinaryHeap<(Reverse<C>, u64, u32)>,
}

impl<C: Ord + Copy> Coldest<C> {
    /// Keeps folios that make up `wanted` base pages.
    pub fn new(wanted: u64) -> Coldest<C> {
        Coldest {
            wanted,
            pages: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// Base pages that it keeps.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Keeps the folio if warmer ones, or none, can go for it.
    pub fn offer(&mut self, folio: Folio, coldness: C) {
        let Folio { first, pages } = folio;
        self.heap.push((Reverse(coldness), first.0, pages));
        self.pages += u64::from(pages);
        // Drop the warmest as long as the rest is still enough.
        while let Some(&(_, _, warmest)) = self.heap.peek()
            && self.pages - u64::from(warmest) >= self.wanted
        {
            self.heap.pop();
            self.pages -= u64::from(warmest);
        }
    }

    /// What it keeps, coldest first.
    pub fn into_folios(self) -> impl Iterator<Item = (Folio, C)> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted.map(|(Reverse(coldness), first, pages)| {
            let first = PageNumber(first);
            (Folio { first, pages }, coldness)
        })
    }
}
