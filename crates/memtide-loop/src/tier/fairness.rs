//! How well fast memory serves each class.
//!
//! # Problem
//!
//! Shares say how much fast memory a class may have. Whether that is much or little depends
//! on what the class does with its memory: with the same amount one has all of its accesses
//! served fast, and another a tenth. An operator wants to see both, and whether classes fare
//! alike.
//!
//! # Terms
//!
//! Two shares are kept for a class, each from what was reported in the last half minute:
//!
//! - the *access share*: of its accesses that were sampled, those to pages that were on the
//!   top tier when the sample was heard;
//! - the *touched share*: of its pages that passes saw touched, those that were on the top
//!   tier. A page that is touched once in a pass counts as much as one that is touched all
//!   the time.
//!
//! How equal the shares of all classes are is said by [`jain`].
//!
//! # What is known
//!
//! A share needs both sides, seen alike: pages of fast and of slow memory, for the same time.
//!
//! - Sources that sample name accesses to all memory.
//! - A source that looks and cannot glance looks at every page in each pass. What it saw
//!   touched is counted, page by page.
//! - A glance sees single pages of the lower tiers, and stretches of the top tier; of each
//!   one random page answers. So of a class's slow pages the same part is taken to be touched
//!   as of its single pages, and of its fast pages as of its stretches. That says something
//!   only if there are [`LEAST_PAGES`] of the former, and if the latter are half of the fast
//!   pages or more. Stretches are glanced at where room is scarce or the class is tight.
//! - Glances of a [search](crate::search) see pieces of the lower tiers. Those that walk over
//!   all of them in turn count together, once the walk is complete. Others go where something
//!   was found. For fast pages that are in no stretch, and for slow ones in blocks that the
//!   search does not sample, [`singles`](super::singles) stand, of which there must be
//!   [`LEAST_SINGLES`].
//! - Nothing is concluded from a look of a source that glances, which sees the lower tiers
//!   only; nor from hint faults, which some kernels take on slow nodes only.
//!
//! The [account](super::account) has rates of accesses, too, but of pages that went up only.
//!
//! # Properties
//!
//! - A side that was not seen is unknown, and so is the share.
//! - Time is an argument. A report costs a few additions, and allocates nothing; the end of a
//!   pass costs by the sections of memory, and by what was glanced at.
//! - Without classes nothing is counted.

use super::Tierer;
use super::observer::Stretches;
use super::shared::Shared;
use super::singles::{Pages, Rest, Singles};
use crate::ledger::{Ledger, Renumbered, Watched};
use crate::report::ClassStatus;
use crate::search::{Part, Search};
use crate::world::ClassId;
use memtide_core::fairness::jain;
use memtide_core::pages::Pages as _;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{Millis, PageNumber};
use std::collections::BTreeMap;

/// The length of a bucket, in ms.
const BUCKET_MS: u64 = 5_000;
/// Buckets that a share is of: the last half minute, as looks are no further apart where
/// there is time for them.
const BUCKETS: usize = 6;
/// Accesses, or pages that were seen touched, without which there is no share: the error of
/// one of 100 is 5 in 100.
const LEAST: u64 = 100;
/// Slow pages of a class that a glance must have seen, unless it has fewer.
const LEAST_PAGES: u64 = 32;
/// Single fast pages that a walk must have seen, unless there are fewer that are in no stretch.
/// There are several walks in half a minute.
const LEAST_SINGLES: u64 = 4;
/// Unless there are so few of these: one for so many in stretches.
const FEW: u64 = 16;

/// Of fast memory, and of slow memory.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    fast: u64,
    slow: u64,
}

impl Sides {
    fn add(&mut self, other: Sides) {
        self.fast = self.fast.saturating_add(other.fast);
        self.slow = self.slow.saturating_add(other.slow);
    }

    fn sum(self) -> u64 {
        self.fast.saturating_add(self.slow)
    }

    /// The share of the fast side, if there is anything.
    fn share(self) -> Option<f64> {
        (self.sum() > 0).then(|| self.fast as f64 / self.sum() as f64)
    }
}

