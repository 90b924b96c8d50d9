//! Spreading processes' pages within a budget, until the caller has enough.

use memtide_linux::mover::Kernel;
use memtide_linux::respread::{Pace, Respread, RespreadError, Step};
use std::time::{Duration, Instant};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every page was looked at, or the process has ended.
    Done,
    /// The caller stopped it.
    Interrupted,
}

/// What may move: so many pages a second, over all that is spread by it. What was not used, because there
/// was nothing to move, piles up to a second's worth.
#[derive(Debug)]
pub struct Budget {
    pace: Pace,
    per_second: u64,
    started: Instant,
    moved: u64,
}

/// The most that piles up.
const SAVED: Duration = Duration::from_secs(1);

impl Budget {
    /// One that begins now.
    pub fn new(per_second: u64) -> Budget {
        Budget {
            pace: Pace::new(per_second),
            per_second: per_second.max(1),
            started: Instant::now(),
            moved: 0,
        }
    }

    /// So many pages, or how long to wait for some, `elapsed` after it began. What was lost is no part of
    /// that any more.
    fn allows_at(&mut self, elapsed: Duration) -> Result<u64, Duration> {
        let used = Duration::from_secs_f64(self.moved as f64 / self.per_second as f64);
        let unused = elapsed.saturating_sub(used);
        let lost = unused.saturating_sub(SAVED);
        self.started += lost;
        self.pace.allows(elapsed - lost, self.moved)
    }
}

/// Steps through `respread` within `budget`, and calls `progress` after each step. `pause` waits for as long
/// as it is told, often for no time at all, and says whether to stop.
pub fn spread_out<K: Kernel + Clone>(
    respread: &mut Respread<K>,
    budget: &mut Budget,
    mut pause: impl FnMut(Duration) -> bool,
    mut progress: impl FnMut(&Respread<K>),
) -> Result<Ended, RespreadError> {
    loop {
        let (pages, wait) = match budget.allows_at(budget.started.elapsed()) {
            Ok(pages) => (pages, Duration::ZERO),
            Err(wait) => (0, wait.min(Duration::from_secs(1))),
        };
        if pause(wait) {
            return Ok(Ended::Interrupted);
        }
        if pages > 0 {
            let before = respread.moved();
            let step = respread.step(pages)?;
            // What a dry run would move is not held up.
            if !respread.is_dry_run() {
                budget.moved += respread.moved() - before;
            }
            match step {
                Step::Going => progress(respread),
                Step::Done | Step::Gone => return Ok(Ended::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_saved_and_no_more() {
        let mut budget = Budget::new(1000);
        // For a minute there was nothing to move.
        let mut elapsed = Duration::from_secs(60);
        let mut at_once = 0;
        loop {
            let before = budget.started;
            let allowed = budget.allows_at(elapsed);
            elapsed -= budget.started - before;
            let Ok(pages) = allowed else { break };
            budget.moved += pages;
            at_once += pages;
        }
        // And the first portion.
        assert!((1000..=1100).contains(&at_once), "{at_once}");
    }
}
