//! Pages of fast memory that make way for hotter ones although none of them is idle.
//!
//! # Problem
//!
//! Fast memory is full, and every page of it is in use now and then. None is idle, so
//! none leaves, and hot pages wait on slow memory for ever.
//!
//! # Approach
//!
//! Where hot pages have starved for a while, the search lends its look, and a *contest* is held:
//! blocks of fast and of slow memory, drawn at random, are seen in the same two passes. Pages of
//! slow memory that both passes see in use are hot. Pages of fast memory that neither does are
//! colder, and as many of them leave as hot ones were found. Passes are so short that they see
//! between a fifth and two fifths of fast memory in use: then hot pages are few and colder ones
//! many. So three of four pages that a contest observes are slow ones.
//!
//! # Properties
//!
//! Some pages win by chance. So the first contest, and each eighth after it, is *judged*: the same
//! memory is seen in two more passes. Where the pages that came are not in use more often than those
//! that left, nothing was won, and the wait until the next contest is doubled. So exchanges end where
//! all pages are equally hot. What contests move is bounded by what observing may cost.

use super::demoter::Demoter;
use super::promoter::Promoter;
use super::shared::Shared;
use super::subjects::{grow, whole};
use crate::ledger::Ledger;
use crate::report::Reporter;
use crate::search::Lent;
use crate::world::{ClassId, Subject, World, WorldError};
use memtide_core::pages::{Folio, Pages as _};
use memtide_core::tiering::sample::{Run, joined};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::BTreeMap;

/// How long hot pages starve before a contest, in ms: until then idle pages may be found.
const STARVED_MS: u64 = 5_000;
/// How long a contest speaks for what it saw, in ms.
const FRESH_MS: u64 = 2_000;
/// How long what won has to come, before it is judged, in ms.
const COMES_MS: u64 = 300;
/// One contest in so many is judged.
const JUDGED: u32 = 8;
/// The search has the look for one part in so many of the time that a contest takes.
const SEARCH_PART: u64 = 4;
/// The shortest and the longest pass, in ms.
const PASS_MS: (u64, u64) = (5, 1_000);
/// The shortest and the longest wait after contests that won nothing, in ms.
const WAIT_MS: (u64, u64) = (2_000, 128_000);
/// The most spans of one process.
const SPANS: usize = 1_024;
/// In how many more passes of 100 pages must be in use that came than those that left.
const WON: u64 = 10;
/// Fewer pages on either side are no judgement.
const TELLING: u64 = 64;
/// Passes of a look.
const PASSES: u32 = 2;

/// A folio that a look observes.
#[derive(Clone, Copy, Debug)]
struct Seen {
    folio: Folio,
    /// Whether it was on fast memory when the look began.
    fast: bool,
    /// A bit for each pass that saw it in use.
    passes: u8,
}

impl Seen {
    fn new(folio: Folio, fast: bool) -> Seen {
        Seen {
            folio,
            fast,
            passes: 0,
        }
    }
}

/// A look at both tiers.
#[derive(Debug)]
struct Look {
    /// Ascending.
    seen: Vec<Seen>,
    subjects: Vec<Subject>,
    judges: bool,
    began: Millis,
    pass_ms: u64,
    passes: u32,
    /// Folios on fast memory that the first pass saw in use.
    touched: usize,
}

/// A contest that is to be judged.
#[derive(Debug)]
struct Held {
    at: Millis,
    subjects: Vec<Subject>,
    sides: Sides,
}

/// The two sides of a contest.
#[derive(Clone, Debug, Default)]
pub(super) struct Sides {
    /// Pages of fast memory that were seen in use in no pass.
    pub losers: Vec<Folio>,
    /// Pages of slow memory that were in both, in order.
    pub winners: Vec<Folio>,
}

/// Folios, and the passes that saw one of them in use.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    folios: u64,
    passes: u64,
}

/// Where the exchange stands.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Since when hot pages starve, and when they did last.
    starved: Option<(Millis, Millis)>,
    look: Option<Look>,
    /// Who lost and won the last contest, and when it ended.
    ended: Option<(Millis, Sides)>,
    held: Option<Held>,
    /// Contests since one was judged.
    unjudged: u32,
    /// What judgements have seen of losers and of winners.
    tallies: [Tally; 2],
    /// How long contests wait by the last judgement that told.
    wait_ms: u64,
    /// When the next may begin.
    due: Millis,
    pass_ms: Option<u64>,
    /// Whether the last contest changed that: who won nothing then may win with the next.
    adapts: bool,
}