/// What was reported in a while.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    accesses: Sides,
    /// Pages, as many as a pass lets expect, summed over passes.
    touched: Sides,
    /// Pages and stretches that were seen touched for that.
    seen: u64,
}

/// What a pass saw of a class, or the passes of a walk.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    touched: Sides,
    seen: u64,
    looked: Sides,
    /// Single pages, which stand for the rest of either side: how many, and how many of
    /// these were touched.
    singles: Sides,
    touched_singles: Sides,
    passes: u64,
    resident: Sides,
}

impl Pass {
    /// Whether what was looked at can stand for all, if single pages were.
    fn says_something(&self) -> bool {
        let Pass {
            looked, resident, ..
        } = self;
        let fast = looked.fast >= resident.fast.div_ceil(2);
        fast && looked.slow >= resident.slow.min(LEAST_PAGES)
    }

    /// Takes in another pass of a walk.
    fn add(&mut self, pass: Pass) {
        self.touched.add(pass.touched);
        self.looked.add(pass.looked);
        self.seen += pass.seen;
        self.singles.add(pass.singles);
        self.touched_singles.add(pass.touched_singles);
        self.passes += 1;
    }

    /// Of a walk, pages of either side that were looked at: fast ones in each pass, slow ones
    /// in all of them.
    fn covered(&self) -> Sides {
        let Pass {
            looked, resident, ..
        } = self;
        Sides {
            fast: (looked.fast / self.passes.max(1)).min(resident.fast),
            slow: looked.slow.min(resident.slow),
        }
    }

    /// Whether what the passes of a walk looked at can stand for all.
    fn walk_says_something(&self) -> bool {
        let says = |resident: u64, covered: u64, singles: u64| {
            let rest = resident - covered;
            rest <= covered / FEW || singles >= rest.min(LEAST_SINGLES)
        };
        let (all, covered, singles) = (self.resident, self.covered(), self.singles);
        says(all.fast, covered.fast, singles.fast) && says(all.slow, covered.slow, singles.slow)
    }

    /// Pages that a walk lets expect to be touched.
    fn walk_touched(&self) -> Sides {
        let side = |of: fn(&Sides) -> u64| {
            let (covered, looked, touched) =
                (of(&self.covered()), of(&self.looked), of(&self.touched));
            let rest = of(&self.resident) - covered;
            let of_rest = match of(&self.singles) {
                // So few that they are taken to be like the others.
                0 => part(rest, touched, looked),
                singles => part(rest, of(&self.touched_singles), singles),
            };
            part(covered, touched, looked).saturating_add(of_rest)
        };
        Sides {
            fast: side(|sides| sides.fast),
            slow: side(|sides| sides.slow),
        }
    }

    /// Pages that were touched, if those that were looked at stand for all.
    fn all_touched(&self) -> Sides {
        let Pass {
            touched,
            looked,
            resident,
            ..
        } = self;
        Sides {
            fast: part(resident.fast, touched.fast, looked.fast),
            slow: part(resident.slow, touched.slow, looked.slow),
        }
    }
}

/// As many of `resident` as were touched of those that were looked at.
fn part(resident: u64, touched: u64, looked: u64) -> u64 {
    let all = u128::from(resident) * u128::from(touched.min(looked));
    let all = all.checked_div(u128::from(looked)).unwrap_or(0);
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// What a glance saw touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glanced {
    /// A stretch of the top tier.
    Stretch,
    /// A single page beside all else.
    Single(Rest),
    /// A single page of a lower tier.
    Slow,
}

#[derive(Clone, Debug, Default)]
struct Class {
    buckets: [Bucket; BUCKETS],
    pass: Pass,
    /// What the passes of the present walk saw.
    walk: Pass,
}

impl Class {
    /// Counts so many touched pages of all for the bucket `at`, from so many that were seen.
    fn take_in(&mut self, at: usize, touched: Sides, seen: u64) {
        let bucket = &mut self.buckets[at];
        bucket.touched.add(touched);
        bucket.seen += seen;
    }
}

/// The shares of a class, from 0 to 1, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    pub accesses: Option<f64>,
    pub touched: Option<f64>,
}

