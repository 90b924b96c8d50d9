//! How fast pages may go up while programs wait for memory.
//!
//! # Problem
//!
//! A promotion takes a free page of a fast node. Where memory runs short, programs want
//! that page, and the kernel has them wait until it has reclaimed one. Whoever promotes
//! at such a time makes them wait longer.
//!
//! # Approach
//!
//! The kernel tells for how long in all some task has stalled on memory: the field
//! `total` of the line `some` of
//! [PSI](https://docs.kernel.org/accounting/psi.html). A [`Pace`] hears it about once a
//! second and says which part of the rate limit is admitted. Its law and its constants
//! are those of [senpai](https://github.com/facebookincubator/senpai), which sizes
//! containers by PSI:
//!
//! - What was heard since the last decision is added up. Above [`STALL_US`] the pace
//!   falls at once, by (stall / [`STALL_US`] / [`BACK_OFF`])² of what it is, by all of it
//!   at most. So 1 % of a second takes 0.25 % away, 5 % takes 6.25 %, and 20 % takes all.
//! - After [`QUIET_MS`] without that it rises, by a tenth of the whole if the stall was no
//!   more than [`STALL_US`] / [`PROBE`], and by the square of how much less it was else.
//!
//! It never falls below [`LEAST_PPM`]. But *memory is short* if the last reading alone
//! took all of it away: then the kernel comes first, and nothing is admitted until a later
//! reading says otherwise.
//!
//! # Properties
//!
//! - More stall never means a higher pace.
//! - Without stall the whole is back within eleven quiet times, whatever was before.
//! - Only differences count. A total that is less than before is of another counter, and
//!   the time since is taken as quiet as it was.
//! - Stalls of longer than [`QUIET_MS`] without a reading count as if they had come evenly.
//!
//! PSI does not see slow memory: a load from it is no stall. So pressure never says that
//! pages should go up.

use crate::units::Millis;

/// What is admitted without pressure, in millionths.
pub const WHOLE_PPM: u32 = 1_000_000;
/// And at the least, as long as memory is not short: 1/256.
pub const LEAST_PPM: u32 = WHOLE_PPM / 256;
/// Stall above which the pace falls, in µs.
pub const STALL_US: u64 = 10_000;
/// So many times that stall takes everything.
pub const BACK_OFF: u64 = 20;
/// So many times less stall is quiet.
pub const PROBE: u64 = 10;
/// How long it is quiet before the pace rises, in ms.
pub const QUIET_MS: u64 = 6_000;
/// How often a total should be heard, in ms.
pub const HEAR_MS: u64 = 1_000;
/// By how much the pace rises after a quiet time, in millionths.
const RISE_PPM: u64 = WHOLE_PPM as u64 / 10;

/// Which part of the rate limit is admitted. See the module's essay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    ppm: u32,
    short: bool,
    /// The last total, and when it was heard.
    last: Option<(Millis, u64)>,
    /// Stall since the last decision, in µs, and when that was.
    stall_us: u64,
    decided: Millis,
    /// All stall that was heard, in µs.
    heard_us: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            ppm: WHOLE_PPM,
            short: false,
            last: None,
            stall_us: 0,
            decided: Millis(0),
            heard_us: 0,
        }
    }
}

