//! Where files are mapped.
//!
//! A view is a stretch of addresses that shows a stretch of a file. What a program
//! cuts out of a mapping leaves one view less, or two in place of one; what it maps
//! again is one more. Pages of a file that no view shows any more are still in memory
//! through the program's reading: they are dropped like others, only that nothing has
//! to be unmapped for it. A file that nobody maps any more is remembered for as long
//! as something of it is in memory.

use super::{FileMode, FileRegion, Inner};
use crate::kernel::Range;
use crate::order::ReadOrder;
use memtide_core::eviction::Granule;
use std::os::fd::AsFd;

/// Files that nobody maps are remembered up to this number; the oldest is dropped from
/// memory when there are more.
const ORPHANS: usize = 64;

/// A stretch of addresses that shows a stretch of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The number of what it is a part of.
    pub care: u32,
    pub range: Range,
    /// Of its first byte in the file.
    pub offset: u64,
    /// In which order the program says that it reads.
    pub order: ReadOrder,
    /// What the kernel was told of that.
    pub told: ReadOrder,
}

impl View {
    pub fn end_offset(&self) -> u64 {
        self.offset + self.range.bytes as u64
    }

    /// The addresses of `bytes` bytes of the file from `offset` on, as far as it shows
    /// them.
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Range> {
        let from = offset.max(self.offset);
        let to = (offset + bytes).min(self.end_offset());
        (from < to).then(|| Range {
            start: self.range.start + (from - self.offset) as usize,
            bytes: (to - from) as usize,
        })
    }

    /// What is left of it without the addresses of `cut`.
    pub fn without(self, cut: &Range) -> [Option<View>; 2] {
        let (start, end) = (self.range.start, self.range.end());
        [
            self.between(start, end.min(cut.start)),
            self.between(start.max(cut.end()), end),
        ]
    }

    /// What of it lies in `range`.
    pub fn within(self, range: &Range) -> Option<View> {
        self.between(
            self.range.start.max(range.start),
            self.range.end().min(range.end()),
        )
    }

    /// The part between two addresses, both inside of it or at its ends.
    fn between(self, from: usize, to: usize) -> Option<View> {
        (from < to).then(|| View {
            range: Range {
                start: from,
                bytes: to - from,
            },
            offset: self.offset + (from - self.range.start) as u64,
            ..self
        })
    }
}

/// What becomes of pages that leave the pager's care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// They stay mapped, and are somebody else's business.
    HandedOver,
    /// They are unmapped. What the page cache has of them is there through us.
    Unmapped,
}

impl FileRegion {
    /// How many of its views end before an address.
    pub(super) fn views_before(&self, address: usize) -> usize {
        self.views
            .partition_point(|view| view.range.end() <= address)
    }

    /// One view more, at addresses that no other has.
    pub(super) fn insert(&mut self, view: View) {
        let at = self.views_before(view.range.start);
        let behind = self.views.get(at);
        assert!(
            behind.is_none_or(|behind| view.range.end() <= behind.range.start),
            "{view:?} lies in {behind:?}"
        );
        self.views.insert(at, view);
    }

    /// Those of its views that show something of a range.
    fn views_at(&self, range: &Range) -> &[View] {
        let from = self.views_before(range.start);
        let behind = self.views[from..].partition_point(|view| view.range.start < range.end());
        &self.views[from..from + behind]
    }

    /// Whether a view is longer than what was seen of the file.
    fn shows_beyond(&self) -> bool {
        let mut views = self.views.iter();
        views.any(|view| view.end_offset() > self.seen_bytes)
    }

    /// The view that shows all of a range.
    pub(super) fn view_around(&self, range: &Range) -> Option<&View> {
        let around =
            |view: &&View| view.range.start <= range.start && range.end() <= view.range.end();
        self.views_at(range).iter().find(around)
    }
}

impl FileMode {
    /// Ends the care for a mapping: nothing of it is unmapped any more.
    pub fn remove(&self, number: u32, gone: Gone) {
        let everywhere = Range {
            start: 0,
            bytes: usize::MAX,
        };
        self.cut(everywhere, Some(number), gone);
        let mut inner = self.inner();
        inner.cares[number as usize] = None;
        drop(inner);
        self.wanted.forget(number);
    }

