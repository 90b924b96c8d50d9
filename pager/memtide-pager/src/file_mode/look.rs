//! Seeing what came into memory.
//!
//! Blocks of 2 MiB (or of one granule, if that is more) are looked at. Counting a
//! block's cached pages costs little and next to nothing where none are, so it
//! comes first, and only blocks whose count changed are looked at page by page.
//! Blocks that changed when they were last counted, and those behind them, are
//! *warm*: all of them are counted in every round, as far as its limit goes, and
//! some of the others in turn. Nothing comes into a block that is full, so those are
//! counted rarely. [`super::unseen`] says when all are counted.

use super::{Block, FileMode, FileRegion, Gone, Inner, Sight};
use crate::adopt::Layout;
use crate::kernel::Range;
use crate::state::Means;
use crate::sys::known_file::KnownFile;
use memtide_core::eviction::Granule;
use memtide_linux::sys::pagemap::PagemapEntry;
use std::os::fd::AsFd;

/// The type of overlay file systems, as in `linux/magic.h`.
const OVERLAY: u64 = 0x794c_7630;
/// Blocks that one round looks at.
const BLOCKS_A_ROUND: usize = 1024;
/// Blocks that one round looks at page by page; the rest wait for their turn.
pub(super) const CLOSELY_A_ROUND: usize = 48;
/// Every so many rounds, blocks with an unchanged count are looked at too.
const CLOSER_LOOK: u64 = 256;
/// Of the blocks that are not warm, one in so many is counted in a round.
const COLD_IN_TURN: usize = 8;
/// Of those that are full, in which nothing can come, one in so many is.
const FULL_IN_TURN: u64 = 8;

impl FileMode {
    /// How a file's pages can be seen.
    pub(super) fn sight_of(&self, file: &KnownFile, range: Range, offset: u64) -> (Sight, Means) {
        if !self.kernel.may_see(file.as_fd()) {
            let reason = "the kernel hides the page cache of a file that this user may not write \
                          to: only mapped pages are counted";
            return (Sight::Mapped, Means::instead("pagemap", reason));
        }
        // The cache is that of the file below, and cachestat counts an empty one.
        let is_overlay = |about: rustix::fs::StatFs| about.f_type as u64 == OVERLAY;
        if rustix::fs::fstatfs(file).is_ok_and(is_overlay) {
            let reason = "cachestat sees nothing of files in an overlay";
            return (Sight::Seen, Means::instead("mincore", reason));
        }
        match self
            .kernel
            .count_cached(file.as_fd(), offset, range.bytes as u64)
        {
            Ok(_) => (Sight::CountedThenSeen, Means::best("cachestat and mincore")),
            Err(errno) => (
                Sight::Seen,
                Means::instead("mincore", format!("cachestat: {errno}; it needs Linux 6.5")),
            ),
        }
    }

    /// Counts some blocks, and looks closer at some of those that changed.
    pub(super) fn look(&self, inner: &mut Inner) {
        let closer = inner.rounds.is_multiple_of(CLOSER_LOOK);
        let blocks: usize = inner.regions.iter().flatten().map(|r| r.blocks.len()).sum();
        let mut closely = 0;
        for _ in 0..inner.warm.len().min(BLOCKS_A_ROUND) {
            let Some((number, block)) = inner.warm.pop_front() else {
                break;
            };
            if let Some(region) = &mut inner.regions[number] {
                region.blocks[block].warm = false;
                if closer || !self.is_full(region, block) {
                    self.visit(inner, number, block, closer, &mut closely);
                }
            }
        }
        let in_turn = blocks.div_ceil(COLD_IN_TURN).max(BLOCKS_A_ROUND / 16);
        for _ in 0..in_turn.min(blocks).min(BLOCKS_A_ROUND) {
            let Some((number, block)) = next_block(inner) else {
                return;
            };
            let region = inner.regions[number].as_ref();
            let rarely = (inner.rounds / FULL_IN_TURN + block as u64).is_multiple_of(FULL_IN_TURN);
            let worth = |region: &FileRegion| {
                !region.blocks[block].warm && (rarely || !self.is_full(region, block))
            };
            if closer || region.is_some_and(worth) {
                self.visit(inner, number, block, closer, &mut closely);
            }
        }
    }

