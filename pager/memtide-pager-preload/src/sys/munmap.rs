//! `munmap`: the pager lets go of the pages before they go.

use super::pages;
use super::section::set_errno;
use super::state::{self, Then};
use libc::{c_int, c_void, size_t};

/// Replaces the C library's.
///
/// # Safety
///
/// As munmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
    let Some(range) = pages(address as usize, length).filter(state::is_kept) else {
        // SAFETY: the caller's promise, passed on.
        return unsafe { raw_munmap(address, length) };
    };
    let Some(gone) = state::release(&range, Then::Goes) else {
        set_errno(libc::ENOMEM);
        return -1;
    };
    // SAFETY: the caller's promise, passed on.
    let result = unsafe { raw_munmap(address, length) };
    if result != 0 {
        // A cut into a mapping fails where there are too many mappings.
        state::keep_again(&gone);
    }
    result
}

/// The kernel's call; sets `errno`.
///
/// # Safety
///
/// As munmap(2).
pub unsafe fn raw_munmap(address: *mut c_void, length: size_t) -> c_int {
    // SAFETY: the caller's promise; the kernel checks both words.
    unsafe { libc::syscall(libc::SYS_munmap, address, length) as c_int }
}
