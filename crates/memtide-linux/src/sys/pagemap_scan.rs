//! `PAGEMAP_SCAN`: a process's pages as runs of equal categories (Linux 6.7+).
//!
//! One ioctl on `/proc/PID/pagemap` replaces eight bytes a page by 24 bytes a
//! run. The kernel stops when the caller's buffer is full and says where;
//! [`PagemapScan::scan`] goes on from there until the range is walked. A kernel
//! without the call answers `ENOTTY`, which is [`ScanError::Absent`], so that
//! the caller falls back to [`super::pagemap`] reads.

use super::pagemap::Pagemap;
use super::{Errno, check};
use std::ops::{BitAnd, BitOr, Range};
use std::os::fd::{AsFd, AsRawFd};

/// A set of page categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Categories(pub u64);

impl Categories {
    /// A page of a file or of shared memory.
    pub const FILE: Categories = Categories(1 << 2);
    /// In memory.
    pub const PRESENT: Categories = Categories(1 << 3);
    /// In swap.
    pub const SWAPPED: Categories = Categories(1 << 4);
    /// The shared page of zeros, which cannot move.
    pub const ZERO: Categories = Categories(1 << 5);
    /// Part of a page that the table maps as one huge page.
    pub const HUGE: Categories = Categories(1 << 6);

    /// Whether every category of `other` is in `self`.
    pub fn contains(self, other: Categories) -> bool {
        self & other == other
    }
}

impl BitOr for Categories {
    type Output = Categories;
    fn bitor(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }
}

impl BitAnd for Categories {
    type Output = Categories;
    fn bitand(self, other: Categories) -> Categories {
        Categories(self.0 & other.0)
    }
}

/// Pages of equal categories, as the kernel writes them. Addresses in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// What the pages are.
    pub categories: Categories,
}

/// The argument block of the ioctl (`struct pm_scan_arg`).
#[derive(Default)]
#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl =
    (3 << 30 | (size_of::<Argument>() as u32) << 16 | (b'f' as u32) << 8 | 16) as libc::Ioctl;

/// Why a scan did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The kernel is older than 6.7.
    #[error("PAGEMAP_SCAN: not in this kernel (Linux 6.7 has it); read /proc/PID/pagemap instead")]
    Absent,
    /// The kernel refused.
    #[error("PAGEMAP_SCAN: {0}; is the range page-aligned and the process alive?")]
    Kernel(Errno),
}

/// A reusable buffer for scans.
#[derive(Debug)]
pub struct PagemapScan {
    regions: Vec<Region>,
}

impl Default for PagemapScan {
    fn default() -> PagemapScan {
        PagemapScan::with_regions(512)
    }
}

impl PagemapScan {
    /// A buffer for `regions` (at least one) runs a call: 24 bytes each.
    pub fn with_regions(regions: usize) -> PagemapScan {
        PagemapScan {
            regions: vec![Region::default(); regions.max(1)],
        }
    }

    /// Reports the runs of present and swapped pages in `range` (bytes,
    /// page-aligned), in order. Holes are not reported. Two runs may touch and
    /// be equal where one call ended and the next began.
    pub fn scan(
        &mut self,
        map: &Pagemap,
        range: Range<u64>,
        mut on: impl FnMut(Region),
    ) -> Result<(), ScanError> {
        walk(range, |part| {
            let (found, walk_end) = self.call(map, part)?;
            self.regions[..found].iter().copied().for_each(&mut on);
            Ok(walk_end)
        })
    }

    /// One call: how many regions were filled, and where the walk ended.
    fn call(&mut self, map: &Pagemap, part: Range<u64>) -> Result<(usize, u64), ScanError> {
        let wanted = Categories::PRESENT | Categories::SWAPPED;
        let mut argument = Argument {
            size: size_of::<Argument>() as u64,
            start: part.start,
            end: part.end,
            vec: self.regions.as_mut_ptr() as u64,
            vec_len: self.regions.len() as u64,
            category_anyof_mask: wanted.0,
            return_mask: (wanted | Categories::FILE | Categories::ZERO | Categories::HUGE).0,
            ..Argument::default()
        };
        // SAFETY: the request's size is the argument's; the kernel writes at
        // most `vec_len` regions to `vec`, which is our own buffer, borrowed
        // mutably for this call, whose element has the kernel's layout and no
        // invalid values. `Pagemap::open` proved that an address space is
        // behind the file.
        let result = check(libc::c_long::from(unsafe {
            libc::ioctl(map.as_fd().as_raw_fd(), PAGEMAP_SCAN, &raw mut argument)
        }));
        match result {
            Ok(found) => Ok((found.min(self.regions.len()), argument.walk_end)),
            Err(Errno::NOTTY) => Err(ScanError::Absent),
            Err(errno) => Err(ScanError::Kernel(errno)),
        }
    }
}

/// Calls `part` for what is left of `range` until all is walked. `part` returns
/// where it ended; one that does not advance ends the walk, because it would
/// never end otherwise.
fn walk(
    range: Range<u64>,
    mut part: impl FnMut(Range<u64>) -> Result<u64, ScanError>,
) -> Result<(), ScanError> {
    let mut start = range.start;
    while start < range.end {
        let end = part(start..range.end)?;
        if end <= start {
            return Err(ScanError::Kernel(Errno::IO));
        }
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_request_number_is_the_kernels() {
        assert_eq!(size_of::<Argument>(), 96);
        assert_eq!(PAGEMAP_SCAN as u32, 0xc060_6610);
    }

    #[test]
    fn a_walk_resumes_where_the_kernel_stopped_and_never_spins() {
        let mut parts = Vec::new();
        let result = walk(0..10, |part| {
            parts.push(part.clone());
            Ok(part.start + 4)
        });
        assert_eq!(result, Ok(()));
        assert_eq!(parts, [0..10, 4..10, 8..10]);
        assert_eq!(walk(5..9, |_| Ok(5)), Err(ScanError::Kernel(Errno::IO)));
    }

    #[test]
    fn touched_pages_are_all_found_even_through_a_buffer_of_one_run() {
        let page = rustix::param::page_size();
        // One page more, so that eight aligned ones are inside it.
        let memory = vec![1u8; 9 * page];
        let start = (memory.as_ptr() as usize).next_multiple_of(page);
        let map = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let range = start as u64..(start + 8 * page) as u64;
        let mut covered = 0;
        let result = PagemapScan::with_regions(1).scan(&map, range, |region| {
            assert!(region.categories.contains(Categories::PRESENT));
            covered += (region.end - region.start) as usize / page;
        });
        match result {
            Err(ScanError::Absent) => eprintln!("not tested: {}", ScanError::Absent),
            other => {
                assert_eq!(other, Ok(()));
                assert_eq!(covered, 8);
            }
        }
    }
}