    /// Whether all of a block is in memory, and seen: nothing can come there.
    pub(super) fn is_full(&self, region: &FileRegion, block: usize) -> bool {
        let Block { known, counted, .. } = region.blocks[block];
        known == counted && counted as usize * self.page_bytes >= self.bytes_of(region, block)
    }

    /// Counts a block and looks closer if it changed or `closer` asks for it.
    pub(super) fn visit(
        &self,
        inner: &mut Inner,
        number: usize,
        block: usize,
        closer: bool,
        closely: &mut usize,
    ) {
        if inner.regions[number]
            .as_ref()
            .is_none_or(FileRegion::follows)
        {
            return;
        }
        let before = inner.resident_pages;
        let unclear = self.count(inner, number, block);
        if inner.resident_pages != before || unclear {
            warm_up(inner, number, block);
            warm_up(inner, number, block + 1);
        }
        if (unclear && *closely < CLOSELY_A_ROUND) || closer {
            self.look_at(inner, number, block);
            *closely += 1;
        }
    }

    /// Looks at everything that changed: nothing is left to choose from.
    pub(super) fn look_everywhere(&self, inner: &mut Inner) {
        for number in 0..inner.regions.len() {
            let blocks = inner.regions[number].as_ref().map_or(0, |r| r.blocks.len());
            for block in 0..blocks {
                if self.count(inner, number, block) {
                    self.look_at(inner, number, block);
                }
            }
        }
    }

    /// Counts a block's pages. Whether there are others than those that were seen.
    pub(super) fn count(&self, inner: &mut Inner, number: usize, block: usize) -> bool {
        let Some(region) = &mut inner.regions[number] else {
            return false;
        };
        if !region.blocks[block].ours || region.follows() {
            return false;
        }
        if region.sight != Sight::CountedThenSeen {
            return true;
        }
        let offset = (block * self.block_bytes()) as u64;
        let bytes = self.bytes_of(region, block) as u64;
        match self.kernel.count_cached(region.file.as_fd(), offset, bytes) {
            Ok(count) => {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let before = region.enter(block, count);
                inner.resident_pages = inner.resident_pages + u64::from(count) - before;
                count != region.blocks[block].known
            }
            Err(_) => {
                self.counters.failed_calls.add(1);
                true
            }
        }
    }

    /// Looks at the blocks of the given granules.
    pub(super) fn look_again(&self, inner: &mut Inner, granules: &[Granule]) {
        let mut blocks: Vec<(usize, usize)> = granules
            .iter()
            .map(|granule| (granule.region as usize, self.block_of(granule.index)))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        for (number, block) in blocks {
            // What was counted before is what was dropped since.
            self.count(inner, number, block);
            self.look_at(inner, number, block);
        }
    }

    /// Looks at a block that was counted just now.
    fn look_at(&self, inner: &mut Inner, number: usize, block: usize) {
        let pages = self.see(inner, number, block).or_else(|| {
            // A call that failed, or a part was unmapped by one that nobody saw.
            self.counters.failed_calls.add(1);
            match self.cut_strangers(inner, number, block) {
                true => self.see(inner, number, block),
                false => None,
            }
        });
        // Or else known figures stay.
        if let Some(pages) = pages {
            self.note(inner, number, block, &pages);
        }
    }

    /// Takes out of a block's views what shows the file no more; whether anything did.
    fn cut_strangers(&self, inner: &mut Inner, number: usize, block: usize) -> bool {
        let Some(region) = &inner.regions[number] else {
            return false;
        };
        let offset = (block * self.block_bytes()) as u64;
        let bytes = self.bytes_of(region, block) as u64;
        let parts = region
            .views
            .iter()
            .filter_map(|view| view.part(offset, bytes));
        let layout = &mut Layout::of(&*self.kernel);
        let gone: Vec<Range> = parts
            .flat_map(|part| self.strangers_in(layout, &inner.regions, part))
            .collect();
        for range in &gone {
            self.cut_in(inner, *range, None, Gone::Unmapped);
        }
        !gone.is_empty()
    }

