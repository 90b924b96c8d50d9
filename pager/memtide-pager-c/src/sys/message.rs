//! `memtide_pager_message`.

use crate::code::message;
use std::ffi::{CStr, c_char};

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn memtide_pager_message() -> *const c_char {
    // The text lies on the heap and is replaced by the thread's next failure
    // only, as the header says.
    message(CStr::as_ptr)
}
