//! `memtide_pager_adopt` and `memtide_adopted_release`.

use super::{give, open, take};
use crate::code::{Failure, call, quietly};
use memtide_pager::{Adopted, Pager};
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_adopt(
    pager: *const Pager,
    address: *const c_void,
    bytes: usize,
    fd: c_int,
    offset: u64,
    adopted: *mut *mut Adopted,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let pager = unsafe { open(pager, "pager") }?;
        if fd < 0 {
            return Err(Failure::argument(format!("fd {fd}: give an open one")));
        }
        // SAFETY: the caller's promise: open for the length of this call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let care = pager.adopt(address as usize, bytes, file, offset)?;
        // SAFETY: the caller's promise.
        unsafe { give(care, adopted, "adopted") }
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_adopted_release(adopted: *mut Adopted) {
    // SAFETY: the caller's promise.
    quietly((), || drop(unsafe { take(adopted) }));
}