    /// What of a block is in memory, a byte for each page, or where nobody may know
    /// that, what is mapped. `None` if the kernel does not say.
    fn see(&self, inner: &Inner, number: usize, block: usize) -> Option<Vec<u8>> {
        let region = inner.regions[number].as_ref()?;
        let bytes = self.bytes_of(region, block);
        let mut pages = vec![0u8; bytes / self.page_bytes];
        let counted =
            (region.sight == Sight::CountedThenSeen).then(|| region.blocks[block].counted as usize);
        let seen = match region.sight {
            Sight::Mapped => self.see_mapped(inner, number, block, &mut pages),
            // The count says it all.
            _ if counted == Some(0) => true,
            _ if counted == Some(pages.len()) => {
                pages.fill(1);
                true
            }
            _ => self.see_cached(region, block, &mut pages),
        };
        seen.then_some(pages)
    }

    /// What of a block is in the page cache: by its mapping if there is one of all of
    /// it, or else granule by granule.
    fn see_cached(&self, region: &FileRegion, block: usize, pages: &mut [u8]) -> bool {
        let offset = (block * self.block_bytes()) as u64;
        let bytes = pages.len() * self.page_bytes;
        let parts = || {
            let views = region.views.iter();
            views.filter_map(|view| view.part(offset, bytes as u64).map(|part| (view, part)))
        };
        if let Some((_, whole)) = parts().find(|(_, part)| part.bytes == bytes) {
            return self.kernel.in_core(whole.start, pages).is_ok();
        }
        if region.sight == Sight::CountedThenSeen {
            let granule_bytes = self.settings.granule_bytes;
            let parts = pages.chunks_mut(granule_bytes / self.page_bytes);
            return parts.enumerate().all(|(at, part)| {
                let offset = offset + (at * granule_bytes) as u64;
                let bytes = (part.len() * self.page_bytes) as u64;
                let counted = self.kernel.count_cached(region.file.as_fd(), offset, bytes);
                // Which pages does not matter, only how many.
                let there = part.iter_mut().take(counted.unwrap_or(0) as usize);
                there.for_each(|page| *page = 1);
                counted.is_ok()
            });
        }
        let mut seen = vec![0u8; pages.len()];
        for (view, part) in parts() {
            let at = (part.start - view.range.start) as u64 + view.offset - offset;
            let from = at as usize / self.page_bytes;
            let some = &mut seen[..part.bytes / self.page_bytes];
            if self.kernel.in_core(part.start, some).is_err() {
                return false;
            }
            let into = pages[from..].iter_mut().zip(&*some);
            into.for_each(|(page, seen)| *page |= seen & 1);
        }
        true
    }

    /// What is mapped, and what was unmapped by us and not yet dropped.
    fn see_mapped(&self, inner: &Inner, number: usize, block: usize, pages: &mut [u8]) -> bool {
        let Some(region) = &inner.regions[number] else {
            return false;
        };
        let offset = (block * self.block_bytes()) as u64;
        let bytes = (pages.len() * self.page_bytes) as u64;
        for view in &region.views {
            let Some(part) = view.part(offset, bytes) else {
                continue;
            };
            let at = (part.start - view.range.start) as u64 + view.offset - offset;
            let from = at as usize / self.page_bytes;
            let mut entries = vec![PagemapEntry::default(); part.bytes / self.page_bytes];
            if self.kernel.mapped(part.start, &mut entries).is_err() {
                return false;
            }
            for (page, entry) in pages[from..].iter_mut().zip(&entries) {
                *page |= u8::from(entry.present());
            }
        }
        let per_granule = self.settings.granule_bytes / self.page_bytes;
        let first = block * (self.block_bytes() / self.settings.granule_bytes);
        for (at, part) in pages.chunks_mut(per_granule).enumerate() {
            let granule = Granule {
                region: number as u32,
                index: (first + at) as u32,
            };
            let known = inner.eviction.pages(granule) as usize;
            let mapped = part.iter().filter(|page| **page == 1).count();
            // Which pages does not matter, only how many.
            let hidden = part.iter_mut().filter(|page| **page == 0);
            hidden
                .take(known.saturating_sub(mapped))
                .for_each(|page| *page = 1);
        }
        true
    }

