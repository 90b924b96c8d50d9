//! How many pages may move now, so that the rate is kept.

use std::time::Duration;

/// A budget of pages a second, counted from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    per_second: u64,
}

impl Pace {
    /// The most that is handed out at once, so that the caller hears signals
    /// and shows progress some times a second.
    pub const LARGEST: u64 = 16_384;
    /// The shortest time that is worth a system call of its own.
    const PORTION: Duration = Duration::from_millis(50);

    /// A pace of `per_second` pages a second, at least one.
    pub fn new(per_second: u64) -> Pace {
        Pace {
            per_second: per_second.max(1),
        }
    }

    /// How many pages may move `elapsed` after the start if `moved` did so far,
    /// or how long to wait for a portion that is worth it.
    pub fn allows(self, elapsed: Duration, moved: u64) -> Result<u64, Duration> {
        // The first portion is there at the start.
        let due = self.pages_in(elapsed.saturating_add(Pace::PORTION));
        let portion = self.pages_in(Pace::PORTION).clamp(1, Pace::LARGEST);
        match due.saturating_sub(moved) {
            pages if pages >= portion => Ok(pages.min(Pace::LARGEST)),
            pages => {
                let lacking = (moved.saturating_sub(due) + portion - pages) as f64;
                Err(Duration::from_secs_f64(lacking / self.per_second as f64))
            }
        }
    }

    fn pages_in(self, time: Duration) -> u64 {
        let pages = time.as_micros().saturating_mul(self.per_second.into()) / 1_000_000;
        u64::try_from(pages).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for ten seconds, each portion `overshoot` pages larger than allowed,
    /// as huge pages make it. The pages that moved and the times it waited.
    fn ten_seconds(per_second: u64, overshoot: u64) -> (u64, u32) {
        let pace = Pace::new(per_second);
        let (mut now, mut moved, mut waits) = (Duration::ZERO, 0, 0);
        while now < Duration::from_secs(10) {
            match pace.allows(now, moved) {
                Ok(pages) => {
                    assert!((1..=Pace::LARGEST).contains(&pages));
                    moved += pages + overshoot;
                }
                Err(wait) => {
                    assert!(wait > Duration::ZERO);
                    now += wait;
                    waits += 1;
                }
            }
        }
        (moved, waits)
    }

    /// 25,600 pages a second for ten seconds, and the portion of the start:
    /// 25,600 / 20 = 1,280.
    #[test]
    fn a_rate_is_kept_in_portions_of_a_twentieth_second() {
        let (moved, waits) = ten_seconds(25_600, 0);
        assert!((256_000..=257_281).contains(&moved), "{moved}");
        assert!((190..=210).contains(&waits), "{waits}");
    }

    #[test]
    fn what_moved_beyond_the_budget_is_made_up_for() {
        let (moved, _) = ten_seconds(100, 511);
        assert!((1_000..=1_000 + 2 * 512).contains(&moved), "{moved}");
        // One page a second at least.
        assert!((9..=11).contains(&ten_seconds(0, 0).0));
    }

    #[test]
    fn plenty_is_handed_out_in_portions() {
        let pace = Pace::new(u64::MAX);
        assert_eq!(pace.allows(Duration::ZERO, 0), Ok(Pace::LARGEST));
        assert_eq!(pace.allows(Duration::MAX, 1 << 40), Ok(Pace::LARGEST));
    }
}
