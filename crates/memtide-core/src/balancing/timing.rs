//! How often a task's memory is scanned.
//!
//! A scan arms a fixed amount of memory, so the period is what decides the rate.
//! A task whose memory takes several scans (*windows*) gets its period divided
//! by their number, so that a whole pass takes about the time that was set, down
//! to a floor that keeps the rate below 2560 MB/s. A group whose pages are mostly
//! shared is scanned less: its members' faults say the same thing.
//!
//! Between the limits the period follows the faults ([`feedback`]): mostly
//! private or mostly local means that placement is done, so scan less; neither
//! means that something can be gained, so scan more; no faults at all, or moves
//! that fail, means that scanning is wasted, so halve the rate.
//!
//! Integers throughout, and every division drops its fraction where the kernel's
//! does.

use serde::{Deserialize, Serialize};

/// Highest rate of scanning, in MB/s.
pub const MAX_SCAN_RATE_MBPS: u32 = 2560;
/// Parts into which ratios and a period are cut.
pub const SLOTS: u64 = 10;
/// Parts from which a ratio counts as "most".
pub const SLOT_THRESHOLD: u64 = 7;

/// The settings under `/sys/kernel/debug/sched/numa_balancing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Before a new address space or mapping is scanned (`scan_delay_ms`).
    pub scan_delay_ms: u32,
    /// Shortest time for a whole pass (`scan_period_min_ms`).
    pub scan_period_min_ms: u32,
    /// Longest (`scan_period_max_ms`).
    pub scan_period_max_ms: u32,
    /// Memory that a scan arms (`scan_size_mb`), at least 1.
    pub scan_size_mb: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            scan_delay_ms: 1000,
            scan_period_min_ms: 1000,
            scan_period_max_ms: 60_000,
            scan_size_mb: 256,
        }
    }
}

/// What a group says about the rate: its size and how many of its faults are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// Members.
    pub members: u64,
    /// Memory faults on pages that several tasks use.
    pub shared: u64,
    /// On pages of one task.
    pub private: u64,
}

impl GroupShare {
    /// `period` stretched by the group's size and its share of shared faults.
    fn stretched(&self, period: u64) -> u64 {
        let all = u128::from(self.private) + u128::from(self.shared) + 1;
        let most = u128::from(period) * u128::from(self.members) * (u128::from(self.shared) + 1);
        u64::try_from(most / all).unwrap_or(u64::MAX)
    }
}

/// A task's scan periods in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Periods {
    /// Shortest.
    pub min_ms: u64,
    /// The first.
    pub start_ms: u64,
    /// Longest.
    pub max_ms: u64,
}

impl Settings {
    /// Scans that a pass over `resident_pages` takes when one arms `scan_pages`.
    #[must_use]
    pub fn windows(resident_pages: u64, scan_pages: u64) -> u64 {
        resident_pages.div_ceil(scan_pages.max(1)).max(1)
    }

    /// The period below which scanning would be faster than allowed, in ms; 0, as in the
    /// kernel, where a scan is of 1 or 2 MB.
    #[must_use]
    pub fn floor_ms(&self) -> u64 {
        let size = self.scan_size_mb.max(1);
        let windows = match size < MAX_SCAN_RATE_MBPS {
            true => MAX_SCAN_RATE_MBPS / size,
            false => 1,
        };
        u64::from(1000 / windows)
    }

    /// The periods of a task whose memory takes `windows` scans.
    #[must_use]
    pub fn periods(&self, windows: u64, group: Option<GroupShare>) -> Periods {
        let windows = windows.max(1);
        let stretched = |period| group.map_or(0, |g| g.stretched(period));
        let min_ms = self
            .floor_ms()
            .max(u64::from(self.scan_period_min_ms) / windows);
        let most = u64::from(self.scan_period_max_ms) / windows;
        Periods {
            min_ms,
            start_ms: min_ms.max(stretched(min_ms)),
            max_ms: min_ms.max(most).max(stretched(most)),
        }
    }
}

/// The faults of a task since its last placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultSums {
    /// Faults on pages of another node.
    pub remote: u64,
    /// Faults on pages of the own node.
    pub local: u64,
    /// Pages that could not be moved.
    pub failed: u64,
    /// Faults on pages that several tasks use.
    pub shared: u64,
    /// Faults on pages of the task alone.
    pub private: u64,
}

