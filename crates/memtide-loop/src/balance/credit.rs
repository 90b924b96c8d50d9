//! How much processor time balancing may take for itself.
//!
//! Every sample, every look at where a page is and every move costs time of
//! this process. That time is measured (the process's own CPU clock), not
//! guessed, and paid from *credit*: a fixed share of the time that passes, saved
//! up to a bound. Who has used up the credit rests until it is there again; so
//! the long-run share is bounded whatever the machine does, and a burst of
//! moves after a quiet time does not wait.
//!
//! Moves are most of it, and how many are due at once is up to others. So a turn
//! moves what the credit pays for: what a page cost so far is known ([`Price`]).
//!
//! Time and use are arguments.

use crate::world::HUGE_PAGES;
use memtide_core::units::Millis;

/// Credit that can be saved up: so much time's share.
const SAVED_MS: u64 = 20_000;
/// The longest rest at a time: signals want to be heard.
const LONGEST_REST_MS: u64 = 250;

/// The account. See the module's essay.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    permille: u32,
    credit_us: i64,
    at: Millis,
    used_us: u64,
    rested_ms: u64,
}

impl Credit {
    /// `permille` of one CPU from `now` on, with what a while saves in hand.
    pub fn new(permille: u32, now: Millis) -> Credit {
        let mut credit = Credit {
            permille,
            credit_us: 0,
            at: now,
            used_us: 0,
            rested_ms: 0,
        };
        credit.credit_us = credit.most_us() as i64;
        credit
    }

    fn most_us(&self) -> u64 {
        SAVED_MS * u64::from(self.permille)
    }

    /// At `now` this process has used `total_us` of CPU time since its start.
    pub fn charge(&mut self, now: Millis, total_us: u64) {
        // One millisecond at one permille is one microsecond.
        let earned = now.since(self.at).saturating_mul(u64::from(self.permille));
        self.at = now;
        let spent = total_us.saturating_sub(self.used_us);
        self.used_us = self.used_us.max(total_us);
        let credit = self.credit_us.saturating_add_unsigned(earned);
        self.credit_us = credit
            .min(self.most_us() as i64)
            .saturating_sub_unsigned(spent);
    }

    /// How many things of `cost_ns` each are paid for by what is in hand.
    pub fn pays_for(&self, cost_ns: u64) -> u64 {
        let hand_us = u64::try_from(self.credit_us).unwrap_or(0);
        hand_us.saturating_mul(1000) / cost_ns.max(1)
    }

    /// As [`charge`](Self::charge). How long to rest, in milliseconds; 0: go on.
    pub fn account(&mut self, now: Millis, total_us: u64) -> u64 {
        self.charge(now, total_us);
        if self.credit_us >= 0 {
            return 0;
        }
        let owed = self.credit_us.unsigned_abs();
        let rest = owed.div_ceil(u64::from(self.permille.max(1)));
        let rest = rest.clamp(1, LONGEST_REST_MS);
        self.rested_ms += rest;
        rest
    }

    /// How long to wait before doing again what just cost `cost_us`, in ms, so that
    /// it takes `percent` of what is earned meanwhile. Not at all while half of the
    /// savings are in hand: a burst does not wait.
    ///
    /// Without it, whatever is due after each rest would use up what the rest
    /// earned, and nothing would be left for the work that it prepares.
    pub fn pause_ms(&self, cost_us: u64, percent: u64) -> u64 {
        if self.credit_us >= (self.most_us() / 2) as i64 {
            return 0;
        }
        let earned_us = u64::from(self.permille.max(1)) * percent.max(1);
        cost_us.saturating_mul(100).div_ceil(earned_us)
    }

    /// What was used before the account began is not charged.
    pub fn begin(&mut self, total_us: u64) {
        self.used_us = total_us;
    }

    /// Rests so far, in milliseconds.
    pub fn rested_ms(&self) -> u64 {
        self.rested_ms
    }
}

/// What moving a base page costs here, learned from moves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Price {
    /// Of one page, in ns; 0: nothing is known.
    ns: u64,
}

impl Price {
    /// What a turn may move at least, in base pages: the largest folio, and enough to
    /// learn from.
    pub const LEAST_PAGES: u64 = HUGE_PAGES;

