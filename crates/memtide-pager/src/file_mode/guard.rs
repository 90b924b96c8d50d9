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
                    Ok(Some(vma)) => *known.insert(vma),
                    // Nobody to ask: a kernel of a test.
                    Ok(None) => return true,
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
