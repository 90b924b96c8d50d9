//! Pages that are elsewhere for a moment and go home again.
//!
//! To the ledger they lie at home. Who surveys finds them elsewhere and must not take
//! that for where they belong: nobody would bring them home. Who moves one for good ends
//! its visit.

use memtide_core::hotness::SECTION_PAGES;
use memtide_core::units::{NodeId, PageNumber};
use std::collections::BTreeMap;

/// Where a visitor belongs and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Where it goes again.
    pub home: NodeId,
    /// Where it is now.
    pub away: NodeId,
}

/// The visitors; at most one a process.
#[derive(Debug, Default)]
pub struct Visitors {
    pages: BTreeMap<PageNumber, Visit>,
}

impl Visitors {
    /// `page` has left its home for a moment.
    pub fn begin(&mut self, page: PageNumber, visit: Visit) {
        self.pages.insert(page, visit);
    }

    /// `page` is where it belongs from now on, wherever that is, or is no more. The visit, if it was a visitor.
    pub fn end(&mut self, page: PageNumber) -> Option<Visit> {
        self.pages.remove(&page)
    }

    /// Whether `page` is away.
    pub fn is_out(&self, page: PageNumber) -> bool {
        self.pages.contains_key(&page)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// All of them, in order of page.
    pub fn iter(&self) -> impl Iterator<Item = (PageNumber, Visit)> {
        self.pages.iter().map(|(page, visit)| (*page, *visit))
    }

    /// Those of one section.
    pub fn of_section(&self, section: u32) -> impl Iterator<Item = (PageNumber, Visit)> {
        let first = u64::from(section) * SECTION_PAGES as u64;
        let pages = PageNumber(first)..PageNumber(first + SECTION_PAGES as u64);
        let all = self.pages.range(pages);
        all.map(|(page, visit)| (*page, *visit))
    }

    /// The pages of a section are no more.
    pub fn clear_section(&mut self, section: u32) {
        let gone: Vec<PageNumber> = self.of_section(section).map(|(page, _)| page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }
}
