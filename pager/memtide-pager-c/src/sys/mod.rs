//! The functions that C calls.
//!
//! This is the only place of the crate where `unsafe` may stand. Each function
//! trusts its caller for what the header asks: handles that are not closed yet,
//! pointers to what they should point to.
#![allow(unsafe_code)]

pub mod adopted;
pub mod message;
pub mod options;
pub mod pager;
pub mod region;
pub mod replicas;
pub mod source;
pub mod statistics;

use crate::code::Failure;
use std::ffi::{CStr, c_char};

/// The text at `text`.
///
/// # Safety
///
/// Null, or a text that ends with a zero byte and stays until `'a` ends.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    match text.is_null() {
        true => Err(Failure::argument(format!("{what}: null; give a text"))),
        // SAFETY: the caller's promise.
        false => Ok(unsafe { CStr::from_ptr(text) }),
    }
}

/// The object behind a handle.
///
/// # Safety
///
/// Null, or a handle that is open until `'a` ends.
unsafe fn open<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::argument(format!("{what}: null")))
}

/// Hands an object to C.
///
/// # Safety
///
/// `place` is null or may be written to.
unsafe fn give<T>(object: T, place: *mut *mut T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!(
            "{what}: null; give the address of a pointer"
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(object))) };
    Ok(())
}

/// Takes an object back from C.
///
/// # Safety
///
/// Null, or a handle from [`give`] that is not used any more.
unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise; it came from a box.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}
