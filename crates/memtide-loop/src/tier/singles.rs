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
/// Of more classes none is drawn: not all would have their turn while what is seen of them counts, and each
/// page costs as much as a piece that is searched.
const MOST_CLASSES: u32 = 40;
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

    /// The source was told these, of either.
    pub fn are_told(&mut self, told: [Pages; 2]) {
        self.told = told;
    }

    /// Those that it was told.
    pub fn told(&self, rest: Rest) -> &Pages {
        &self.told[rest as usize]
    }

    /// What a page stands for, if the source was told it.
    pub fn find(&self, owner: OwnerId, page: VirtualPage) -> Option<Rest> {
        let mut all = [Rest::Fast, Rest::Slow].into_iter();
        all.find(|rest| self.told(*rest).contains(&(owner, page)))
    }

    /// Draws others, if it is time: of pages of the top tier that are in none of `stretches`, and of
    /// slow ones that `search` does not sample.
    pub fn draw(&mut self, shared: &Shared, stretches: &[Subject], search: &Search, now: Millis) {
        let classes = shared.budgets.ids().count() as u32;
        if classes == 0 || classes > MOST_CLASSES {
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
        // The pages of all members have numbers: a class of many processes has no more singles.
        let all = runs.iter().enumerate();
        let mut all = all.flat_map(|(n, runs)| runs.iter().map(move |run| (n, *run)));
        let total = runs.iter().flatten().map(|run| run.pages).sum();
        let numbers = Run {
            first: VirtualPage(0),
            pages: total,
        };
        let draw = |n| self.random.below(n);
        let mut drawn = Vec::new();
        let (mut at, mut before) = (all.next(), 0);
        // Where few are wanted, as many are found as elsewhere.
        for number in sample::pages(&[numbers], pages * CANDIDATES, draw) {
            while let Some((_, run)) = at.filter(|(_, run)| number.0 - before >= run.pages) {
                before += run.pages;
                at = all.next();
            }
            let Some((member, run)) = at else {
                break;
            };
            let page = VirtualPage(run.first.0 + (number.0 - before));
            if wanted(members[member].owner, page) {
                drawn.push((member, page));
            }
        }
        // As many of them as are wanted, each as likely as any other.
        let (all, count) = (drawn.len() as u64, pages.min(drawn.len() as u64));
        let offset = self.random.below(all.max(1));
        let drawn: Vec<(usize, VirtualPage)> = (0..count)
            .map(|k| drawn[((k * all + offset) / count) as usize])
            .collect();
        for of_one in drawn.chunk_by(|a, b| a.0 == b.0) {
            let pages: Vec<VirtualPage> = of_one.iter().map(|(_, page)| *page).collect();
            let subject = subjects::sampled(members[of_one[0].0], &pages, &[]);
            self.drawn[rest as usize].push(subject);
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
    use crate::options::TierOptions;
    use crate::testing::{FAST, FakeProcess, FakeWorld};
    use crate::tier::TierConfig;
    use crate::world::World as _;

    /// A hundred processes of 1,000 pages, and of one page: 64 are drawn of all, none twice, each page as
    /// likely as any other.
    #[test]
    fn a_class_of_many_processes_has_no_more_singles_than_one() {
        let mut world = FakeWorld::two_tiers(200_000, 10_000);
        for n in 0..200 {
            let pages = if n % 2 == 0 { 1000 } else { 1 };
            let process = FakeProcess::new(10 + n, u64::from(n) << 20, pages, FAST);
            world.processes.push(process);
        }
        let (topology, page) = (world.topology().clone(), world.page());
        let config = TierConfig::new(&TierOptions::DEFAULT, &topology, page, 1).unwrap();
        let mut ledger = Shared::new(&world, config).ledger;
        for owner in ledger
            .processes
            .refresh(&mut world, Millis(0))
            .unwrap()
            .came
        {
            ledger.survey(&mut world, owner).unwrap();
        }
        let members: Vec<&Watched> = ledger.processes.iter().collect();
        let runs = |watched: &&Watched| subjects::runs_by_tier(&ledger, watched, true);
        let runs: Vec<Vec<Run>> = members.iter().map(runs).collect();
        let mut singles = Singles::new(1);
        let mut owners = BTreeSet::new();
        for _ in 0..100 {
            singles.drawn[0].clear();
            singles.draw_of(Rest::Fast, &members, &runs, 64, |_, _| true);
            let pages = |of: &Subject| of.spans.len();
            assert_eq!(
                singles.drawn(Rest::Fast).iter().map(pages).sum::<usize>(),
                64
            );
            owners.extend(singles.drawn(Rest::Fast).iter().map(|of| of.owner));
        }
        // Of 100,100 pages 6,400 were drawn: all large ones are among them, and of the small ones 6 in 100.
        assert!((101..=125).contains(&owners.len()), "{}", owners.len());
        // Of one process in a hundred only: as many again.
        singles.drawn[0].clear();
        let one = members[2].owner;
        singles.draw_of(Rest::Fast, &members, &runs, 4, |owner, _| owner == one);
        assert!(singles.drawn(Rest::Fast).iter().all(|of| of.owner == one));
    }

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
