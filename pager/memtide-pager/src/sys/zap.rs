//! Unmapping: `madvise(2)` for one range, `process_madvise(2)` on oneself for
//! many with one flush (Linux 6.16; 6.13 takes the call but flushes per range,
//! earlier kernels refuse it with `EINVAL`).
//!
//! `MADV_DONTNEED` on a read-only mapping of a file or on memory that
//! userfaultfd serves loses nothing that cannot be had again; on any other
//! memory it destroys data. Ranges therefore come only from mappings in the
//! pager's care.

use super::{Errno, check};
use crate::range::Range;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor of this process.
pub(crate) fn oneself() -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(std::process::id().cast_signed()).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Unmaps ranges in order, 1,024 at most. Returns how many bytes of them were
/// done: fewer at the first range that has a hole or is locked.
pub(crate) fn many(oneself: BorrowedFd<'_>, ranges: &[Range]) -> Result<usize, Errno> {
    // SAFETY: `Range` has the layout of `struct iovec`, which the kernel reads;
    // the caller vouches for the ranges themselves (see above).
    check(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            oneself.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_DONTNEED,
            0 as libc::c_uint,
        )
    })
}

/// Unmaps one range, past the C library: who intercepts `madvise` there would take it for the program's
/// own word, and wait for the lock that the caller holds.
pub(crate) fn one(range: Range) -> Result<(), Errno> {
    // SAFETY: as above.
    let done = unsafe {
        let (start, bytes) = (range.start, range.bytes);
        libc::syscall(libc::SYS_madvise, start, bytes, libc::MADV_DONTNEED)
    };
    check(done).map(|_| ())
}
