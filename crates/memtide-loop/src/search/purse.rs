//! Processor time that observing may still use.
//!
//! Two accounts, one for each view, grow by their shares of a fixed part of
//! elapsed time. What one cannot hold flows to the other. Where little was used
//! in the last minute there may be a *burst*: a first look at everything, a hot
//! set that has moved. For a minute after one the accounts grow by three fifths
//! only, so that observing goes on at a pace and does not stop.
//!
//! A minute's earnings and a tenth more are the most that any minute may cost.
//! After a burst the minute before it has cost at most 22 s of earnings; the
//! minute after adds 36 s, and the accounts hold 5 s: 63 s. A pass may cost more
//! than was expected of it, so what the last minute cost stops all at 64 s.

use super::View;
use memtide_core::units::Millis;

/// Earnings that the accounts hold together, in ms of elapsed time.
const BURST_MS: u64 = 5_000;
/// What a minute may have cost after a burst, in ms of elapsed time.
const QUIET_MS: u64 = 22_000;
/// Thousandths of what is earned that the accounts get after a burst.
const AFTER: i64 = 600;
/// For how long, in ms.
const AFTER_MS: u64 = 60_000;
/// A minute's worst, in ms of elapsed time, less what a pass may cost beyond
/// what was expected of it.
const MINUTE_MS: u64 = 64_000;
/// The last minute is counted in parts of so many ms.
const PART_MS: u64 = 500;
const PARTS: usize = 121;

/// The accounts, in microseconds of CPU time; negative when overdrawn.
#[derive(Clone, Debug)]
pub struct Purse {
    permille: u64,
    at: Millis,
    credit: [i64; 2],
    /// Whether a look may be a burst, too.
    looks_burst: bool,
    /// When there was a burst last.
    burst_at: Option<Millis>,
    glance_permille: u64,
    /// The least that the look's account can hold.
    least: i64,
    /// What was used in each part of the last minute, and the sum.
    minute: [i64; PARTS],
    used: i64,
}

