//! Whether a glance is worth its beginning now, and what it may use.
//!
//! Telling the source what to glance at costs something each time, however little is glanced at. So a glance waits until
//! it can be large. Where telling is dear, its account never holds that much: then half of what it can hold is enough,
//! and as much may be owed.

use memtide_core::units::Millis;

/// A glance smaller than this many times the cost of beginning it is not worth
/// that, unless all that waits costs less, or the account never holds that much.
const WORTH: f64 = 4.0;

/// What is known when a glance could begin, in microseconds of CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// What glances may use now; negative when they owe.
    pub credit: f64,
    /// What their account can hold.
    pub cap: f64,
    /// What telling the source costs, with all that is glanced at beside what is searched.
    pub told: f64,
    /// And without that.
    pub told_alone: f64,
    /// What all costs that has the attention, where only that is glanced at.
    pub waits: Option<f64>,
}

/// What a glance may use, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grant {
    /// For its passes.
    pub passes: f64,
    /// So much of that and of telling is owed.
    pub owed: f64,
}

impl Offer {
    /// What a glance may use that begins now; nothing if it should wait.
    pub fn grant(&self) -> Option<Grant> {
        let Offer {
            credit, cap, told, ..
        } = *self;
        let worth = match self.waits {
            Some(all) => all.min(WORTH * told),
            // What is told beside it comes with each glance, and few large ones cost less than many small ones.
            None => {
                let worth = (WORTH * told).min((cap - told) / 2.0);
                worth.max(WORTH * self.told_alone)
            }
        };
        let may_owe = cap / 2.0;
        let enough = (told + worth).min(may_owe.max(told - may_owe));
        if cap <= 0.0 || credit < enough {
            return None;
        }
        let passes = (credit - told).max((told / 2.0).min(credit - told + may_owe));
        Some(Grant {
            passes,
            owed: (told + passes - credit).max(0.0),
        })
    }
}

/// How long the first glances may say where to look before the cover takes all, in ms, and how many passes.
const FIRST_MS: u64 = 5_000;
const FIRST_PASSES: u32 = 10;

/// The first glances of a search, for which half of the look's account waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstGlances {
    passes: u32,
    /// When that ends; nothing before it was asked for first.
    until: Option<Millis>,
}

impl FirstGlances {
    /// A pass of a glance has ended.
    pub fn pass_ended(&mut self) {
        self.passes = self.passes.saturating_add(1);
    }

    /// Whether they may soon say where to look: none has ended yet, or something has the attention.
    pub fn may_tell(&mut self, now: Millis, attention: bool) -> bool {
        let until = *self.until.get_or_insert(Millis(now.0 + FIRST_MS));
        let may = match self.passes {
            0 => true,
            passes => passes < FIRST_PASSES && attention,
        };
        may && now < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: f64 = 75_000.0;

    fn offer(credit: f64, told: f64, waits: Option<f64>) -> Option<Grant> {
        let offer = Offer {
            credit,
            cap: CAP,
            told,
            told_alone: told,
            waits,
        };
        offer.grant()
    }

    #[test]
    fn where_telling_is_cheap_a_glance_waits_until_it_is_worth_it() {
        assert_eq!(offer(999.0, 200.0, None), None);
        let begins = offer(1_000.0, 200.0, None).unwrap();
        assert_eq!((begins.passes, begins.owed), (800.0, 0.0));
        // What has the attention costs less than that.
        assert_eq!(offer(299.0, 200.0, Some(100.0)), None);
        assert_eq!(offer(300.0, 200.0, Some(100.0)).unwrap().owed, 0.0);
    }

    #[test]
    fn where_telling_is_dear_half_of_the_account_is_enough_and_no_more_is_owed() {
        let mut last = 0.0;
        for told in [10e3, 20e3, 40e3, 75e3, 100e3, 112.5e3] {
            let begins = (0..=75).map(|ms| f64::from(ms) * 1e3);
            let mut begins = begins.filter_map(|credit| Some((credit, offer(credit, told, None)?)));
            let (credit, grant) = begins.next().expect("it begins once");
            assert!(
                credit >= last && credit <= CAP,
                "{told}: not before {credit}"
            );
            last = credit;
            assert!(grant.owed <= CAP / 2.0, "{told}: {grant:?}");
            assert!(grant.passes >= 0.0, "{told}: {grant:?}");
        }
        assert_eq!(offer(CAP, 120e3, None), None);
    }

    #[test]
    fn the_first_glances_are_waited_for_and_not_for_ever() {
        let mut first = FirstGlances::default();
        let at = |ms| Millis(1_000 + ms);
        assert!(first.may_tell(at(0), false) && first.may_tell(at(FIRST_MS - 1), false));
        assert!(!first.may_tell(at(FIRST_MS), true));
        let mut first = FirstGlances::default();
        for _ in 1..FIRST_PASSES {
            first.pass_ended();
            assert!(first.may_tell(at(0), true) && !first.may_tell(at(0), false));
        }
        first.pass_ended();
        assert!(!first.may_tell(at(0), true));
    }

    #[test]
    fn who_may_use_nothing_glances_at_nothing() {
        let none = Offer {
            credit: 0.0,
            cap: 0.0,
            told: 200.0,
            told_alone: 200.0,
            waits: None,
        };
        assert_eq!(none.grant(), None);
    }
}
