//! One section: its pages' records and its groups' ready marks.

use super::record::{Cell, Format, Rules, cooled, is_hot, is_ready};
use crate::dense::SECTION_PAGES;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Millis;

/// A section's records lie in two halves of 64 KiB at most: allocators give 128 KiB and more whole pages,
/// and a few bytes of their own before it would cost one more.
const HALF: usize = SECTION_PAGES / 2;
/// Records that are one bit of the live parts.
const PART: usize = SECTION_PAGES.div_ceil(64);

#[derive(Debug)]
pub(super) struct Section<F: Format> {
    halves: [Box<[F::Cell]>; 2],
    /// First the live parts, a bit each: a record that is not empty may be in it.
    /// Bits go only in [`Section::tidy`], beside which nobody is. Walks over all
    /// records leave out the rest: of a tebibyte few pages are recorded at a time.
    /// Then the groups' ready marks.
    marks: Box<[AtomicU64]>,
}

impl<F: Format> Section<F> {
    pub(super) fn new() -> Section<F> {
        let words = (SECTION_PAGES / F::GROUP_PAGES).div_ceil(64);
        Section {
            halves: std::array::from_fn(|_| (0..HALF).map(|_| F::Cell::new(0)).collect()),
            marks: (0..1 + words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The record of a page.
    #[inline]
    pub(super) fn record(&self, slot: usize) -> &F::Cell {
        &self.halves[slot / HALF][slot % HALF]
    }

    /// The groups' ready marks.
    pub(super) fn groups(&self) -> &[AtomicU64] {
        &self.marks[1..]
    }

    /// Bytes of all marks.
    pub(super) fn mark_bytes(&self) -> usize {
        size_of_val(&*self.marks)
    }

    /// The slots of records that may not be empty, in order.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> {
        // Loom's models are about records: every atomic more costs them dearly.
        let live = match cfg!(loom) {
            true => u64::MAX,
            false => self.marks[0].load(Ordering::Acquire),
        };
        let parts = (0..SECTION_PAGES.div_ceil(PART)).filter(move |part| live & (1 << part) != 0);
        parts.flat_map(|part| part * PART..((part + 1) * PART).min(SECTION_PAGES))
    }

    /// A record is not empty any more.
    #[inline]
    pub(super) fn note(&self, slot: usize) {
        let bit = 1 << (slot / PART);
        if !cfg!(loom) && self.marks[0].load(Ordering::Relaxed) & bit == 0 {
            self.marks[0].fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Forgets which parts have only empty records.
    pub(super) fn tidy(&mut self) {
        let slots = self.live().filter(|slot| self.record(*slot).load() != 0);
        let live = slots.fold(0, |live, slot| live | 1_u64 << (slot / PART));
        self.marks[0] = AtomicU64::new(live);
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
        self.groups()[group / 64].fetch_or(1 << (group % 64), Ordering::AcqRel);
    }
}
