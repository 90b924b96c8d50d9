//! Where sampled pages are.
//!
//! A sample has an address; whether it was local, and whether the page should
//! move, depends on the node that holds it. Asking about a whole process costs
//! in proportion to its memory, asking about a page a fraction of a microsecond:
//! so only pages that were sampled are asked about, a batch at a time, and the
//! answer is kept. Others move pages, too (the kernel's balancing, above all), so
//! after a while an answer is asked for again.

use crate::live::processes::Processes;
use crate::live::survey::{Found, HUGE_PAGES, SurveyError, Surveyor};
use crate::mover::Kernel;
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, Space, SpaceFull, VirtualPage};
use memtide_core::units::PageNumber;
use std::path::Path;

/// Pages between two sampled ones that are asked about along with them: a range
/// more costs about as much.
const GAP: u64 = 32;

/// Why the pages cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum WhereError {
    /// The kernel's answer.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// More addresses than there is room for.
    #[error(transparent)]
    Full(#[from] SpaceFull),
}

/// Pages to ask about, collected without allocating once the list has grown.
#[derive(Debug, Default)]
pub struct Unknown(Vec<(OwnerId, VirtualPage)>);

impl Unknown {
    /// `page` of `owner` shall be asked about.
    pub fn add(&mut self, owner: OwnerId, page: VirtualPage) {
        self.0.push((owner, page));
    }

    /// Asks about all, and begins anew. A process that ended has no pages.
    pub fn ask<K: Kernel>(
        &mut self,
        proc_root: &Path,
        processes: &Processes,
        surveyor: &mut Surveyor<K>,
        space: &mut Space,
        placement: &mut Placement,
    ) -> Result<(), WhereError> {
        self.0.sort_unstable();
        self.0.dedup();
        let mut rest = &self.0[..];
        while let Some(&(owner, _)) = rest.first() {
            let (own, others) = rest.split_at(rest.partition_point(|(of, _)| *of == owner));
            rest = others;
            let Some(watched) = processes.get(owner) else {
                continue;
            };
            let mut full = None;
            let found = surveyor.survey_ranges(proc_root, watched.process, ranges(own), |found| {
                let (first, pages) = whole(found);
                let placed = space.place_runs(owner, first, pages, |_, dense, pages| {
                    placement.set_run(dense, pages, found.node, found.huge);
                });
                full = full.or(placed.err());
            });
            match found {
                Ok(()) | Err(SurveyError::Gone(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(full) = full {
                return Err(full.into());
            }
        }
        self.0.clear();
        Ok(())
    }
}

/// The run, with all of the huge pages that it begins and ends in.
fn whole(found: Found) -> (VirtualPage, u64) {
    if !found.huge {
        return (found.first, found.pages);
    }
    let first = found.first.0 / HUGE_PAGES * HUGE_PAGES;
    let end = (found.first.0 + found.pages).next_multiple_of(HUGE_PAGES);
    (VirtualPage(first), end - first)
}

/// Ranges that hold the pages, whole huge pages' worth where pages are near.
fn ranges(pages: &[(OwnerId, VirtualPage)]) -> impl Iterator<Item = (VirtualPage, u64)> {
    let mut ranges: Vec<(VirtualPage, u64)> = Vec::new();
    for (_, page) in pages {
        match ranges.last_mut() {
            Some((first, length)) if page.0 <= first.0 + *length + GAP => {
                *length = (*length).max(page.0 + 1 - first.0);
            }
            _ => ranges.push((*page, 1)),
        }
    }
    ranges.into_iter()
}

/// The first page of what moves together with `page`, and how many there are.
pub fn folio(placement: &Placement, page: PageNumber) -> (PageNumber, u32) {
    match placement.get(page) {
        Some(place) if place.huge() => {
            let first = PageNumber(page.0 / HUGE_PAGES * HUGE_PAGES);
            (first, HUGE_PAGES as u32)
        }
        _ => (page, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_pages_are_one_range() {
        let pages = [10, 11, 40, 100, 132].map(|page| (OwnerId(0), VirtualPage(page)));
        let found: Vec<_> = ranges(&pages).map(|(first, n)| (first.0, n)).collect();
        // 40 is 28 beyond 12; 100 is 59 beyond 41; 132 is 31 beyond 101.
        assert_eq!(found, [(10, 31), (100, 33)]);
    }
}
