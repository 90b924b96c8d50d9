//! Sparse addresses of many owners, laid out as one dense space of pages.
//!
//! The hotness store wants dense page numbers; processes have few mappings
//! scattered over a vast address space. This is the map between the two: each
//! 128 MiB of an owner's addresses in which anything is watched gets a section
//! of its own, and inside a section pages keep their order. A lookup is one
//! search a section, not one a page; a run of pages stays a run.
//!
//! An *owner* is whatever has an address space: a process on a live kernel, an
//! address space of the simulated one.

use crate::dense::SECTION_PAGES;
use crate::units::PageNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An owner's slot: small, reused after [`Space::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnerId(pub u32);

/// A page of an owner: its address divided by the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtualPage(pub u64);

/// The map. See the module's essay.
#[derive(Clone, Debug, Default)]
pub struct Space {
    by_place: BTreeMap<(OwnerId, u64), u32>,
    sections: Vec<Option<(OwnerId, u64)>>,
    free: Vec<u32>,
    limit: u32,
}

/// The space has no section left. Raise the limit or watch fewer owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {limit} sections of 128 MiB are in use: watch fewer processes")]
pub struct SpaceFull {
    /// The number of sections that the space was made with.
    pub limit: u32,
}

impl Space {
    /// A space of at most `limit` sections, none in use.
    pub fn new(limit: u32) -> Space {
        Space {
            limit,
            ..Space::default()
        }
    }

    /// The dense number of `page` of `owner`, if its section is in use.
    pub fn find(&self, owner: OwnerId, page: VirtualPage) -> Option<PageNumber> {
        let pages = SECTION_PAGES as u64;
        let section = *self.by_place.get(&(owner, page.0 / pages))?;
        Some(PageNumber(u64::from(section) * pages + page.0 % pages))
    }

    /// The dense number of `page` of `owner`; takes a section if need be.
    pub fn place(&mut self, owner: OwnerId, page: VirtualPage) -> Result<PageNumber, SpaceFull> {
        let pages = SECTION_PAGES as u64;
        let key = (owner, page.0 / pages);
        let section = match self.by_place.get(&key) {
            Some(section) => *section,
            None => {
                let section = match self.free.pop() {
                    Some(section) => section,
                    None if (self.sections.len() as u32) < self.limit => {
                        self.sections.push(None);
                        self.sections.len() as u32 - 1
                    }
                    None => return Err(SpaceFull { limit: self.limit }),
                };
                self.sections[section as usize] = Some(key);
                self.by_place.insert(key, section);
                section
            }
        };
        Ok(PageNumber(u64::from(section) * pages + page.0 % pages))
    }

    /// Whose page `page` is, if its section is in use.
    pub fn locate(&self, page: PageNumber) -> Option<(OwnerId, VirtualPage)> {
        let pages = SECTION_PAGES as u64;
        let (owner, place) = (*self.sections.get((page.0 / pages) as usize)?)?;
        Some((owner, VirtualPage(place * pages + page.0 % pages)))
    }

    /// Gives each part of `first..first + pages` that lies in one section in
    /// use to `visit`: its first virtual page, its first dense page, its length.
    /// It costs time by the sections in use, however many pages there are.
    pub fn for_runs(
        &self,
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
        mut visit: impl FnMut(VirtualPage, PageNumber, u64),
    ) {
        const SECTION: u64 = SECTION_PAGES as u64;
        let (start, end) = (first.0, first.0.saturating_add(pages));
        if start == end {
            return;
        }
        let places = (owner, start / SECTION)..=(owner, (end - 1) / SECTION);
        for ((_, place), section) in self.by_place.range(places) {
            let base = place * SECTION;
            let from = base.max(start);
            let until = end.min(base.saturating_add(SECTION));
            let dense = u64::from(*section) * SECTION + (from - base);
            visit(VirtualPage(from), PageNumber(dense), until - from);
        }
    }

    /// Like [`Space::for_runs`], but takes sections where there are none.
    pub fn place_runs(
        &mut self,
        owner: OwnerId,
        first: VirtualPage,
        pages: u64,
        mut visit: impl FnMut(VirtualPage, PageNumber, u64),
    ) -> Result<(), SpaceFull> {
        let (mut at, end) = (first.0, first.0.saturating_add(pages));
        while at < end {
            let boundary = (at / SECTION_PAGES as u64 + 1) * SECTION_PAGES as u64;
            let run = boundary.min(end) - at;
            visit(VirtualPage(at), self.place(owner, VirtualPage(at))?, run);
            at += run;
        }
        Ok(())
    }

