//! After how many events to sample, so that samples come at a wanted rate.
//!
//! Problem. A period says after how many events a sample is taken, and how
//! often those events happen depends on the program: misses of the last-level
//! cache come a thousand or a hundred million times a second. Too many samples
//! cost the program time, too few say nothing.
//!
//! Approach. From the samples that came with a period one knows the rate of the
//! events, and so the period that would have given the wanted number. The next
//! period goes there, at most [`MOST_STEP`] times longer or shorter at once: a
//! short quiet spell would otherwise shorten it so far that the next busy one
//! floods. Differences within a quarter are let be, since every change has to
//! reach every CPU. Where samples were lost or sampling was throttled, the rate
//! that was seen means nothing, and the period doubles.
//!
//! Properties. Integers only. The result lies within the bounds. From any
//! period, with events at a steady rate, it reaches the wanted rate within a
//! quarter, or a bound, in as many turns as it takes factors of eight, and then
//! stays.
//!
//! Source: *Memory access profiler(IBS) driven NUMA balancing*, which adapts by feedback alone, between
//! fixed bounds; facts ibs_pebs.md section 5 on rates.

/// The most that a period grows or shrinks in one turn.
pub const MOST_STEP: u64 = 8;

/// What came during a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Samples, whatever became of them.
    pub samples: u64,
    /// How many were wanted in that time.
    pub wanted: u64,
    /// Whether samples were lost or throttled.
    pub invalid: bool,
}

/// The period for the next turn, after one with `period` and what came with it,
/// between `min` and `max`.
#[must_use]
pub fn next_period(period: u64, came: Came, min: u64, max: u64) -> u64 {
    let max = max.max(min);
    let period = period.clamp(min.max(1), max.max(1));
    if came.invalid {
        return period.saturating_mul(2).min(max.max(1));
    }
    if came.wanted == 0 {
        // A turn too short to want a sample says nothing.
        return period;
    }
    // Within a quarter: 3/4 wanted <= samples <= 5/4 wanted.
    let (four, wanted) = (came.samples.saturating_mul(4), came.wanted);
    if four >= wanted.saturating_mul(3) && four <= wanted.saturating_mul(5) {
        return period;
    }
    let exact = u128::from(period) * u128::from(came.samples) / u128::from(wanted);
    let exact = u64::try_from(exact).unwrap_or(u64::MAX);
    let (least, most) = (period / MOST_STEP, period.saturating_mul(MOST_STEP));
    exact
        .clamp(least.max(1), most)
        .clamp(min.max(1), max.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn came(samples: u64, wanted: u64) -> Came {
        Came {
            samples,
            wanted,
            invalid: false,
        }
    }

    #[test]
    fn the_period_goes_where_the_rate_would_have_been_right() {
        // 3,000 came where 1,000 were wanted: three times the period.
        assert_eq!(next_period(10_000, came(3000, 1000), 16, 1 << 20), 30_000);
        // 400 where 1,000 were wanted: 10,000 * 400 / 1,000 = 4,000.
        assert_eq!(next_period(10_000, came(400, 1000), 16, 1 << 20), 4000);
        // Nothing came: an eighth.
        assert_eq!(next_period(10_000, came(0, 1000), 16, 1 << 20), 1250);
        // 100 times too many: eight times at once, no more.
        assert_eq!(
            next_period(10_000, came(100_000, 1000), 16, 1 << 20),
            80_000
        );
    }

    #[test]
    fn small_differences_bounds_and_short_turns() {
        for samples in [750, 1000, 1250] {
            assert_eq!(
                next_period(10_000, came(samples, 1000), 16, 1 << 20),
                10_000
            );
        }
        assert_eq!(next_period(10_000, came(749, 1000), 16, 1 << 20), 7490);
        assert_eq!(next_period(10_000, came(3000, 1000), 16, 12_000), 12_000);
        assert_eq!(next_period(10_000, came(0, 1000), 5000, 20_000), 5000);
        assert_eq!(next_period(10_000, came(0, 0), 16, 1 << 20), 10_000);
    }

    #[test]
    fn an_invalid_turn_doubles_whatever_came() {
        let invalid = |samples| Came {
            invalid: true,
            ..came(samples, 1000)
        };
        assert_eq!(next_period(10_000, invalid(0), 16, 1 << 20), 20_000);
        assert_eq!(next_period(15_000, invalid(9), 16, 20_000), 20_000);
        // A period of 1 must not stay where it is.
        assert_eq!(next_period(1, invalid(9), 1, 1 << 20), 2);
    }

    proptest! {
        #[test]
        fn a_steady_program_is_sampled_at_the_wanted_rate(
            events in 1_000u64..1_000_000_000_000,
            wanted in 50u64..10_000,
            first in 16u64..1 << 31,
        ) {
            let (min, max) = (16, 1 << 31);
            let mut period = first;
            // 8^12 is more than the widest ratio, 2^31 / 16.
            for _ in 0..12 {
                period = next_period(period, came(events / period, wanted), min, max);
                prop_assert!((min..=max).contains(&period));
            }
            let settled = next_period(period, came(events / period, wanted), min, max);
            prop_assert_eq!(settled, period);
            let got = events / period;
            let near = got * 4 >= wanted * 3 && got * 4 <= wanted * 5;
            prop_assert!(near || period == min || period == max, "{got} of {wanted}");
        }

        #[test]
        fn any_numbers_give_a_period_within_bounds(
            period: u64, samples: u64, wanted: u64, invalid: bool, min: u64, max: u64,
        ) {
            let next = next_period(period, Came { samples, wanted, invalid }, min, max);
            prop_assert!(next >= min.max(1) && next <= max.max(min).max(1));
        }
    }
}
