//! Looking before unmapping.
//!
//! Unmapping a read-only mapping of a file loses nothing; unmapping anything else
//! does. A program may unmap an adopted mapping and map other memory in its place
//! in a way that its intermediary does not see, so before a batch is unmapped the
//! kernel is asked what lies there: once for each of its mappings, a microsecond.
//! What is not the region's file any more is left alone. Between the question and
//! the unmapping lie some microseconds that stay uncovered.

use super::{FileMode, FileRegion};
use crate::kernel::Range;
use crate::sys::vma::Vma;
use crate::unmap::FALLBACK_BYTES;

impl FileMode {
    /// Takes out of `ranges` those that do not show their region's file, and
    /// returns them.
    pub(super) fn take_strangers(
        &self,
        regions: &[Option<FileRegion>],
        ranges: &mut Vec<Range>,
    ) -> Vec<Range> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut strangers = Vec::new();
        let mut known: Option<Vma> = None;
        ranges.retain(|range| {
            let fine = self.is_own(regions, *range, &mut known);
            if !fine {
                strangers.push(*range);
            }
            fine
        });
        strangers
    }

    /// What may be unmapped together with `range`: the 2 MiB around it, as far as
    /// they are ours by our books and by the kernel's, who is asked at this moment.
    /// `None` if not even the range is.
    pub(super) fn widened(&self, regions: &[Option<FileRegion>], range: Range) -> Option<Range> {
        let fits = |r: &&FileRegion| r.range.start <= range.start && range.end() <= r.range.end();
        let region = regions.iter().flatten().find(fits)?;
        let granule = self.settings.granule_bytes;
        let index_of = |address: usize| (address - region.range.start) / granule;
        let start = range.start / FALLBACK_BYTES * FALLBACK_BYTES;
        let end = range.end().next_multiple_of(FALLBACK_BYTES);
        let lowest = index_of(start.max(region.range.start));
        let highest = index_of(end.min(region.range.end()) - 1);
        let (mut first, mut last) = (index_of(range.start), index_of(range.end() - 1));
        while first > lowest && !region.excluded[first - 1] {
            first -= 1;
        }
        while last < highest && !region.excluded[last + 1] {
            last += 1;
        }
        let from = region.range.start + first * granule;
        let to = (region.range.start + (last + 1) * granule).min(region.range.end());
        let wide = Range {
            start: from,
            bytes: to - from,
        };
        let own = |range| self.is_own(regions, range, &mut None);
        [wide, range].into_iter().find(|range| own(*range))
    }

    fn is_own(
        &self,
        regions: &[Option<FileRegion>],
        range: Range,
        known: &mut Option<Vma>,
    ) -> bool {
        let mut regions = regions.iter().flatten();
        let fits = |r: &&FileRegion| r.range.start <= range.start && range.end() <= r.range.end();
        let Some(region) = regions.find(fits) else {
            return false;
        };
        let mut at = range.start;
        while at < range.end() {
            let vma = match known.filter(|vma| (vma.start..vma.end).contains(&at)) {
                Some(vma) => vma,
                None => match self.kernel.vma(at) {
                    Ok(vma) => *known.insert(vma),
                    Err(_) => {
                        self.counters.failed_calls.add(1);
                        return false;
                    }
                },
            };
            let shown = vma.offset + (at - vma.start) as u64;
            let wanted = region.offset + (at - region.range.start) as u64;
            if vma.writable || vma.inode != region.facts.inode || shown != wanted {
                return false;
            }
            at = vma.end;
        }
        true
    }
}
