//! Processor time that observing may still use.
//!
//! Two accounts, one for each view, grow by their shares of a fixed part of
//! elapsed time. What one cannot hold flows to the other. Both together never
//! hold more than [`BURST_MS`] of earnings, so what is used in any minute is
//! at most the minute's earnings and a tenth more, however long it was quiet
//! before: 60 s of earnings, 5 s of burst, and 1 s for what a pass costs beyond
//! what was expected of it, or for what a glance may owe where telling the source is
//! dear: half of what its account can hold.

use super::View;
use memtide_core::units::Millis;

/// Earnings that the accounts hold together, in ms of elapsed time.
pub const BURST_MS: u64 = 5_000;

/// The two accounts, in microseconds of CPU time; negative when overdrawn.
#[derive(Clone, Debug)]
pub struct Purse {
    permille: u64,
    at: Millis,
    credit: [i64; 2],
    glance_permille: u64,
    /// The least that the look's account can hold.
    least: i64,
}

impl Purse {
    /// A purse that earns `permille` thousandths of a CPU from `now` on, full.
    pub fn new(permille: u32, now: Millis) -> Purse {
        let mut purse = Purse {
            permille: u64::from(permille),
            at: now,
            credit: [0; 2],
            glance_permille: 300,
            least: 0,
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

    /// Lets the look's account hold at least `us`: less would never pay for the
    /// smallest look there is.
    pub fn hold_at_least(&mut self, us: u64) {
        self.least = i64::try_from(us).unwrap_or(i64::MAX / 4);
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
    }

    /// Takes `us` from the account of `view`; less than nothing gives back.
    pub fn spend(&mut self, view: View, us: i64) {
        self.credit[view as usize] -= us;
    }

    /// What both hold.
    pub fn all(&self) -> i64 {
        self.credit.iter().sum()
    }

    /// What `view` may use now.
    pub fn credit(&self, view: View) -> i64 {
        // One that is overdrawn is paid for by the other.
        let other = self.credit[1 - view as usize].min(0);
        self.credit[view as usize] + other
    }

    /// Microseconds that both earn in a second.
    pub fn rate_of_all(&self) -> u64 {
        1000 * self.permille
    }

    /// Microseconds that `view` earns in a second.
    pub fn rate(&self, view: View) -> u64 {
        self.permille * self.share_of(view)
    }

    /// The most that `view` can hold.
    pub fn cap(&self, view: View) -> i64 {
        let cap = (BURST_MS * self.permille * self.share_of(view) / 1000) as i64;
        match view {
            View::Look => cap.max(self.least),
            View::Glance => cap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_minute_costs_at_most_its_earnings_and_a_burst() {
        // 50/1000 of a CPU: 3 s a minute, and a burst of 0.25 s.
        let mut purse = Purse::new(50, Millis(0));
        let mut spent: Vec<i64> = Vec::new();
        // Nothing for a minute, then all that there is, every 100 ms.
        for now in (60_000..200_000).step_by(100) {
            purse.earn(Millis(now));
            let mut sum = 0;
            for view in [View::Look, View::Glance] {
                let us = purse.credit(view).max(0);
                purse.spend(view, us);
                sum += us;
            }
            spent.push(sum);
        }
        let worst = spent.windows(600).map(|w| w.iter().sum::<i64>()).max();
        assert!(worst.unwrap() <= 3_000_000 + 250_000, "{worst:?}");
        assert!(worst.unwrap() >= 3_200_000, "{worst:?}");
    }

    #[test]
    fn what_one_cannot_hold_flows_to_the_other() {
        let mut purse = Purse::new(50, Millis(0));
        // 70 % of 250 ms and 30 %.
        assert_eq!(purse.credit(View::Look), 175_000);
        assert_eq!(purse.credit(View::Glance), 75_000);
        purse.spend(View::Look, 175_000);
        // 1 s earns 50 ms, all of it for looks: glances are full.
        purse.earn(Millis(1_000));
        assert_eq!(purse.credit(View::Look), 50_000);
        assert_eq!(purse.credit(View::Glance), 75_000);
    }

    #[test]
    fn an_overdrawn_account_is_paid_for_by_the_other() {
        let mut purse = Purse::new(50, Millis(0));
        purse.spend(View::Glance, 100_000);
        // 75,000 - 100,000 are missing.
        assert_eq!(purse.credit(View::Look), 150_000);
        assert_eq!(purse.credit(View::Glance), -25_000);
    }
}
