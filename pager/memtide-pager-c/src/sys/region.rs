//! `memtide_region_*`.

use super::{open, take};
use crate::code::{Failure, call, quietly};
use memtide_pager::{ReadOrder, Region};
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_data(region: *const Region) -> *const c_void {
    // SAFETY: the caller's promise.
    quietly(null(), || {
        unsafe { region.as_ref() }.map_or(null(), |region| region.address() as *const c_void)
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_bytes(region: *const Region) -> usize {
    // SAFETY: the caller's promise.
    quietly(0, || unsafe { region.as_ref() }.map_or(0, Region::len))
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_read_at(
    region: *const Region,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { open(region, "region") }?;
        let read = match (bytes, buffer.is_null()) {
            (0, _) => 0,
            (_, true) => return Err(Failure::argument("buffer: null")),
            (_, false) => {
                // The caller's bytes need not have been written to yet, but a
                // slice must have been.
                // SAFETY: the caller's promise: writable for so many bytes.
                let buffer = unsafe {
                    buffer.cast::<u8>().write_bytes(0, bytes);
                    std::slice::from_raw_parts_mut(buffer.cast::<u8>(), bytes)
                };
                region.read_at(buffer, offset)?
            }
        };
        // SAFETY: the caller's promise: null or writable.
        if let Some(done) = unsafe { done.as_mut() } {
            *done = read;
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_advise(region: *const Region, order: u32) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { open(region, "region") }?;
        region.advise(match order {
            0 => ReadOrder::Normal,
            1 => ReadOrder::Random,
            2 => ReadOrder::Sequential,
            other => {
                let what = format!("order {other}: see the header");
                return Err(Failure::argument(what));
            }
        });
        Ok(())
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_read_ahead(region: *const Region, offset: u64, bytes: u64) {
    quietly((), || {
        // SAFETY: the caller's promise.
        if let Some(region) = unsafe { region.as_ref() } {
            region.read_ahead(offset, bytes);
        }
    });
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_check(region: *const Region) -> c_int {
    // SAFETY: the caller's promise.
    call(|| Ok(unsafe { open(region, "region") }?.check()?))
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_region_close(region: *mut Region) {
    // SAFETY: the caller's promise.
    quietly((), || drop(unsafe { take(region) }));
}
