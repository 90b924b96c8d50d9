//! Whether a granule is in memory, and who may change that, in one word; and the
//! credits that bound how many are.
//!
//! *Problem.* Threads that read a granule bring it in when it is absent; an evictor
//! takes granules out; none of them may lock, since readers are in signal handlers.
//!
//! *Approach.* One atomic word is the state, the lock and what waiters sleep on:
//!
//! ```text
//!     absent ─► loading ─► here ─► leaving ─► absent
//!                  └─► failed ─► loading
//!               loading ◄─ here
//! ```
//!
//! A granule may come in piece by piece: who brings in more of one that is here takes
//! it back to *loading* meanwhile. What is there stays readable, and pins stay.
//!
//! Whoever makes the step to *loading* or *leaving* owns the granule until it
//! settles it. Pins keep it from leaving. Waiters announce themselves with a bit,
//! so that a change that nobody waits for wakes nobody; sleeping and waking are the
//! caller's.
//!
//! *What stays true.* At most one thread owns a granule. Memory is taken only with
//! a credit and a credit is given back only after the memory: what is in memory or on
//! its way never exceeds the credits. A waiter that announced
//! itself is woken by whoever settles. Loom tries every interleaving of it.

use crate::sync::{AtomicU32, Ordering::SeqCst};

/// Where a granule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not in memory.
    Absent,
    /// Somebody brings it in.
    Loading,
    /// In memory.
    Here,
    /// Somebody takes it out.
    Leaving,
    /// The last try to bring it in failed.
    Failed,
}

const STAGES: [Stage; 5] = [
    Stage::Absent,
    Stage::Loading,
    Stage::Here,
    Stage::Leaving,
    Stage::Failed,
];
const STAGE: u32 = 0b111;
const PIN: u32 = 0b1000;
const AWAITED: u32 = 1 << 31;

/// A granule's word.
#[derive(Debug)]
pub struct Residency(AtomicU32);

impl Default for Residency {
    fn default() -> Residency {
        Residency(AtomicU32::new(0))
    }
}

fn stage_of(word: u32) -> Stage {
    STAGES[((word & STAGE) as usize).min(STAGES.len() - 1)]
}

impl Residency {
    /// Where it is.
    pub fn stage(&self) -> Stage {
        stage_of(self.0.load(SeqCst))
    }

    /// Takes a step if the granule is at `from`; a pinned one does not leave. With
    /// a step to [`Stage::Loading`] or [`Stage::Leaving`] the caller owns it.
    pub fn step(&self, from: Stage, to: Stage) -> bool {
        let allowed = |word: u32| {
            let pinned = word & !AWAITED >= PIN;
            stage_of(word) == from && !(to == Stage::Leaving && pinned)
        };
        self.change(|word| allowed(word).then_some(word & !STAGE | to as u32))
            .is_some()
    }

    /// Ends the ownership with the granule at `to`. True if waiters sleep on the
    /// word and must be woken.
    #[must_use = "waiters sleep until they are woken"]
    pub fn settle(&self, to: Stage) -> bool {
        let before = self.change(|word| Some(word & !(STAGE | AWAITED) | to as u32));
        before.is_some_and(|word| word & AWAITED != 0)
    }

    /// Keeps the granule from leaving if it is here.
    pub fn pin(&self) -> bool {
        let here = |word: u32| (stage_of(word) == Stage::Here).then_some(word + PIN);
        self.change(here).is_some()
    }

    /// Takes a pin back.
    pub fn unpin(&self) {
        self.0.fetch_sub(PIN, SeqCst);
    }

    /// Announces a waiter if somebody owns the granule. Returns the word on which
    /// to sleep as long as it has that value, or `None` to look again at once.
    pub fn announce(&self) -> Option<u32> {
        let word = self.0.load(SeqCst);
        if !matches!(stage_of(word), Stage::Loading | Stage::Leaving) {
            return None;
        }
        let marked = word | AWAITED;
        let done = word == marked || self.exchange(word, marked).is_ok();
        done.then_some(marked)
    }

    /// The word to sleep on.
    #[cfg(not(loom))]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.0.compare_exchange(from, to, SeqCst, SeqCst)
    }

    /// The word before the change; `None` if `next` wanted none.
    fn change(&self, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut word = self.0.load(SeqCst);
        loop {
            match self.exchange(word, next(word)?) {
                Ok(before) => return Some(before),
                Err(now) => word = now,
            }
        }
    }
}

