//! A file's own mapping in the place of copies of it.

use super::copy::NAME;
use crate::kernel::Range as Addresses;
use crate::sys::known_file::KnownFile;
use crate::sys::{Errno, place};
use memtide_linux::fs::proc::maps::{self, Mapping};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Shows `file` itself wherever `range`, whose first address is the byte at `offset`, shows a
/// copy; with `whole`, also where it shows the file already, by a descriptor of ours. What else
/// lies in the range stays as it is.
///
/// `maps` is this process's `/proc/self/maps`. Nobody else puts copies there meanwhile.
///
/// # Errors
///
/// The kernel's; what was not reached still shows copies.
pub(crate) fn put_back(
    maps: &KnownFile,
    range: &Range<usize>,
    file: BorrowedFd<'_>,
    offset: u64,
    whole: bool,
) -> Result<(), Errno> {
    let inode = rustix::fs::fstat(file)?.st_ino;
    let mappings = maps::parse(&maps.contents()?).map_err(|_| Errno::IO)?;
    for mapping in &mappings {
        let start = (mapping.start as usize).max(range.start);
        let end = (mapping.end as usize).min(range.end);
        if start >= end || !mapping.shared || mapping.write || !mapping.read {
            continue;
        }
        let at = offset + (start - range.start) as u64;
        let shows = mapping.offset + (start - mapping.start as usize) as u64;
        let is_file = whole && mapping.inode == inode && shows == at;
        if is_copy(mapping) || is_file {
            let bytes = end - start;
            place::over(Addresses { start, bytes }, file, at)?;
        }
    }
    Ok(())
}

/// Whether all of `range` shows the memory file `inode` of a copy from `offset`, as we map it.
/// `mappings` are this process's.
pub(crate) fn shows(mappings: &[Mapping], range: &Range<usize>, inode: u64, offset: u64) -> bool {
    let first = mappings.partition_point(|mapping| mapping.end as usize <= range.start);
    let mut at = range.start;
    for mapping in &mappings[first..] {
        let start = mapping.start as usize;
        let shown = mapping.offset + (at as u64).saturating_sub(mapping.start);
        let as_wanted = is_copy(mapping)
            && (mapping.shared && mapping.read && !mapping.write && mapping.inode == inode)
            && shown == offset + (at - range.start) as u64;
        if start > at || !as_wanted {
            return false;
        }
        at = mapping.end as usize;
        if at >= range.end {
            return true;
        }
    }
    false
}

/// Whether it shows a copy of ours, of whatever file.
pub(crate) fn is_copy(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref();
    path == Some(Path::new(&format!("/memfd:{NAME}")))
}