impl Pace {
    /// By `now` some task has stalled for `total_us` in all; `None` if nobody says so,
    /// and then there is no pressure.
    pub fn hear(&mut self, total_us: Option<u64>, now: Millis) {
        let Some(total_us) = total_us else {
            let heard_us = self.heard_us;
            *self = Pace::default();
            self.heard_us = heard_us;
            return;
        };
        let Some((at, before_us)) = self.last.replace((now, total_us)) else {
            self.decided = now;
            return;
        };
        let passed_ms = now.since(at);
        if passed_ms == 0 {
            // A clock that stands still: what came is told with the next reading.
            self.last = Some((at, before_us.min(total_us)));
            return;
        }
        let mut came_us = total_us.saturating_sub(before_us);
        self.heard_us = self.heard_us.saturating_add(came_us);
        if passed_ms > QUIET_MS {
            let evenly = u128::from(came_us) * u128::from(QUIET_MS) / u128::from(passed_ms);
            came_us = evenly as u64;
        }
        self.stall_us = self.stall_us.saturating_add(came_us);
        self.short = taken_ppm(came_us) >= WHOLE_PPM;
        if self.stall_us > STALL_US {
            let left = u64::from(self.ppm) * u64::from(WHOLE_PPM - taken_ppm(self.stall_us));
            let left = (left / u64::from(WHOLE_PPM)) as u32;
            self.ppm = left.max(LEAST_PPM);
        } else if now.since(self.decided) >= QUIET_MS {
            self.ppm = (self.ppm + rise_ppm(self.stall_us)).min(WHOLE_PPM);
        } else {
            return;
        }
        self.decided = now;
        self.stall_us = 0;
    }

    /// What is admitted of the rate limit, in millionths.
    pub fn ppm(&self) -> u32 {
        if self.short { 0 } else { self.ppm }
    }

    /// Whether all is admitted.
    pub fn is_whole(&self) -> bool {
        self.ppm() == WHOLE_PPM
    }

    /// Whether the kernel comes first: nothing is admitted.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// All stall that was heard, in µs.
    pub fn heard_us(&self) -> u64 {
        self.heard_us
    }

    /// How many times as fast as usual idle pages leave, in thousandths: 1000 without
    /// pressure, and `most` at the least pace or where memory is short.
    pub fn haste_permille(&self, most: u64) -> u64 {
        let slowed = u64::from(WHOLE_PPM - self.ppm().max(LEAST_PPM));
        let range = u64::from(WHOLE_PPM - LEAST_PPM);
        1000 + most.saturating_sub(1000) * slowed / range
    }

    /// The slower of two.
    #[must_use]
    pub fn slower(self, other: Pace) -> Pace {
        if other.ppm() < self.ppm() {
            other
        } else {
            self
        }
    }
}

/// What so much stall takes of the pace, in millionths.
fn taken_ppm(stall_us: u64) -> u32 {
    // No more than takes all, so that nothing overflows: 4 × 10^16.
    let all_us = STALL_US * BACK_OFF;
    let stall_us = stall_us.min(all_us);
    (stall_us * stall_us * u64::from(WHOLE_PPM) / (all_us * all_us)) as u32
}