/// What the source is to look at for the exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    /// So many pages, a quarter of them of fast memory.
    Contest(u64),
    /// What was looked at before.
    Judgement(Vec<Subject>),
}

impl Exchange {
    /// So many hot pages starve at `now`: they found no room, and nothing idle left.
    pub fn starve(&mut self, pages: u64, now: Millis) {
        if pages > 0 {
            let (since, _) = self.starved.unwrap_or((now, now));
            self.starved = Some((since, now));
        } else if !self.is_starved(now) {
            self.starved = None;
        }
    }

    /// Whether hot pages have starved for long.
    pub fn is_starved(&self, now: Millis) -> bool {
        let starved = |(since, last): (Millis, Millis)| {
            last.since(since) >= STARVED_MS && now.since(last) < STARVED_MS
        };
        self.starved.is_some_and(starved)
    }

    /// Whether a contest waits for the look.
    pub fn is_due(&self, now: Millis) -> bool {
        let free = self.look.is_none() && self.ended.is_none();
        let judges = |held: &Held| now.since(held.at) >= COMES_MS;
        let due = match &self.held {
            Some(held) => judges(held),
            None => now >= self.due && self.is_starved(now),
        };
        free && due
    }

    /// What to look at with a look that may be as `lent` says, and for how long in a pass, in ms.
    pub fn wants(&mut self, lent: Lent, now: Millis) -> (Wanted, u64) {
        let pass_ms = *self.pass_ms.get_or_insert(lent.interval_ms);
        let wanted = match &self.held {
            _ if !self.is_due(now) => Wanted::Nothing,
            Some(held) if pages(&held.subjects) > lent.pages => Wanted::Nothing,
            Some(held) => Wanted::Judgement(held.subjects.clone()),
            None if lent.pages < lent.per_second / 2 => Wanted::Nothing,
            // A quarter is left to the search.
            None => Wanted::Contest((lent.pages - lent.pages / 4).min(lent.per_second)),
        };
        (wanted, pass_ms)
    }

    /// A contest of these begins, which are on fast memory or not.
    pub fn holds(&mut self, folios: Vec<(Folio, bool)>, subjects: Vec<Subject>, now: Millis) {
        let seen = folios
            .into_iter()
            .map(|(folio, fast)| Seen::new(folio, fast));
        self.looks(seen.collect(), subjects, false, now);
    }

    /// The last contest is judged from now on.
    pub fn judges(&mut self, is_on_top: impl Fn(Folio) -> bool, now: Millis) {
        let Some(held) = self.held.take() else {
            return;
        };
        // Who is not where it should be says nothing.
        let Sides { losers, winners } = held.sides;
        let losers = losers.into_iter().map(|folio| Seen::new(folio, false));
        let winners = winners.into_iter().map(|folio| Seen::new(folio, true));
        let sides = losers.chain(winners);
        let seen = sides.filter(|of| is_on_top(of.folio) == of.fast).collect();
        self.looks(seen, held.subjects, true, now);
    }

    fn looks(&mut self, mut seen: Vec<Seen>, subjects: Vec<Subject>, judges: bool, now: Millis) {
        seen.sort_unstable_by_key(|of| of.folio.first);
        self.look = Some(Look {
            seen,
            subjects,
            judges,
            began: now,
            pass_ms: self.pass_ms.unwrap_or(PASS_MS.1),
            passes: 0,
            touched: 0,
        });
    }

    /// The look, if there is one, brings nothing.
    pub fn drop_look(&mut self, now: Millis) {
        if let Some(look) = self.look.take() {
            self.unjudged = if look.judges { 0 } else { self.unjudged };
            self.due = Millis(now.0 + WAIT_MS.0);
        }
    }

    /// The look saw these pages in use.
    pub fn touched(&mut self, first: PageNumber, pages: u64) {
        let Some(Look { seen, passes, .. }) = &mut self.look else {
            return;
        };
        let ends = |of: &Seen| of.folio.first.0 + u64::from(of.folio.pages);
        let from = seen.partition_point(|of| ends(of) <= first.0);
        let touched = seen[from..].iter_mut();
        for of in touched.take_while(|of| of.folio.first.0 < first.0 + pages) {
            of.passes |= 1 << *passes;
        }
    }

