//! The system calls that no safe crate wraps, one file each.
//!
//! This is the only place of the crate where `unsafe` may stand. A wrapper
//! checks what the kernel would otherwise take on trust (lengths of arrays
//! that travel together), passes everything else on, and returns the kernel's
//! own [`Errno`]: what an error means is for the caller to decide, because the
//! same number means different things in different calls.
#![allow(unsafe_code)]

pub mod descriptors;
pub mod file_map;
pub mod flush_line;
pub mod huge_pages;
pub mod mempolicy;
pub mod move_pages;
pub mod node_memory;
pub mod other_memory;
pub mod own_memory;
pub mod pagemap;
pub mod pagemap_scan;
pub mod peer;
pub mod perf_event;
pub mod signals;
pub mod traffic;

pub use rustix::io::Errno;

/// The result of a raw `libc::syscall`: -1 means that `errno` holds the reason.
fn check(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let raw = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
    })
}
