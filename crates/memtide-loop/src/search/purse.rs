//! Processor time that observing may still use.
//!
//! Two accounts, one for each view, grow by their shares of a fixed part of
//! elapsed time. What one cannot hold flows to the other. Together they hold up
//! to [`BURST_MS`] of earnings, so that what is new can be looked at at once.
//!
//! A burst is no excuse: what is used in any minute is at most that minute's
//! earnings and a tenth more, however long it was quiet before. [`MINUTE_MS`] of
//! earnings are what both views may use together within a minute; the rest of
//! the tenth is for what a pass costs beyond what was expected of it. Of each
//! minute a view's share is kept for it, so that a burst of looks does not leave
//! glances blind.

use super::View;
use memtide_core::units::Millis;
use std::collections::VecDeque;

/// Earnings that the accounts hold together, in ms of elapsed time.
pub const BURST_MS: u64 = 45_000;
/// Earnings that may be used within a minute, in ms of elapsed time.
const MINUTE_MS: u64 = 63_000;
/// How long what was used counts, in ms: a minute, and one of the steps in which
/// it is kept.
const KEPT_MS: u64 = 60_000 + STEP_MS;
/// What is used within so many ms is kept as one sum.
const STEP_MS: u64 = 1_000;

/// The two accounts, in microseconds of CPU time; negative when overdrawn.
#[derive(Clone, Debug)]
pub struct Purse {
    permille: u64,
    at: Millis,
    credit: [i64; 2],
    glance_permille: u64,
    /// The least that each account can hold.
    least: [i64; 2],
    /// What was used of late: from when on, by view.
    used: VecDeque<(u64, [i64; 2])>,
    /// The sums of `used`.
    minute: [i64; 2],
}

impl Purse {
    /// A purse that earns `permille` thousandths of a CPU from `now` on, full.
    pub fn new(permille: u32, now: Millis) -> Purse {
        let mut purse = Purse {
            permille: u64::from(permille),
            at: now,
            credit: [0; 2],
            glance_permille: 300,
            least: [0; 2],
            used: VecDeque::new(),
            minute: [0; 2],
        };
        purse.credit = [purse.cap(View::Look), purse.cap(View::Glance)];
        purse
    }

    /// Which part of what is earned glances get.
    pub fn share(&mut self, glance_permille: u64) {
        self.glance_permille = glance_permille.min(1000);
    }

    /// The part of what is earned that goes to `view`, in thousandths.
    pub fn share_of(&self, view: View) -> u64 {
        match view {
            View::Look => 1000 - self.glance_permille,
            View::Glance => self.glance_permille,
        }
    }

    /// Earns `permille` thousandths of a CPU from the last [`Purse::earn`] on.
    pub fn earns(&mut self, permille: u32) {
        self.permille = u64::from(permille);
        let caps = [self.cap(View::Look), self.cap(View::Glance)];
        for (credit, cap) in self.credit.iter_mut().zip(caps) {
            *credit = (*credit).min(cap);
        }
    }

    /// Lets the account of `view` hold at least `us`: less would never pay for the
    /// smallest thing that is worth to be begun.
    pub fn hold_at_least(&mut self, view: View, us: u64) {
        self.least[view as usize] = i64::try_from(us).unwrap_or(i64::MAX / 4);
    }

    /// Adds what was earned until `now`.
    pub fn earn(&mut self, now: Millis) {
        let earned = (now.since(self.at) * self.permille) as i64;
        self.at = self.at.max(now);
        let glance = earned * self.glance_permille as i64 / 1000;
        let parts = [earned - glance, glance];
        let caps = [self.cap(View::Look), self.cap(View::Glance)];
        let mut over = 0;
        for ((credit, part), cap) in self.credit.iter_mut().zip(parts).zip(caps) {
            let sum = *credit + part;
            *credit = sum.min(cap.max(*credit));
            over += sum - *credit;
        }
        for (credit, cap) in self.credit.iter_mut().zip(caps) {
            let takes = over.min(cap - *credit).max(0);
            *credit += takes;
            over -= takes;
        }
        while let Some((from, sums)) = self.used.front().copied() {
            if from + KEPT_MS > self.at.0 {
                break;
            }
            self.used.pop_front();
            for (minute, sum) in self.minute.iter_mut().zip(sums) {
                *minute -= sum;
            }
        }
    }

    /// Takes `us` from the account of `view`; less than nothing gives back.
    pub fn spend(&mut self, view: View, us: i64) {
        self.credit[view as usize] -= us;
        self.minute[view as usize] += us;
        let step = self.at.0 / STEP_MS * STEP_MS;
        match self.used.back_mut() {
            Some((from, sums)) if *from == step => sums[view as usize] += us,
            _ => {
                let mut sums = [0; 2];
                sums[view as usize] = us;
                self.used.push_back((step, sums));
            }
        }
    }