/// By how much the pace rises after a quiet time with so much stall, in millionths.
fn rise_ppm(stall_us: u64) -> u32 {
    let quiet_us = STALL_US / PROBE;
    let stall_us = stall_us.max(quiet_us);
    (RISE_PPM * quiet_us * quiet_us / (stall_us * stall_us)) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pace that heard so much stall in each second.
    fn after(stalls_us: &[u64]) -> Pace {
        let mut pace = Pace::default();
        let mut total = 7;
        pace.hear(Some(total), Millis(500));
        for (n, stall) in (1..).zip(stalls_us) {
            total += stall;
            pace.hear(Some(total), Millis(500 + n * 1000));
        }
        pace
    }

    #[test]
    fn the_pace_falls_with_the_square_of_the_stall() {
        // 10 ms are not too much; 50 ms are a quarter of 200 ms, and 1/16 goes.
        assert_eq!(after(&[10_000]).ppm(), 1_000_000);
        assert_eq!(after(&[50_000]).ppm(), 937_500);
        assert_eq!(after(&[100_000]).ppm(), 750_000);
        assert_eq!(after(&[100_000, 100_000]).ppm(), 562_500);
        // Small stalls add up: 6 and 6 are 12 ms, and 0.36 % goes.
        assert_eq!(after(&[6_000, 6_000]).ppm(), 996_400);
    }

    #[test]
    fn where_a_fifth_of_a_second_stalls_the_kernel_comes_first() {
        let short = after(&[200_000]);
        assert!(short.is_short());
        assert_eq!(short.ppm(), 0);
        // The next second says otherwise, and the least is admitted.
        let least = after(&[200_000, 0]);
        assert_eq!((least.is_short(), least.ppm()), (false, LEAST_PPM));
    }

    #[test]
    fn it_rises_by_a_tenth_after_six_quiet_seconds() {
        let mut stalls = vec![200_000];
        stalls.extend([0; 5]);
        assert_eq!(after(&stalls).ppm(), LEAST_PPM);
        stalls.push(0);
        assert_eq!(after(&stalls).ppm(), LEAST_PPM + 100_000);
        stalls.extend([0; 6]);
        assert_eq!(after(&stalls).ppm(), LEAST_PPM + 200_000);
        // With 5 ms in six seconds, which is five times what is quiet, by 1/25 of that.
        stalls.extend([5_000, 0, 0, 0, 0, 0]);
        assert_eq!(after(&stalls).ppm(), LEAST_PPM + 204_000);
    }

    #[test]
    fn a_long_time_counts_as_even() {
        let mut pace = Pace::default();
        pace.hear(Some(0), Millis(0));
        // 0.1 s in ten minutes are 1 ms in six seconds.
        pace.hear(Some(100_000), Millis(600_000));
        assert!(pace.is_whole());
        // 100 s in ten minutes are 1 s in six.
        pace.hear(Some(100_100_000), Millis(1_200_000));
        assert!(pace.is_short());
    }

    #[test]
    fn a_counter_that_began_again_tells_nothing() {
        let mut pace = after(&[100_000]);
        let before = pace.ppm();
        pace.hear(Some(0), Millis(2_500));
        assert_eq!(pace.ppm(), before);
        pace.hear(Some(100_000), Millis(3_500));
        assert!(pace.ppm() < before);
        pace.hear(None, Millis(4_500));
        assert!(pace.is_whole());
        assert_eq!(pace.heard_us(), 200_000);
    }

    #[test]
    fn idle_pages_leave_the_faster_the_slower_others_come() {
        assert_eq!(Pace::default().haste_permille(4000), 1000);
        assert_eq!(after(&[200_000]).haste_permille(4000), 4000);
        assert_eq!(after(&[200_000, 0]).haste_permille(4000), 4000);
        // A quarter is gone.
        assert_eq!(after(&[100_000]).haste_permille(4000), 1752);
    }

    proptest! {
        #[test]
        fn more_stall_never_means_more_haste(
            stalls in prop::collection::vec((0..400_000u64, 0..400_000u64), 1..60),
        ) {
            let less: Vec<u64> = stalls.iter().map(|(stall, _)| *stall).collect();
            let more: Vec<u64> = stalls.iter().map(|(stall, extra)| stall + extra).collect();
            // Both decide at the same times only while both are above the line, so what is
            // compared is one decision from the same state.
            let before = after(&less[..less.len() - 1]);
            let mut one = before;
            let mut other = before;
            let (at, total) = before.last.unwrap();
            one.hear(Some(total + less.last().unwrap()), Millis(at.0 + 1000));
            other.hear(Some(total + more.last().unwrap()), Millis(at.0 + 1000));
            prop_assert!(other.ppm() <= one.ppm());
        }

        #[test]
        fn it_stays_within_its_bounds_and_comes_back(
            readings in prop::collection::vec(
                (prop::option::weighted(0.9, any::<u64>()), 0..100_000u64), 0..60),
        ) {
            let mut pace = Pace::default();
            let mut now = Millis(0);
            for (total, passed) in readings {
                now = Millis(now.0 + passed);
                pace.hear(total, now);
                let ppm = pace.ppm();
                prop_assert!(ppm <= WHOLE_PPM);
                prop_assert_eq!(ppm < LEAST_PPM, pace.is_short());
                prop_assert!((1000..=4000).contains(&pace.haste_permille(4000)));
            }
            let total = pace.last.map_or(0, |(_, total)| total);
            // One to end what was begun, and eleven of six seconds.
            for _ in 0..=12 * 6 {
                now = Millis(now.0 + 1000);
                pace.hear(Some(total), now);
            }
            prop_assert!(pace.is_whole());
        }
    }
}