/// What the faults make of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Feedback {
    /// Nothing to learn, or moves fail: twice the period, and the address
    /// space's next scan is that far away.
    BackOff {
        /// The new period.
        period: u64,
    },
    /// Faster or slower by some parts.
    Adjusted {
        /// The new period.
        period: u64,
    },
}

impl Feedback {
    /// The new period.
    #[must_use]
    pub fn period(self) -> u64 {
        match self {
            Feedback::BackOff { period } | Feedback::Adjusted { period } => period,
        }
    }
}

/// The period of scans after `period_ms`; `max_ms` is the limit noted at the
/// placement, which a back-off obeys, `limits` are those of now.
#[must_use]
pub fn feedback(period_ms: u64, max_ms: u64, limits: &Periods, faults: &FaultSums) -> Feedback {
    let (least, most) = (limits.min_ms, limits.max_ms.max(limits.min_ms));
    adapted(period_ms, max_ms, least..=most, faults)
}

/// The rule itself, in any unit: a back-off obeys `max`, an adjustment `limits`.
#[must_use]
pub fn adapted(
    period: u64,
    max: u64,
    limits: std::ops::RangeInclusive<u64>,
    faults: &FaultSums,
) -> Feedback {
    let FaultSums { remote, local, .. } = *faults;
    let FaultSums {
        shared, private, ..
    } = *faults;
    if local + shared == 0 || faults.failed > 0 {
        let period = max.min(period.saturating_mul(2));
        return Feedback::BackOff { period };
    }
    let slot = period.div_ceil(SLOTS);
    let parts = |some: u64, others: u64| some * SLOTS / (some + others).max(1);
    let (near, own) = (parts(local, remote), parts(private, shared));
    let slower = |ratio: u64| period.saturating_add(1.max(ratio - SLOT_THRESHOLD) * slot);
    let next = if own >= SLOT_THRESHOLD {
        slower(own)
    } else if near >= SLOT_THRESHOLD {
        slower(near)
    } else {
        period.saturating_sub((SLOT_THRESHOLD - near.max(own)) * slot)
    };
    let period = next.clamp(*limits.start(), *limits.end());
    Feedback::Adjusted { period }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 18;
    const SCAN: u64 = 256 << 8;

    #[test]
    fn windows_are_whole_scans_and_at_least_one() {
        assert_eq!(Settings::windows(0, SCAN), 1);
        assert_eq!(Settings::windows(SCAN, SCAN), 1);
        assert_eq!(Settings::windows(SCAN + 1, SCAN), 2);
        assert_eq!(Settings::windows(8 * GIB, SCAN), 32);
    }

    #[test]
    fn the_floor_is_a_tenth_of_a_second_at_256_mb() {
        // 2560 / 256 = 10 scans a second, 1000 / 10 = 100 ms.
        let with = |scan_size_mb| Settings {
            scan_size_mb,
            ..Settings::default()
        };
        assert_eq!(with(256).floor_ms(), 100);
        // 2560 / 300 = 8 (8.53), 1000 / 8 = 125.
        assert_eq!(with(300).floor_ms(), 125);
        assert_eq!(with(2560).floor_ms(), 1000);
        assert_eq!(with(9999).floor_ms(), 1000);
    }

    #[test]
    fn periods_of_a_task_alone() {
        let settings = Settings::default();
        // 1 window: 1000 ms to 60 s.
        let one = settings.periods(1, None);
        assert_eq!((one.min_ms, one.start_ms, one.max_ms), (1000, 1000, 60_000));
        // 8 GiB, 32 windows: 1000 / 32 = 31 < 100; 60000 / 32 = 1875.
        let big = settings.periods(32, None);
        assert_eq!((big.min_ms, big.start_ms, big.max_ms), (100, 100, 1875));
        // 1 TiB, 4096 windows: 60000 / 4096 = 14, so the floor is all there is.
        let huge = settings.periods(4096, None);
        assert_eq!((huge.min_ms, huge.start_ms, huge.max_ms), (100, 100, 100));
    }

    #[test]
    fn a_sharing_group_is_scanned_less() {
        // 8 members, 299 of 399 faults shared: factor 8 * 300 / 400 = 6.
        let group = Some(GroupShare {
            members: 8,
            shared: 299,
            private: 100,
        });
        let periods = Settings::default().periods(1, group);
        assert_eq!(periods.start_ms, 6000);
        assert_eq!(periods.max_ms, 360_000);
        assert_eq!(periods.min_ms, 1000);
        // All private: 8 / 400 shortens, and the minimum holds.
        let group = Some(GroupShare {
            members: 8,
            shared: 0,
            private: 399,
        });
        let periods = Settings::default().periods(1, group);
        assert_eq!((periods.start_ms, periods.max_ms), (1000, 60_000));
    }

    const LIMITS: Periods = Periods {
        min_ms: 100,
        start_ms: 100,
        max_ms: 60_000,
    };

    fn fed(period: u64, remote: u64, local: u64, failed: u64, shared: u64, private: u64) -> u64 {
        let faults = FaultSums {
            remote,
            local,
            failed,
            shared,
            private,
        };
        feedback(period, LIMITS.max_ms, &LIMITS, &faults).period()
    }

    #[test]
    fn nothing_seen_or_failing_moves_double_the_period() {
        // Remote private faults alone are "nothing": local + shared = 0.
        assert_eq!(fed(1000, 50, 0, 0, 0, 50), 2000);
        assert_eq!(fed(1000, 0, 100, 1, 0, 100), 2000);
        assert_eq!(fed(40_000, 0, 0, 0, 0, 0), 60_000);
    }

    #[test]
    fn private_first_then_local_then_speed_up() {
        // ceil(1000 / 10) = 100 a slot. 100 % private: 10 - 7 = 3 slots slower.
        assert_eq!(fed(1000, 90, 10, 0, 0, 100), 1300);
        // 7 of 10 private: 0 slots, at least 1.
        assert_eq!(fed(1000, 90, 10, 0, 30, 70), 1100);
        // 6 of 10 private, 9 of 10 local: 2 slots slower.
        assert_eq!(fed(1000, 10, 90, 0, 40, 60), 1200);
        // 2 of 10 local, 5 of 10 private: 7 - 5 = 2 slots faster.
        assert_eq!(fed(1000, 80, 20, 0, 50, 50), 800);
        // None local, none private: 7 slots faster; 1001 makes 101 a slot.
        assert_eq!(fed(1001, 100, 0, 0, 100, 0), 1001 - 7 * 101);
        // Down to the minimum, up to the maximum.
        assert_eq!(fed(110, 100, 0, 0, 100, 0), 100);
        assert_eq!(fed(59_000, 0, 100, 0, 0, 100), 60_000);
    }

    proptest! {
        #[test]
        fn periods_are_in_order(
            windows in 0u64..10_000, min in 1u32..5000, max in 1u32..100_000, size in 1u32..5000,
            group in proptest::option::of((1u64..500, 0u64..1 << 40, 0u64..1 << 40)),
        ) {
            let settings = Settings {
                scan_delay_ms: 1000, scan_period_min_ms: min, scan_period_max_ms: max, scan_size_mb: size,
            };
            let group = group.map(|(members, shared, private)| GroupShare { members, shared, private });
            let periods = settings.periods(windows, group);
            prop_assert!(periods.min_ms >= settings.floor_ms());
            // 2560 scans a second of 1 MB leave none of the kernel's whole milliseconds.
            prop_assert!(periods.min_ms > 0 || size <= 2);
            prop_assert!(periods.start_ms >= periods.min_ms);
            prop_assert!(periods.max_ms >= periods.min_ms);
        }

        #[test]
        fn feedback_stays_within_limits(
            period in 100u64..=60_000,
            remote in 0u64..1 << 40, local in 0u64..1 << 40, failed in 0u64..2,
            shared in 0u64..1 << 40, private in 0u64..1 << 40,
        ) {
            let next = fed(period, remote, local, failed, shared, private);
            prop_assert!((100..=60_000).contains(&next));
            // Never more than twice as slow.
            prop_assert!(next <= 2 * period);
        }
    }
}