/// The shares of all classes, by [`ClassId`]. See the module's essay.
#[derive(Debug)]
pub(super) struct Fairness {
    classes: Vec<Class>,
    /// Of which time each bucket is, in lengths of a bucket.
    times: [u64; BUCKETS],
    /// When the source was last told what to observe.
    told_at: Millis,
    /// The first block of the walk's next part, if all before it were seen.
    next_part: Option<usize>,
}

impl Fairness {
    /// Of so many classes.
    pub fn new(classes: usize) -> Fairness {
        Fairness {
            classes: vec![Class::default(); classes],
            times: [0; BUCKETS],
            told_at: Millis(0),
            next_part: None,
        }
    }

    /// There are so many `classes` now, with these numbers.
    pub fn follow(&mut self, classes: usize, numbers: &Renumbered) {
        self.next_part = None;
        let old = std::mem::replace(&mut self.classes, vec![Class::default(); classes]);
        for (class, known) in (0..).map(ClassId).zip(old) {
            let new = numbers.new_of(class);
            if let Some(new) = new.and_then(|new| self.classes.get_mut(new.0 as usize)) {
                *new = known;
            }
        }
    }

    /// The source was last told at `told_at` what to observe: a pass of what it was told before will
    /// not end.
    pub fn told(&mut self, told_at: Millis) {
        if std::mem::replace(&mut self.told_at, told_at) != told_at {
            self.drop_pass();
        }
    }

    /// An access to the page of a process was sampled.
    pub fn sampled(&mut self, ledger: &Ledger, owner: OwnerId, page: VirtualPage, now: Millis) {
        let Some(n) = self.place_of(ledger, owner) else {
            return;
        };
        let dense = ledger.space.find(owner, page);
        let Some(node) = dense.and_then(|dense| ledger.node_of(dense)) else {
            return;
        };
        let at = self.bucket(now);
        let accesses = &mut self.classes[n].buckets[at].accesses;
        match ledger.topology.is_top_tier(node) {
            true => accesses.fast += 1,
            false => accesses.slow += 1,
        }
    }

    /// A look at every page saw so many pages of a process touched.
    pub fn looked(&mut self, watched: Option<&Watched>, fast: u64, slow: u64) {
        if let Some(n) = self.place(watched.and_then(|watched| watched.class)) {
            let pass = &mut self.classes[n].pass;
            pass.touched.add(Sides { fast, slow });
            pass.seen += fast + slow;
        }
    }

    /// That look is complete.
    pub fn look_done(&mut self, now: Millis) {
        let at = self.bucket(now);
        for class in &mut self.classes {
            let Pass { touched, seen, .. } = std::mem::take(&mut class.pass);
            class.buckets[at].touched.add(touched);
            class.buckets[at].seen += seen;
        }
    }

    /// A glance saw something touched. What has left the tier where it was told to be counts for neither.
    pub fn glanced(
        &mut self,
        ledger: &Ledger,
        (owner, first, pages): (OwnerId, VirtualPage, u64),
        what: Glanced,
    ) {
        let Some(n) = self.place_of(ledger, owner) else {
            return;
        };
        let slow = [Glanced::Slow, Glanced::Single(Rest::Slow)];
        let there = pages_on(ledger, owner, (first, pages), !slow.contains(&what));
        let pass = &mut self.classes[n].pass;
        pass.seen += u64::from(there > 0);
        match what {
            Glanced::Stretch => pass.touched.fast += there,
            Glanced::Single(Rest::Fast) => pass.touched_singles.fast += there,
            Glanced::Single(Rest::Slow) => pass.touched_singles.slow += there,
            Glanced::Slow => pass.touched.slow += there,
        }
    }

