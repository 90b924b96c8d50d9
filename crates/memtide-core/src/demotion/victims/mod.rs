//! Which pages leave a fast node: the ones untouched the longest.
//!
//! A call looks at a bounded stretch of pages from where the last call stopped
//! and picks the coldest of them; with the stretch as long as the node it picks
//! the coldest of all. Never picked: a page of which nothing is known or whose
//! idle age is below the minimum, a page that the hotness store says is warm, a
//! page that was promoted lately, a page that its owner does not let go.

mod coldest;

pub use coldest::{Coldest, Coldness};

use super::idle::IdleStore;
use crate::hotness::Store;
use crate::pages::{Folio, Pages};
use crate::promotion::{Moved, RecentMoves};
use crate::units::{Millis, NodeId, PageNumber};
use serde::Serialize;

/// How far a choice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Base pages wanted.
    pub pages: u64,
    /// Pages looked at, at most.
    pub scan: u64,
    /// The least idle age; 0 is taken as 1, because 0 means that nothing is known.
    pub min_age: u8,
    /// A page promoted within this many ms stays.
    pub settle_ms: u64,
}

/// Where the next choice goes on. Starts at page 0 and wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// The page where the next choice begins.
    pub fn page(self) -> PageNumber {
        PageNumber(self.0)
    }
}

/// A folio that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// Which.
    pub folio: Folio,
    /// Its idle age in passes: its most recently touched page's.
    pub age: u8,
}

/// The choice, coldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Victims {
    /// The folios.
    pub folios: Vec<Victim>,
    /// Base pages in them.
    pub pages: u64,
    /// Pages looked at.
    pub scanned: u64,
}

/// What a choice looks at.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Idle ages.
    pub idle: &'a IdleStore,
    /// Hotness records.
    pub hotness: &'a Store,
    /// Moves of late.
    pub recent: &'a RecentMoves,
}

impl Evidence<'_> {
    /// Chooses folios on `node` at `now`, from `cursor` on, and moves it on.
    pub fn choose(
        &self,
        node: NodeId,
        limits: &Limits,
        cursor: &mut Cursor,
        pages: &impl Pages,
        now: Millis,
    ) -> Victims {
        let mut coldest = Coldest::new(limits.pages);
        let total = self.idle.pages();
        let scan = limits.scan.min(total);
        let start = if cursor.0 < total { cursor.0 } else { 0 };
        let first = start..total.min(start + scan);
        let wrapped = 0..scan - (first.end - first.start);
        // A folio's pages come in a row, but a choice that starts inside a folio
        // and goes round meets it again at its end.
        let (mut last, mut earliest) = (None, None);
        for stretch in [first, wrapped] {
            if stretch.is_empty() {
                continue;
            }
            cursor.0 = self
                .idle
                .for_each_idle(stretch, limits.min_age.max(1), |page, _| {
                    let folio = pages.folio(page);
                    if last != Some(folio) && earliest != Some(folio) {
                        last = Some(folio);
                        earliest.get_or_insert(folio);
                        if let Some(age) = self.idle_folio(folio, node, limits, pages, now) {
                            coldest.offer(folio, age);
                        }
                    }
                    true
                });
        }
        if cursor.0 >= total {
            cursor.0 = 0;
        }
        Victims {
            pages: coldest.pages(),
            scanned: scan,
            folios: coldest
                .into_folios()
                .map(|(folio, age)| Victim { folio, age })
                .collect(),
        }
    }

    /// The folio's idle age if it may leave `node`.
    fn idle_folio(
        &self,
        folio: Folio,
        node: NodeId,
        limits: &Limits,
        pages: &impl Pages,
        now: Millis,
    ) -> Option<u8> {
        if pages.node_of(folio.first) != Some(node) || pages.may_leave(folio.first).is_err() {
            return None;
        }
        let members = || (0..u64::from(folio.pages)).map(|i| PageNumber(folio.first.0 + i));
        let age = members().map(|p| self.idle.age(p)).min()?;
        let settling = self
            .recent
            .moved_within(folio.first, Moved::Up, limits.settle_ms, now);
        (age >= limits.min_age.max(1) && !settling && !members().any(|p| self.is_warm(p, now)))
            .then_some(age)
    }

    fn is_warm(&self, page: PageNumber, now: Millis) -> bool {
        self.hotness
            .peek(page, now)
            .is_some_and(|h| h.age_ms <= self.hotness.config().window_ms())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