    /// Takes what lies in a range out of the pager's care; true if anything did.
    /// `only` restricts it to what was given that number.
    pub fn cut(&self, range: Range, only: Option<u32>, gone: Gone) -> bool {
        self.cut_in(&mut self.inner(), range, only, gone)
    }

    pub(super) fn cut_in(
        &self,
        inner: &mut Inner,
        range: Range,
        only: Option<u32>,
        gone: Gone,
    ) -> bool {
        let start = range.start / self.page_bytes * self.page_bytes;
        let end = range.end().checked_next_multiple_of(self.page_bytes);
        let range = Range {
            start,
            bytes: end.unwrap_or(usize::MAX) - start,
        };
        let mut any = false;
        for number in 0..inner.regions.len() {
            let Some(region) = inner.regions[number].as_mut() else {
                continue;
            };
            let hit = |view: &View| {
                overlap(&view.range, &range) && only.is_none_or(|only| only == view.care)
            };
            if !region.views_at(&range).iter().any(hit) {
                continue;
            }
            if gone == Gone::HandedOver {
                self.untell(inner, number, &range, only);
            }
            let Some(region) = inner.regions[number].as_mut() else {
                continue;
            };
            let mut out = Vec::new();
            let mut left = Vec::with_capacity(region.views.len() + 1);
            for view in std::mem::take(&mut region.views) {
                match hit(&view) {
                    false => left.push(view),
                    true => {
                        out.push(view);
                        left.extend(view.without(&range).into_iter().flatten());
                    }
                }
            }
            region.views = left;
            any = true;
            if gone == Gone::HandedOver {
                for view in out {
                    self.disown(inner, number, view);
                }
            }
            self.look_after(inner, number);
        }
        any
    }

    /// Pages that the pager lets go of are read as the program asked for.
    fn untell(&self, inner: &Inner, number: usize, range: &Range, only: Option<u32>) {
        let views = inner.regions[number]
            .iter()
            .flat_map(|region| &region.views);
        let views = views.filter(|view| only.is_none_or(|only| only == view.care));
        for view in views.filter_map(|view| view.within(range)) {
            if view.told != view.order {
                self.tell_order(&inner.regions, view.range, view.order);
            }
        }
    }

    /// Blocks that only `view` showed are no longer ours to count or drop.
    fn disown(&self, inner: &mut Inner, number: usize, view: View) {
        let block_bytes = self.block_bytes() as u64;
        let seen_bytes = inner.regions[number].as_ref().map_or(0, |r| r.seen_bytes);
        let to = view.end_offset().min(seen_bytes).div_ceil(block_bytes);
        for block in (view.offset / block_bytes) as usize..to as usize {
            let Some(region) = inner.regions[number].as_mut() else {
                return;
            };
            let start = block as u64 * block_bytes;
            let shown = |view: &View| view.part(start, block_bytes).is_some();
            if region.views.iter().any(shown) || !region.blocks[block].ours {
                continue;
            }
            region.blocks[block].ours = false;
            self.close_block(inner, number, block);
        }
    }

    /// Nothing of a file counts as in memory through this process any more.
    pub(super) fn close_books(&self, inner: &mut Inner, number: usize) {
        let blocks = inner.regions[number].as_ref().map_or(0, |r| r.blocks.len());
        for block in 0..blocks {
            let region = inner.regions[number].as_ref();
            if region.is_some_and(|region| region.blocks[block].counted > 0) {
                self.close_block(inner, number, block);
            }
        }
    }

    fn close_block(&self, inner: &mut Inner, number: usize, block: usize) {
        let Some(region) = inner.regions[number].as_mut() else {
            return;
        };
        inner.resident_pages -= region.enter(block, 0);
        region.blocks[block] = super::Block {
            warm: region.blocks[block].warm,
            ours: region.blocks[block].ours,
            ..super::Block::default()
        };
        for index in self.granules_of(block) {
            inner.eviction.dropped(Granule {
                region: number as u32,
                index,
            });
        }
    }

