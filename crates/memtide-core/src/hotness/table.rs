//! The records of one layout: everything but the pass, which is in `drain`.

use super::config::Config;
use super::record::{Cell, Format, Hotness, Rules, accessed, cooled, decoded, is_ready, put_back};
use super::section::Section;
use super::store::{MemoryUse, Recorded, RunRecorded, Taken};
use crate::dense::{Directory, page_at, pieces};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Millis, NodeId, PageNumber};
use std::ops::Range;

/// Records that are fetched ahead of their updates: about as many cache misses
/// as a core keeps in flight.
pub(super) const LOOK_AHEAD: usize = 16;

/// The records of a page space in one layout.
#[derive(Debug)]
pub(super) struct Table<F: Format> {
    pub(super) directory: Directory<Section<F>>,
    /// One bit a section: a ready page may be in it.
    pub(super) marks: Box<[AtomicU64]>,
    pub(super) rules: Rules,
}

impl<F: Format> Table<F> {
    pub(super) fn new(pages: u64, config: &Config) -> Table<F> {
        let directory = Directory::new(pages);
        let words = directory.len().div_ceil(64);
        Table {
            directory,
            marks: (0..words).map(|_| AtomicU64::new(0)).collect(),
            rules: Rules::of::<F>(config),
        }
    }

    /// Works by the rules of `config` from now on, which has this layout.
    pub(super) fn set_rules(&mut self, config: &Config) {
        self.rules = Rules::of::<F>(config);
    }

    pub(super) fn pages(&self) -> u64 {
        self.directory.pages()
    }

    pub(super) fn sections(&self) -> usize {
        self.directory.len()
    }

    pub(super) fn mark_section(&self, section: usize) {
        self.marks[section / 64].fetch_or(1 << (section % 64), Ordering::AcqRel);
    }

    #[inline]
    pub(super) fn record(&self, page: PageNumber, node: Option<NodeId>, now: Millis) -> Recorded {
        let Some((index, slot)) = self.directory.locate(page) else {
            return Recorded::Outside;
        };
        let section = self.directory.get_or_make(index, Section::new);
        let (old, new) = section.update(slot, |w| accessed::<F>(w, node, now, &self.rules));
        section.note(slot);
        if !is_ready::<F>(new) {
            Recorded::Counted
        } else if is_ready::<F>(old) {
            Recorded::StillReady
        } else {
            section.mark_group(slot);
            self.mark_section(index);
            Recorded::BecameReady
        }
    }

    /// See [`super::Store::record_batch`].
    pub(super) fn record_batch(
        &self,
        accesses: &[(PageNumber, Option<NodeId>)],
        now: Millis,
    ) -> RunRecorded {
        let mut report = RunRecorded::default();
        for chunk in accesses.chunks(LOOK_AHEAD) {
            self.glance(chunk.iter().map(|(page, _)| *page));
            for &(page, node) in chunk {
                match self.record(page, node, now) {
                    Recorded::Outside => report.outside += 1,
                    Recorded::BecameReady => {
                        report.recorded += 1;
                        report.became_ready += 1;
                    }
                    Recorded::Counted | Recorded::StillReady => report.recorded += 1,
                }
            }
        }
        report
    }

    /// See [`super::Store::glance`].
    #[inline]
    pub(super) fn glance(&self, pages: impl Iterator<Item = PageNumber>) {
        // These loads wait for nothing, so their cache misses overlap.
        std::hint::black_box(pages.fold(0, |sum, page| sum ^ self.word(page)));
    }

    #[inline]
    fn word(&self, page: PageNumber) -> u32 {
        self.directory
            .locate(page)
            .and_then(|(index, slot)| Some(self.directory.get(index)?.record(slot).load()))
            .unwrap_or(0)
    }

