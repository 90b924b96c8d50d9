//! How many operations lie between two samples, so that samples come at the
//! rate that is worth their price.
//!
//! The rate of samples is that of operations, times the share that passes the
//! filter, over the period; neither of the two is known beforehand. So the period
//! follows what came: after each window it is multiplied by the rate seen over the
//! rate wanted, at most doubled or halved at once, and within limits. A window
//! that is close to its goal changes nothing, so that the sampler is not set anew
//! for noise. A window with losses or throttling says nothing of the rate; it
//! doubles the period.
//!
//! The document's feedback ([`super::super::pacing::SampleSettings::feedback`])
//! says, for each task, how much more there is to learn. The two meet in
//! [`PeriodControl::period_for`]: the rate decides for all, the task's feedback
//! shifts it within the document's own range of a half to twice.

use serde::{Deserialize, Serialize};

/// What the control works towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeriodControlConfig {
    /// Samples a second that are wanted, over all CPUs that are sampled.
    pub target_per_s: u64,
    /// The first period, in operations.
    pub period: u64,
    /// The shortest.
    pub min_period: u64,
    /// The longest: the hardware's limit.
    pub max_period: u64,
}

impl Default for PeriodControlConfig {
    /// 1000 samples a second; a counter of 27 bits.
    fn default() -> PeriodControlConfig {
        PeriodControlConfig {
            target_per_s: 1000,
            period: 10_000,
            min_period: 1000,
            max_period: (1 << 27) - 16,
        }
    }
}

/// What a window brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Samples.
    pub samples: u64,
    /// The window's length.
    pub window_ns: u64,
    /// Whether samples were lost or the sampler was throttled.
    pub lost: bool,
}

/// The control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeriodControl {
    config: PeriodControlConfig,
    period: u64,
}

impl PeriodControl {
    /// A control at its first period; limits in the wrong order are swapped, a
    /// period outside is brought inside.
    #[must_use]
    pub fn new(config: PeriodControlConfig) -> PeriodControl {
        let (a, b) = (config.min_period.max(16), config.max_period.max(16));
        let config = PeriodControlConfig {
            min_period: a.min(b),
            max_period: a.max(b),
            ..config
        };
        PeriodControl {
            period: config.period.clamp(config.min_period, config.max_period),
            config,
        }
    }

    /// The period now, for everybody.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period
    }

    /// Takes a window into account; the new period if it changed.
    pub fn window(&mut self, seen: Seen) -> Option<u64> {
        let before = self.period;
        let wanted = self.config.target_per_s.max(1);
        let next = match (seen.lost, seen.window_ns) {
            (true, _) => before.saturating_mul(2),
            (_, 0) => before,
            _ => {
                let rate = u128::from(seen.samples) * 1_000_000_000 / u128::from(seen.window_ns);
                let rate = u64::try_from(rate).unwrap_or(u64::MAX);
                let close = rate >= wanted - wanted / 4 && rate <= wanted + wanted / 4;
                let asked = u128::from(before) * u128::from(rate) / u128::from(wanted);
                let asked = u64::try_from(asked).unwrap_or(u64::MAX);
                match close {
                    true => before,
                    false => asked.clamp(before / 2, before.saturating_mul(2)),
                }
            }
        };
        self.period = next.clamp(self.config.min_period, self.config.max_period);
        (self.period != before).then_some(self.period)
    }

    /// The period of a task whose feedback has made `first` operations `now`.
    #[must_use]
    pub fn period_for(&self, now: u64, first: u64) -> u64 {
        let period = u128::from(self.period) * u128::from(now) / u128::from(first.max(1));
        let period = u64::try_from(period).unwrap_or(u64::MAX);
        period.clamp(self.config.min_period, self.config.max_period)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn seen(samples: u64) -> Seen {
        Seen {
            samples,
            window_ns: SECOND,
            lost: false,
        }
    }

    #[test]
    fn the_period_follows_the_rate() {
        let mut control = PeriodControl::new(PeriodControlConfig::default());
        // 1500 of 1000: half as long again. 1200: close enough.
        assert_eq!(control.window(seen(1500)), Some(15_000));
        assert_eq!(control.window(seen(1200)), None);
        // 10000 of 1000 would be ten times; twice at once.
        assert_eq!(control.window(seen(10_000)), Some(30_000));
        // None at all: halved, down to the least.
        assert_eq!(control.window(seen(0)), Some(15_000));
        for _ in 0..9 {
            control.window(seen(0));
        }
        assert_eq!(control.period(), 1000);
        // Losses say nothing but "too many".
        let lost = Seen {
            lost: true,
            ..seen(0)
        };
        assert_eq!(control.window(lost), Some(2000));
        // A window without length says nothing.
        assert_eq!(control.window(Seen::default()), None);
        // A task that needs half of the document's first period gets half of ours.
        assert_eq!(control.period_for(10_000, 10_000), 2000);
        assert_eq!(control.period_for(20_000, 10_000), 4000);
        assert_eq!(control.period_for(5000, 10_000), 1000);
    }

    proptest! {
        /// A sampler whose CPUs make a steady number of operations: the rate ends
        /// within a quarter of what is wanted, or the period at a limit, and stays.
        #[test]
        fn it_settles(operations in 1_000u64..1 << 40, first in 16u64..1 << 27, target in 10u64..100_000) {
            let mut control = PeriodControl::new(PeriodControlConfig {
                target_per_s: target, period: first, ..PeriodControlConfig::default()
            });
            for _ in 0..64 {
                let samples = operations / control.period();
                control.window(seen(samples));
            }
            let settled = control.period();
            let rate = operations / settled;
            let within = rate + 1 >= target - target / 4 && rate <= target + target / 4 + 1;
            prop_assert!(within || settled == 1000 || settled == (1 << 27) - 16, "{settled} {rate}");
            for _ in 0..4 {
                control.window(seen(operations / control.period()));
            }
            prop_assert!(control.period().abs_diff(settled) <= settled / 2);
        }
    }
}
