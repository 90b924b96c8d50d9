//! Pages of this process's own, for trying things out on.
//!
//! A probe needs memory of which it knows everything: which pages were touched,
//! that none is part of a huge page, that nobody else uses it. A `Vec` promises
//! none of that. Such pages are read and written as atomic bytes, so that one
//! thread may touch them while another has the kernel move them.

use super::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

/// A private anonymous mapping of base pages.
#[derive(Debug)]
pub struct OwnPages {
    start: *mut c_void,
    pages: usize,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and shared references reach its
// bytes only as atomics.
unsafe impl Send for OwnPages {}
// SAFETY: as above.
unsafe impl Sync for OwnPages {}

impl OwnPages {
    /// Maps `pages` pages. None of them is there until it is touched.
    ///
    /// # Errors
    ///
    /// What mmap(2) says, `EINVAL` for no pages.
    pub fn map(pages: usize) -> Result<OwnPages, Errno> {
        let page_bytes = rustix::param::page_size();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                null_mut(),
                pages * page_bytes,
                protection,
                MapFlags::PRIVATE,
            )
        }?;
        let mapped = OwnPages {
            start,
            pages,
            page_bytes,
        };
        // SAFETY: advice on our own mapping that changes no content. A kernel
        // without huge pages refuses it and has no need of it.
        match unsafe { rustix::mm::madvise(start, mapped.bytes(), Advice::LinuxNoHugepage) } {
            Ok(()) | Err(Errno::INVAL) => Ok(mapped),
            Err(errno) => Err(errno),
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.start as usize
    }

    /// How many pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.pages * self.page_bytes
    }

    /// Reads the first byte of page `index`.
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn read(&self, index: usize) -> u8 {
        self.byte(index).load(Ordering::Relaxed)
    }

    /// Writes the first byte of page `index`.
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn write(&self, index: usize, value: u8) {
        self.byte(index).store(value, Ordering::Relaxed);
    }

    /// Makes the pages read-only and writable again. Taking a right away from
    /// that many pages obliges the kernel to flush their translations; from
    /// more than a few tens of pages on x86 it flushes all of the process's.
    ///
    /// # Errors
    ///
    /// What mprotect(2) says.
    pub fn flush_translations(&mut self) -> Result<(), Errno> {
        for protection in [
            MprotectFlags::READ,
            MprotectFlags::READ | MprotectFlags::WRITE,
        ] {
            // SAFETY: our own mapping, borrowed mutably: nobody writes to it
            // while it is read-only.
            unsafe { rustix::mm::mprotect(self.start, self.bytes(), protection) }?;
        }
        Ok(())
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.pages, "page {index} of {}", self.pages);
        // SAFETY: inside the mapping, which lives as long as `self`, is
        // readable and writable, and is reached as atomic bytes only.
        unsafe { AtomicU8::from_ptr(self.start.cast::<u8>().add(index * self.page_bytes)) }
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference to it outlives `self`. It can
        // fail only for a wrong range, and this one came from mmap.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_what_is_written_through_a_flush() {
        let mut pages = OwnPages::map(40).unwrap();
        pages.write(39, 7);
        pages.flush_translations().unwrap();
        pages.write(0, 8);
        assert_eq!((pages.read(0), pages.read(1), pages.read(39)), (8, 0, 7));
        assert_eq!(pages.bytes(), 40 * rustix::param::page_size());
    }

    #[test]
    fn no_pages_is_refused() {
        assert_eq!(OwnPages::map(0).unwrap_err(), Errno::INVAL);
    }

    #[test]
    #[should_panic(expected = "page 4 of 4")]
    fn a_page_outside_is_refused() {
        OwnPages::map(4).unwrap().read(4);
    }
}