    /// That glance is complete: it was at these `stretches` and `single` pages.
    pub fn glance_done(
        &mut self,
        ledger: &Ledger,
        stretches: &Stretches,
        single: &BTreeMap<OwnerId, Vec<VirtualPage>>,
        now: Millis,
    ) {
        self.look_at_stretches(ledger, stretches, &Pages::new());
        for (owner, pages) in single {
            let Some(n) = self.place_of(ledger, *owner) else {
                continue;
            };
            let slow = |page: &VirtualPage| pages_on(ledger, *owner, (*page, 1), false);
            self.classes[n].pass.looked.slow += pages.iter().map(slow).sum::<u64>();
        }
        let resident = self.resident(ledger);
        let at = self.bucket(now);
        for (class, resident) in self.classes.iter_mut().zip(resident) {
            let mut pass = std::mem::take(&mut class.pass);
            pass.resident = resident;
            if pass.says_something() {
                class.take_in(at, pass.all_touched(), pass.seen);
            }
        }
    }

    /// A glance of `search` is complete. It was at these `stretches` and `singles`. To be told
    /// before the search is.
    pub fn searched(
        &mut self,
        ledger: &Ledger,
        (stretches, singles): (&Stretches, &Singles),
        search: &Search,
        now: Millis,
    ) {
        if self.classes.is_empty() {
            return;
        }
        let mut hits = vec![0; self.classes.len()];
        let part = search.sampled(|owner, pages, touched| {
            let Some(n) = self.place_of(ledger, owner) else {
                return;
            };
            let pass = &mut self.classes[n].pass;
            pass.looked.slow += pages;
            pass.touched.slow += touched;
            hits[n] += touched;
        });
        if let Some(Part { from: 0, .. }) = part {
            self.next_part = Some(0);
            let classes = self.classes.iter_mut();
            classes.for_each(|class| class.walk = Pass::default());
        }
        // One that is told twice, or after another one that was not.
        let Some(part) = part.filter(|part| self.next_part == Some(part.from)) else {
            return self.drop_pass();
        };
        self.next_part = Some(part.to);
        self.look_at_stretches(ledger, stretches, singles.told(Rest::Fast));
        for (owner, page) in singles.told(Rest::Slow) {
            if let Some(n) = self.place_of(ledger, *owner) {
                let there = pages_on(ledger, *owner, (*page, 1), false);
                self.classes[n].pass.singles.slow += there;
            }
        }
        for (class, hits) in self.classes.iter_mut().zip(hits) {
            let mut pass = std::mem::take(&mut class.pass);
            pass.seen += hits.div_ceil(part.pages.max(1));
            class.walk.add(pass);
        }
        if !part.is_last {
            return;
        }
        let resident = self.resident(ledger);
        let at = self.bucket(now);
        for (class, resident) in self.classes.iter_mut().zip(resident) {
            let mut walk = std::mem::take(&mut class.walk);
            walk.resident = resident;
            if walk.walk_says_something() {
                class.take_in(at, walk.walk_touched(), walk.seen);
            }
        }
    }

    /// The present pass looks at these stretches, some of which are `singles`.
    fn look_at_stretches(&mut self, ledger: &Ledger, stretches: &Stretches, singles: &Pages) {
        for (of @ (owner, first), (pages, _)) in stretches {
            if let Some(n) = self.place_of(ledger, *owner) {
                let there = pages_on(ledger, *owner, (*first, *pages), true);
                let pass = &mut self.classes[n].pass;
                match singles.contains(of) {
                    true => pass.singles.fast += there,
                    false => pass.looked.fast += there,
                }
            }
        }
    }

    /// The pages of all classes.
    fn resident(&self, ledger: &Ledger) -> Vec<Sides> {
        let mut all = vec![Sides::default(); self.classes.len()];
        for watched in ledger.processes.iter() {
            if let Some(n) = self.place(watched.class) {
                let (fast, slow) = ledger.resident_of(watched.owner);
                all[n].add(Sides { fast, slow });
            }
        }
        all
    }

    /// Nothing can be concluded from the present pass.
    pub fn drop_pass(&mut self) {
        let classes = self.classes.iter_mut();
        classes.for_each(|class| class.pass = Pass::default());
    }

