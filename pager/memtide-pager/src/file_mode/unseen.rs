//! What came into memory and was not found yet.
//!
//! *Problem.* Blocks are counted in turn. What a program brings in where nobody looks just now is found a tenth of
//! a second later, in which a fast disk reads a hundred megabytes.
//!
//! *Way.* The kernel counts what the process had read from devices, and tells it in one cheap call. What came by
//! that count and was not found by the looks is *unseen*. Once that is a part of a batch, every block that is not
//! full is counted. What is not found then came from elsewhere, because the process also reads files that are
//! nobody's business here. Where that is the rule, such looks become rare, and the count says nothing about how
//! fast memory fills.

use super::look::CLOSELY_A_ROUND;
use super::{FileMode, FileRegion, Inner, Sight};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Of a batch, the part that may be unseen.
const PART_OF_BATCH: u64 = 4;
/// Time between two full looks, at least and at most, as a multiple of what one takes.
const PAUSES: u32 = 3;
const MOST_PAUSES: u32 = 64;
/// Calls of one round, about.
const MOST_CALLS: usize = 4096;
/// Blocks that are counted together where nothing was in memory.
const TOGETHER: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// As last read.
    bytes: Option<u64>,
    pages: u64,
    /// When all blocks may be counted again.
    next: Option<Instant>,
    pauses: u32,
    /// Where a full look goes on: region and block.
    hand: (usize, usize),
}

impl Unseen {
    /// Notes the kernel's count. Pages that came since the last time, as far as that can be told.
    /// `others` pages were read by processes that keep the same files.
    fn came(&mut self, bytes: Option<u64>, others: u64, page_bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let (Some(before), Some(now)) = (before, bytes) else {
            return 0;
        };
        let pages = now.saturating_sub(before) / page_bytes + others;
        self.pages = self.pages.saturating_add(pages);
        match self.pauses > PAUSES {
            true => 0,
            false => pages,
        }
    }

    /// Has all be counted at once: a file is counted here from now on.
    pub fn forget(&mut self) {
        (self.pages, self.next, self.hand) = (u64::MAX, None, (0, 0));
    }

    /// Whether that has not been done yet.
    pub fn is_owed(&self) -> bool {
        self.pages == u64::MAX
    }

    /// Notes what a look found.
    fn found(&mut self, pages: u64) {
        if self.pages < u64::MAX {
            self.pages = self.pages.saturating_sub(pages);
        }
    }

    /// Whether everything is to be counted, where `may` pages may be unseen.
    fn is_due(&self, may: u64, now: Instant) -> bool {
        self.pages > may && self.next.is_none_or(|next| next <= now)
    }

    /// Notes that a full look found so many of the unseen pages, and took so long.
    fn looked(&mut self, found: u64, took: Duration, now: Instant) {
        let all = std::mem::take(&mut self.pages);
        self.pauses = match all == u64::MAX || found.saturating_mul(2) >= all {
            true => PAUSES,
            false => (self.pauses * 2).clamp(PAUSES, MOST_PAUSES),
        };
        self.next = Some(now + took * self.pauses);
    }
}

impl FileMode {
    /// Has the next rounds look at everything: what comes from no device, as the pages of holes, is in no count.
    pub fn look_at_all(&self) {
        self.inner().unseen.forget();
    }

    /// Looks at some of what there is, and at all of it where more came than that finds. Pages that came since the
    /// last time, found or not.
    pub(super) fn look_for_all(&self, inner: &mut Inner, read: Option<u64>) -> u64 {
        let by_others = self.came_to_others(inner);
        let came = inner.unseen.came(read, by_others, self.page_bytes as u64);
        let before = inner.resident_pages;
        self.look(inner);
        let seen = inner.resident_pages;
        inner.unseen.found(seen.saturating_sub(before));
        let start = Instant::now();
        if inner
            .unseen
            .is_due(self.batch_pages() / PART_OF_BATCH, start)
        {
            let all = self.count_all(inner);
            let now = Instant::now();
            let found = inner.resident_pages.saturating_sub(seen);
            match all {
                true => inner.unseen.looked(found, now - start, now),
                // It goes on in the next round.
                false => inner.unseen.found(found),
            }
        }
        came.max(inner.resident_pages.saturating_sub(before))
    }

    /// Counts all blocks in which something can have come, from where the last time ended. False if it did not get
    /// round, because there are too many or somebody waits.
    fn count_all(&self, inner: &mut Inner) -> bool {
        let (mut closely, mut calls) = (0, 0);
        let (from, mut first) = std::mem::take(&mut inner.unseen.hand);
        for number in from..inner.regions.len() {
            // What another process leads is counted there.
            let region = inner.regions[number].as_ref();
            let led = region.filter(|region| !region.follows());
            let blocks = led.map_or(0, |region| region.blocks.len());
            // Who asked for a look at all waits until those have been seen that cannot be counted.
            let uncounted = led.is_some_and(|region| region.sight != Sight::CountedThenSeen);
            let closely_only = uncounted && inner.unseen.is_owed();
            for first in (first..blocks).step_by(TOGETHER) {
                let tired = closely_only && closely + TOGETHER > CLOSELY_A_ROUND;
                if calls > MOST_CALLS || calls > 0 && (tired || self.is_waited_for()) {
                    inner.unseen.hand = (number, first);
                    return false;
                }
                calls += 1;
                let those = first..blocks.min(first + TOGETHER);
                let region = inner.regions[number].as_ref();
                if region.is_some_and(|region| self.are_still_empty(region, &those)) {
                    continue;
                }
                for block in those {
                    let region = inner.regions[number].as_ref();
                    if region.is_some_and(|region| !self.is_full(region, block)) {
                        self.visit(inner, number, block, false, &mut closely);
                        calls += 1;
                    }
                }
            }
            first = 0;
        }
        true
    }

