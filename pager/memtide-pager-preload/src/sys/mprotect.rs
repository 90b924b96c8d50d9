//! `mprotect`: pages that are to be more, or less, than readable are the
//! kernel's again. One that the program had asked for as private becomes so
//! before it becomes writable.

use super::pages;
use super::section::set_errno;
use super::state::{self, Then};
use libc::{c_int, c_long, c_void, size_t};

/// Replaces the C library's.
///
/// # Safety
///
/// As mprotect(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mprotect(address: *mut c_void, length: size_t, prot: c_int) -> c_int {
    if !let_go(address, length, prot) {
        return -1;
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { libc::syscall(libc::SYS_mprotect, address, length, prot) as c_int }
}

/// Replaces the C library's.
///
/// # Safety
///
/// As pkey_mprotect(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    pkey: c_int,
) -> c_int {
    // -1 is the plain call. With a key a page may not even be readable.
    let asked = if pkey == -1 { prot } else { libc::PROT_NONE };
    if !let_go(address, length, asked) {
        return -1;
    }
    let number: c_long = match pkey {
        -1 => libc::SYS_mprotect,
        _ => libc::SYS_pkey_mprotect,
    };
    // SAFETY: the caller's promise, passed on.
    unsafe { libc::syscall(number, address, length, prot, pkey) as c_int }
}

/// Whether the call may go on; if not, `errno` is set.
fn let_go(address: *mut c_void, length: size_t, prot: c_int) -> bool {
    let kept = pages(address as usize, length).filter(state::is_kept);
    let Some(range) = kept.filter(|_| prot != libc::PROT_READ) else {
        return true;
    };
    let gone = state::release(&range, Then::Stays).is_some();
    if !gone {
        set_errno(libc::ENOMEM);
    }
    gone
}