    /// Base pages that a turn may move on `credit` which has used `turn_ns` so far.
    /// Moves get as much as that at least: else hearing of pages could use up all
    /// that rests earn, and little of what was heard would come of it.
    pub fn affordable(self, credit: &Credit, turn_ns: u64) -> u64 {
        let (Some(paid), Some(matched)) = (
            (self.ns > 0).then(|| credit.pays_for(self.ns)),
            turn_ns.checked_div(self.ns),
        ) else {
            return Self::LEAST_PAGES;
        };
        paid.max(matched).max(Self::LEAST_PAGES)
    }

    /// Whether anything is known of it.
    pub fn is_known(self) -> bool {
        self.ns > 0
    }

    /// Moving `pages` took `spent_ns`. A rise counts at once, a fall by a quarter:
    /// a huge page says little of what single ones cost.
    pub fn learn(&mut self, pages: u64, spent_ns: u64) {
        let Some(fresh) = spent_ns.checked_div(pages) else {
            return;
        };
        let slowly = self.ns - self.ns.saturating_sub(fresh) / 4;
        self.ns = fresh.max(slowly).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_moves_what_the_credit_pays_for() {
        // 10 permille of 20 s are 200 ms in hand.
        let mut credit = Credit::new(10, Millis(0));
        let mut price = Price::default();
        assert_eq!(price.affordable(&credit, 1 << 40), Price::LEAST_PAGES);
        price.learn(0, 1_000_000);
        assert!(!price.is_known());
        price.learn(512, 512 * 100_000);
        assert_eq!(price.affordable(&credit, 0), 2_000);
        // Moves get as much as the rest of the turn.
        assert_eq!(price.affordable(&credit, 300_000_000), 3_000);
        // A fall is believed slowly, a rise at once.
        price.learn(512, 512 * 20_000);
        assert_eq!(price.affordable(&credit, 0), 2_500);
        price.learn(1, 400_000);
        assert_eq!(price.affordable(&credit, 0), 512);
        credit.charge(Millis(0), 300_000);
        assert_eq!(credit.pays_for(1), 0);
    }

    #[test]
    fn a_burst_is_paid_from_savings_and_then_there_is_rest() {
        // 50 permille of 20 s are 1,000 ms of CPU time in hand.
        let mut credit = Credit::new(50, Millis(0));
        assert_eq!(credit.account(Millis(0), 1_000_000), 0);
        // 10 ms more are owed: 10,000 us at 50 us a millisecond take 200 ms.
        assert_eq!(credit.account(Millis(0), 1_010_000), 200);
        assert_eq!(credit.account(Millis(200), 1_010_000), 0);
        // A whole second owed takes 20 s, in rests that are short.
        assert_eq!(credit.account(Millis(200), 2_010_000), LONGEST_REST_MS);
        assert_eq!(credit.rested_ms(), 200 + LONGEST_REST_MS);
    }

    #[test]
    fn the_long_run_share_is_bounded() {
        // A thief that uses every millisecond it gets: 1 ms of work a turn.
        let mut credit = Credit::new(10, Millis(0));
        let (mut now, mut used) = (0, 0);
        while now < 1_000_000 {
            used += 1_000;
            now += 1 + credit.account(Millis(now), used);
        }
        // 1 % of 1,000 s are 10 s, and the savings of 20 s are 0.2 s more.
        assert!((9_900_000..=10_201_000).contains(&used), "{used}");
    }

    #[test]
    fn who_has_little_left_repeats_what_is_dear_more_rarely() {
        let mut credit = Credit::new(50, Millis(0));
        assert_eq!(credit.account(Millis(0), 500_000), 0);
        assert_eq!(credit.pause_ms(30_000, 25), 0);
        assert_eq!(credit.account(Millis(0), 500_001), 0);
        // A quarter of 50 us a millisecond pays 30 ms in 2.4 s.
        assert_eq!(credit.pause_ms(30_000, 25), 2_400);
        assert_eq!(credit.pause_ms(0, 25), 0);
    }

    #[test]
    fn what_was_used_before_is_free() {
        let mut credit = Credit::new(1, Millis(5));
        credit.begin(700_000);
        assert_eq!(credit.account(Millis(5), 700_000), 0);
    }
}
