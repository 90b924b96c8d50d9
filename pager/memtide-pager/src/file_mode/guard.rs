//! Looking before unmapping.
//!
//! Unmapping a read-only mapping of a file loses nothing; unmapping anything else
//! does. A program may unmap an adopted mapping and map other memory in its place
//! in a way that its intermediary does not see, so before a batch is unmapped the
//! kernel is asked what lies there: once for each of its mappings, a microsecond.
//! What is not the region's file any more is left alone. Where pieces are unmapped one
//! by one, which takes long, it is asked before each. Between the question and the end of
//! the unmapping lie some microseconds that stay uncovered, longer where the evictor loses
//! its CPU in between: no call unmaps a file's pages and nothing else.
//!
//! The same question is asked where a look at mapped pages fails: it fails as a whole
//! for a hole of one page, and pages that nobody looks at never leave.

use super::{FileMode, FileRegion, View};
use crate::adopt::Layout;
use crate::kernel::Range;
use crate::order::ReadOrder;
use crate::sys::Errno;
use crate::sys::vma::Vma;
use crate::unmap::FALLBACK_BYTES;

/// What the kernel says about a range that we take for ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Us,
    /// Something else is there, or nothing.
    Another,
    /// It does not say.
    Unknown,
}

/// Most questions before a call. The first answer must still be true when the last one
/// is there; a mapping in so many parts costs more calls instead.
const QUESTIONS: usize = 16;

/// What was asked for one call.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Ranges that show their region's file.
    pub ours: Vec<Range>,
    /// Ranges in whose place somebody else put something, or nothing is.
    pub anothers: Vec<Range>,
    /// Those of which the kernel says nothing.
    pub unknown: Vec<Range>,
}

impl Asked {
    /// How many ranges were asked about.
    pub fn ranges(&self) -> usize {
        self.ours.len() + self.anothers.len() + self.unknown.len()
    }
}

impl FileMode {
    /// Asks about the first of `ranges`, which ascend: as many as a call takes, and as
    /// [`QUESTIONS`] answer.
    pub(super) fn ask(&self, regions: &[Option<FileRegion>], ranges: &[Range]) -> Asked {
        let (mut asked, mut questions) = (Asked::default(), 0);
        let mut known: Option<Vma> = None;
        for range in ranges.iter().take(crate::builder::MOST_RANGES) {
            if questions >= QUESTIONS {
                break;
            }
            let before = known;
            let owner = self.owner(regions, *range, &mut known);
            questions += usize::from(known != before || owner != Owner::Us);
            let list = match owner {
                Owner::Us => &mut asked.ours,
                Owner::Another => &mut asked.anothers,
                Owner::Unknown => &mut asked.unknown,
            };
            list.push(*range);
        }
        asked
    }

    /// Where a range does not show its region's file any more, to the page. Nothing
    /// where the kernel does not say.
    pub(super) fn strangers_in(
        &self,
        layout: &mut Layout<'_>,
        regions: &[Option<FileRegion>],
        range: Range,
    ) -> Vec<Range> {
        self.parts_in(layout, regions, range, |region, view, vma, at| {
            vma.is_none_or(|vma| !shows(region, view, vma, at))
        })
    }

    /// Where it still does, also where the program may write by now.
    fn ours_in(&self, regions: &[Option<FileRegion>], range: Range) -> Vec<Range> {
        let layout = &mut Layout::of(&*self.kernel);
        self.parts_in(layout, regions, range, |region, view, vma, at| {
            vma.is_some_and(|vma| shows_file(region, view, vma, at))
        })
    }