    /// A file that lost a view: it may have been the last one.
    fn look_after(&self, inner: &mut Inner, number: usize) {
        let Some(region) = inner.regions[number].as_ref() else {
            return;
        };
        if !region.views.is_empty() {
            return;
        }
        // What only shows itself where it is mapped is not seen any more.
        let hidden = region.sight != super::Sight::CountedThenSeen;
        if hidden && region.blocks.iter().any(|block| block.ours) {
            let dropped = self.kernel.drop_cached(region.file.as_fd(), 0, 0);
            self.counters.failed_calls.add(u64::from(dropped.is_err()));
        }
        if hidden || region.blocks.iter().all(|block| !block.ours) || is_deleted(region) {
            self.end(inner, number);
            return;
        }
        inner.orphans.push_back(number);
        if inner.orphans.len() > ORPHANS
            && let Some(oldest) = inner.orphans.pop_front()
        {
            if let Some(region) = inner.regions[oldest].as_ref() {
                let dropped = self.kernel.drop_cached(region.file.as_fd(), 0, 0);
                self.counters.failed_calls.add(u64::from(dropped.is_err()));
            }
            self.end(inner, oldest);
        }
    }

    /// Forgets files that nobody maps and of which nothing is in memory any more.
    pub(super) fn forget_empty_orphans(&self, inner: &mut Inner) {
        for number in inner.orphans.clone() {
            let known = |inner: &Inner| {
                let region = inner.regions[number].as_ref();
                region.is_some_and(|region| region.resident_pages > 0 && !is_deleted(region))
            };
            if known(inner) {
                continue;
            }
            // It may have been mapped, read and unmapped since the last look.
            let blocks = inner.regions[number].as_ref().map_or(0, |r| r.blocks.len());
            for block in 0..blocks {
                self.count(inner, number, block);
            }
            if !known(inner) {
                self.end(inner, number);
            }
        }
    }

    /// Forgets a file and everything of it.
    fn end(&self, inner: &mut Inner, number: usize) {
        let Some(mut region) = inner.regions[number].take() else {
            return;
        };
        inner.left.extend(region.group.take());
        let of = number as u32;
        inner.resident_pages -= region.resident_pages;
        inner.orphans.retain(|orphan| *orphan != number);
        inner.warm.retain(|(region, _)| *region != number);
        inner.eviction.remove_region(of);
        inner.pending.retain(|(granule, _)| granule.region != of);
        inner.unmapped.retain(|(granule, _)| granule.region != of);
        inner
            .flush
            .covered(|granules| granules.0.retain(|granule| granule.region != of));
    }

    /// Has the blocks reach as far as one of its views shows the file, which is `bytes`
    /// long now, and notes that somebody maps them.
    pub(super) fn reach(&self, region: &mut FileRegion, view: &View, bytes: u64) {
        let block_bytes = self.block_bytes() as u64;
        let shown = view.end_offset().min(bytes);
        region.seen_bytes = region.seen_bytes.max(shown);
        let blocks = region.seen_bytes.div_ceil(block_bytes) as usize;
        region
            .blocks
            .resize(blocks.max(region.blocks.len()), super::Block::default());
        let to = shown.div_ceil(block_bytes) as usize;
        let from = ((view.offset / block_bytes) as usize).min(to);
        // The kernel reads around what is touched: what comes in beside a view came
        // through us, even if the next window shows something else.
        let (from, to) = (from.saturating_sub(1), (to + 1).min(region.blocks.len()));
        for block in &mut region.blocks[from..to] {
            block.ours = true;
        }
    }

