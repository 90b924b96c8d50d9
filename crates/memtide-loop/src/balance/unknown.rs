//! Where sampled pages are.
//!
//! A sample has an address; whether it was local, and whether the page should
//! move, depends on the node that holds it. Asking about a whole process costs
//! in proportion to its memory, asking about a page a fraction of a microsecond:
//! so only pages that were sampled are asked about, a batch at a time, and the
//! answer is kept. Others move pages, too (the kernel's balancing, above all), so
//! after a while an answer is asked for again.

use crate::ledger::Ledger;
use crate::world::{Found, HUGE_PAGES, Sought, Span, World, WorldError};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::PageNumber;

/// Pages to ask about, collected without allocating once the list has grown.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    pages: Vec<(OwnerId, VirtualPage)>,
    spans: Vec<Sought>,
}

impl Unknown {
    /// `page` of `owner` shall be asked about.
    pub fn add(&mut self, owner: OwnerId, page: VirtualPage) {
        self.pages.push((owner, page));
    }

    /// Asks about all, those with at most `gap` pages between them together, and
    /// begins anew. A process that ended has no pages.
    pub fn ask(
        &mut self,
        world: &mut dyn World,
        ledger: &mut Ledger,
        gap: u64,
    ) -> Result<(), WorldError> {
        self.pages.sort_unstable();
        self.pages.dedup();
        let mut rest = &self.pages[..];
        let mut asked = Ok(());
        while let Some(&(owner, _)) = rest.first() {
            let (own, others) = rest.split_at(rest.partition_point(|(of, _)| *of == owner));
            rest = others;
            ranges(&mut self.spans, own, gap);
            asked = asked.and(ledger.survey_spans(world, owner, &self.spans, whole));
        }
        self.pages.clear();
        asked
    }
}

/// The run, with all of the huge pages that it begins and ends in.
fn whole(found: &Found) -> (VirtualPage, u64) {
    if !found.huge {
        return (found.first, found.pages);
    }
    let first = found.first.0 / HUGE_PAGES * HUGE_PAGES;
    let end = (found.first.0 + found.pages).next_multiple_of(HUGE_PAGES);
    (VirtualPage(first), end - first)
}

/// Ranges that hold the pages, whole huge pages' worth where pages are near.
fn ranges(ranges: &mut Vec<Sought>, pages: &[(OwnerId, VirtualPage)], gap: u64) {
    ranges.clear();
    for (_, page) in pages {
        match ranges.last_mut().map(|sought| &mut sought.span) {
            Some(Span { first, pages }) if page.0 <= first.0 + *pages + gap => {
                *pages = (*pages).max(page.0 + 1 - first.0);
            }
            _ => ranges.push(Sought::from(Span {
                first: *page,
                pages: 1,
            })),
        }
    }
}

/// The first page of what moves together with `page`, and how many there are.
pub(super) fn folio(placement: &Placement, page: PageNumber) -> (PageNumber, u32) {
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
        let mut spans = Vec::new();
        ranges(&mut spans, &pages, 32);
        let found: Vec<_> = spans
            .iter()
            .map(|sought| (sought.span.first.0, sought.span.pages))
            .collect();
        // 40 is 28 beyond 12; 100 is 59 beyond 41; 132 is 31 beyond 101.
        assert_eq!(found, [(10, 31), (100, 33)]);
    }
}
