//! What of a mapping still shows its file.
//!
//! Who stands between a program and the kernel does not see every call. Before he puts
//! something in the place of a mapping that he made, he asks what is there by now.

use crate::error::Error;
use crate::kernel::{own_maps, own_pagemap, own_vmas};
use crate::sys::Errno;
use crate::sys::vma::{Vma, at_or_behind};
use memtide_linux::sys::pagemap::{self, PagemapEntry};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// A stretch of a shared mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Addresses, whole pages.
    pub range: Range<usize>,
    /// Byte of the file at the first address.
    pub offset: u64,
    /// What may be done with it now.
    pub readable: bool,
    /// See `readable`.
    pub executable: bool,
}

/// What of `range` shows `file` through a shared mapping that cannot be written to, the
/// first address the byte at `offset`; ascending. What is not in it is unmapped or
/// somebody else's. It is so at the moment of the question only.
///
/// # Errors
///
/// [`Error::NotAdoptable`] if the kernel does not say.
pub fn shown(range: Range<usize>, file: BorrowedFd<'_>, offset: u64) -> Result<Vec<Shown>, Error> {
    let silent = |errno: Errno| Error::NotAdoptable {
        address: range.start,
        bytes: range.len(),
        reason: format!("the kernel does not say what is mapped there: {errno}"),
    };
    let inode = rustix::fs::fstat(file).map_err(silent)?.st_ino;
    let maps = own_maps().map_err(silent)?;
    let mut all: Option<Vec<Vma>> = None;
    let next = |address: usize| match &all {
        Some(vmas) => behind(vmas, address),
        None => match at_or_behind(&maps, address) {
            Err(Errno::NOTTY) => behind(all.insert(own_vmas()?), address),
            other => other,
        },
    };
    among(next, range.clone(), inode, offset).map_err(silent)
}

/// Pages of `range` that fault though something is mapped there, because the program
/// guarded them (`MADV_GUARD_INSTALL`, for files since Linux 6.15); joined and ascending.
/// What is put in the place of a mapping has none of them. None are found where the process
/// may not read its own page map: one that is not dumpable, without root's rights.
///
/// # Errors
///
/// [`Error::NotAdoptable`] if the kernel does not say.
pub fn guards(range: Range<usize>) -> Result<Vec<Range<usize>>, Error> {
    let file = match own_pagemap() {
        Err(Errno::ACCESS | Errno::PERM) => return Ok(Vec::new()),
        file => file,
    };
    let found = file.and_then(|file| {
        guarded(&range, |first, out| {
            let read = pagemap::read(&file, first, out)?;
            (read == out.len()).then_some(()).ok_or(Errno::NOMEM)
        })
    });
    found.map_err(|errno| Error::NotAdoptable {
        address: range.start,
        bytes: range.len(),
        reason: format!("the kernel does not say which pages are guarded: {errno}"),
    })
}

fn guarded(
    range: &Range<usize>,
    mut read: impl FnMut(u64, &mut [PagemapEntry]) -> Result<(), Errno>,
) -> Result<Vec<Range<usize>>, Errno> {
    let page = rustix::param::page_size();
    let mut entries = vec![PagemapEntry::default(); 4096];
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in range.clone().step_by(entries.len() * page) {
        let pages = ((range.end - start) / page).min(entries.len());
        read((start / page) as u64, &mut entries[..pages])?;
        for at in (0..pages).filter(|at| entries[*at].guard()) {
            let at = start + at * page;
            match found.last_mut().filter(|last| last.end == at) {
                Some(last) => last.end += page,
                None => found.push(at..at + page),
            }
        }
    }
    Ok(found)
}

fn behind(vmas: &[Vma], address: usize) -> Result<Vma, Errno> {
    let first = vmas.partition_point(|vma| vma.end <= address);
    vmas.get(first).copied().ok_or(Errno::NOENT)
}

fn among(
    mut next: impl FnMut(usize) -> Result<Vma, Errno>,
    range: Range<usize>,
    inode: u64,
    offset: u64,
) -> Result<Vec<Shown>, Errno> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let vma = match next(at) {
            Err(Errno::NOENT) => break,
            other => other?,
        };
        let (start, end) = (vma.start.max(at), vma.end.min(range.end));
        at = vma.end;
        if start >= end {
            break;
        }
        let shows = vma.offset + (start - vma.start) as u64;
        let wanted = offset + (start - range.start) as u64;
        if vma.shared && !vma.writable && vma.inode == inode && shows == wanted {
            found.push(Shown {
                range: start..end,
                offset: wanted,
                readable: vma.readable,
                executable: vma.executable,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::proc::maps;

    #[test]
    fn guarded_pages_are_joined() {
        let page = rustix::param::page_size();
        // Pages 3 to 5, across two reads 4,095 to 4,096, and the last of 5,000.
        let guards = [3u64, 4, 5, 4095, 4096, 4999];
        let read = |first: u64, out: &mut [PagemapEntry]| {
            for (at, entry) in out.iter_mut().enumerate() {
                let guarded = guards.contains(&(first - 10 + at as u64));
                *entry = PagemapEntry(u64::from(guarded) << 58);
            }
            Ok(())
        };
        let found = guarded(&(10 * page..5010 * page), read).unwrap();
        let pages = |range: &Range<usize>| range.start / page - 10..range.end / page - 10;
        let found: Vec<_> = found.iter().map(pages).collect();
        assert_eq!(found, [3..6, 4095..4097, 4999..5000]);
        let silent = |_: u64, _: &mut [PagemapEntry]| Err(Errno::NOMEM);
        assert_eq!(guarded(&(0..page), silent), Err(Errno::NOMEM));
    }

    #[test]
    fn only_what_still_shows_the_file() {
        // Offsets 0x1000, a page unmapped; another's page; protected; another part of
        // the file; writable; private; one that goes on beyond.
        let text = "10000-12000 r--s 00001000 08:01 77 /a\n\
                    13000-14000 rw-p 00000000 00:00 0\n\
                    14000-15000 ---s 00005000 08:01 77 /a\n\
                    15000-16000 r--s 00009000 08:01 77 /a\n\
                    16000-17000 rw-s 00007000 08:01 77 /a\n\
                    17000-18000 r--p 00008000 08:01 77 /a\n\
                    18000-30000 r-xs 00009000 08:01 77 /a\n";
        let mappings = maps::parse(text.as_bytes()).unwrap();
        let vmas: Vec<Vma> = mappings.iter().map(Vma::from).collect();
        let found = among(|at| behind(&vmas, at), 0x10000..0x20000, 77, 0x1000).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|shown| {
                (
                    shown.range.clone(),
                    shown.offset,
                    shown.readable,
                    shown.executable,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (0x10000..0x12000, 0x1000, true, false),
                (0x14000..0x15000, 0x5000, false, false),
                (0x18000..0x20000, 0x9000, true, true),
            ]
        );
        assert_eq!(
            among(|at| behind(&vmas, at), 0x40000..0x50000, 77, 0),
            Ok(vec![])
        );
    }
}