    /// Has the blocks be all of the file, which is `bytes` long: others map what we may not.
    pub(super) fn reach_all(&self, region: &mut FileRegion, bytes: u64) {
        // Granules are counted with 32 bits.
        let most = u64::from(u32::MAX) * self.settings.granule_bytes as u64;
        let bytes = region
            .seen_bytes
            .max(bytes.min(most - self.block_bytes() as u64));
        let blocks = bytes.div_ceil(self.block_bytes() as u64) as usize;
        let blocks = blocks.max(region.blocks.len());
        // A file with a huge hole: without memory for it, what this process maps is all that is looked at.
        if region
            .blocks
            .try_reserve(blocks - region.blocks.len())
            .is_err()
        {
            return;
        }
        region.seen_bytes = bytes;
        region.blocks.resize(blocks, super::Block::default());
        for block in region.blocks.iter_mut().filter(|block| !block.ours) {
            block.ours = true;
        }
    }

    /// Files grow below mappings that are longer than they are.
    pub(super) fn follow_growth(&self, inner: &mut Inner) {
        for region in inner.regions.iter_mut().flatten() {
            if region.shows_beyond()
                && let Ok(facts) = self.kernel.facts(region.file.as_fd())
            {
                self.follow_to(region, facts.bytes);
            }
        }
    }

    /// The file is `bytes` long now.
    pub(super) fn follow_to(&self, region: &mut FileRegion, bytes: u64) {
        if bytes > region.seen_bytes && region.shows_beyond() {
            for view in region.views.clone() {
                self.reach(region, &view, bytes);
            }
        }
    }

    /// Indices of a block's granules.
    pub(super) fn granules_of(&self, block: usize) -> std::ops::Range<u32> {
        let per_block = (self.block_bytes() / self.settings.granule_bytes) as u32;
        block as u32 * per_block..(block as u32 + 1) * per_block
    }

    /// Bytes of the file from `block` on that are looked at together, whole pages.
    pub(super) fn bytes_of(&self, region: &FileRegion, block: usize) -> usize {
        let start = block as u64 * self.block_bytes() as u64;
        let bytes = region.seen_bytes.saturating_sub(start);
        (bytes.min(self.block_bytes() as u64) as usize).next_multiple_of(self.page_bytes)
    }

    /// Every stretch of addresses at which a granule is mapped.
    pub(super) fn spans_of<'a>(
        &self,
        regions: &'a [Option<FileRegion>],
        granule: Granule,
    ) -> impl Iterator<Item = Range> + 'a {
        let bytes = self.settings.granule_bytes as u64;
        let offset = u64::from(granule.index) * bytes;
        let region = regions
            .get(granule.region as usize)
            .and_then(Option::as_ref);
        let views = region.map_or(&[][..], |region| &region.views);
        views
            .iter()
            .filter_map(move |view| view.part(offset, bytes))
    }
}

/// Whether no name leads to the file any more: it goes with its last descriptor.
fn is_deleted(region: &FileRegion) -> bool {
    rustix::fs::fstat(&region.file).is_ok_and(|stat| stat.st_nlink == 0)
}

fn overlap(a: &Range, b: &Range) -> bool {
    a.start < b.end() && b.start < a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_what_is_beside_it() {
        let view = View {
            care: 3,
            range: Range {
                start: 0x10000,
                bytes: 0x8000,
            },
            offset: 0x2000,
            order: ReadOrder::Normal,
            told: ReadOrder::Random,
        };
        let left = |start, end: usize| {
            let cut = Range {
                start,
                bytes: end - start,
            };
            let left = view.without(&cut).into_iter().flatten();
            left.map(|v| (v.range.start, v.range.bytes, v.offset))
                .collect::<Vec<_>>()
        };
        assert_eq!(left(0x10000, 0x11000), [(0x11000, 0x7000, 0x3000)]);
        assert_eq!(left(0x17000, 0x20000), [(0x10000, 0x7000, 0x2000)]);
        assert_eq!(
            left(0x12000, 0x13000),
            [(0x10000, 0x2000, 0x2000), (0x13000, 0x5000, 0x5000)]
        );
        assert_eq!(left(0, usize::MAX), []);
        // Offsets 0x1000..0x4000 are addresses up to 0x12000.
        let part = view.part(0x1000, 0x3000).unwrap();
        assert_eq!((part.start, part.bytes), (0x10000, 0x2000));
        assert_eq!(view.part(0, 0x2000), None);
    }
}
