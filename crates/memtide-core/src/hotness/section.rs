//! One section: its pages' records and its groups' ready marks.

use super::record::{Cell, Format, Rules, cooled, is_hot, is_ready};
use crate::dense::SECTION_PAGES;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Millis;

#[derive(Debug)]
pub(super) struct Section<F: Format> {
    pub(super) records: Box<[F::Cell]>,
    pub(super) groups: Box<[AtomicU64]>,
}

impl<F: Format> Section<F> {
    pub(super) fn new() -> Section<F> {
        let words = (SECTION_PAGES / F::GROUP_PAGES).div_ceil(64);
        Section {
            records: (0..SECTION_PAGES).map(|_| F::Cell::new(0)).collect(),
            groups: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Applies `change` to a record; what it was and what it became.
    #[inline]
    pub(super) fn update(&self, slot: usize, change: impl Fn(u32) -> u32) -> (u32, u32) {
        let cell = &self.records[slot];
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
        let cell = &self.records[slot];
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
