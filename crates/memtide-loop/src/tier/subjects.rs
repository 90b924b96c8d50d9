//! What a source is asked to observe, drawn from where the pages are.

use crate::ledger::{Ledger, Watched};
use crate::random::Random;
use crate::world::{Area, Span, Subject};
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::sample::{self, Run};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{NodeId, PageNumber};

/// The pages of `watched` that `wanted` accepts, given where they are, as runs.
pub fn runs(
    ledger: &Ledger,
    watched: &Watched,
    wanted: impl Fn(PageNumber, NodeId) -> bool,
) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for area in &watched.memory.areas {
        let (owner, first) = (watched.owner, area.first);
        let visit = |first: VirtualPage, dense: PageNumber, pages| {
            for n in 0..pages {
                let page = PageNumber(dense.0 + n);
                let place = ledger.placement.get(page);
                if place.is_some_and(|place| wanted(page, place.node())) {
                    grow(&mut runs, first.0 + n, 1);
                }
            }
        };
        ledger.space.for_runs(owner, first, area.pages, visit);
    }
    runs
}

/// The pages of `watched` on the top tier, or on all others, as runs. It costs
/// by the runs and not by the pages.
pub fn runs_by_tier(ledger: &Ledger, watched: &Watched, top: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for area in &watched.memory.areas {
        runs_of_area(ledger, watched.owner, area, &mut runs, |place| {
            ledger.topology.is_top_tier(place.node()) == top
        });
    }
    runs
}

/// Adds the pages of `area` whose place `wanted` accepts to `runs`.
pub fn runs_of_area(
    ledger: &Ledger,
    owner: OwnerId,
    area: &Area,
    runs: &mut Vec<Run>,
    wanted: impl Fn(Place) -> bool,
) {
    let visit = |first: VirtualPage, dense: PageNumber, pages| {
        ledger.placement.runs(dense, pages, |at, pages, place| {
            if wanted(place) {
                grow(runs, first.0 + (at.0 - dense.0), pages);
            }
        });
    };
    ledger.space.for_runs(owner, area.first, area.pages, visit);
}

/// Adds pages to ascending runs.
pub fn grow(runs: &mut Vec<Run>, first: u64, pages: u64) {
    match runs.last_mut() {
        Some(last) if last.first.0 + last.pages == first => last.pages += pages,
        _ => runs.push(Run {
            first: VirtualPage(first),
            pages,
        }),
    }
}

/// A subject of whole runs: each page of them is of interest.
pub fn whole(watched: &Watched, runs: &[Run]) -> Subject {
    subject(
        watched,
        runs.iter().map(|run| Span {
            first: run.first,
            pages: run.pages,
        }),
    )
}

/// A subject of single pages, and of stretches that are judged as a whole.
pub fn sampled(watched: &Watched, pages: &[VirtualPage], stretches: &[Run]) -> Subject {
    let pages = pages.iter().map(|page| Span {
        first: *page,
        pages: 1,
    });
    let stretches = stretches.iter().map(|run| Span {
        first: run.first,
        pages: run.pages,
    });
    subject(watched, pages.chain(stretches))
}

fn subject(watched: &Watched, spans: impl Iterator<Item = Span>) -> Subject {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_by_key(|span| span.first);
    Subject {
        owner: watched.owner,
        process: watched.process,
        spans,
    }
}

/// Shares `budget` among processes in proportion to their pages; a process
/// with any page gets at least one.
pub fn shares(pages: &[u64], budget: u64) -> Vec<u64> {
    let total: u128 = pages.iter().map(|pages| u128::from(*pages)).sum();
    let share = |pages: &u64| match (u128::from(*pages) * u128::from(budget)).checked_div(total) {
        Some(share) => (share as u64).max(u64::from(*pages > 0)),
        None => 0,
    };
    pages.iter().map(share).collect()
}

/// As [`sample::pages`] with the process's share of the samples.
pub fn draw(runs: &[Run], samples: u64, random: &mut Random) -> Vec<VirtualPage> {
    sample::pages(runs, samples, |n| random.below(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_pages_and_forget_nobody() {
        // 256 * 60000 / 65536 = 234.375, 256 * 5500 / 65536 = 21.48, 256 * 36 / 65536 = 0.14.
        assert_eq!(shares(&[60_000, 5_500, 36, 0], 256), [234, 21, 1, 0]);
        assert!(shares(&[], 256).is_empty());
        assert_eq!(shares(&[0, 0], 256), [0, 0]);
    }
}
