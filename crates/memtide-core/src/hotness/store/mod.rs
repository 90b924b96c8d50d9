//! The hotness store: what sources write and promotion reads.
//!
//! All methods but hot-unplug take `&self` and may be called from any number of
//! threads. Time is an argument of each; it may go backwards between threads by
//! as much as [`Config::with_reorder_ms`] allows.

use super::config::{Config, ConfigError, Layout};
use super::histogram::Histogram;
use super::record::{Compact, Hotness, Precise, encoded};
use super::table::Table;
use crate::dense::SECTION_PAGES;
use crate::units::{Millis, NodeId, PageNumber};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What a report did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It was counted; the page does not ask for a promotion.
    Counted,
    /// The page became ready by it.
    BecameReady,
    /// The page was ready and is.
    StillReady,
    /// The page lies outside the store's space; nothing happened.
    Outside,
}

/// What a report of a run of pages did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRecorded {
    /// Pages counted.
    pub recorded: u64,
    /// Of these, pages that became ready.
    pub became_ready: u64,
    /// Pages outside the store's space.
    pub outside: u64,
}

/// A ready page that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is hot now. Its record is empty again.
    Hot(Hotness),
    /// It was hot when it became ready and is not any more. It is ready no longer.
    Cold(Hotness),
}

/// What a visitor wants done with a hot page. For a cold one only `Stop` matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is dealt with; its record stays empty.
    Take,
    /// It stays ready for the next pass, with its count.
    Keep,
    /// As `Keep`, and the pass ends here.
    Stop,
}

/// What a pass over the ready pages met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DrainReport {
    /// Ready pages shown to the visitor.
    pub visited: u64,
    /// Of these, pages that the visitor took.
    pub taken: u64,
    /// Pages that stay ready.
    pub kept: u64,
    /// Pages that had become cold.
    pub cold: u64,
    /// Whether the visitor ended the pass.
    pub stopped: bool,
}

/// Bytes that a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// The records of the allocated sections.
    pub records: usize,
    /// The directory and the ready marks.
    pub index: usize,
}

#[derive(Debug)]
enum Layouts {
    Compact(Table<Compact>),
    Precise(Table<Precise>),
}

macro_rules! each {
    ($store:expr, $table:ident => $body:expr) => {
        match &$store.table {
            Layouts::Compact($table) => $body,
            Layouts::Precise($table) => $body,
        }
    };
}

/// A record for each page of a dense space.
#[derive(Debug)]
pub struct Store {
    config: Config,
    table: Layouts,
}