    /// The parts of a range whose mapping, or hole, is `wanted`.
    fn parts_in(
        &self,
        layout: &mut Layout<'_>,
        regions: &[Option<FileRegion>],
        range: Range,
        wanted: impl Fn(&FileRegion, &View, Option<&Vma>, usize) -> bool,
    ) -> Vec<Range> {
        let mut parts: Vec<Range> = Vec::new();
        let Some((region, view)) = view_around(regions, range) else {
            return parts;
        };
        let mut at = range.start;
        while at < range.end() {
            let found = match layout.at(at) {
                Ok(vma) => Ok((wanted(region, view, Some(&vma), at), vma.end)),
                // A hole, which may be long.
                Err(Errno::NOENT) => {
                    let end = layout.end_of_hole(at);
                    end.map(|end| (wanted(region, view, None, at), end))
                }
                Err(errno) => Err(errno),
            };
            let Ok((is_wanted, end)) = found else {
                self.counters.failed_calls.add(1);
                return parts;
            };
            let bytes = end.min(range.end()).saturating_sub(at);
            if is_wanted && bytes > 0 {
                match parts.last_mut().filter(|last| last.end() == at) {
                    Some(last) => last.bytes += bytes,
                    None => parts.push(Range { start: at, bytes }),
                }
            }
            at += bytes;
        }
        parts
    }

    /// Tells the kernel in which order a range is read, where it still shows its
    /// region's file: in what took a part's place unseen, advice would undo the program's.
    pub(super) fn tell_order(
        &self,
        regions: &[Option<FileRegion>],
        range: Range,
        order: ReadOrder,
    ) {
        for part in self.ours_in(regions, range) {
            let refused = self.kernel.advise(part, order).is_err();
            self.counters.failed_calls.add(u64::from(refused));
        }
    }

    /// What may be unmapped together with `range`: the 2 MiB around it, as far as
    /// they are ours by our books and by the kernel's, who is asked at this moment.
    /// `None` if not even the range is.
    pub(super) fn widened(&self, regions: &[Option<FileRegion>], range: Range) -> Option<Range> {
        let (_, view) = view_around(regions, range)?;
        let start = range.start / FALLBACK_BYTES * FALLBACK_BYTES;
        let end = range.end().next_multiple_of(FALLBACK_BYTES);
        let start = start.max(view.range.start);
        let wide = Range {
            start,
            bytes: end.min(view.range.end()) - start,
        };
        let ours = |range: &Range| self.is_ours(regions, *range);
        [wide, range].into_iter().find(ours)
    }

    /// Whether a range shows its region's file, by our books and the kernel's.
    pub(super) fn is_ours(&self, regions: &[Option<FileRegion>], range: Range) -> bool {
        self.owner(regions, range, &mut None) == Owner::Us
    }

    fn owner(
        &self,
        regions: &[Option<FileRegion>],
        range: Range,
        known: &mut Option<Vma>,
    ) -> Owner {
        let Some((region, view)) = view_around(regions, range) else {
            return Owner::Unknown;
        };
        let mut at = range.start;
        while at < range.end() {
            let vma = match known.filter(|vma| vma.covers(at)) {
                Some(vma) => vma,
                None => match self.kernel.vma(at) {
                    Ok(vma) => *known.insert(vma),
                    Err(Errno::NOENT) => return Owner::Another,
                    Err(_) => {
                        self.counters.failed_calls.add(1);
                        return Owner::Unknown;
                    }
                },
            };
            if !shows(region, view, &vma, at) {
                return Owner::Another;
            }
            at = vma.end;
        }
        Owner::Us
    }
}

/// Whether a mapping shows at an address what the view does, and nothing can have been
/// written to it.
fn shows(region: &FileRegion, view: &View, vma: &Vma, at: usize) -> bool {
    !vma.writable && shows_file(region, view, vma, at)
}

/// Whether a mapping is of the view's file, at the same place of it.
fn shows_file(region: &FileRegion, view: &View, vma: &Vma, at: usize) -> bool {
    let shown = vma.offset + (at - vma.start) as u64;
    let wanted = view.offset + (at - view.range.start) as u64;
    vma.inode == region.facts.inode && shown == wanted
}

/// The view that shows all of a range, and its file.
fn view_around(regions: &[Option<FileRegion>], range: Range) -> Option<(&FileRegion, &View)> {
    let mut regions = regions.iter().flatten();
    regions.find_map(|region| Some((region, region.view_around(&range)?)))
}
