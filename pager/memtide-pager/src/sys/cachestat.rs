//! `cachestat(2)` (Linux 6.5): how many pages of a part of a file are in the page
//! cache, without looking at each.

use super::{Errno, check};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Its number, the same on every architecture since it came so late.
const NUMBER: libc::c_long = 451;

/// Pages of `bytes` bytes (not 0) from `offset` of the file that are cached.
pub(crate) fn cached_pages(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, Errno> {
    let range: [u64; 2] = [offset, bytes];
    let mut stat = [0u64; 5];
    // SAFETY: the kernel reads two and writes five 64-bit numbers; both arrays
    // outlive the call.
    check(unsafe {
        libc::syscall(
            NUMBER,
            file.as_raw_fd(),
            range.as_ptr(),
            stat.as_mut_ptr(),
            0 as libc::c_uint,
        )
    })?;
    Ok(stat[0])
}