    /// The shares of `class` at `now`.
    pub fn of(&self, class: ClassId, now: Millis) -> Shares {
        let Some(known) = self.classes.get(class.0 as usize) else {
            return Shares::default();
        };
        let time = now.0 / BUCKET_MS;
        let mut all = Bucket::default();
        for (bucket, of) in known.buckets.iter().zip(self.times) {
            if time.saturating_sub(of) < BUCKETS as u64 {
                all.accesses.add(bucket.accesses);
                all.touched.add(bucket.touched);
                all.seen += bucket.seen;
            }
        }
        let enough = |sides: Sides, count: u64| sides.share().filter(|_| count >= LEAST);
        Shares {
            accesses: enough(all.accesses, all.accesses.sum()),
            touched: enough(all.touched, all.seen),
        }
    }

    /// The place of the class of a process.
    fn place_of(&self, ledger: &Ledger, owner: OwnerId) -> Option<usize> {
        self.place(ledger.processes.get(owner)?.class)
    }

    fn place(&self, class: Option<ClassId>) -> Option<usize> {
        let n = class?.0 as usize;
        (n < self.classes.len()).then_some(n)
    }

    /// The bucket of `now`, which is empty if nothing came in its time.
    fn bucket(&mut self, now: Millis) -> usize {
        let time = now.0 / BUCKET_MS;
        let at = (time % BUCKETS as u64) as usize;
        if std::mem::replace(&mut self.times[at], time) != time {
            let classes = self.classes.iter_mut();
            classes.for_each(|class| class.buckets[at] = Bucket::default());
        }
        at
    }
}

/// How many pages of a run are on the top tier, or on lower ones.
fn pages_on(ledger: &Ledger, owner: OwnerId, (first, pages): (VirtualPage, u64), top: bool) -> u64 {
    let mut sum = 0;
    let add = |_, dense: PageNumber, pages| {
        ledger.placement.runs(dense, pages, |_, pages, place| {
            if ledger.topology.is_top_tier(place.node()) == top {
                sum += pages;
            }
        });
    };
    ledger.space.for_runs(owner, first, pages, add);
    sum
}

impl Tierer {
    /// How equal the shares of accesses are that fast memory serves, and those of touched
    /// pages, in thousandths: of all `classes` whom anybody tiers, the others are served as it
    /// happens.
    pub(super) fn fairness(&self, classes: &[ClassStatus], now: Millis) -> [Option<u32>; 2] {
        let Shared {
            budgets, fairness, ..
        } = &self.shared;
        let all = budgets.ids().zip(classes);
        let all = all.filter(|(_, of)| of.tiered && !of.left_alone && !of.paused);
        let shares = all.map(|(class, _)| fairness.of(class, now));
        let (accesses, touched) = shares.map(|of| (of.accesses, of.touched)).unzip();
        [accesses, touched].map(|shares: Vec<Option<f64>>| index(&shares))
    }
}

/// Jain's index of the shares that are known, in thousandths; none of fewer than two.
fn index(shares: &[Option<f64>]) -> Option<u32> {
    let known: Vec<f64> = shares.iter().copied().flatten().collect();
    (known.len() >= 2).then(|| permille(jain(&known)))
}