    /// A pass is complete at `now`. What won a contest by it.
    pub fn pass_done(&mut self, now: Millis) -> Vec<Folio> {
        let Some(look) = &mut self.look else {
            return Vec::new();
        };
        look.passes += 1;
        if look.passes < PASSES {
            let touched = look.seen.iter().filter(|of| of.fast && of.passes > 0);
            look.touched = touched.count();
            return Vec::new();
        }
        let Some(look) = self.look.take() else {
            return Vec::new();
        };
        let took_ms = now.since(look.began);
        let won = match look.judges {
            true => {
                self.judge(&look);
                Vec::new()
            }
            false => self.choose(look, now),
        };
        // Some time is left to the search.
        self.due = Millis(now.0 + took_ms / SEARCH_PART + self.wait_ms);
        won
    }

    fn choose(&mut self, look: Look, now: Millis) -> Vec<Folio> {
        let (fast, touched) = (look.seen.iter().filter(|of| of.fast).count(), look.touched);
        let (least, most) = PASS_MS;
        let pass_ms = match () {
            () if 5 * touched > 2 * fast => 2 * look.pass_ms / 3,
            () if 5 * touched < fast => (3 * look.pass_ms).div_ceil(2),
            () => look.pass_ms,
        };
        let pass_ms = pass_ms.clamp(least, most);
        self.adapts = pass_ms != look.pass_ms;
        self.pass_ms = Some(pass_ms);
        let of = |fast, passes| {
            let all = look.seen.iter();
            let some = all.filter(move |of| of.fast == fast && of.passes.count_ones() == passes);
            some.map(|of| of.folio).collect()
        };
        let sides = Sides {
            losers: of(true, 0),
            winners: of(false, PASSES),
        };
        let won = sides.winners.clone();
        self.ended = Some((now, sides));
        self.unjudged += 1;
        if self.unjudged == 1 || self.wait_ms > 0 {
            self.held = Some(Held {
                at: now,
                sides: Sides::default(),
                subjects: look.subjects,
            });
        }
        self.unjudged %= JUDGED;
        won
    }

    fn judge(&mut self, look: &Look) {
        for of in &look.seen {
            let tally = &mut self.tallies[usize::from(of.fast)];
            tally.folios += 1;
            tally.passes += u64::from(of.passes.count_ones());
        }
        let [losers, winners] = self.tallies;
        if losers.folios < TELLING || winners.folios < TELLING {
            // The next contest is judged, too.
            self.unjudged = 0;
            return;
        }
        (self.tallies, self.unjudged) = (Default::default(), 1);
        let in_use = |tally: Tally| 100 * tally.passes / tally.folios / u64::from(PASSES);
        match in_use(winners) >= in_use(losers) + WON {
            true => self.wait_ms = 0,
            false => self.won_nothing(),
        }
    }

    fn won_nothing(&mut self) {
        self.wait_ms = (2 * self.wait_ms).clamp(WAIT_MS.0, WAIT_MS.1);
    }

    /// Takes the sides of the last contest, if there was one that is not long ago.
    pub fn take_sides(&mut self, now: Millis) -> Option<Sides> {
        let (at, sides) = self.ended.take()?;
        (now.since(at) < FRESH_MS).then_some(sides)
    }

    /// Of the last contest these left, and those may have come.
    pub fn exchanged(&mut self, sides: Sides, now: Millis) {
        if sides.losers.is_empty() || sides.winners.is_empty() {
            self.held = None;
            self.unjudged = 0;
            if !self.adapts {
                self.won_nothing();
                self.due = Millis(now.0 + self.wait_ms);
            }
        } else if let Some(held) = &mut self.held {
            held.sides = sides;
        }
    }
}

/// What the source is told so that it looks at these folios.
pub(super) fn subjects(ledger: &Ledger, folios: &[(Folio, bool)]) -> Vec<Subject> {
    let mut runs: BTreeMap<OwnerId, Vec<Run>> = BTreeMap::new();
    for (folio, _) in folios {
        if let Some((owner, first)) = ledger.space.locate(folio.first) {
            let pages = u64::from(folio.pages);
            runs.entry(owner).or_default().push(Run { first, pages });
        }
    }
    let subject = |(owner, mut own): (OwnerId, Vec<Run>)| {
        own.sort_unstable_by_key(|run| run.first);
        let mut grown: Vec<Run> = Vec::new();
        for run in &own {
            grow(&mut grown, run.first.0, run.pages);
        }
        Some(whole(ledger.processes.get(owner)?, &joined(&grown, SPANS)))
    };
    runs.into_iter().filter_map(subject).collect()
}

