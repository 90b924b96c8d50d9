//! One section: its pages' records and its groups' ready marks.

use super::record::{Cell, Format, Rules, cooled, is_hot, is_ready};
use crate::dense::SECTION_PAGES;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Millis;

/// A section's records lie in two halves of 64 KiB at most: allocators give 128 KiB and more whole pages,
/// and a few bytes of their own before it would cost one more.
const HALF: usize = SECTION_PAGES / 2;

#[derive(Debug)]
pub(super) struct Section<F: Format> {
    halves: [Box<[F::Cell]>; 2],
    pub(super) groups: Box<[AtomicU64]>,
}

impl<F: Format> Section<F> {
    pub(super) fn new() -> Section<F> {
        let words = (SECTION_PAGES / F::GROUP_PAGES).div_ceil(64);
        Section {
            halves: std::array::from_fn(|_| (0..HALF).map(|_| F::Cell::new(0)).collect()),
            groups: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The record of a page.
    #[inline]
    pub(super) fn record(&self, slot: usize) -> &F::Cell {
        &self.halves[slot / HALF][slot % HALF]
    }

    /// All records in order.
    pub(super) fn records(&self) -> impl Iterator<Item = &F::Cell> {
        self.halves.iter().flatten()
    }

    /// Bytes of the records.
    pub(super) fn record_bytes(&self) -> usize {
        self.halves.iter().map(|half| size_of_val(&**half)).sum()
    }

    /// Applies `change` to a record; what it was and what it became.
    #[inline]
    pub(super) fn update(&self, slot: usize, change: impl Fn(u32) -> u32) -> (u32, u32) {
        let cell = self.record(slot);
        let mut old = cell.load();
        loop {
            let new = change(old);
            // A page that is hit again within a tick at full count stays as it
            // is: not writing keeps its cache line shared.
            if new == old {
                return (old, old);
            }
            match cell.exchange(old, new) {
                Ok(_) => return (old, new),
                Err(seen) => old = seen,
            }
        }
    }

    /// Takes the page if its record is ready: the record before, and whether it was hot.
    pub(super) fn take(&self, slot: usize, now: Millis, rules: &Rules) -> Option<(u32, bool)> {
        let cell = self.record(slot);
        let mut word = cell.load();
        while is_ready::<F>(word) {
            let hot = is_hot::<F>(word, now, rules);
            let left = if hot {
                0
            } else {
                cooled::<F>(word, now, rules)
            };
            match cell.exchange(word, left) {
                Ok(_) => return Some((word, hot)),
                Err(seen) => word = seen,
            }
        }
        None
    }

    pub(super) fn mark_group(&self, slot: usize) {
        let group = slot / F::GROUP_PAGES;
        self.groups[group / 64].fetch_or(1 << (group % 64), Ordering::AcqRel);
    }
}
