//! Single pages, which stand for what nothing else that a search glances at covers.
//!
//! Stretches show which pages of the top tier are idle. They are few, so that they leave out
//! memory where that lies in many short runs, as pages do that came up one by one. And the
//! search samples no blocks of which many pages have left. How much of *these* a class has in
//! use is said by pages that are drawn from them at random. They are glanced at beside what
//! the search wants, which costs by their number; classes take turns where there are many.

use super::shared::Shared;
use super::subjects;
use crate::ledger::Watched;
use crate::random::Random;
use crate::search::Search;
use crate::world::{ClassId, Span, Subject};
use memtide_core::tiering::sample::{self, Run};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::Millis;
use std::collections::BTreeSet;

/// How many of the top tier are drawn at once, and as many of the lower ones. The source is told each as a range
/// of its own.
const PAGES: u64 = 64;
/// The least of a class.
const OF_CLASS: u64 = 8;
/// Pages that are asked about for each that is drawn.
const CANDIDATES: u64 = 16;
/// How often others are drawn, in ms.
const DRAW_MS: u64 = 6_000;
/// Makes its random numbers others than the observer's.
const SEED: u64 = 0x7369_6e67_6c65_7331;

/// What single pages stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Pages of the top tier that are in no stretch.
    Fast,
    /// Pages of lower tiers in blocks that are not sampled.
    Slow,
}

/// Pages by process.
pub(super) type Pages = BTreeSet<(OwnerId, VirtualPage)>;

/// Those of the present glance, of either [`Rest`].
#[derive(Debug)]
pub(super) struct Singles {
    drawn: [Vec<Subject>; 2],
    /// Those that the source was told: not what overlaps anything else.
    told: [Pages; 2],
    drawn_at: Option<Millis>,
    /// The class whose turn is next.
    turn: u32,
    random: Random,
}

impl Singles {
    pub fn new(seed: u64) -> Singles {
        Singles {
            drawn: [Vec::new(), Vec::new()],
            told: [Pages::new(), Pages::new()],
            drawn_at: None,
            turn: 0,
            random: Random::new(seed ^ SEED),
        }
    }

    /// Those that were drawn of `rest`, by process.
    pub fn drawn(&self, rest: Rest) -> &[Subject] {
        &self.drawn[rest as usize]
    }

    /// The source was told these.
    pub fn are_told(&mut self, rest: Rest, pages: Pages) {
        self.told[rest as usize] = pages;
    }

    /// Those that it was told.
    pub fn told(&self, rest: Rest) -> &Pages {
        &self.told[rest as usize]
    }

    /// What a page stands for, if the source was told it.
    pub fn find(&self, owner: OwnerId, page: VirtualPage) -> Option<Rest> {
        let all = [Rest::Fast, Rest::Slow].into_iter();
        all.into_iter()
            .find(|rest| self.told(*rest).contains(&(owner, page)))
    }

    /// Draws others, if it is time: of pages of the top tier that are in none of `stretches`, and of
    /// slow ones that `search` does not sample.
    pub fn draw(&mut self, shared: &Shared, stretches: &[Subject], search: &Search, now: Millis) {
        let classes = shared.budgets.ids().count() as u32;
        if classes == 0 {
            self.drawn.iter_mut().for_each(Vec::clear);
            return;
        }
        if self.drawn_at.is_some_and(|at| now.since(at) < DRAW_MS) {
            return;
        }
        self.drawn_at = Some(now);
        self.drawn.iter_mut().for_each(Vec::clear);
        let each = (PAGES / u64::from(classes)).max(OF_CLASS);
        let at_once = classes.min((PAGES / each) as u32);
        let ledger = &shared.ledger;
        for n in 0..at_once {
            let class = ClassId((self.turn + n) % classes);
            let members = ledger.processes.iter();
            let members: Vec<&Watched> = members.filter(|of| of.class == Some(class)).collect();
            let beside = |watched: &&Watched| {
                let own = stretches.iter().find(|of| of.owner == watched.owner);
                let spans = own.map_or(&[][..], |own| &own.spans);
                let all = subjects::runs_by_tier(ledger, watched, true).into_iter();
                let parts = all.flat_map(|run| parts_beside(spans, span(run)));
                parts.map(run).collect()
            };
            let fast: Vec<Vec<Run>> = members.iter().map(beside).collect();
            self.draw_of(Rest::Fast, &members, &fast, each, |_, _| true);
            let slow = |watched: &&Watched| subjects::runs_by_tier(ledger, watched, false);
            let slow: Vec<Vec<Run>> = members.iter().map(slow).collect();
            let unsampled = |owner, page| !search.samples(owner, page);
            self.draw_of(Rest::Slow, &members, &slow, each, unsampled);
        }
        self.turn = (self.turn + at_once) % classes;
    }