/// Has as many losers leave as winners may come, and these come. Leaves of the sides those that left,
/// and those that may have come.
///
/// # Errors
///
/// The room of nodes cannot be read.
pub(super) fn change_places(
    world: &mut dyn World,
    shared: &mut Shared,
    (demoter, promoter): (&mut Demoter, &mut Promoter),
    sides: Sides,
    reporter: &mut dyn Reporter,
) -> Result<Sides, WorldError> {
    let Sides {
        mut losers,
        mut winners,
    } = sides;
    // Seconds have passed since they were drawn.
    losers.retain(|folio| shared.ledger.folio(folio.first) == *folio);
    let wanted = wanted_by_node(shared, &mut winners);
    demoter.make_way_for_winners(world, shared, &mut losers, &wanted, reporter);
    if !losers.is_empty() {
        shared.ledger.read_rooms(world)?;
        shared.moving_time.begin_again();
        promoter.promote_winners(world, shared, &winners, reporter);
    }
    Ok(Sides { losers, winners })
}

/// Leaves of `winners` those that may come, and tells how many pages of them should come to each node.
fn wanted_by_node(shared: &Shared, winners: &mut Vec<Folio>) -> BTreeMap<NodeId, u64> {
    let Shared {
        ledger, budgets, ..
    } = shared;
    let targets = ledger.preferred_targets();
    let mut wanted = BTreeMap::new();
    // Of shares of fast memory, by class: what those that come take of them.
    let mut taken: BTreeMap<ClassId, u64> = BTreeMap::new();
    winners.retain(|folio| {
        let home = ledger.node_of(folio.first);
        let target = targets.iter().find(|(lower, _)| Some(*lower) == home);
        let Some((_, top)) = target.filter(|_| ledger.folio(folio.first) == *folio) else {
            return false;
        };
        let pages = u64::from(folio.pages);
        let path = || budgets.path(ledger.class(folio.first));
        let fits = path().all(|class| {
            let left = budgets.left_of_own(class);
            let taken = taken.get(&class).copied().unwrap_or(0);
            left.is_none_or(|left| taken + pages <= left)
        });
        let comes = fits && Promoter::may_come(shared, *folio, *top);
        if comes {
            path().for_each(|class| *taken.entry(class).or_default() += pages);
            *wanted.entry(*top).or_default() += pages;
        }
        comes
    });
    wanted
}

