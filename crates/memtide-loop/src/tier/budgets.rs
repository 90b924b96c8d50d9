//! Shares of fast memory: what each class of processes uses, and what that means
//! for its pages.
//!
//! # Terms
//!
//! A class is *above its bound* from the moment when it uses more than `high`
//! until it is down to its *mark*, a hundredth below. Promotion fills it up to the
//! mark. So neither begins anew with each page that comes or goes.
//!
//! A class is *tight* when it uses nearly what it may. Of the pages of such a
//! class it is observed which ones are idle, however much room there is: these
//! leave first.
//!
//! A class may lie *within* another one: all its cgroups are below cgroups of that
//! one. Its *total* is what it uses and what those use that lie within it, and all is
//! judged by totals: a page counts against the bound of each class that contains it.
//!
//! A class's *floor* is what of its total is not taken for others. That is its `low`,
//! but classes within one that has a `low` or a bound divide the smaller of both among
//! them, as the kernel does it with `memory.low` (Linux, "Control Group v2", "Memory
//! Interface Files"): in proportion to what they use of their own. Unlike there, a class
//! without a `low` takes nothing from those within it. So all floors within a class fit
//! into its bound, and where it is above it, there is something that may leave. If none of
//! that leaves for long, because it may not move, the bound takes what is protected.
//!
//! # Properties
//!
//! - What a class uses is read from the world, since others place pages, too: the
//!   kernel at first touch and when it reclaims. Between two readings the loop's
//!   own moves are counted, and some time after, as what is told may lack them.
//! - Of a class of which that is not known, nothing is held back and nothing is
//!   kept; people are told so.
//! - Without classes nothing is asked and nothing is decided.

use super::class_count::{OwnMoves, Range};
use super::config::TierConfig;
use crate::ledger::Renumbered;
use crate::options::Tiered;
use crate::report::{ClassStatus, Direction, Event, Reporter};
use crate::world::{ClassId, ClassUse, World, WorldError};
use memtide_core::pages::Share;
use memtide_core::units::Millis;
use std::ops::RangeInclusive;

/// How often it is read what classes use, in ms: so often at most, and at least.
const READ_MS: RangeInclusive<u64> = 500..=10_000;
/// Within that, reading takes at most one part in so many of a processor: a class may have a thousand
/// cgroups.
const READ_SHARE: u64 = 200;
/// How long a class that is above its bound may have no pages that are known to be
/// idle before others leave, in ms: so long does it take to see what is idle.
const PATIENCE_MS: u64 = 1500;
/// How long nothing has left of a class that is above its bound before what is protected
/// within it leaves, in ms: so long pages may not be known, or busy.
const HELD_MS: u64 = 10_000;
/// How long is waited after nothing would leave, in ms.
const REST_MS: u64 = 2000;

/// A class of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Pages of fast memory that are not taken from it for others; `None` if nobody says.
    pub low: Option<u64>,
    /// The most that it may have, if there is a bound.
    pub high: Option<u64>,
    /// Its processes are not managed.
    pub leave_alone: bool,
    /// What is done for them.
    pub tiered: Tiered,
    /// It is heeded that its processes wait for memory.
    pub heed_pressure: bool,
}

/// What is known of a class.
#[derive(Debug)]
struct Budget {
    class: Class,
    /// Pages of fast memory that it was told to use, without those within; `None` if that
    /// is not known.
    used: Option<u64>,
    /// The class that contains it.
    within: Option<ClassId>,
    /// What it uses, and what those use that lie within it.
    total: Option<Range>,
    /// What of that is not taken for others.
    floor: u64,
    /// What moved of it and of those within.
    own_moves: OwnMoves,
    /// Hot pages that its bound keeps down, and not that of a class within it.
    kept_down: u64,
    /// Since when it is above its bound.
    above: Option<Millis>,
    /// Since when nothing leaves although it is above its bound.
    held: Option<Millis>,
    tight: bool,
    /// Hot pages of its own that a bound keeps down.
    waiting: u64,
    promoted: u64,
    demoted: u64,
    returned: u64,
    rests_until: Millis,
    /// Whether people were told that nothing is known.
    told: bool,
    /// Whether its pages stay until it is resumed.
    paused: bool,
}

/// The budgets of all classes, by [`ClassId`]. See the module's essay.
#[derive(Debug)]
pub(super) struct Budgets {
    all: Vec<Budget>,
    /// What is done for processes of no class.
    others: Tiered,
    /// When it is read again what they use.
    read_again: Option<Millis>,
    /// Pages of a class left so that others of it can come: that goes on soon.
    pub exchanging: bool,
    used: Vec<ClassUse>,
    /// All classes, those first that lie within others.
    order: Vec<ClassId>,
}

