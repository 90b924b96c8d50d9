//! `madvise(2)` about the order of reads, about core dumps and about huge pages: it changes what the
//! kernel reads in along with a page or writes out, and never what is in it.

use super::Errno;
use crate::order::ReadOrder;
use crate::range::Range;

/// Tells the kernel in which order a range is read.
pub(crate) fn order(range: Range, order: ReadOrder) -> Result<(), Errno> {
    let advice = match order {
        ReadOrder::Normal => libc::MADV_NORMAL,
        ReadOrder::Random => libc::MADV_RANDOM,
        ReadOrder::Sequential => libc::MADV_SEQUENTIAL,
    };
    // Past the C library: who intercepts `madvise` there would take it for the program's
    // own word, and wait for the lock that the caller holds.
    // SAFETY: advice that changes no content, whatever is mapped there.
    super::check(unsafe { libc::syscall(libc::SYS_madvise, range.start, range.bytes, advice) })
        .map(|_| ())
}

/// Leaves a range out of core dumps. Without it nothing but the dump is larger.
pub(crate) fn not_dumped(range: Range) {
    lasting(range, libc::MADV_DONTDUMP);
}

/// Has the kernel make no huge page of a range's pages. A kernel that refuses it has no huge pages.
pub(crate) fn keep_small(range: Range) {
    lasting(range, libc::MADV_NOHUGEPAGE);
}

fn lasting(range: Range, advice: libc::c_int) {
    // SAFETY: advice that changes no content, whatever is mapped there.
    let _ =
        super::check(unsafe { libc::syscall(libc::SYS_madvise, range.start, range.bytes, advice) });
}
