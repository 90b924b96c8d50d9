//! Spreading a process's pages within a budget, until the caller has enough.

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

/// Steps through `respread`, `per_second` pages a second, and calls `progress`
/// after each step. `pause` waits for as long as it is told, often for no time
/// at all, and says whether to stop.
pub fn spread_out<K: Kernel + Clone>(
    respread: &mut Respread<K>,
    per_second: u64,
    mut pause: impl FnMut(Duration) -> bool,
    mut progress: impl FnMut(&Respread<K>),
) -> Result<Ended, RespreadError> {
    let (pace, started) = (Pace::new(per_second), Instant::now());
    loop {
        // What a dry run would move is not held up.
        let moved = if respread.is_dry_run() {
            0
        } else {
            respread.moved()
        };
        let (budget, wait) = match pace.allows(started.elapsed(), moved) {
            Ok(pages) => (pages, Duration::ZERO),
            Err(wait) => (0, wait.min(Duration::from_secs(1))),
        };
        if pause(wait) {
            return Ok(Ended::Interrupted);
        }
        if budget > 0 {
            match respread.step(budget)? {
                Step::Going => progress(respread),
                Step::Done | Step::Gone => return Ok(Ended::Done),
            }
        }
    }
}
