//! `mlock` and its kin. Locked pages stay in memory whatever the budget, so
//! locking kept ones is refused as if there were not enough memory; programs
//! that lock their weights say so and go on. Locking *everything* is what
//! programs with secrets and deadlines do: that is granted, and the mappings
//! are the kernel's from then on.

use super::section::{section, set_errno};
use super::state::{self, Then};
use super::{pages, start};
use crate::tally::{TALLY, count};
use libc::{c_int, c_uint, c_void, size_t};

/// Replaces the C library's.
///
/// # Safety
///
/// As mlock(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mlock(address: *const c_void, length: size_t) -> c_int {
    if refused(address, length) {
        return -1;
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { libc::syscall(libc::SYS_mlock, address, length) as c_int }
}

/// Replaces the C library's.
///
/// # Safety
///
/// As mlock2(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mlock2(address: *const c_void, length: size_t, flags: c_uint) -> c_int {
    if refused(address, length) {
        return -1;
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { libc::syscall(libc::SYS_mlock2, address, length, flags) as c_int }
}

/// Replaces the C library's.
///
/// # Safety
///
/// As mlockall(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: the caller's promise, passed on.
    let result = unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int };
    if result == 0 {
        if flags & libc::MCL_FUTURE != 0 {
            state::switch(false);
        }
        if flags & libc::MCL_CURRENT != 0 {
            section(|| {
                let mut inner = state::lock()?;
                let everything = inner.everything();
                inner.release(&everything, Then::Stays).map(drop)
            });
            // What stands in for our mappings now was mapped after the call.
            // SAFETY: as above.
            return unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int };
        }
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
///
/// As munlockall(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munlockall() -> c_int {
    // SAFETY: takes nothing.
    let result = unsafe { libc::syscall(libc::SYS_munlockall) as c_int };
    if result == 0 {
        state::switch(true);
    }
    result
}

/// `mlock` takes any address and rounds it down.
fn refused(address: *const c_void, length: size_t) -> bool {
    let start = address as usize & !(super::page_bytes() - 1);
    let end = (address as usize).saturating_add(length);
    let kept = pages(start, end - start).filter(state::is_kept);
    if let Some(range) = &kept
        && start::is_local()
    {
        // A lock belongs to a mapping, and a copy would be another one.
        let fine = state::release(range, Then::Stays).is_some();
        if !fine {
            set_errno(libc::ENOMEM);
        }
        return !fine;
    }
    let kept = kept.is_some();
    if kept {
        count(&TALLY.locks_refused);
        set_errno(libc::ENOMEM);
    }
    kept
}
