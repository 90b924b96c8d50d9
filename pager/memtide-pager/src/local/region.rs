//! What of a process's addresses may show copies: plain bookkeeping, in granules of the file.

use super::copy::{GRANULE, STRETCH, granule_bytes};
use super::version::Identity;
use memtide_core::units::NodeId;
use std::ops::Range;

/// A mapping of a file, or what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Addresses, whole pages.
    pub range: Range<usize>,
    /// Byte of the file at the first address.
    pub offset: u64,
    /// Which file, and under which number it was open when it was given.
    pub source: Source,
    /// How long the file is.
    pub file_bytes: u64,
    /// Whose copy; the process's node if nobody said.
    pub node: Option<NodeId>,
    /// For each granule that the range touches, whether the copy is shown.
    pub local: Vec<bool>,
    /// The file's own mapping was put back by us, by a descriptor of ours.
    pub ours: bool,
}

/// How the keeper, which has a table of descriptors of its own, finds the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub thread: u32,
    pub number: i32,
    pub file: Identity,
}

impl Region {
    /// With nothing of a copy shown yet.
    pub fn new(
        range: Range<usize>,
        offset: u64,
        source: Source,
        file_bytes: u64,
        node: Option<NodeId>,
    ) -> Region {
        let mut region = Region {
            range,
            offset,
            source,
            file_bytes,
            node,
            local: Vec::new(),
            ours: false,
        };
        region.local = vec![false; region.granules().count()];
        region
    }

    /// The granules that it touches.
    pub fn granules(&self) -> Range<u64> {
        let end = self.offset + self.range.len() as u64;
        self.offset / GRANULE..end.div_ceil(GRANULE)
    }

    /// The addresses of a granule, without what lies behind the file's end, and the byte of the
    /// file at the first; `None` if it has none.
    pub fn addresses(&self, granule: u64) -> Option<(Range<usize>, u64)> {
        let start = granule * GRANULE;
        let end = start + granule_bytes(self.file_bytes, granule);
        let whole = self.offset..self.offset + self.range.len() as u64;
        let (start, end) = (start.max(whole.start), end.min(whole.end));
        let address = |at: u64| self.range.start + (at - self.offset) as usize;
        (start < end).then(|| (address(start)..address(end), start))
    }

    /// Whether a granule's copy is shown; a granule that it does not touch has none.
    pub fn is_local(&self, granule: u64) -> bool {
        self.index(granule).is_some_and(|at| self.local[at])
    }

    /// Notes that it is.
    pub fn set_local(&mut self, granule: u64) {
        if let Some(at) = self.index(granule) {
            self.local[at] = true;
        }
    }

    /// Notes that the file is.
    pub fn set_file(&mut self, granule: u64) {
        if let Some(at) = self.index(granule) {
            self.local[at] = false;
        }
    }

    /// By how many runs of copies there are more once a granule's is shown: -1, 0 or 1.
    pub fn more_runs(&self, granule: u64) -> i64 {
        let before = !granule.is_multiple_of(STRETCH) && self.is_local(granule - 1);
        let behind = !(granule + 1).is_multiple_of(STRETCH) && self.is_local(granule + 1);
        1 - i64::from(before) - i64::from(behind)
    }

    /// Runs of copies, each within a stretch.
    pub fn runs(&self) -> i64 {
        let begins = |granule: &u64| {
            let first = granule.is_multiple_of(STRETCH) || !self.is_local(granule - 1);
            self.is_local(*granule) && first
        };
        self.granules().filter(begins).count() as i64
    }

    /// Bytes that are shown by copies.
    pub fn local_bytes(&self) -> u64 {
        let local = self.granules().filter(|granule| self.is_local(*granule));
        local
            .filter_map(|granule| self.addresses(granule))
            .map(|(range, _)| range.len() as u64)
            .sum()
    }

    /// What is left of it without `range`.
    pub fn without(&self, range: &Range<usize>) -> Vec<Region> {
        let before = self.range.start..self.range.end.min(range.start);
        let behind = self.range.start.max(range.end)..self.range.end;
        [before, behind]
            .into_iter()
            .filter(|part| part.start < part.end)
            .map(|part| self.part(part))
            .collect()
    }

    /// A part of it.
    pub fn part(&self, range: Range<usize>) -> Region {
        assert!(self.range.start <= range.start && range.end <= self.range.end);
        let offset = self.offset + (range.start - self.range.start) as u64;
        let mut part = Region::new(range, offset, self.source, self.file_bytes, self.node);
        part.ours = self.ours;
        for granule in part.granules() {
            if self.is_local(granule) {
                part.set_local(granule);
            }
        }
        part
    }

    fn index(&self, granule: u64) -> Option<usize> {
        let at = granule.checked_sub(self.granules().start)?;
        let at = usize::try_from(at).ok()?;
        (at < self.local.len()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: usize = GRANULE as usize;
    const SOURCE: Source = Source {
        thread: 1,
        number: 2,
        file: (3, 4),
    };

    /// From the middle of granule 1 to the middle of granule 4, of a file that ends one page into
    /// granule 3.
    fn region() -> Region {
        let range = 0x1000_0000..0x1000_0000 + 3 * G;
        let offset = GRANULE + GRANULE / 2;
        Region::new(range, offset, SOURCE, 3 * GRANULE + 4000, None)
    }

    #[test]
    fn granules_have_addresses_up_to_the_files_end() {
        let region = region();
        assert_eq!(region.granules(), 1..5);
        let at = |granule| region.addresses(granule);
        let start = region.range.start;
        assert_eq!(at(0), None);
        assert_eq!(at(1), Some((start..start + G / 2, GRANULE + GRANULE / 2)));
        assert_eq!(at(2), Some((start + G / 2..start + 3 * G / 2, 2 * GRANULE)));
        let third = start + 3 * G / 2;
        assert_eq!(at(3), Some((third..third + 4096, 3 * GRANULE)));
        assert_eq!(at(4), None);
    }

    #[test]
    fn what_is_cut_out_is_gone_and_the_rest_knows_its_copies() {
        let mut region = region();
        region.set_local(1);
        region.set_local(2);
        region.set_local(9);
        assert_eq!(
            (region.runs(), region.more_runs(3), region.more_runs(4)),
            (1, 0, 1)
        );
        assert_eq!(region.local_bytes(), GRANULE / 2 + GRANULE);
        let start = region.range.start;
        // The middle page of granule 2 goes: both halves still show the copy.
        let hole = start + G..start + G + 4096;
        let left = region.without(&hole);
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].granules(), 1..3);
        assert_eq!(left[0].local, [true, true]);
        assert_eq!(left[1].offset, 2 * GRANULE + GRANULE / 2 + 4096);
        assert_eq!(left[1].local, [true, false, false]);
        assert_eq!(region.without(&(0..usize::MAX)), []);
        assert_eq!(region.without(&(0..start)), [region.clone()]);
    }
}
