//! `memtide_pager_start`, `_open`, `_settle` and `_stop`.

use super::options::{Options, builder};
use super::{give, open, take, text};
use crate::code::{call, quietly};
use memtide_pager::{Pager, Region};
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_start(
    options: *const Options,
    pager: *mut *mut Pager,
) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(builder(options)?.start()?, pager, "pager") })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_stop(pager: *mut Pager) {
    // SAFETY: the caller's promise.
    quietly((), || drop(unsafe { take(pager) }));
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_open(
    pager: *const Pager,
    path: *const c_char,
    region: *mut *mut Region,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (pager, path) = unsafe { (open(pager, "pager")?, text(path, "path")?) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        // SAFETY: the caller's promise.
        unsafe { give(pager.open(path)?, region, "region") }
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_settle(pager: *const Pager) -> c_int {
    // SAFETY: the caller's promise.
    quietly(0, || {
        c_int::from(unsafe { pager.as_ref() }.is_some_and(Pager::settle))
    })
}
