//! What of a mapping still shows its file.
//!
//! Who stands between a program and the kernel does not see every call. Before he puts
//! something in the place of a mapping that he made, he asks what is there by now.

use crate::error::Error;
use crate::kernel::{own_maps, own_vmas};
use crate::sys::Errno;
use crate::sys::vma::{Vma, at_or_behind};
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