    /// Whether nothing of some blocks was in memory, and still is not.
    fn are_still_empty(&self, region: &FileRegion, those: &Range<usize>) -> bool {
        let were = region.blocks[those.clone()]
            .iter()
            .all(|block| block.counted == 0);
        if !were || region.sight != Sight::CountedThenSeen {
            return false;
        }
        let offset = (those.start * self.block_bytes()) as u64;
        let bytes: usize = those
            .clone()
            .map(|block| self.bytes_of(region, block))
            .sum();
        let counted = self
            .kernel
            .count_cached(region.file.as_fd(), offset, bytes as u64);
        counted == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faulty;
    use crate::file_mode::Opening;
    use crate::kernel::Kernel as _;
    use crate::statistics::Counters;
    use crate::sys::mapping::Mapping;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_not_found_came_from_elsewhere_and_is_looked_for_ever_more_rarely() {
        let mut unseen = Unseen::default();
        let (start, ms) = (Instant::now(), Duration::from_millis);
        // The first count is what was before us.
        assert_eq!(unseen.came(Some(1 << 30), 0, 4096), 0);
        assert_eq!(unseen.came(Some((1 << 30) + (100 << 12)), 0, 4096), 100);
        unseen.found(60);
        assert!(!unseen.is_due(40, start) && unseen.is_due(39, start));
        // Most of it is found: again after three times as long.
        unseen.looked(20, ms(2), start);
        let mut read = (1 << 30) + (100 << 12);
        let mut more = |unseen: &mut Unseen| {
            read += 100 << 12;
            unseen.came(Some(read), 0, 4096)
        };
        assert_eq!(more(&mut unseen), 100);
        assert!(!unseen.is_due(40, start + ms(5)) && unseen.is_due(40, start + ms(6)));
        // Nothing is: the program reads something else.
        let mut now = start + ms(6);
        for pauses in [6, 12, 24, 48, 64, 64] {
            unseen.looked(0, ms(2), now);
            assert_eq!(more(&mut unseen), 0);
            assert!(!unseen.is_due(40, now + ms(2 * pauses - 1)), "{pauses}");
            now += ms(2 * pauses);
            assert!(unseen.is_due(40, now), "{pauses}");
        }
        unseen.looked(100, ms(2), now);
        // All is to be counted anew, whatever was found before.
        unseen.forget();
        unseen.found(1 << 40);
        assert!(unseen.is_due(1 << 40, now));
        unseen.looked(0, ms(2), now);
        assert_eq!(more(&mut unseen), 100);
        // A kernel that does not count.
        assert_eq!(unseen.came(None, 0, 4096), 0);
        assert_eq!(unseen.came(Some(read), 0, 4096), 0);
    }

    /// 512 blocks, of which a round counts an eighth: what comes in anywhere is found in the next one.
    #[test]
    fn what_comes_where_nobody_looks_is_found_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1024 * MIB).unwrap();
        let kernel = Arc::new(Faulty::sound());
        let settings = crate::Pager::builder().budget(64 * MIB).check().unwrap();
        let counters = Arc::new(Counters::default());
        let mode = FileMode::new(settings, kernel.clone(), counters.clone());
        let fd = file.as_file().as_fd();
        let mapping = Mapping::of_file(fd, 0, 1 << 30).unwrap();
        let opening = Opening {
            name: None,
            file: fd,
            facts: kernel.facts(fd).unwrap(),
            range: crate::kernel::Range {
                start: mapping.address(),
                bytes: mapping.bytes(),
            },
            offset: 0,
        };
        mode.add(opening).unwrap();
        let round = || {
            mode.round(Duration::from_millis(1), None);
            counters.resident_bytes.get()
        };
        assert_eq!(round(), 0);
        if kernel.count_cached(fd, 0, 0).is_err() {
            println!("skipped: no cachestat");
            return;
        }
        let mut there = 0;
        for place in [900, 100, 700, 300, 500] {
            let mut buffer = vec![0; MIB as usize];
            kernel.read(fd, &mut buffer, place * MIB).unwrap();
            let cached = kernel.count_cached(fd, 0, 0).unwrap() * 4096;
            if cached == there {
                println!("skipped: files here have no pages of their own");
                return;
            }
            // Nothing is read from a device where the file has a hole.
            kernel.beside.fetch_add(cached - there, SeqCst);
            there = cached;
            // As if the pause after the last full look were over.
            mode.inner().unseen.next = None;
            assert_eq!(round(), there, "at {place} MiB");
        }
    }
}
