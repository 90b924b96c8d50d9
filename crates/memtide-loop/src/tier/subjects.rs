//! What a source is asked to observe, drawn from where the pages are.

use crate::ledger::{Ledger, Watched};
use crate::random::Random;
use crate::world::{Area, Span, Subject};
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::sample::{self, Run};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{NodeId, PageNumber};
use std::collections::BTreeMap;

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

/// Of the pages that were drawn before, one in so many is drawn again.
const RENEWED: usize = 8;

/// Pages that stand for their process's. A source is told at a cost that grows
/// with what differs from the last time, so most of them stay where they still
/// stand for the same part of the memory; all have changed after [`RENEWED`] times.
#[derive(Debug, Default)]
pub struct Draws {
    last: BTreeMap<OwnerId, Vec<VirtualPage>>,
    times: usize,
}

impl Draws {
    /// What was drawn last of each process.
    pub fn last(&self) -> &BTreeMap<OwnerId, Vec<VirtualPage>> {
        &self.last
    }

    /// Begins the next time, for the processes of `ledger` only.
    pub fn begin(&mut self, ledger: &Ledger) {
        self.times = (self.times + 1) % RENEWED;
        (self.last).retain(|owner, _| ledger.processes.get(*owner).is_some());
    }

    /// As [`sample::pages`] with the process's share of the samples.
    pub fn draw(
        &mut self,
        owner: OwnerId,
        runs: &[Run],
        samples: u64,
        random: &mut Random,
    ) -> Vec<VirtualPage> {
        let mut pages = sample::pages(runs, samples, |n| random.below(n));
        // Where there are fewer pages than that, each is one of its own.
        let samples = pages.len() as u64;
        let last = self.last.entry(owner).or_default();
        if last.len() == pages.len() {
            let numbers = Numbers::new(runs);
            for (n, (page, last)) in pages.iter_mut().zip(&*last).enumerate() {
                let part = sample::stratum(numbers.total, samples, n as u64);
                let stays = numbers
                    .of(*last)
                    .is_some_and(|number| part.contains(&number));
                if n % RENEWED != self.times && stays {
                    *page = *last;
                }
            }
        }
        last.clone_from(&pages);
        pages
    }
}

/// Pages of ascending runs, counted from the first.
struct Numbers<'a> {
    runs: &'a [Run],
    /// Pages before each run.
    before: Vec<u64>,
    total: u64,
}

impl Numbers<'_> {
    fn new(runs: &[Run]) -> Numbers<'_> {
        let mut total = 0;
        let count = |run: &Run| {
            total += run.pages;
            total - run.pages
        };
        let before = runs.iter().map(count).collect();
        Numbers {
            runs,
            before,
            total,
        }
    }

    fn of(&self, page: VirtualPage) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.first <= page);
        let run = self.runs[..at].last()?;
        let offset = page.0 - run.first.0;
        (offset < run.pages).then(|| self.before[at - 1] + offset)
    }
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

    #[test]
    fn most_drawn_pages_stay_where_the_memory_does() {
        let run = |pages| Run {
            first: VirtualPage(16),
            pages,
        };
        let (owner, mut random) = (OwnerId(0), Random::new(7));
        let mut draws = Draws::default();
        let mut draw = |time: usize, pages| {
            draws.times = time % RENEWED;
            draws.draw(owner, &[run(pages)], 256, &mut random)
        };
        let same = |a: &[VirtualPage], b: &[VirtualPage]| {
            assert!(a.is_sorted_by(|a, b| a < b));
            a.iter().zip(b).filter(|(a, b)| a == b).count()
        };
        let times: Vec<_> = (0..=RENEWED).map(|time| draw(time, 65_536)).collect();
        for pair in times.windows(2) {
            let stay = 256 - 256 / RENEWED;
            assert!((stay..256).contains(&same(&pair[0], &pair[1])));
        }
        // One page in 256 is drawn twice.
        assert!(same(&times[0], &times[RENEWED]) < 16);
        // A page less moves borders by a page at most; another process has others.
        let less = draw(1, 65_535);
        assert!(same(&less, &times[RENEWED]) >= 200);
        assert!(same(&draw(2, 30_000), &less) < 16);
    }

    /// There are fewer than may be drawn, and each time others: none is drawn twice.
    #[test]
    fn of_few_pages_all_are_drawn_once() {
        let (owner, mut random) = (OwnerId(0), Random::new(7));
        let mut draws = Draws::default();
        for time in 0..100_u64 {
            draws.times = time as usize % RENEWED;
            let first = VirtualPage(random.below(4));
            let drawn = draws.draw(owner, &[Run { first, pages: 161 }], 165, &mut random);
            assert_eq!(drawn.len(), 161);
            assert!(drawn.is_sorted_by(|a, b| a < b), "{time}: {drawn:?}");
        }
    }

    #[test]
    fn pages_have_numbers_in_runs_and_none_between() {
        let run = |first, pages| Run {
            first: VirtualPage(first),
            pages,
        };
        let runs = [run(10, 2), run(20, 3)];
        let numbers = Numbers::new(&runs);
        assert_eq!(numbers.total, 5);
        let number = |page| numbers.of(VirtualPage(page));
        assert_eq!(
            [9, 10, 11, 12, 20, 22, 23].map(number),
            [None, Some(0), Some(1), None, Some(2), Some(4), None]
        );
    }
}