    /// What `view` may use now.
    pub fn credit(&self, view: View) -> i64 {
        // One that is overdrawn is paid for by the other.
        let other = self.credit[1 - view as usize].min(0);
        (self.credit[view as usize] + other).min(self.left(view))
    }

    /// What of this minute is left to `view`.
    fn left(&self, view: View) -> i64 {
        let other = match view {
            View::Look => View::Glance,
            View::Glance => View::Look,
        };
        let all = (MINUTE_MS * self.permille) as i64;
        let kept = (60_000 * self.rate(other) / 1000) as i64;
        let used = self.minute[view as usize] + self.minute[other as usize].max(kept);
        // What is needed for anything at all may be more than a minute earns.
        let least = self.least[view as usize] - self.minute[view as usize].max(0);
        (all - used).max(least)
    }

    /// Microseconds that `view` earns in a second.
    pub fn rate(&self, view: View) -> u64 {
        self.permille * self.share_of(view)
    }

    fn cap(&self, view: View) -> i64 {
        let cap = (BURST_MS * self.permille * self.share_of(view) / 1000) as i64;
        cap.max(self.least[view as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWS: [View; 2] = [View::Look, View::Glance];

    #[test]
    fn any_minute_costs_at_most_its_earnings_and_a_twentieth() {
        // 50/1000 of a CPU: 3 s a minute.
        let mut purse = Purse::new(50, Millis(0));
        let mut spent: Vec<i64> = Vec::new();
        // Nothing for a minute, then all that there is, every 100 ms.
        for now in (60_000..300_000).step_by(100) {
            purse.earn(Millis(now));
            let mut sum = 0;
            for view in VIEWS {
                let us = purse.credit(view).max(0);
                purse.spend(view, us);
                sum += us;
            }
            spent.push(sum);
        }
        let worst = spent.windows(600).map(|w| w.iter().sum::<i64>()).max();
        assert!(worst.unwrap() <= 3_150_000, "{worst:?}");
        assert!(worst.unwrap() >= 3_000_000, "{worst:?}");
        // 240 s earn 12 s, and 2.25 s were saved up.
        let all: i64 = spent.iter().sum();
        assert!((11_500_000..=14_250_000).contains(&all), "{all}");
    }

    #[test]
    fn a_burst_of_looks_leaves_glances_their_share() {
        let mut purse = Purse::new(50, Millis(0));
        // 70 % of 45 s of 50 ms.
        assert_eq!(purse.credit(View::Look), 1_575_000);
        purse.spend(View::Look, 1_575_000);
        for now in (100..60_000).step_by(100) {
            purse.earn(Millis(now));
            let us = purse.credit(View::Look).max(0);
            purse.spend(View::Look, us);
        }
        // A minute's 3.15 s less 30 % of 3 s went to looks.
        assert_eq!(purse.minute[0], 2_250_000);
        assert_eq!(purse.credit(View::Glance), 675_000);
    }

    #[test]
    fn what_one_cannot_hold_flows_to_the_other() {
        let mut purse = Purse::new(50, Millis(0));
        // 70 % of 2.25 s and 30 %.
        assert_eq!(purse.credit(View::Look), 1_575_000);
        assert_eq!(purse.credit(View::Glance), 675_000);
        purse.spend(View::Look, 175_000);
        // 1 s earns 50 ms, all of it for looks: glances are full.
        purse.earn(Millis(1_000));
        assert_eq!(purse.credit(View::Look), 1_450_000);
        assert_eq!(purse.credit(View::Glance), 675_000);
    }

    #[test]
    fn an_overdrawn_account_is_paid_for_by_the_other() {
        let mut purse = Purse::new(50, Millis(0));
        purse.spend(View::Glance, 700_000);
        // 675,000 - 700,000 are missing.
        assert_eq!(purse.credit(View::Look), 1_550_000);
        assert_eq!(purse.credit(View::Glance), -25_000);
    }

    #[test]
    fn a_budget_too_small_for_anything_pays_for_the_smallest_look_once_a_while() {
        let mut purse = Purse::new(1, Millis(0));
        purse.hold_at_least(View::Look, 500_000);
        let mut looks = 0;
        for now in (0..3_600_000).step_by(1_000) {
            purse.earn(Millis(now));
            if purse.credit(View::Look) >= 500_000 {
                purse.spend(View::Look, 500_000);
                looks += 1;
            }
        }
        // An hour earns 3.6 s, most of it for looks.
        assert!((5..=7).contains(&looks), "{looks}");
    }
}
