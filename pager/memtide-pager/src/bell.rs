//! Wakes a thread that waits, from anywhere, a signal handler included.

use rustix::thread::{Timespec, futex};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Counts rings; who waits says up to which it knows.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub fn ring(&self) {
        self.0.fetch_add(1, SeqCst);
        wake_all(&self.0);
    }

    /// The rings so far.
    pub fn heard(&self) -> u32 {
        self.0.load(SeqCst)
    }

    /// Waits for a ring after the first `heard`, `limit` at most.
    pub fn wait(&self, heard: u32, limit: Duration) {
        wait_while(&self.0, heard, limit);
    }
}

/// Waits until `word` is no longer `value`, or somebody wakes, or `limit` is over.
pub(crate) fn wait_while(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // Interrupted, changed, timed out: the caller looks again in every case.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, Some(&limit));
}

pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
