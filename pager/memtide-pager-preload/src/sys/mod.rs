//! The calls that are taken over, one file each, and what they share.
//!
//! This is the only place of the crate where `unsafe` may stand. A function
//! here that carries the C library's name replaces the C library's: what it is
//! called with comes from the program, is passed on as it is where nothing of
//! ours is touched, and is as right or wrong as without us. The kernel is
//! called directly, not through the C library's function of the same name:
//! that would have to be looked up first, and looking up may itself map memory.
#![allow(unsafe_code)]

pub mod alloc;
pub mod exit;
pub mod file;
pub mod fork;
pub mod home;
pub mod madvise;
pub mod mlock;
pub mod mmap;
pub mod mprotect;
pub mod mremap;
pub mod munmap;
pub mod section;
pub mod start;
pub mod state;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("offsets of 64 bits must fit a register");

use std::ops::Range;

/// The addresses of `length` bytes from `start`, in whole pages; `None` if the
/// kernel will refuse them anyway.
fn pages(start: usize, length: usize) -> Option<Range<usize>> {
    let page = page_bytes();
    if !start.is_multiple_of(page) || length == 0 {
        return None;
    }
    let length = length.checked_next_multiple_of(page)?;
    Some(start..start.checked_add(length)?)
}

/// The size of a page.
fn page_bytes() -> usize {
    // SAFETY: asks for a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}
