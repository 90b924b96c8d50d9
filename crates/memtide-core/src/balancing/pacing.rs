//! What reports accesses, and what follows for the rhythm of balancing.
//!
//! Hint faults come from scans, so scans are their clock: a task is placed when
//! a sequence of scans has ended, and is young for the first four. Samples know
//! no scans. There the clock is the samples themselves: a task is placed every
//! 250 of them, is young for the first 1000, and the operations between two
//! samples are what feedback makes longer or shorter, by the same rule that
//! makes scans rarer. That is how the IBS balancing series has it.
//!
//! One thing in its code is hardly meant so. It counts samples only where it
//! would also retry to bring the task to its preferred node; once there is a
//! preferred node, that is one sample every 0.3 to 1 s, so a second placement
//! takes minutes and the task stays young. [`Counting`] has both ways.

use super::timing::{FaultSums, Feedback, adapted};
use serde::{Deserialize, Serialize};

/// Placements after which a task is no longer young.
pub const YOUNG_PLACEMENTS: u32 = 4;

/// What reports accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Hint faults that scans arm.
    Scans,
    /// Hardware samples, or anything else that comes without scans.
    Samples(SampleSettings),
}

impl Pacing {
    /// Whether samples are counted that way.
    pub(super) fn counts(&self, counting: Counting) -> bool {
        matches!(self, Pacing::Samples(settings) if settings.counting == counting)
    }
}

/// Which samples count towards a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counting {
    /// All.
    #[default]
    Every,
    /// As the IBS balancing series does: those that come when the task may be brought to its
    /// preferred node again.
    BetweenRetries,
}

/// The settings of balancing by samples; defaults are the IBS balancing series'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleSettings {
    /// Operations between samples at first (`sample_period_def`).
    pub period: u32,
    /// Fewest (`sample_period_min`).
    pub min_period: u32,
    /// Most (`sample_period_max`).
    pub max_period: u32,
    /// Samples between placements (`access_faults_threshold`).
    pub placement_samples: u32,
    /// Before a new space is sampled, in ms (`access_faults_delay`).
    pub delay_ms: u32,
    /// Which samples count towards a placement.
    pub counting: Counting,
}

impl Default for SampleSettings {
    fn default() -> SampleSettings {
        SampleSettings {
            period: 10_000,
            min_period: 5000,
            max_period: 20_000,
            placement_samples: 250,
            delay_ms: 1000,
            counting: Counting::Every,
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleSettingsError {
    /// Periods out of order.
    #[error(
        "sample periods {min} to {max} operations, at first {period}: give 16 or more, in this order"
    )]
    Periods {
        /// The fewest operations.
        min: u32,
        /// At first.
        period: u32,
        /// The most.
        max: u32,
    },
    /// No sample would ever place a task, or each would.
    #[error("a placement every {0} samples: give at least 2")]
    Placement(u32),
}

impl SampleSettings {
    /// The settings, if they can be.
    ///
    /// # Errors
    ///
    /// See [`SampleSettingsError`].
    pub fn checked(self) -> Result<SampleSettings, SampleSettingsError> {
        let (min, max) = (self.min_period, self.max_period);
        if min < 16 || !(min..=max).contains(&self.period) {
            let period = self.period;
            return Err(SampleSettingsError::Periods { min, period, max });
        }
        if self.placement_samples < 2 {
            return Err(SampleSettingsError::Placement(self.placement_samples));
        }
        Ok(self)
    }

    /// Samples for which a task is young.
    #[must_use]
    pub fn young_samples(&self) -> u64 {
        u64::from(self.placement_samples) * u64::from(YOUNG_PLACEMENTS)
    }

    /// The period after what was seen: the rule of scans, in operations.
    #[must_use]
    pub fn feedback(&self, period: u64, seen: &FaultSums) -> Feedback {
        let limits = u64::from(self.min_period)..=u64::from(self.max_period);
        adapted(period, *limits.end(), limits, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(remote: u64, local: u64, failed: u64, shared: u64, private: u64) -> FaultSums {
        FaultSums {
            remote,
            local,
            failed,
            shared,
            private,
        }
    }

    #[test]
    fn periods_follow_the_rule_of_scans_within_their_limits() {
        let settings = SampleSettings::default();
        let next = |period, sums| settings.feedback(period, &sums).period();
        // ceil(10000 / 10) = 1000 a slot. 1 of 10 local, 1 of 10 private: 6 slots faster.
        assert_eq!(next(10_000, seen(90, 10, 0, 90, 10)), 5000);
        // 5 of 10 private: 2 slots faster.
        assert_eq!(next(10_000, seen(90, 10, 0, 50, 50)), 8000);
        // All private: 3 slots slower, at most 20000.
        assert_eq!(next(10_000, seen(0, 100, 0, 0, 100)), 13_000);
        assert_eq!(next(18_000, seen(0, 100, 0, 0, 100)), 20_000);
        // A failed move doubles.
        assert_eq!(next(6000, seen(10, 10, 1, 10, 10)), 12_000);
        assert_eq!(next(12_000, seen(10, 10, 1, 10, 10)), 20_000);
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let with = |min_period, period, max_period| {
            let settings = SampleSettings {
                min_period,
                period,
                max_period,
                ..SampleSettings::default()
            };
            settings.checked().is_ok()
        };
        assert!(with(16, 16, 16) && with(5000, 10_000, 20_000));
        assert!(!with(15, 16, 16) && !with(5000, 4999, 20_000) && !with(5000, 20_001, 20_000));
        let none = SampleSettings {
            placement_samples: 1,
            ..SampleSettings::default()
        };
        assert_eq!(none.checked(), Err(SampleSettingsError::Placement(1)));
    }

    proptest! {
        #[test]
        fn a_period_stays_within_its_limits_and_moves_by_at_most_half_or_twice(
            period in 5000u64..=20_000, remote in 0u64..1 << 30, local in 0u64..1 << 30,
            failed in 0u64..2, shared in 0u64..1 << 30, private in 0u64..1 << 30,
        ) {
            let settings = SampleSettings::default();
            let sums = seen(remote, local, failed, shared, private);
            let next = settings.feedback(period, &sums).period();
            prop_assert!((5000..=20_000).contains(&next));
            prop_assert!(next <= 2 * period);
        }
    }
}