impl Budgets {
    pub fn new(config: &TierConfig) -> Budgets {
        Budgets {
            all: config.classes.iter().map(Budget::new).collect(),
            others: config.others,
            read_again: None,
            exchanging: false,
            used: Vec::new(),
            order: (0..config.classes.len() as u32).map(ClassId).collect(),
        }
    }

    /// Goes on with the classes of `config`. Those that there are still keep what is known of them and
    /// what they did; what they use is read anew.
    pub fn follow(&mut self, config: &TierConfig, numbers: &Renumbered) {
        let mut old = std::mem::take(&mut self.all);
        let budget = |class: &Class| {
            let known = old
                .iter()
                .position(|budget| budget.class.name == class.name);
            match known {
                Some(n) => {
                    let old = old.swap_remove(n);
                    let same = old.class.high == class.high;
                    Budget {
                        class: class.clone(),
                        // With another bound it has its patience again.
                        above: old.above.filter(|_| same),
                        held: old.held.filter(|_| same),
                        within: old.within.and_then(|of| numbers.new_of(of)),
                        ..old
                    }
                }
                None => Budget::new(class),
            }
        };
        self.all = config.classes.iter().map(budget).collect();
        self.others = config.others;
        self.read_again = None;
        self.put_in_order();
    }

    /// Whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The classes.
    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.all.len() as u32).map(ClassId)
    }

    /// The classes, those first that lie within others: the n-th of them.
    pub fn nth_from_within(&self, n: usize) -> Option<ClassId> {
        self.order.get(n).copied()
    }

    /// `class` and those that contain it, one after the other.
    pub(super) fn path(&self, class: Option<ClassId>) -> impl Iterator<Item = ClassId> {
        let known = |class: Option<ClassId>| class.filter(|of| self.get(Some(*of)).is_some());
        std::iter::successors(known(class), move |class| {
            known(self.all[class.0 as usize].within)
        })
    }

    fn on_path(&self, class: Option<ClassId>) -> impl Iterator<Item = &Budget> {
        self.path(class).map(|class| &self.all[class.0 as usize])
    }

    /// Reads what classes use, if it is time. Whether other classes are tight now.
    pub fn read(
        &mut self,
        world: &mut dyn World,
        dry_run: bool,
        reporter: &mut dyn Reporter,
    ) -> Result<bool, WorldError> {
        if self.is_empty() {
            return Ok(false);
        }
        let now = world.now();
        if self.read_again.is_some_and(|again| now < again) {
            return Ok(false);
        }
        let before = world.own_cpu_ns();
        world.class_use(&mut self.used)?;
        let cost_ns = world.own_cpu_ns().saturating_sub(before);
        let pause_ms = (cost_ns / 1_000_000).saturating_mul(READ_SHARE);
        let pause_ms = pause_ms.clamp(*READ_MS.start(), *READ_MS.end());
        self.read_again = Some(Millis(now.0 + pause_ms));
        let mut changed = false;
        for (n, budget) in self.all.iter_mut().enumerate() {
            let told = self.used.get(n).copied().unwrap_or_default();
            budget.within = told.within;
            let pretended = match dry_run {
                // The world knows of none of these.
                true => (budget.promoted, budget.demoted),
                false => (0, 0),
            };
            let used = |told: u64| (told + pretended.0).saturating_sub(pretended.1);
            budget.used = told.pages.map(used);
        }
        self.put_in_order();
        self.add_up(now, dry_run);
        for budget in &mut self.all {
            changed |= budget.judge(now);
            let shares = budget.class.low > Some(0) || budget.class.high.is_some();
            if shares && budget.used.is_none() && !std::mem::replace(&mut budget.told, true) {
                let text = format!(
                    "class {}: how much fast memory it uses is not known, so fast.low and fast.high \
                     have no effect; is the memory controller on for its cgroup?",
                    budget.class.name
                );
                reporter.event(now, Event::Notice { text });
            }
        }
        Ok(changed)
    }

    /// Puts the classes in order, those first that lie within others.
    fn put_in_order(&mut self) {
        let most = self.all.len();
        // Nobody contains what contains them.
        for n in 0..most {
            let path = self.path(Some(ClassId(n as u32)));
            if path.take(most + 1).count() > most {
                self.all[n].within = None;
            }
        }
        let mut order: Vec<(usize, ClassId)> = (self.ids())
            .map(|class| (self.path(Some(class)).count(), class))
            .collect();
        order.sort_by(|(one, a), (other, b)| other.cmp(one).then(a.cmp(b)));
        self.order = order.into_iter().map(|(_, class)| class).collect();
    }

    /// Adds up what they use.
    fn add_up(&mut self, now: Millis, dry_run: bool) {
        let mut told: Vec<Option<u64>> = self.all.iter().map(|of| of.used).collect();
        for class in &self.order {
            // What the kernel does not tell of a class is in what it tells of the one above.
            let (of, within) = (told[class.0 as usize], self.all[class.0 as usize].within);
            if let Some(Some(above)) = within.and_then(|above| told.get_mut(above.0 as usize)) {
                *above = above.saturating_add(of.unwrap_or(0));
            }
        }
        for (budget, told) in self.all.iter_mut().zip(told) {
            budget.total = told.map(|told| match dry_run {
                true => Range::exactly(told),
                false => budget.own_moves.range(budget.total, told, now),
            });
        }
        self.set_floors();
    }

    fn set_floors(&mut self) {
        let most = self.all.len();
        let at = |class: ClassId| class.0 as usize;
        // What each claims, and what those within it do together.
        let (mut claims, mut inner) = (vec![0_u64; most], vec![0_u64; most]);
        for class in &self.order {
            let of = &self.all[at(*class)];
            let claim = match of.class.low {
                Some(low) => of.total.map_or(0, |total| total.least.min(low)),
                None => inner[at(*class)],
            };
            let claim = claim.min(of.mark().unwrap_or(u64::MAX));
            claims[at(*class)] = claim;
            if let Some(sum) = of.within.and_then(|above| inner.get_mut(at(above))) {
                *sum = sum.saturating_add(claim);
            }
        }
        // What is had for each of it: without a limit, where nobody around it sets one.
        let mut granted = vec![u64::MAX; most];
        for class in self.order.iter().rev() {
            let of = &self.all[at(*class)];
            let claim = claims[at(*class)];
            let around = of.within.filter(|above| at(*above) < most);
            let granted_around = around.map_or(u64::MAX, |above| granted[at(above)]);
            let all = around.map_or(0, |above| inner[at(above)]);
            let mut grant = match granted_around {
                u64::MAX => u64::MAX,
                have if all > have => {
                    (u128::from(claim) * u128::from(have) / u128::from(all)) as u64
                }
                // What is left over goes to whoever grows.
                have => claim.saturating_add(have - all),
            };
            for limit in of.class.low.into_iter().chain(of.mark()) {
                grant = grant.min(limit);
            }
            granted[at(*class)] = grant;
            self.all[at(*class)].floor = match of.class.low {
                Some(_) => grant,
                None => 0,
            };
        }
    }

    /// Pages of `class` moved, or would have.
    pub fn moved(&mut self, class: ClassId, direction: Direction, pages: u64, now: Millis) {
        let Some(budget) = self.all.get_mut(class.0 as usize) else {
            return;
        };
        let after = |range: Option<Range>| range.map(|range| range.after(direction, pages));
        match direction {
            Direction::Promotion => budget.promoted += pages,
            Direction::Demotion => budget.demoted += pages,
        }
        let mut at = Some(class);
        while let Some(budget) = at.and_then(|at| self.all.get_mut(at.0 as usize)) {
            budget.total = after(budget.total);
            budget.own_moves.note(direction, pages, now);
            // Who is tight is said by what the world tells.
            let tight = budget.tight;
            budget.judge(now);
            budget.tight = tight;
            at = budget.within;
        }
    }

    /// So many pages of `class` that moved came back.
    pub fn returned(&mut self, class: ClassId, pages: u64) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.returned += pages;
        }
    }

    /// Notes how many hot pages of each class bounds keep down.
    pub fn set_waiting(&mut self, waiting: impl Fn(ClassId) -> u64) {
        for (n, budget) in self.all.iter_mut().enumerate() {
            budget.waiting = waiting(ClassId(n as u32));
            budget.kept_down = budget.waiting;
        }
        for class in &self.order {
            let of = &self.all[class.0 as usize];
            // For more its own bound leaves no room.
            let pass_on = of.kept_down.min(of.left().unwrap_or(u64::MAX));
            if let Some(above) = (of.within).and_then(|above| self.all.get_mut(above.0 as usize)) {
                above.kept_down = above.kept_down.saturating_add(pass_on);
            }
        }
    }

    /// `class` has no more pages that will leave.
    pub fn rest(&mut self, class: ClassId, now: Millis) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.rests_until = Millis(now.0 + REST_MS);
            budget.held.get_or_insert(now);
        }
    }

    /// Pages of `class` left because it is above its bound.
    pub fn goes_down(&mut self, class: ClassId) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.held = None;
        }
    }

    /// Whether so long nothing left of `class` that its bound takes what is protected within it.
    pub fn bound_takes_all(&self, class: ClassId, now: Millis) -> bool {
        let held = self.get(Some(class)).and_then(|budget| budget.held);
        held.is_some_and(|held| now.since(held) >= HELD_MS)
    }

    fn get(&self, class: Option<ClassId>) -> Option<&Budget> {
        self.all.get(class?.0 as usize)
    }

    /// The class of this name.
    pub fn find(&self, name: &str) -> Option<ClassId> {
        let mut all = self.ids().zip(&self.all);
        let found = all.find(|(_, budget)| budget.class.name == name);
        found.map(|(class, _)| class)
    }

    /// The name of `class`.
    pub fn name(&self, class: ClassId) -> Option<String> {
        self.get(Some(class))
            .map(|budget| budget.class.name.clone())
    }

    /// Nothing of `class` leaves or comes up while it is paused.
    pub fn pause(&mut self, class: ClassId, paused: bool) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.paused = paused;
            // What the class uses is judged again from now on: it has its patience.
            (budget.above, budget.held) = (None, None);
        }
    }

    /// The most that `class` may have, if there is a bound.
    pub fn high(&self, class: ClassId) -> Option<u64> {
        self.get(Some(class))?.class.high
    }

    /// Pages of `class` that may still come up; `None` if there is no bound.
    pub fn left(&self, class: ClassId) -> Option<u64> {
        self.on_path(Some(class)).filter_map(Budget::left).min()
    }

    /// Pages that may still come up of `class` and those within, by its own bound.
    pub fn left_of_own(&self, class: ClassId) -> Option<u64> {
        self.get(Some(class)).and_then(Budget::left)
    }

    /// The shares that pages of `class` count against.
    pub fn shares(&self, class: ClassId, each: &mut dyn FnMut(Share)) {
        for class in self.path(Some(class)) {
            if let Some(left) = self.left_of_own(class) {
                let number = 2 * u64::from(class.0);
                each(Share { number, left });
            }
        }
    }

    /// What pages of `class` count against while only those come up that are protected.
    pub fn protected_share(&self, class: ClassId) -> Share {
        let (of, left) = self.shortest(Some(class)).unwrap_or((class, 0));
        let number = 2 * u64::from(of.0) + 1;
        Share { number, left }
    }

    /// What is done for processes of `class`.
    pub fn tiered(&self, class: Option<ClassId>) -> Tiered {
        self.get(class)
            .map_or(self.others, |budget| budget.class.tiered)
    }

    /// Whether nobody keeps anything.
    pub fn lets_all_go(&self) -> bool {
        self.is_empty() && self.others.demote
    }

    /// Pages of `class` that may be taken for others.
    pub fn may_lose(&self, class: Option<ClassId>) -> u64 {
        self.may_lose_within(class, None)
    }

    /// Pages of `class` that may be taken for others within `around`, or for others of
    /// any class.
    pub fn may_lose_within(&self, class: Option<ClassId>, around: Option<ClassId>) -> u64 {
        if !self.tiered(class).demote {
            return 0;
        }
        let inner = self.path(class).take_while(|class| Some(*class) != around);
        let spare = inner.filter_map(|class| self.spare(class)).min();
        spare.unwrap_or(u64::MAX)
    }

    /// Pages that `class` and those within it use above what is protected of them; `None`
    /// if that is not known.
    pub fn spare(&self, class: ClassId) -> Option<u64> {
        self.get(Some(class)).and_then(Budget::spare)
    }

    /// Whether `class` is `around` or lies within it.
    pub fn is_within(&self, class: Option<ClassId>, around: ClassId) -> bool {
        self.path(class).any(|class| class == around)
    }

    /// Pages that `class`, or one that contains it, has less than is protected.
    pub fn below_low(&self, class: Option<ClassId>) -> u64 {
        self.shortest(class).map_or(0, |(_, short)| short)
    }

    /// Of `class` and those that contain it, the one that has most less than is protected
    /// of it, and how much.
    fn shortest(&self, class: Option<ClassId>) -> Option<(ClassId, u64)> {
        self.get(class).filter(|budget| !budget.paused)?;
        let short = |class: ClassId| {
            let budget = self.get(Some(class))?;
            Some((class, budget.floor.saturating_sub(budget.total?.most)))
        };
        self.path(class)
            .filter_map(short)
            .max_by_key(|(_, short)| *short)
    }

    /// Pages that have to leave of `class`, and of those within, because it is above its
    /// bound.
    pub fn excess(&self, class: ClassId, now: Millis) -> u64 {
        let excess = |budget: &Budget| {
            budget.above?;
            Some(budget.total?.least.saturating_sub(budget.mark()?))
        };
        let budget = self.get(Some(class));
        let budget = budget.filter(|budget| !budget.paused && now >= budget.rests_until);
        budget.and_then(excess).unwrap_or(0)
    }

    /// Whether the pages of `class` that are above its bound leave although none
    /// is known to be idle.
    pub fn patience_is_over(&self, class: ClassId, now: Millis) -> bool {
        let above = self.get(Some(class)).and_then(|budget| budget.above);
        above.is_some_and(|above| now.since(above) >= PATIENCE_MS)
    }

    /// There was no time for more pages of `class`: patience begins anew.
    pub fn be_patient_again(&mut self, class: ClassId, now: Millis) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.above = budget.above.map(|_| now);
        }
    }

    /// Hot pages of `class` and those within that its bound keeps down.
    pub fn waiting(&self, class: ClassId) -> u64 {
        self.get(Some(class)).map_or(0, |budget| budget.kept_down)
    }

    /// Whether it is observed which pages of `class` are idle.
    pub fn is_tight(&self, class: Option<ClassId>) -> bool {
        self.on_path(class).any(|budget| budget.tight)
    }

    /// Whether any class is tight.
    pub fn any_tight(&self) -> bool {
        self.all.iter().any(|budget| budget.tight)
    }

    /// Whether something is to be done before there is news.
    pub fn hurry(&self, now: Millis) -> bool {
        self.exchanging || self.ids().any(|class| self.excess(class, now) > 0)
    }

    /// Where each class stands.
    pub fn status(&self) -> Vec<ClassStatus> {
        let status = |budget: &Budget| ClassStatus {
            name: budget.class.name.clone(),
            within: budget.within.and_then(|class| self.name(class)),
            fast_pages: budget.total.map(|total| total.least),
            low_pages: budget.class.low.unwrap_or(0),
            high_pages: budget.class.high,
            promoted_pages: budget.promoted,
            demoted_pages: budget.demoted,
            returned_pages: budget.returned,
            waiting_pages: budget.waiting,
            left_alone: budget.class.leave_alone,
            tiered: budget.class.tiered.tier,
            demotes: budget.class.tiered.demote,
            demotes_idle: budget.class.tiered.demote_idle,
            paused: budget.paused,
            pressure: None,
            fast_access_permille: None,
            fast_touched_permille: None,
        };
        self.all.iter().map(status).collect()
    }
}

