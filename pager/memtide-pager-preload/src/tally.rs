//! What the hooks did, counted.

use memtide_pager::board::Counts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Mappings taken into the pager's care.
    pub kept: AtomicU64,
    /// Bytes of them.
    pub kept_bytes: AtomicU64,
    /// Calls that made the pager let go of pages that stayed mapped, so that
    /// they are the kernel's again: a mapping that turned writable, was locked
    /// with everything else, was moved to where it could not be kept.
    pub handed_over: AtomicU64,
    /// Calls that would have read everything in, answered and not done.
    pub not_read_in: AtomicU64,
    /// Calls of mlock on kept pages, refused.
    pub locks_refused: AtomicU64,
    /// Mappings of wanted files that were left to the kernel.
    pub left_out: AtomicU64,
}

/// The one of this process.
pub static TALLY: Tally = Tally {
    kept: AtomicU64::new(0),
    kept_bytes: AtomicU64::new(0),
    handed_over: AtomicU64::new(0),
    not_read_in: AtomicU64::new(0),
    locks_refused: AtomicU64::new(0),
    left_out: AtomicU64::new(0),
};

/// Adds one.
pub fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `more`.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Tally {
    /// As it stands.
    pub fn counts(&self) -> Counts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            kept_mappings: value(&self.kept),
            kept_bytes: value(&self.kept_bytes),
            handed_over: value(&self.handed_over),
            not_read_in: value(&self.not_read_in),
            locks_refused: value(&self.locks_refused),
            left_out: value(&self.left_out),
        }
    }

    /// Begins anew, in a forked child.
    pub fn reset(&self) {
        for counter in [
            &self.kept,
            &self.kept_bytes,
            &self.handed_over,
            &self.not_read_in,
            &self.locks_refused,
            &self.left_out,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
