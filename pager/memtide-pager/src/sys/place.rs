//! `mmap(2)` over a mapping of equal bytes.

use super::{Errno, check};
use crate::range::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Shows `file` from `offset` at `range`, shared and only readable, in the place of a mapping
/// that shows the same bytes. The kernel does it in one step: a reader sees the old mapping or
/// the new one.
///
/// The caller has asked what is mapped there, and nobody changes it through the pager meanwhile.
pub(crate) fn over(range: Range, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // Past the C library: who intercepts `mmap` there would take it for the program's.
    // SAFETY: what is replaced is a read-only mapping that shows the same bytes, as the caller
    // has seen; every reference into it stays valid.
    let at = check(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            range.start,
            range.bytes,
            libc::PROT_READ,
            flags,
            file.as_raw_fd(),
            offset,
        )
    })?;
    assert_eq!(at, range.start, "MAP_FIXED maps where it was asked to");
    Ok(())
}