/// A share in thousandths.
pub(super) fn permille(share: f64) -> u32 {
    (share * 1000.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(fast: u64, slow: u64) -> Sides {
        Sides { fast, slow }
    }

    /// Half of the fast pages, and 32 slow ones or all that there are.
    #[test]
    fn little_that_was_looked_at_says_nothing_of_the_rest() {
        let says = |looked: (u64, u64), resident: (u64, u64)| {
            let pass = Pass {
                looked: sides(looked.0, looked.1),
                resident: sides(resident.0, resident.1),
                ..Pass::default()
            };
            pass.says_something()
        };
        assert!(says((501, 32), (1001, 5000)));
        assert!(!says((500, 32), (1001, 5000)));
        assert!(!says((501, 31), (1001, 5000)));
        assert!(says((501, 31), (1001, 31)));
        assert!(says((0, 32), (0, 5000)));
        assert!(says((501, 0), (1001, 0)));
        assert!(!says((0, 32), (1, 5000)));
    }

    fn walk(passes: &[Pass], resident: Sides) -> Pass {
        let mut walk = Pass {
            resident,
            ..Pass::default()
        };
        passes.iter().for_each(|pass| walk.add(*pass));
        walk
    }

    /// Of either side nearly all, or some of the others.
    #[test]
    fn a_walk_that_saw_too_little_says_nothing_of_the_rest() {
        let says = |looked: (u64, u64), singles: (u64, u64)| {
            let pass = |slow| Pass {
                looked: sides(looked.0, slow),
                ..Pass::default()
            };
            let mut walk = walk(&[pass(looked.1), pass(0)], sides(1700, 1700));
            walk.singles = sides(singles.0, singles.1);
            walk.walk_says_something()
        };
        assert!(says((1600, 1600), (0, 0)));
        assert!(!says((1599, 1600), (3, 0)) && says((1599, 1600), (4, 0)));
        assert!(!says((1600, 1599), (0, 3)) && says((1600, 1599), (0, 4)));
        assert!(says((0, 0), (4, 4)));
        // All of two.
        let two = |singles| {
            let mut walk = walk(&[Pass::default()], sides(2, 0));
            walk.singles = sides(singles, 0);
            walk.walk_says_something()
        };
        assert!(two(2) && !two(1));
    }

    /// Of 1,000 fast pages 600 are in stretches, of which 400 and 500 were touched, and of 400 others three
    /// quarters. Of 2,000 slow ones 150 were looked at, and of the others a tenth was touched.
    #[test]
    fn the_passes_of_a_walk_stand_for_all() {
        let pass = |fast, slow: (u64, u64), singles: (u64, u64), touched: (u64, u64)| Pass {
            touched: sides(fast, slow.0),
            looked: sides(600, slow.1),
            singles: sides(singles.0, singles.1),
            touched_singles: sides(touched.0, touched.1),
            ..Pass::default()
        };
        let passes = [
            pass(400, (10, 100), (5, 4), (5, 0)),
            pass(500, (20, 50), (7, 6), (4, 1)),
        ];
        let walk = walk(&passes, sides(1000, 2000));
        let Sides { fast, slow } = walk.walk_touched();
        assert_eq!((fast, slow), (450 + 300, 30 + 185));
    }

    /// 60 others count as those in stretches do.
    #[test]
    fn what_is_not_covered_needs_no_singles_if_it_is_little() {
        let pass = Pass {
            touched: sides(480, 0),
            looked: sides(960, 0),
            ..Pass::default()
        };
        let walk = walk(&[pass], sides(1020, 0));
        assert!(walk.walk_says_something());
        assert_eq!(walk.walk_touched().fast, 510);
    }

    /// 1000 * 250 / 800 = 312, and 900 * 8 / 36 = 200.
    #[test]
    fn what_was_looked_at_stands_for_all() {
        let pass = Pass {
            touched: sides(250, 8),
            looked: sides(800, 36),
            resident: sides(1000, 900),
            ..Pass::default()
        };
        let Sides { fast, slow } = pass.all_touched();
        assert_eq!((fast, slow), (312, 200));
        let nothing = Pass::default().all_touched();
        assert!(nothing.share().is_none());
    }

    /// Of the pass before only a part came: its 200 fast pages do not count.
    #[test]
    fn a_source_that_is_told_anew_begins_another_pass() {
        let mut fairness = Fairness::new(1);
        let see = |fairness: &mut Fairness, fast, slow| {
            fairness.classes[0].pass.touched.add(sides(fast, slow));
            fairness.classes[0].pass.seen += fast + slow;
        };
        fairness.told(Millis(10));
        see(&mut fairness, 200, 0);
        fairness.told(Millis(20));
        see(&mut fairness, 60, 30);
        fairness.told(Millis(20));
        see(&mut fairness, 15, 45);
        fairness.look_done(Millis(30));
        let touched = |ms| fairness.of(ClassId(0), Millis(ms)).touched;
        // 75 of 150, until the sixth bucket after is over.
        assert_eq!((touched(40), touched(29_999)), (Some(0.5), Some(0.5)));
        assert_eq!(touched(30_000), None);
        assert_eq!(fairness.of(ClassId(1), Millis(40)), Shares::default());
    }
}