impl Store {
    /// A store of `pages` pages with nothing recorded and no section allocated.
    pub fn new(config: Config, pages: u64) -> Store {
        let table = match config.layout() {
            Layout::Compact => Layouts::Compact(Table::new(pages, &config)),
            Layout::Precise => Layouts::Precise(Table::new(pages, &config)),
        };
        Store { config, table }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts accesses by a window of `window_ms` from now on. Records stay as they
    /// are: what was counted by another window counts by this one.
    ///
    /// # Errors
    ///
    /// A window that the records cannot tell; the store is as it was.
    pub fn set_window_ms(&mut self, window_ms: u32) -> Result<(), ConfigError> {
        self.config = self.config.with_window_ms(window_ms)?;
        match &mut self.table {
            Layouts::Compact(table) => table.set_rules(&self.config),
            Layouts::Precise(table) => table.set_rules(&self.config),
        }
        Ok(())
    }

    /// Pages in the space.
    pub fn pages(&self) -> u64 {
        each!(self, t => t.pages())
    }

    /// Sections in the space, allocated or not.
    pub fn sections(&self) -> usize {
        each!(self, t => t.sections())
    }

    /// The sections that hold a run of pages.
    pub fn sections_of(first: PageNumber, count: u64) -> Range<usize> {
        let size = SECTION_PAGES as u64;
        let end = first.0.saturating_add(count);
        (first.0 / size) as usize..end.div_ceil(size) as usize
    }

    /// Counts one access to `page` at `now`, by `node` if known. A node id of
    /// 1024 or more is no node. Lock-free once the page's section exists.
    #[inline]
    pub fn record(&self, page: PageNumber, node: Option<NodeId>, now: Millis) -> Recorded {
        each!(self, t => t.record(page, node, now))
    }

    /// Counts accesses to single pages that came in together, all at `now`: what
    /// a sampler's buffer holds. Cheaper a page than [`Store::record`] when the
    /// records are not in this core's cache, because their misses overlap. A
    /// node id of 1024 or more is no node.
    pub fn record_batch(
        &self,
        accesses: &[(PageNumber, Option<NodeId>)],
        now: Millis,
    ) -> RunRecorded {
        each!(self, t => t.record_batch(accesses, now))
    }

    /// Counts one access to each of `count` pages from `first`: a folio's, a
    /// DAMON region's, a scanned range's.
    pub fn record_run(
        &self,
        first: PageNumber,
        count: u64,
        node: Option<NodeId>,
        now: Millis,
    ) -> RunRecorded {
        each!(self, t => t.record_run(first, count, node, now))
    }

    /// Loads the pages' records and does nothing with them: who counts for them
    /// next finds them in this core's cache, and the misses overlapped.
    #[inline]
    pub fn glance(&self, pages: impl Iterator<Item = PageNumber>) {
        each!(self, t => t.glance(pages));
    }

    /// What is known of the page; `None` if nobody reported it.
    pub fn peek(&self, page: PageNumber, now: Millis) -> Option<Hotness> {
        each!(self, t => t.peek(page, now))
    }

    /// Takes a ready page, once: of several takers one gets it. Its hotness is
    /// tested again at `now`. `None` if it is not ready.
    pub fn take(&self, page: PageNumber, now: Millis) -> Option<Taken> {
        each!(self, t => t.take(page, now))
    }

    /// Gives a taken page back, for a move that failed. Its count is added to
    /// what came in meanwhile and it is ready again. False outside the space.
    pub fn put_back(&self, page: PageNumber, hotness: &Hotness, now: Millis) -> bool {
        match &self.table {
            Layouts::Compact(t) => t.put_back(page, encoded::<Compact>(hotness, now)),
            Layouts::Precise(t) => t.put_back(page, encoded::<Precise>(hotness, now)),
        }
    }

    /// Empties the page's record, for a page that was freed or mapped anew.
    pub fn forget(&self, page: PageNumber) {
        each!(self, t => t.forget(page));
    }

    /// Visits the ready pages of `sections`, ascending, each once.
    ///
    /// Every page is taken before it is shown, so that two passes at once never
    /// show the same readiness twice; what the visitor keeps is put back. A page
    /// that becomes ready while the pass runs is shown by it or by the next one.
    pub fn drain(
        &self,
        sections: Range<usize>,
        now: Millis,
        visit: impl FnMut(PageNumber, Taken) -> Disposition,
    ) -> DrainReport {
        each!(self, t => t.drain(sections, now, visit))
    }

    /// The `n` hottest pages at `now`: by frequency, then by youth, then by
    /// number. Only pages within the window. Reads every allocated record.
    pub fn top(&self, n: usize, now: Millis) -> Vec<(PageNumber, Hotness)> {
        let mut best = BinaryHeap::with_capacity(n.min(1 << 16) + 1);
        let window = self.config.window_ms();
        each!(self, t => t.for_each(0..usize::MAX, now, |page, hot| {
            if hot.age_ms > window {
                return;
            }
            best.push(Reverse((hot.frequency, Reverse(hot.age_ms), Reverse(page), Key(hot))));
            if best.len() > n {
                best.pop();
            }
        }));
        best.into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, _, Reverse(page), Key(hot)))| (page, hot))
            .collect()
    }

    /// How many pages have which frequency and age at `now`. Reads every
    /// allocated record.
    pub fn histogram(&self, now: Millis) -> Histogram {
        let mut histogram = Histogram::new(&self.config);
        each!(self, t => t.for_each(0..usize::MAX, now, |_, hot| histogram.add(&hot)));
        histogram
    }

    /// Empties the records of `sections` that are beyond the window; how many
    /// changed. Running over everything once per time range (4 s compact, 16 s
    /// precise) keeps old records from looking young when the time wraps.
    pub fn expire(&self, sections: Range<usize>, now: Millis) -> u64 {
        each!(self, t => t.expire(sections, now))
    }

    /// As [`Store::expire`] of everything, and what is empty then costs later
    /// walks next to nothing.
    pub fn tidy(&mut self, now: Millis) -> u64 {
        let expired = self.expire(0..usize::MAX, now);
        match &mut self.table {
            Layouts::Compact(t) => t.tidy(),
            Layouts::Precise(t) => t.tidy(),
        }
        expired
    }

    /// Drops a section's records, for memory that goes offline; false if it had
    /// none. It comes back empty at its next record.
    pub fn remove_section(&mut self, section: usize) -> bool {
        match &mut self.table {
            Layouts::Compact(t) => t.remove_section(section),
            Layouts::Precise(t) => t.remove_section(section),
        }
    }

    /// Bytes held now.
    pub fn memory(&self) -> MemoryUse {
        each!(self, t => t.memory())
    }
}

/// Carried along in the heap without a say in the order.
struct Key(Hotness);

impl PartialEq for Key {
    fn eq(&self, _: &Key) -> bool {
        true
    }
}
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, _: &Key) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
