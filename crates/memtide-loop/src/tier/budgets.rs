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
//! # Properties
//!
//! - What a class uses is read from the world, since others place pages, too: the
//!   kernel at first touch and when it reclaims. Between two readings the loop's
//!   own moves are counted.
//! - Of a class of which that is not known, nothing is held back and nothing is
//!   kept; people are told so.
//! - Without classes nothing is asked and nothing is decided.

use super::config::TierConfig;
use crate::options::Tiered;
use crate::report::{ClassStatus, Direction, Event, Reporter};
use crate::world::{ClassId, World, WorldError};
use memtide_core::units::Millis;

/// How often it is read what classes use, in ms.
const READ_MS: u64 = 500;
/// How long a class that is above its bound may have no pages that are known to be
/// idle before others leave, in ms: so long does it take to see what is idle.
const PATIENCE_MS: u64 = 1500;
/// How long is waited after nothing would leave, in ms.
const REST_MS: u64 = 2000;

/// A class of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Pages of fast memory that are not taken from it for others.
    pub low: u64,
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
    /// Pages of fast memory that it uses; `None` if that is not known.
    used: Option<u64>,
    /// Since when it is above its bound.
    above: Option<Millis>,
    tight: bool,
    /// Hot pages that its bound keeps down.
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
    read: Option<Millis>,
    /// Pages of a class left so that others of it can come: that goes on soon.
    pub exchanging: bool,
    used: Vec<Option<u64>>,
}

impl Budgets {
    pub fn new(config: &TierConfig) -> Budgets {
        Budgets {
            all: config.classes.iter().map(Budget::new).collect(),
            others: config.others,
            read: None,
            exchanging: false,
            used: Vec::new(),
        }
    }

    /// Goes on with the classes of `config`. Those that there are still keep what is known of them and
    /// what they did; what they use is read anew.
    pub fn follow(&mut self, config: &TierConfig) {
        let mut old = std::mem::take(&mut self.all);
        let budget = |class: &Class| {
            let known = old
                .iter()
                .position(|budget| budget.class.name == class.name);
            match known {
                Some(n) => Budget {
                    class: class.clone(),
                    // It has its patience again.
                    above: None,
                    ..old.swap_remove(n)
                },
                None => Budget::new(class),
            }
        };
        self.all = config.classes.iter().map(budget).collect();
        self.others = config.others;
        self.read = None;
    }