    pub(super) fn record_run(
        &self,
        first: PageNumber,
        count: u64,
        node: Option<NodeId>,
        now: Millis,
    ) -> RunRecorded {
        let mut report = RunRecorded::default();
        for (index, slots) in pieces(self.directory.pages(), first, count) {
            let section = self.directory.get_or_make(index, Section::new);
            report.recorded += slots.len() as u64;
            let before = report.became_ready;
            for group in slots.start / F::GROUP_PAGES..slots.end.div_ceil(F::GROUP_PAGES) {
                let from = slots.start.max(group * F::GROUP_PAGES);
                let to = slots.end.min((group + 1) * F::GROUP_PAGES);
                let mut ready = 0;
                for slot in from..to {
                    let (old, new) =
                        section.update(slot, |w| accessed::<F>(w, node, now, &self.rules));
                    section.note(slot);
                    ready += u64::from(is_ready::<F>(new) && !is_ready::<F>(old));
                }
                if ready > 0 {
                    section.mark_group(from);
                    report.became_ready += ready;
                }
            }
            if report.became_ready > before {
                self.mark_section(index);
            }
        }
        report.outside = count - report.recorded;
        report
    }

    pub(super) fn peek(&self, page: PageNumber, now: Millis) -> Option<Hotness> {
        let (index, slot) = self.directory.locate(page)?;
        let word = self.directory.get(index)?.record(slot).load();
        decoded::<F>(word, now, &self.rules)
    }

    pub(super) fn take(&self, page: PageNumber, now: Millis) -> Option<Taken> {
        let (index, slot) = self.directory.locate(page)?;
        let (word, hot) = self.directory.get(index)?.take(slot, now, &self.rules)?;
        self.taken(word, hot, now)
    }

    pub(super) fn taken(&self, word: u32, hot: bool, now: Millis) -> Option<Taken> {
        let hotness = decoded::<F>(word, now, &self.rules)?;
        Some(if hot {
            Taken::Hot(hotness)
        } else {
            Taken::Cold(hotness)
        })
    }

    pub(super) fn put_back(&self, page: PageNumber, word: u32) -> bool {
        let Some((index, slot)) = self.directory.locate(page) else {
            return false;
        };
        let section = self.directory.get_or_make(index, Section::new);
        section.update(slot, |current| put_back::<F>(current, word));
        section.note(slot);
        section.mark_group(slot);
        self.mark_section(index);
        true
    }

    pub(super) fn forget(&self, page: PageNumber) {
        if let Some((index, slot)) = self.directory.locate(page)
            && let Some(section) = self.directory.get(index)
        {
            section.update(slot, |_| 0);
        }
    }

    pub(super) fn remove_section(&mut self, section: usize) -> bool {
        // Its mark may stay: a mark for nothing costs one look.
        self.directory.remove(section).is_some()
    }

    /// Every reported page of the allocated sections.
    pub(super) fn for_each(
        &self,
        sections: Range<usize>,
        now: Millis,
        mut visit: impl FnMut(PageNumber, Hotness),
    ) {
        for (index, section) in self.directory.allocated(sections) {
            for slot in section.live() {
                let word = section.record(slot).load();
                if let Some(hotness) = decoded::<F>(word, now, &self.rules) {
                    visit(page_at(index, slot), hotness);
                }
            }
        }
    }

    pub(super) fn expire(&self, sections: Range<usize>, now: Millis) -> u64 {
        let mut expired = 0;
        for (_, section) in self.directory.allocated(sections) {
            for slot in section.live() {
                // A ready record is left to the pass, which reports it as cold.
                let change = |w: u32| {
                    if is_ready::<F>(w) {
                        w
                    } else {
                        cooled::<F>(w, now, &self.rules)
                    }
                };
                let (old, new) = section.update(slot, change);
                expired += u64::from(old != new);
            }
        }
        expired
    }

    pub(super) fn tidy(&mut self) {
        for section in self.directory.allocated_mut() {
            section.tidy();
        }
    }

    pub(super) fn memory(&self) -> MemoryUse {
        let mut used = MemoryUse {
            records: 0,
            index: self.directory.bytes() + std::mem::size_of_val(&*self.marks),
        };
        for (_, section) in self.directory.allocated(0..usize::MAX) {
            used.records += section.record_bytes();
            used.index += section.mark_bytes();
        }
        used
    }
}