    /// Pages up to the end of the last section that was ever in use.
    pub fn extent(&self) -> u64 {
        self.sections.len() as u64 * SECTION_PAGES as u64
    }

    /// The sections of `owner`, in the order of their addresses.
    pub fn sections_of(&self, owner: OwnerId) -> impl Iterator<Item = u32> + '_ {
        self.by_place
            .range((owner, 0)..=(owner, u64::MAX))
            .map(|(_, section)| *section)
    }

    /// Gives back all sections of `owner` and names them, so that the caller
    /// can clear what it stored there.
    pub fn release(&mut self, owner: OwnerId) -> Vec<u32> {
        let sections: Vec<u32> = self.sections_of(owner).collect();
        for section in &sections {
            let key = self.sections[*section as usize].take();
            let key = key.filter(|(of, _)| *of == owner);
            let key = key.expect("a section that is released is its owner's");
            self.by_place.remove(&key);
            self.free.push(*section);
        }
        sections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECTION_PAGES as u64;

    #[test]
    fn a_run_over_a_section_boundary_is_two_runs() {
        let mut space = Space::new(4);
        let owner = OwnerId(7);
        let mut runs = Vec::new();
        // 10 pages that begin 3 before a boundary: 3 + 7.
        space
            .place_runs(owner, VirtualPage(5 * S - 3), 10, |v, d, n| {
                runs.push((v.0, d.0, n))
            })
            .unwrap();
        assert_eq!(runs, [(5 * S - 3, S - 3, 3), (5 * S, S, 7)]);
        let mut again = Vec::new();
        space.for_runs(owner, VirtualPage(5 * S - 3), 10, |v, d, n| {
            again.push((v.0, d.0, n))
        });
        assert_eq!(again, runs);
        assert_eq!(
            space.locate(PageNumber(S + 6)),
            Some((owner, VirtualPage(5 * S + 6)))
        );
    }

    /// The same parts as page by page; and a run of all pages there are ends.
    #[test]
    fn runs_are_the_pages_of_the_sections_in_use() {
        let mut space = Space::new(8);
        let owner = OwnerId(1);
        for page in [3 * S, S, 9 * S, 4 * S, u64::MAX] {
            space.place(owner, VirtualPage(page)).unwrap();
        }
        space.place(OwnerId(0), VirtualPage(2 * S)).unwrap();
        space.place(OwnerId(2), VirtualPage(5 * S)).unwrap();
        for (first, pages) in [
            (0, 10 * S),
            (S + 5, 1),
            (S + 5, 3 * S),
            (2 * S, S),
            (7, 0),
            (4 * S - 1, 2),
            (0, u64::MAX),
        ] {
            let mut found = Vec::new();
            space.for_runs(owner, VirtualPage(first), pages, |v, d, n| {
                found.push((v.0, d.0, n));
            });
            let mut expected: Vec<(u64, u64, u64)> = Vec::new();
            let end = first.saturating_add(pages);
            for place in [S, 3 * S, 4 * S, 9 * S, u64::MAX / S * S] {
                let from = first.max(place);
                let until = end.min(place.saturating_add(S));
                if from < until {
                    let dense = space.find(owner, VirtualPage(from)).unwrap();
                    expected.push((from, dense.0, until - from));
                }
            }
            assert_eq!(found, expected, "{first} {pages}");
        }
    }

    #[test]
    #[should_panic(expected = "a section that is released is its owner's")]
    fn a_section_of_two_owners_is_noticed() {
        let mut space = Space::new(2);
        space.place(OwnerId(0), VirtualPage(1)).unwrap();
        space.sections[0] = Some((OwnerId(1), 0));
        space.release(OwnerId(0));
    }

    #[test]
    fn two_owners_never_share_a_section_and_released_ones_are_used_again() {
        let mut space = Space::new(2);
        let a = space.place(OwnerId(0), VirtualPage(1)).unwrap();
        let b = space.place(OwnerId(1), VirtualPage(1)).unwrap();
        assert_ne!(a, b);
        assert_eq!(
            space.place(OwnerId(2), VirtualPage(1)),
            Err(SpaceFull { limit: 2 })
        );
        assert_eq!(space.release(OwnerId(0)), [0]);
        assert_eq!(space.locate(a), None);
        assert_eq!(space.find(OwnerId(0), VirtualPage(1)), None);
        assert_eq!(space.place(OwnerId(2), VirtualPage(1)), Ok(a));
    }
}