    /// Whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The classes.
    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.all.len() as u32).map(ClassId)
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
        if (self.read).is_some_and(|last| now.since(last) < READ_MS) {
            return Ok(false);
        }
        self.read = Some(now);
        world.class_use(&mut self.used)?;
        let mut changed = false;
        for (n, budget) in self.all.iter_mut().enumerate() {
            budget.used = self.used.get(n).copied().flatten();
            if let Some(used) = budget.used.as_mut().filter(|_| dry_run) {
                *used = (*used + budget.promoted).saturating_sub(budget.demoted);
            }
            changed |= budget.judge(now);
            let shares = budget.class.low > 0 || budget.class.high.is_some();
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

    /// Pages of `class` moved, or would have.
    pub fn moved(&mut self, class: ClassId, direction: Direction, pages: u64, now: Millis) {
        let Some(budget) = self.all.get_mut(class.0 as usize) else {
            return;
        };
        match direction {
            Direction::Promotion => {
                budget.promoted += pages;
                budget.used = budget.used.map(|used| used + pages);
            }
            Direction::Demotion => {
                budget.demoted += pages;
                budget.used = budget.used.map(|used| used.saturating_sub(pages));
            }
        }
        // Who is tight is said by what the world tells.
        let tight = budget.tight;
        budget.judge(now);
        budget.tight = tight;
    }

    /// So many pages of `class` that moved came back.
    pub fn returned(&mut self, class: ClassId, pages: u64) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.returned += pages;
        }
    }

    /// Notes how many hot pages of each class its bound keeps down.
    pub fn set_waiting(&mut self, waiting: impl Fn(ClassId) -> u64) {
        for (n, budget) in self.all.iter_mut().enumerate() {
            budget.waiting = waiting(ClassId(n as u32));
        }
    }

    /// `class` has no more pages that will leave.
    pub fn rest(&mut self, class: ClassId, now: Millis) {
        if let Some(budget) = self.all.get_mut(class.0 as usize) {
            budget.rests_until = Millis(now.0 + REST_MS);
        }
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
            budget.above = None;
        }
    }

    /// The most that `class` may have, if there is a bound.
    pub fn high(&self, class: ClassId) -> Option<u64> {
        self.get(Some(class))?.class.high
    }

    /// Pages of `class` that may still come up; `None` if there is no bound.
    pub fn left(&self, class: ClassId) -> Option<u64> {
        let budget = self.get(Some(class))?;
        Some(budget.mark()?.saturating_sub(budget.used?))
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
        if !self.tiered(class).demote {
            return 0;
        }
        let spare = |budget: &Budget| Some(budget.used?.saturating_sub(budget.class.low));
        self.get(class).and_then(spare).unwrap_or(u64::MAX)
    }

    /// Pages that `class` has less than is protected.
    pub fn below_low(&self, class: Option<ClassId>) -> u64 {
        let short = |budget: &Budget| Some(budget.class.low.saturating_sub(budget.used?));
        let budget = self.get(class).filter(|budget| !budget.paused);
        budget.and_then(short).unwrap_or(0)
    }

    /// Pages that have to leave because `class` is above its bound.
    pub fn excess(&self, class: ClassId, now: Millis) -> u64 {
        let excess = |budget: &Budget| {
            budget.above?;
            Some(budget.used?.saturating_sub(budget.mark()?))
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

    /// Hot pages of `class` that its bound keeps down.
    pub fn waiting(&self, class: ClassId) -> u64 {
        self.get(Some(class)).map_or(0, |budget| budget.waiting)
    }

    /// Whether it is observed which pages of `class` are idle.
    pub fn is_tight(&self, class: Option<ClassId>) -> bool {
        self.get(class).is_some_and(|budget| budget.tight)
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
            fast_pages: budget.used,
            low_pages: budget.class.low,
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
            above: None,
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
        Some((high - high.div_ceil(100)).max(self.class.low).min(high))
    }

    /// Judges what it uses. Whether that changed if it is tight.
    fn judge(&mut self, now: Millis) -> bool {
        let (Some(used), Some(high), Some(mark)) = (self.used, self.class.high, self.mark()) else {
            self.above = None;
            return std::mem::take(&mut self.tight);
        };
        if used > high {
            self.above.get_or_insert(now);
        } else if used <= mark {
            self.above = None;
        }
        let tight = match self.tight {
            true => used >= high - high / 4,
            false => used >= high - high / 8,
        };
        std::mem::replace(&mut self.tight, tight) != tight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(low: u64, high: Option<u64>, used: u64) -> Budgets {
        let mut budgets = Budgets {
            all: Vec::new(),
            others: Tiered::default(),
            read: None,
            exchanging: false,
            used: Vec::new(),
        };
        let class = Class {
            name: "db".into(),
            low,
            high,
            leave_alone: false,
            tiered: Tiered::default(),
            heed_pressure: true,
        };
        budgets.all.push(Budget {
            used: Some(used),
            ..Budget::new(&class)
        });
        budgets.all[0].judge(Millis(0));
        budgets
    }

    const DB: ClassId = ClassId(0);

    #[test]
    fn between_mark_and_bound_nothing_begins() {
        // The mark of 1000 is 990.
        let mut db = budgets(0, Some(1000), 1000);
        assert_eq!((db.excess(DB, Millis(0)), db.left(DB)), (0, Some(0)));
        db.moved(DB, Direction::Promotion, 1, Millis(10));
        assert_eq!(db.excess(DB, Millis(10)), 11);
        assert!(!db.patience_is_over(DB, Millis(1509)));
        assert!(db.patience_is_over(DB, Millis(1510)));
        // It goes on to the mark, and not only to the bound.
        db.moved(DB, Direction::Demotion, 5, Millis(20));
        assert_eq!(db.excess(DB, Millis(20)), 6);
        db.moved(DB, Direction::Demotion, 6, Millis(30));
        assert_eq!((db.excess(DB, Millis(30)), db.left(DB)), (0, Some(0)));
        db.moved(DB, Direction::Demotion, 40, Millis(40));
        assert_eq!(db.left(DB), Some(40));
    }

    #[test]
    fn the_mark_is_not_in_what_is_protected() {
        let db = budgets(1000, Some(1000), 999);
        assert_eq!((db.left(DB), db.below_low(Some(DB))), (Some(1), 1));
        assert_eq!(db.may_lose(Some(DB)), 0);
        let small = budgets(0, Some(50), 10);
        assert_eq!(small.left(DB), Some(39));
        assert_eq!(budgets(0, Some(0), 0).left(DB), Some(0));
    }

    #[test]
    fn who_is_in_no_class_or_has_no_figures_may_do_anything() {
        let mut db = budgets(1000, Some(2000), 500);
        assert_eq!((db.may_lose(None), db.below_low(None)), (u64::MAX, 0));
        assert_eq!(db.may_lose(Some(ClassId(7))), u64::MAX);
        db.all[0].used = None;
        db.all[0].judge(Millis(0));
        assert_eq!((db.left(DB), db.may_lose(Some(DB))), (None, u64::MAX));
        assert_eq!((db.below_low(Some(DB)), db.excess(DB, Millis(0))), (0, 0));
    }

    #[test]
    fn where_nothing_leaves_it_is_not_asked_again_at_once() {
        let mut db = budgets(0, Some(100), 200);
        assert_eq!(db.excess(DB, Millis(0)), 101);
        db.rest(DB, Millis(0));
        assert_eq!(db.excess(DB, Millis(1999)), 0);
        assert_eq!(db.excess(DB, Millis(2000)), 101);
    }
}
