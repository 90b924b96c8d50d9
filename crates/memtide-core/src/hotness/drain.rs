//! The pass over the ready pages.
//!
//! A ready page is found through two levels of marks: a bit a section of 32768
//! pages, and in it a bit a group of pages whose records fill a cache line or
//! two. A pass reads one bit per 128 MiB and follows the bits that are set: its
//! cost is the ready pages', not the memory's.
//!
//! Whoever makes a record ready sets the group's bit and then the section's.
//! Whoever passes clears the section's bit, then the group's, then reads the
//! records. No page is lost between them:
//!
//! - the setter's group bit came before the passer's clearing of it: that
//!   clearing, a read-modify-write, has acquired the record, and the passer sees
//!   it ready;
//! - it came after: the setter's section bit comes later still. Either it lands
//!   after the passer cleared the section's bit and stands for the next pass, or
//!   before, and then the clearing has acquired the group's bit and the passer
//!   finds it.
//!
//! A bit that is set for nothing (the page cooled, or somebody else took it)
//! costs one look. So marks are only hints, and the record alone decides who
//! takes a page: the compare-and-swap that removes its ready bit.

use super::record::{Cell, Format, is_ready, put_back};
use super::section::Section;
use super::store::{Disposition, DrainReport, Taken};
use super::table::{LOOK_AHEAD, Table};
use crate::dense::page_at;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Millis, PageNumber};
use std::ops::Range;

/// The positions of the set bits, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

impl<F: Format> Table<F> {
    /// See [`super::Store::drain`].
    pub(super) fn drain(
        &self,
        sections: Range<usize>,
        now: Millis,
        mut visit: impl FnMut(PageNumber, Taken) -> Disposition,
    ) -> DrainReport {
        let mut report = DrainReport::default();
        let end = sections.end.min(self.directory.len());
        let mut next = sections.start;
        while next < end && !report.stopped {
            let base = next / 64 * 64;
            let mask = u64::MAX << (next - base) & u64::MAX >> (64 - (end - base).min(64));
            let mut marked = self.marks[base / 64].load(Ordering::Relaxed) & mask;
            self.fetch_ahead(base, marked);
            while marked != 0 && !report.stopped {
                let index = base + marked.trailing_zeros() as usize;
                marked &= marked - 1;
                self.marks[index / 64].fetch_and(!(1 << (index % 64)), Ordering::AcqRel);
                if let Some(section) = self.directory.get(index)
                    && self.drain_section(index, section, now, &mut report, &mut visit)
                {
                    self.mark_section(index);
                }
            }
            next = base + 64;
        }
        report
    }

    /// Touches what a pass over these sections will need.
    ///
    /// Ready pages lie far apart, so a pass is a chain of cache misses, and the
    /// atomic updates between them let none overlap. These plain loads do: first
    /// all group marks, then the records that they point to. Of many marks in one
    /// word only the first are followed: such records lie close enough to stream.
    fn fetch_ahead(&self, base: usize, marked: u64) {
        let sections = || bits(marked).filter_map(|bit| self.directory.get(base + bit));
        let word = |groups: &AtomicU64| groups.load(Ordering::Relaxed);
        let marks = sections().flat_map(|s| s.groups().iter().map(word));
        let mut sum = marks.fold(0, |sum, word| sum ^ word);
        for section in sections() {
            for (at, groups) in section.groups().iter().enumerate() {
                for group in bits(word(groups)).take(LOOK_AHEAD) {
                    let first = (at * 64 + group) * F::GROUP_PAGES;
                    let lines = (first..first + F::GROUP_PAGES).step_by(F::LINE_PAGES);
                    let loads = lines.map(|slot| u64::from(section.record(slot).load()));
                    sum = loads.fold(sum, |sum, word| sum ^ word);
                }
            }
        }
        std::hint::black_box(sum);
    }

    /// Visits a section's ready pages; whether it still has some.
    fn drain_section(
        &self,
        index: usize,
        section: &Section<F>,
        now: Millis,
        report: &mut DrainReport,
        visit: &mut impl FnMut(PageNumber, Taken) -> Disposition,
    ) -> bool {
        let mut some_left = false;
        for (at, groups) in section.groups().iter().enumerate() {
            // After a stop the marks that were not looked at keep their section marked.
            if report.stopped {
                some_left |= groups.load(Ordering::Acquire) != 0;
                continue;
            }
            if groups.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut marked = groups.swap(0, Ordering::AcqRel);
            let mut keep = 0;
            while marked != 0 && !report.stopped {
                let bit = marked & marked.wrapping_neg();
                let first = (at * 64 + bit.trailing_zeros() as usize) * F::GROUP_PAGES;
                let slots = first..first + F::GROUP_PAGES;
                if self.drain_group(index, section, slots, now, report, visit) {
                    keep |= bit;
                }
                marked &= !bit;
            }
            keep |= marked;
            if keep != 0 {
                groups.fetch_or(keep, Ordering::AcqRel);
                some_left = true;
            }
        }
        some_left
    }

    /// Visits a group's ready pages; whether it still has some.
    fn drain_group(
        &self,
        index: usize,
        section: &Section<F>,
        slots: Range<usize>,
        now: Millis,
        report: &mut DrainReport,
        visit: &mut impl FnMut(PageNumber, Taken) -> Disposition,
    ) -> bool {
        let mut some_left = false;
        for slot in slots {
            if !is_ready::<F>(section.record(slot).load()) {
                continue;
            }
            if report.stopped {
                return true;
            }
            let Some((word, hot)) = section.take(slot, now, &self.rules) else {
                continue;
            };
            let Some(taken) = self.taken(word, hot, now) else {
                continue;
            };
            report.visited += 1;
            let disposition = visit(page_at(index, slot), taken);
            report.stopped |= disposition == Disposition::Stop;
            if !hot {
                report.cold += 1;
            } else if disposition == Disposition::Take {
                report.taken += 1;
            } else {
                report.kept += 1;
                section.update(slot, |current| put_back::<F>(current, word));
                some_left = true;
            }
        }
        some_left
    }
}
