//! One slot a page for a space of pages too large to allocate at once.
//!
//! A machine with a tebibyte has 268 million base pages, most of which nobody
//! ever reports on. So the space is cut into *sections* of [`SECTION_PAGES`]
//! pages, and a section's memory appears when its first page is touched. The
//! *directory* of sections is fixed when it is made: finding a page's section
//! is one shift, one bounds check and one acquire load, and needs no lock.
//! Two threads that touch a new section at once agree on one of them; that
//! first touch is the only time when anybody waits.
//!
//! The hotness store and the idle store both stand on this.

use crate::units::PageNumber;
use std::ops::Range;
use std::sync::OnceLock;
// Not loom's: like the sections' `OnceLock`, it is outside the models.
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pages in a section: 128 MiB of 4 KiB pages, the kernel's own section size
/// on x86. Small under loom, whose every atomic is expensive.
pub const SECTION_PAGES: usize = if cfg!(loom) { 8 } else { 32768 };

/// A fixed array of sections, each allocated at first touch.
#[derive(Debug)]
pub(crate) struct Directory<S> {
    sections: Box<[OnceLock<S>]>,
    /// No section from here on was ever allocated: walks end here. Most of a space is never touched.
    end: AtomicUsize,
    pages: u64,
}

impl<S> Directory<S> {
    /// A directory of `pages` pages with no section allocated.
    pub(crate) fn new(pages: u64) -> Directory<S> {
        let count = sections_for(pages);
        Directory {
            sections: (0..count).map(|_| OnceLock::new()).collect(),
            end: AtomicUsize::new(0),
            pages,
        }
    }

    /// Pages in the space, allocated or not.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Sections in the space, allocated or not.
    pub(crate) fn len(&self) -> usize {
        self.sections.len()
    }

    /// The page's section and its slot in it, `None` outside the space.
    #[inline]
    pub(crate) fn locate(&self, page: PageNumber) -> Option<(usize, usize)> {
        (page.0 < self.pages).then_some((
            (page.0 / SECTION_PAGES as u64) as usize,
            (page.0 % SECTION_PAGES as u64) as usize,
        ))
    }

    /// The section if it was ever touched.
    #[inline]
    pub(crate) fn get(&self, section: usize) -> Option<&S> {
        self.sections.get(section)?.get()
    }

    /// The section, made by `make` at first touch.
    ///
    /// `section` comes from [`Directory::locate`] and so is in range.
    #[inline]
    pub(crate) fn get_or_make(&self, section: usize, make: impl FnOnce() -> S) -> &S {
        self.sections[section].get_or_init(|| {
            self.end.fetch_max(section + 1, Ordering::Relaxed);
            make()
        })
    }

    /// Takes the section out, for memory that is unplugged. It comes back
    /// empty when touched again.
    pub(crate) fn remove(&mut self, section: usize) -> Option<S> {
        self.sections.get_mut(section)?.take()
    }

    /// The allocated sections of `range` with their indices, ascending.
    pub(crate) fn allocated(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &S)> {
        let end = range.end.min(self.end.load(Ordering::Relaxed));
        let start = range.start.min(end);
        self.sections[start..end]
            .iter()
            .enumerate()
            .filter_map(move |(i, slot)| Some((start + i, slot.get()?)))
    }

    /// The allocated sections, to be changed.
    pub(crate) fn allocated_mut(&mut self) -> impl Iterator<Item = &mut S> {
        let end = *self.end.get_mut();
        self.sections[..end]
            .iter_mut()
            .filter_map(OnceLock::get_mut)
    }

    /// Bytes of the directory itself, without what the sections point to.
    pub(crate) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.sections)
    }
}

/// The page in `slot` of `section`.
#[inline]
pub(crate) fn page_at(section: usize, slot: usize) -> PageNumber {
    PageNumber((section * SECTION_PAGES + slot) as u64)
}

/// How many sections hold `pages` pages.
pub(crate) fn sections_for(pages: u64) -> usize {
    pages.div_ceil(SECTION_PAGES as u64) as usize
}

/// Cuts a run of pages at section borders: `(section, slots)` pieces, with
/// whatever lies outside `pages` left off.
pub(crate) fn pieces(
    pages: u64,
    first: PageNumber,
    count: u64,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let end = first.0.saturating_add(count).min(pages);
    let mut next = first.0;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let section = next / SECTION_PAGES as u64;
        let base = section * SECTION_PAGES as u64;
        let stop = end.min(base + SECTION_PAGES as u64);
        let slots = (next - base) as usize..(stop - base) as usize;
        next = stop;
        Some((section as usize, slots))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_section_appears_when_touched_and_leaves_when_removed() {
        // 32768 * 2 + 1 pages need three sections.
        let mut d: Directory<u32> = Directory::new(65537);
        assert_eq!(d.len(), 3);
        assert_eq!(d.locate(PageNumber(65536)), Some((2, 0)));
        assert_eq!(d.locate(PageNumber(65537)), None);
        assert!(d.get(2).is_none());
        assert_eq!(*d.get_or_make(2, || 7), 7);
        assert_eq!(*d.get_or_make(2, || 8), 7);
        let all = |d: &Directory<u32>, range| -> Vec<_> {
            d.allocated(range).map(|(i, &s)| (i, s)).collect()
        };
        assert_eq!(all(&d, 0..9), [(2, 7)]);
        d.get_or_make(0, || 9);
        assert_eq!(all(&d, 0..9), [(0, 9), (2, 7)]);
        assert_eq!(all(&d, 1..2), []);
        d.allocated_mut().for_each(|s| *s += 1);
        assert_eq!(d.remove(2), Some(8));
        assert!(d.get(2).is_none());
        assert_eq!(all(&d, 0..usize::MAX), [(0, 10)]);
    }

    #[test]
    fn a_run_is_cut_at_section_borders_and_at_the_end() {
        // Pages 32766..65540 of 65537: two slots, one whole section, one slot.
        let cut: Vec<_> = pieces(65537, PageNumber(32766), 32774).collect();
        assert_eq!(cut, [(0, 32766..32768), (1, 0..32768), (2, 0..1)]);
        assert_eq!(pieces(65537, PageNumber(70000), 5).count(), 0);
        assert_eq!(pieces(10, PageNumber(9), u64::MAX).count(), 1);
    }
}
