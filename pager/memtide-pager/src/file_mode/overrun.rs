//! Whether the budget is kept, as far as anybody should be told.
//!
//! Moments of too much are what file mode has. More than a tenth too much for a whole
//! second is a broken promise, and is said: once, and with the longest of them in the
//! pager's state.

use std::time::{Duration, Instant};

/// How long the budget must be overrun by more than a tenth.
const TOO_LONG: Duration = Duration::from_secs(1);
/// What counts of the time between two looks, at most: in a longer one the machine stood still, or nobody had a
/// processor to look with.
const GAP: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Overrun {
    /// The last look that found it so, and how long that has lasted.
    over: Option<(Instant, Duration)>,
    said: bool,
    longest: Duration,
    most_pages: u64,
}

impl Overrun {
    /// Notes what is in memory now. True when it is to be said.
    pub fn note(&mut self, resident: u64, budget: u64, now: Instant) -> bool {
        if resident <= budget + budget / 10 {
            self.over = None;
            return false;
        }
        let (last, lasted) = self.over.unwrap_or((now, Duration::ZERO));
        let lasted = lasted + now.saturating_duration_since(last).min(GAP);
        self.over = Some((now, lasted));
        if lasted < TOO_LONG {
            return false;
        }
        self.longest = self.longest.max(lasted);
        self.most_pages = self.most_pages.max(resident);
        !std::mem::replace(&mut self.said, true)
    }

    /// How long at worst and how many pages were in memory then, if it was too long.
    pub fn worst(&self) -> Option<(Duration, u64)> {
        self.said.then_some((self.longest, self.most_pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_said_and_once() {
        let mut overrun = Overrun::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // A tenth is allowed; so are moments.
        assert!(!overrun.note(110, 100, at(0)));
        assert!(!overrun.note(120, 100, at(10)));
        assert!(!overrun.note(100, 100, at(900)));
        for ms in (1000..2000).step_by(50) {
            assert!(!overrun.note(150, 100, at(ms)));
        }
        assert_eq!(overrun.worst(), None);
        assert!(overrun.note(130, 100, at(2000)));
        // Between two looks that are far apart nobody knows.
        assert!(!overrun.note(140, 100, at(3500)));
        assert_eq!(overrun.worst(), Some((Duration::from_millis(1100), 140)));
    }
}
