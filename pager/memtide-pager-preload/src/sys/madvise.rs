//! `madvise` and `posix_madvise`: advice to read everything in is answered at once,
//! and the pager reads as much of it as the budget has room for.

use super::section::{errno, kept, set_errno};
use super::state::{self, Part, Then};
use super::{pages, start};
use crate::decide::{Advised, advised};
use crate::tally::{TALLY, count};
use libc::{c_int, c_void, size_t};
use std::ops::Range;

/// Replaces the C library's.
///
/// # Safety
///
/// As madvise(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
    if let Some(range) = pages(address as usize, length).filter(state::is_kept) {
        match advised(advice) {
            Advised::Kernel => {}
            // Copies have a budget of their own, whatever is in memory of the file.
            Advised::Nothing if start::is_local() => {}
            Advised::Nothing => {
                count(&TALLY.not_read_in);
                state::read_ahead(&range);
                return around_kept(&range, advice);
            }
            Advised::Noted if start::is_local() => {}
            Advised::Noted => {
                state::advise(&range, advice);
                return around_kept(&range, advice);
            }
            Advised::HandOver => {
                if state::release(&range, Then::Stays).is_none() {
                    set_errno(libc::ENOMEM);
                    return -1;
                }
            }
        }
    }
    // SAFETY: the caller's promise, passed on.
    let result = unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) as c_int };
    // A hole is an error, and what lies around it is advised all the same.
    let kept = pages(address as usize, length).filter(state::is_kept);
    if let Some(range) = kept.filter(|_| result == 0 || errno() == libc::ENOMEM) {
        state::advise(&range, advice);
    }
    result
}

/// Gives the advice for what is not kept, so that a hole is the error that it
/// is. Only reading ahead goes on behind a hole; filling also ends where a file does, and at
/// a guarded page.
fn around_kept(range: &Range<usize>, advice: c_int) -> c_int {
    let mut result = 0;
    for part in state::parts(range, advice == libc::MADV_POPULATE_READ) {
        let other = match part {
            Part::Kept { faults: true } => {
                set_errno(libc::EFAULT);
                return -1;
            }
            Part::Kept { .. } => continue,
            Part::Other(range) => range,
        };
        // SAFETY: advice that changes no content, on a part of what the program
        // gave.
        if unsafe { libc::syscall(libc::SYS_madvise, other.start, other.len(), advice) } != 0 {
            result = -1;
            if errno() != libc::ENOMEM || advice != libc::MADV_WILLNEED {
                break;
            }
        }
    }
    result
}

/// Replaces the C library's. Returns the error, leaves `errno` alone, and does
/// nothing for `POSIX_MADV_DONTNEED`, which must not lose data.
///
/// # Safety
///
/// As posix_madvise(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_madvise(
    address: *mut c_void,
    length: size_t,
    advice: c_int,
) -> c_int {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    kept(|| {
        // SAFETY: the caller's promise, passed on. The other advices have the
        // same numbers in both calls.
        match unsafe { madvise(address, length, advice) } {
            0 => 0,
            _ => errno(),
        }
    })
}