    /// Tells the policy what a block holds.
    fn note(&self, inner: &mut Inner, number: usize, block: usize, pages: &[u8]) {
        let per_granule = self.settings.granule_bytes / self.page_bytes;
        let first = block * (self.block_bytes() / self.settings.granule_bytes);
        let (mut sum, mut refilled) = (0, 0);
        let mut come = Vec::<(u32, u32)>::new();
        let (mut pages_by_need, mut runs_by_need) = (0, 0);
        let mut before_part = false;
        let Inner {
            regions, eviction, ..
        } = inner;
        for (at, part) in pages.chunks(per_granule).enumerate() {
            let granule = Granule {
                region: number as u32,
                index: (first + at) as u32,
            };
            let now = part.iter().filter(|page| *page & 1 == 1).count() as u32;
            sum += now;
            let before = eviction.pages(granule);
            let in_front = std::mem::replace(&mut before_part, part.last() == Some(&1));
            if now == before {
                continue;
            }
            if now == 0 {
                // The kernel took it by itself. If it is on one of our lists,
                // its turn there finds it gone.
                eviction.dropped(granule);
                continue;
            }
            let used = |granule| self.is_mapped(regions, granule);
            let again = eviction.appeared(granule, now, used);
            let more = u64::from(now.saturating_sub(before));
            self.counters.filled_pages.add(more);
            if again {
                self.counters.refilled_pages.add(more);
                refilled += more;
            }
            // Readers in order fill granule after granule; random ones a page here and
            // there, in neighbours too.
            if now as usize == part.len() {
                match come.last_mut().filter(|(_, to)| *to == granule.index) {
                    Some((_, to)) => *to += 1,
                    None => come.push((granule.index, granule.index + 1)),
                }
            }
            let own = regions[number].as_ref();
            if before == 0 && own.is_some_and(|r| !FileMode::is_asked_for(r, granule.index)) {
                let (pages, runs) = super::around::runs(in_front, part);
                pages_by_need += pages;
                runs_by_need += runs;
            }
        }
        let region = regions[number].as_mut().expect("looked at");
        region.refilled_pages += refilled;
        region.blocks[block].known = sum;
        let known = region.enter(block, sum);
        inner.resident_pages = inner.resident_pages + u64::from(sum) - known;
        self.note_runs(inner, number, (pages_by_need, runs_by_need));
        for come in come {
            self.note_stream(inner, number, come);
        }
    }

    /// Whether any page of a granule is mapped.
    pub(super) fn is_mapped(&self, regions: &[Option<FileRegion>], granule: Granule) -> bool {
        self.spans_of(regions, granule).any(|span| {
            let mut entries = vec![PagemapEntry::default(); span.bytes / self.page_bytes];
            match self.kernel.mapped(span.start, &mut entries) {
                Ok(()) => entries.iter().any(|entry| entry.present()),
                // Not known: keep it.
                Err(_) => {
                    self.counters.failed_calls.add(1);
                    true
                }
            }
        })
    }
}

/// Has a block counted in the next round.
pub(super) fn warm_up(inner: &mut Inner, number: usize, block: usize) {
    let Some(region) = &mut inner.regions[number] else {
        return;
    };
    if let Some(block_of) = region.blocks.get_mut(block)
        && block_of.ours
        && !block_of.warm
    {
        block_of.warm = true;
        inner.warm.push_back((number, block));
    }
}

/// The block under the hand, which moves on.
fn next_block(inner: &mut Inner) -> Option<(usize, usize)> {
    let (mut number, mut block) = inner.hand;
    // Past the end of a region, and past the last region, once each.
    for _ in 0..inner.regions.len() + 3 {
        match inner.regions.get(number) {
            Some(Some(region)) if block < region.blocks.len() => {
                inner.hand = (number, block + 1);
                return Some((number, block));
            }
            Some(_) => (number, block) = (number + 1, 0),
            None => (number, block) = (0, 0),
        }
    }
    None
}