impl Budget {
    fn new(class: &Class) -> Budget {
        Budget {
            class: class.clone(),
            used: None,
            within: None,
            total: None,
            floor: 0,
            own_moves: OwnMoves::default(),
            kept_down: 0,
            above: None,
            held: None,
            tight: false,
            waiting: 0,
            promoted: 0,
            demoted: 0,
            returned: 0,
            rests_until: Millis(0),
            told: false,
            paused: false,
        }
    }

    /// Where promotion ends and demotion comes to rest: a hundredth below the
    /// bound, but not in what is protected.
    fn mark(&self) -> Option<u64> {
        let high = self.class.high?;
        let low = self.class.low.unwrap_or(0);
        Some((high - high.div_ceil(100)).max(low).min(high))
    }

    fn left(&self) -> Option<u64> {
        Some(self.mark()?.saturating_sub(self.total?.most))
    }

    fn spare(&self) -> Option<u64> {
        Some(self.total?.least.saturating_sub(self.floor))
    }

    /// Judges what it uses. Whether that changed if it is tight.
    fn judge(&mut self, now: Millis) -> bool {
        let (Some(used), Some(high), Some(mark)) = (
            self.total.map(|total| total.least),
            self.class.high,
            self.mark(),
        ) else {
            (self.above, self.held) = (None, None);
            return std::mem::take(&mut self.tight);
        };
        if used > high {
            self.above.get_or_insert(now);
        } else if used <= mark {
            (self.above, self.held) = (None, None);
        }
        let tight = match self.tight {
            true => used >= high - high / 4,
            false => used >= high - high / 8,
        };
        std::mem::replace(&mut self.tight, tight) != tight
    }
}

#[cfg(test)]
#[path = "budgets_tests.rs"]
mod tests;