    fn draw_of(
        &mut self,
        rest: Rest,
        members: &[&Watched],
        runs: &[Vec<Run>],
        pages: u64,
        wanted: impl Fn(OwnerId, VirtualPage) -> bool,
    ) {
        let total = |runs: &Vec<Run>| runs.iter().map(|run| run.pages).sum();
        let totals: Vec<u64> = runs.iter().map(total).collect();
        let counts = subjects::shares(&totals, pages.min(totals.iter().sum()));
        for ((watched, runs), count) in members.iter().zip(runs).zip(counts) {
            // Where few are wanted, as many are found as elsewhere.
            let mut drawn = sample::pages(runs, count * CANDIDATES, |n| self.random.below(n));
            drawn.retain(|page| wanted(watched.owner, *page));
            let apart = (drawn.len() as u64).div_ceil(count.max(1)).max(1) as usize;
            let drawn: Vec<VirtualPage> = drawn.into_iter().step_by(apart).collect();
            if !drawn.is_empty() {
                let subject = subjects::sampled(watched, &drawn, &[]);
                self.drawn[rest as usize].push(subject);
            }
        }
    }
}

/// The parts of `span` that overlap none of `others`, which are in order.
pub(super) fn parts_beside(others: &[Span], span: Span) -> Vec<Span> {
    let end = span.first.0 + span.pages;
    let from = others.partition_point(|other| other.first.0 + other.pages <= span.first.0);
    let overlap = others[from..]
        .iter()
        .take_while(|other| other.first.0 < end);
    let overlap = overlap.map(|other| (other.first.0, other.first.0 + other.pages));
    let mut parts = Vec::new();
    let mut at = span.first.0;
    for (first, after) in overlap.chain([(end, end)]) {
        if first > at {
            parts.push(Span {
                first: VirtualPage(at),
                pages: first - at,
            });
        }
        at = after;
    }
    parts
}

fn span(run: Run) -> Span {
    Span {
        first: run.first,
        pages: run.pages,
    }
}

fn run(span: Span) -> Run {
    Run {
        first: span.first,
        pages: span.pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(others: &[(u64, u64)], of: (u64, u64)) -> Vec<(u64, u64)> {
        let span = |(first, pages): (u64, u64)| Span {
            first: VirtualPage(first),
            pages,
        };
        let others: Vec<Span> = others.iter().copied().map(span).collect();
        let parts = parts_beside(&others, span(of));
        parts.iter().map(|of| (of.first.0, of.pages)).collect()
    }

    #[test]
    fn what_overlaps_others_is_left_out() {
        assert_eq!(parts(&[], (10, 5)), [(10, 5)]);
        assert_eq!(parts(&[(0, 10), (15, 3)], (10, 5)), [(10, 5)]);
        assert_eq!(parts(&[(0, 12)], (10, 5)), [(12, 3)]);
        assert_eq!(parts(&[(13, 9)], (10, 5)), [(10, 3)]);
        assert_eq!(
            parts(&[(11, 1), (13, 1)], (10, 5)),
            [(10, 1), (12, 1), (14, 1)]
        );
        assert_eq!(parts(&[(10, 2), (12, 3)], (10, 5)), []);
        assert_eq!(parts(&[(0, 99)], (10, 5)), []);
    }
}
