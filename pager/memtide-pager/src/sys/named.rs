//! A few pages of memory with a name in `/proc/PID/maps`.
//!
//! The name is that of a memory file whose descriptor is closed at once; anonymous
//! memory has names only where the kernel was built so. The mapping is a private one, so
//! that nobody else can write to it, and is not inherited: a child that is made without
//! the C library knows nothing of it and must not look like its parent.

use super::Errno;
use super::apart::apart;
use super::known_file::KnownFile;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

/// It ends with this value, in the process that made it.
#[derive(Debug)]
pub(crate) struct Named {
    address: usize,
    bytes: usize,
    process: u32,
}

impl Named {
    /// `bytes` zeros, of whole pages, listed as `/memfd:NAME (deleted)`.
    pub fn new(name: &CStr, bytes: usize) -> Result<Named, Errno> {
        // In the program's own table of descriptors another thread might put a file of its own
        // under this number at any moment, and `map` would cut that one.
        apart(|| map(name, bytes))
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: our own mapping, readable and writable, at a page's start; it lives as long
        // as `self`, and is reached through this slice only.
        unsafe { std::slice::from_raw_parts(self.address as *const AtomicU64, self.bytes / 8) }
    }
}

fn map(name: &CStr, bytes: usize) -> Result<Named, Errno> {
    // Before Linux 6.3 the second is unknown; later ones may insist on it.
    let never_run = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    let made = match memfd_create(name, never_run) {
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    };
    let file = KnownFile::new(made?);
    ftruncate(&file, bytes as u64)?;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start =
        unsafe { rustix::mm::mmap(null_mut(), bytes, rights, MapFlags::PRIVATE, &file, 0) }?;
    let named = Named {
        address: start as usize,
        bytes,
        process: std::process::id(),
    };
    // At once: a child that is made before has it, too.
    // SAFETY: advice on our own mapping that changes no content.
    unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontFork) }?;
    Ok(named)
}

impl Drop for Named {
    fn drop(&mut self) {
        // A child does not have it, and may have something else there by now.
        if std::process::id() != self.process {
            return;
        }
        // SAFETY: our own mapping; no reference to it outlives `self`. It can
        // fail only for a wrong range, and this one came from mmap.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.bytes) };
    }
}