impl Purse {
    /// A purse that earns `permille` thousandths of a CPU from `now` on, full.
    pub fn new(permille: u32, now: Millis) -> Purse {
        let mut purse = Purse {
            permille: u64::from(permille),
            at: now,
            credit: [0; 2],
            looks_burst: true,
            burst_at: None,
            glance_permille: 300,
            least: 0,
            minute: [0; PARTS],
            used: 0,
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
        let now = self.at.max(now);
        let (from, to) = (self.at.0 / PART_MS, now.0 / PART_MS);
        for part in (from + 1..=to).take(PARTS) {
            let slot = &mut self.minute[part as usize % PARTS];
            self.used -= std::mem::take(slot);
        }
        let mut earned = (now.since(self.at) * self.permille) as i64;
        self.at = now;
        if self.burst_at.is_some_and(|at| now.since(at) < AFTER_MS) {
            earned = earned * AFTER / 1000;
        }
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

    /// Takes `us` from the account of `view`, and what that lacks from a burst;
    /// less than nothing gives back.
    pub fn spend(&mut self, view: View, us: i64) {
        let burst = self.burst();
        self.minute[(self.at.0 / PART_MS) as usize % PARTS] += us;
        self.used += us;
        let credit = &mut self.credit[view as usize];
        *credit -= us;
        if *credit < 0 && burst > 0 && us > 0 {
            *credit = (*credit + burst).min(0);
            self.burst_at = Some(self.at);
        }
    }

    /// What `view` may use now.
    pub fn credit(&self, view: View) -> i64 {
        // One that is overdrawn is paid for by the other. Where looks burst, too,
        // glances may take half: looks need more at once.
        let other = self.credit[1 - view as usize].min(0);
        let burst = match (view, self.looks_burst) {
            (View::Look, true) | (View::Glance, false) => self.burst(),
            (View::Glance, true) => self.burst() / 2,
            (View::Look, false) => 0,
        };
        let left = (MINUTE_MS * self.permille) as i64 - self.used;
        (self.credit[view as usize] + other + burst).min(left)
    }

    /// Lets looks have a burst if all that there is to look at costs `us`: where
    /// that is much more than a burst, it is wasted on a small part.
    pub fn looks_cost(&mut self, us: f64) {
        self.looks_burst = us <= 2.0 * (QUIET_MS * self.permille) as f64;
    }

    /// What may be used beyond the accounts.
    fn burst(&self) -> i64 {
        ((QUIET_MS * self.permille) as i64 - self.used).max(0)
    }

    /// Microseconds that `view` earns in a second.
    pub fn rate(&self, view: View) -> u64 {
        self.permille * self.share_of(view)
    }

    fn cap(&self, view: View) -> i64 {
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

    /// Uses all that there is, every 100 ms; the most that a minute cost.
    fn worst_minute(
        purse: &mut Purse,
        from_ms: u64,
        views: &[View],
        pause: impl Fn(u64) -> bool,
    ) -> i64 {
        let mut spent: Vec<i64> = Vec::new();
        for now in (from_ms..from_ms + 400_000).step_by(100) {
            purse.earn(Millis(now));
            let mut sum = 0;
            for view in views.iter().filter(|_| !pause(now)) {
                let us = purse.credit(*view).max(0);
                purse.spend(*view, us);
                sum += us;
            }
            spent.push(sum);
        }
        spent
            .windows(600)
            .map(|w| w.iter().sum())
            .max()
            .expect("ten minutes")
    }

    #[test]
    fn any_minute_costs_at_most_its_earnings_and_a_tenth() {
        let both = [View::Look, View::Glance];
        for pause_s in [0, 7, 20, 45, 90] {
            // 50/1000 of a CPU: 3 s a minute.
            let mut purse = Purse::new(50, Millis(0));
            let pause = |now: u64| pause_s > 0 && now / 1000 % (2 * pause_s) < pause_s;
            let worst = worst_minute(&mut purse, 60_000, &both, pause);
            assert!(worst <= 3_300_000, "{worst} {pause_s}");
            assert!(worst >= 1_500_000, "{worst} {pause_s}");
        }
    }

    #[test]
    fn after_a_burst_it_goes_on_at_a_pace_and_in_the_long_run_all_is_used() {
        let mut purse = Purse::new(50, Millis(0));
        let mut seconds = Vec::new();
        for now in (0..600_000).step_by(100) {
            purse.earn(Millis(now));
            let mut sum = 0;
            for view in [View::Look, View::Glance] {
                let us = purse.credit(view).max(0);
                purse.spend(view, us);
                sum += us;
            }
            match now % 1000 {
                0 => seconds.push(sum),
                _ => *seconds.last_mut().expect("the second has begun") += sum,
            }
        }
        // 0.25 s and 1.1 s at once; then 30 ms in each second, then 50.
        assert!(seconds[0] >= 1_300_000, "{}", seconds[0]);
        assert!(seconds[1..].iter().all(|us| *us >= 29_000), "{seconds:?}");
        let later: i64 = seconds[100..].iter().sum();
        assert!(later >= 500 * 49_000, "{later}");
    }

    #[test]
    fn what_one_cannot_hold_flows_to_the_other() {
        let mut purse = Purse::new(50, Millis(0));
        // 70 % of 250 ms and 30 %, and a burst of 1100 ms.
        assert_eq!(purse.credit(View::Look), 175_000 + 1_100_000);
        assert_eq!(purse.credit(View::Glance), 75_000 + 550_000);
        purse.spend(View::Look, 175_000);
        // 1 s earns 50 ms, all of it for looks: glances are full.
        purse.earn(Millis(1_000));
        assert_eq!(purse.credit(View::Look), 50_000 + 925_000);
        assert_eq!(purse.credit(View::Glance), 75_000 + 925_000 / 2);
    }

    #[test]
    fn what_an_account_lacks_comes_from_a_burst_and_slows_what_follows() {
        let mut purse = Purse::new(50, Millis(0));
        purse.spend(View::Glance, 100_000);
        // 25,000 more than it had; the minute has cost 100,000.
        assert_eq!(purse.credit(View::Glance), 1_000_000 / 2);
        // Three fifths of 50 ms, three tenths of it for glances.
        purse.earn(Millis(1_000));
        assert_eq!(purse.credit(View::Glance), 30_000 + 1_000_000 / 2);
    }
}