/// One credit for each page that may be in memory.
#[derive(Debug)]
pub struct Credits {
    total: u32,
    free: AtomicU32,
    /// Pages in memory beyond the credits.
    owed: AtomicU32,
}

impl Credits {
    /// `total` free credits.
    pub fn new(total: u32) -> Credits {
        Credits {
            total,
            free: AtomicU32::new(total),
            owed: AtomicU32::new(0),
        }
    }

    /// Takes `most`, or as many as there are if those are at least `least`. How many
    /// it took and how many are left; `None` if there were too few.
    pub fn take(&self, least: u32, most: u32) -> Option<(u32, u32)> {
        let mut free = self.free.load(SeqCst);
        loop {
            if free < least.max(1) {
                return None;
            }
            let taken = most.max(least).min(free);
            match self
                .free
                .compare_exchange(free, free - taken, SeqCst, SeqCst)
            {
                Ok(_) => return Some((taken, free - taken)),
                Err(now) => free = now,
            }
        }
    }

    /// Takes some that are not there; the next that are given pay for them.
    pub fn borrow(&self, credits: u32) {
        self.owed.fetch_add(credits, SeqCst);
    }

    /// Gives credits back; what is owed is paid first. Returns how many are free to
    /// be taken because of it.
    pub fn give(&self, credits: u32) -> u32 {
        let mut owed = self.owed.load(SeqCst);
        let left = loop {
            let paid = owed.min(credits);
            match self
                .owed
                .compare_exchange(owed, owed - paid, SeqCst, SeqCst)
            {
                Ok(_) => break credits - paid,
                Err(now) => owed = now,
            }
        };
        let before = self.free.fetch_add(left, SeqCst);
        assert!(
            left <= self.total.saturating_sub(before),
            "{left} credits came back to {before} of {}: a page was given up twice",
            self.total
        );
        left
    }

    /// Free ones.
    pub fn free(&self) -> u32 {
        self.free.load(SeqCst)
    }

    /// All of them.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Pages in memory or on their way.
    pub fn in_use(&self) -> u32 {
        self.total - self.free() + self.owed.load(SeqCst)
    }

    /// The word to sleep on while it holds fewer than are wanted: who gives some changes
    /// it.
    #[cfg(not(loom))]
    pub fn word(&self) -> &AtomicU32 {
        &self.free
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_one_owns_it_and_pins_hold_it() {
        let granule = Residency::default();
        assert!(granule.step(Stage::Absent, Stage::Loading));
        assert!(!granule.step(Stage::Absent, Stage::Loading));
        assert!(!granule.pin());
        assert!(!granule.settle(Stage::Here), "nobody waits");
        assert!(granule.pin() && granule.pin());
        assert!(!granule.step(Stage::Here, Stage::Leaving));
        granule.unpin();
        granule.unpin();
        assert!(granule.step(Stage::Here, Stage::Leaving));
        let word = granule.announce().unwrap();
        assert_eq!(granule.announce(), Some(word), "two wait on one word");
        assert!(granule.settle(Stage::Absent), "they are to be woken");
        assert_eq!((granule.announce(), granule.stage()), (None, Stage::Absent));
    }

    #[test]
    #[should_panic(expected = "a page was given up twice")]
    fn no_credit_comes_back_twice() {
        let credits = Credits::new(2);
        credits.take(1, 1);
        credits.give(1);
        credits.give(1);
    }

    #[test]
    fn who_wants_many_takes_what_there_is_but_no_less_than_he_needs() {
        let credits = Credits::new(10);
        assert_eq!(credits.take(1, 4), Some((4, 6)));
        assert_eq!(credits.take(8, 8), None, "6 are left");
        assert_eq!(credits.take(1, 8), Some((6, 0)));
        assert_eq!(credits.take(1, 8), None);
    }

    #[test]
    fn what_is_owed_is_paid_first() {
        let credits = Credits::new(2);
        assert_eq!(
            (credits.take(1, 1), credits.take(1, 1), credits.take(1, 1)),
            (Some((1, 1)), Some((1, 0)), None)
        );
        credits.borrow(1);
        assert_eq!(credits.in_use(), 3);
        assert_eq!(
            (credits.give(2), credits.free(), credits.in_use()),
            (1, 1, 1)
        );
    }
}