fn pages(subjects: &[Subject]) -> u64 {
    subjects.iter().map(Subject::pages).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENT: Lent = Lent {
        pages: 1_000,
        per_second: 1_000,
        interval_ms: 90,
    };

    fn folio(first: u64) -> Folio {
        Folio {
            first: PageNumber(first),
            pages: 1,
        }
    }

    /// An exchange in which pages starve until `now`.
    fn starved(now: u64) -> Exchange {
        let mut exchange = Exchange::default();
        for ms in (0..=now).step_by(1_000) {
            exchange.starve(10, Millis(ms));
        }
        exchange
    }

    /// A contest of fast pages 0 to 99 and slow ones 100 to 399 at `now`, in which each pass sees the
    /// pages that are `in_use` in it. Its sides.
    fn contest(exchange: &mut Exchange, now: u64, in_use: impl Fn(u32, u64) -> bool) -> Sides {
        let all = (0..400).map(|page| (folio(page), page < 100)).collect();
        exchange.starve(10, Millis(now));
        exchange.holds(all, Vec::new(), Millis(now));
        for pass in 0..PASSES {
            for page in (0..400).filter(|page| in_use(pass, *page)) {
                exchange.touched(PageNumber(page), 1);
                // What is told twice is one pass.
                exchange.touched(PageNumber(page), 1);
            }
            exchange.pass_done(Millis(now + 100));
        }
        exchange.take_sides(Millis(now + 100)).unwrap()
    }

    /// The last contest, whose sides have changed places, is judged: each page that is `in_use` is
    /// seen so in both passes. When the next contest is due after that, in ms.
    fn judged(
        exchange: &mut Exchange,
        now: u64,
        sides: Sides,
        in_use: impl Fn(u64) -> bool,
    ) -> u64 {
        let came = sides.winners.clone();
        exchange.exchanged(sides, Millis(now));
        exchange.judges(|folio| came.contains(&folio), Millis(now));
        for _ in 0..PASSES {
            for page in (0..400).filter(|page| in_use(*page)) {
                exchange.touched(PageNumber(page), 1);
            }
            exchange.pass_done(Millis(now + 100));
        }
        let is_due = |ms: &u64| {
            exchange.starve(10, Millis(*ms));
            exchange.is_due(Millis(*ms))
        };
        (now + 100..).step_by(10).find(is_due).unwrap() - now - 100
    }

    #[test]
    fn a_contest_is_due_where_pages_have_starved_for_long() {
        assert!(!starved(4_000).is_due(Millis(4_000)));
        let mut exchange = starved(5_000);
        assert!(exchange.is_due(Millis(5_000)));
        // Idle pages leave: nobody starves any more.
        exchange.starve(0, Millis(9_000));
        assert!(exchange.is_starved(Millis(9_000)));
        exchange.starve(0, Millis(10_000));
        assert!(!exchange.is_starved(Millis(10_000)));
        exchange.starve(10, Millis(10_100));
        assert!(!exchange.is_due(Millis(12_000)));
    }

    #[test]
    fn it_waits_until_it_can_be_paid_for() {
        let mut exchange = starved(5_000);
        let poor = Lent { pages: 400, ..LENT };
        assert_eq!(exchange.wants(poor, Millis(5_000)), (Wanted::Nothing, 90));
        let rich = Lent {
            pages: 9_000,
            ..LENT
        };
        let wanted = exchange.wants(rich, Millis(5_000));
        assert_eq!(wanted, (Wanted::Contest(1_000), 90));
        let half = Lent { pages: 800, ..LENT };
        assert_eq!(exchange.wants(half, Millis(5_000)).0, Wanted::Contest(600));
    }

    #[test]
    fn who_is_seen_in_both_passes_wins_and_who_is_in_neither_loses() {
        let mut exchange = starved(5_000);
        // The first pass sees every third page, the second every fourth.
        let sides = contest(&mut exchange, 5_000, |pass, page| {
            page.is_multiple_of(3 + u64::from(pass))
        });
        let winners: Vec<u64> = sides.winners.iter().map(|of| of.first.0).collect();
        assert_eq!(winners, (108..400).step_by(12).collect::<Vec<_>>());
        let loses = |page: &u64| !page.is_multiple_of(3) && !page.is_multiple_of(4);
        let losers: Vec<u64> = sides.losers.iter().map(|of| of.first.0).collect();
        assert_eq!(losers, (0..100).filter(loses).collect::<Vec<_>>());
    }

    #[test]
    fn passes_become_as_long_as_tells_most() {
        let mut exchange = starved(5_000);
        exchange.pass_ms = Some(90);
        contest(&mut exchange, 5_000, |_, page| page % 100 < 41);
        assert_eq!(exchange.pass_ms, Some(60));
        contest(&mut exchange, 6_000, |_, page| page % 100 < 30);
        assert_eq!(exchange.pass_ms, Some(60));
        contest(&mut exchange, 7_000, |_, page| page % 100 < 19);
        assert_eq!(exchange.pass_ms, Some(90));
        for n in 0..20 {
            contest(&mut exchange, 8_000 + n, |_, _| true);
        }
        assert_eq!(exchange.pass_ms, Some(PASS_MS.0));
        for n in 0..20 {
            contest(&mut exchange, 9_000 + n, |_, _| false);
        }
        assert_eq!(exchange.pass_ms, Some(PASS_MS.1));
    }

    /// All pages are equally hot, and who wins is chance.
    #[test]
    fn what_wins_nothing_is_done_ever_more_rarely() {
        let mut exchange = starved(5_000);
        let (mut now, mut waits) = (5_000, Vec::new());
        for _ in 0..9 {
            let sides = contest(&mut exchange, now, |_, page| page % 100 < 30);
            now += 500;
            let wait = judged(&mut exchange, now, sides, |page| page.is_multiple_of(2));
            waits.push(wait / 1_000);
            now += 100 + wait;
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
        // The hot set is another one: those that came are in use.
        let sides = contest(&mut exchange, now, |_, page| page % 100 < 30);
        let wait = judged(&mut exchange, now + 500, sides, |page| page >= 100);
        assert_eq!(wait, 30);
        // And the next seven need no judgement.
        for n in 0..7 {
            contest(&mut exchange, now + 1_000 + n, |_, page| page % 100 < 30);
            assert!(exchange.held.is_none());
        }
        contest(&mut exchange, now + 2_000, |_, page| page % 100 < 30);
        assert!(exchange.held.is_some());
    }

    #[test]
    fn a_look_that_is_lost_is_begun_again_later() {
        let mut exchange = starved(5_000);
        exchange.holds(vec![(folio(1), true)], Vec::new(), Millis(5_000));
        assert!(!exchange.is_due(Millis(5_100)));
        exchange.drop_look(Millis(5_100));
        exchange.starve(10, Millis(7_200));
        assert!(!exchange.is_due(Millis(7_000)));
        assert!(exchange.is_due(Millis(7_200)));
        assert!(exchange.take_sides(Millis(7_200)).is_none());
    }
}
