//! Frames of shared memory that are mapped one by one, for the test that shows
//! what memory reused without a flush would look like.

use super::{Errno, last};
use crate::range::Range;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

const PAGE: usize = 4096;

/// A window of pages, each of which shows a frame or nothing.
#[derive(Debug)]
pub(crate) struct Frames {
    memory: OwnedFd,
    start: usize,
    pages: usize,
    shown: Vec<bool>,
}

impl Frames {
    pub fn new(pages: usize, frames: usize) -> Result<Frames, Errno> {
        let memory = rustix::fs::memfd_create("frames", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, (frames * PAGE) as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                null_mut(),
                pages * PAGE,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        }?;
        Ok(Frames {
            memory,
            start: start as usize,
            pages,
            shown: vec![false; pages],
        })
    }

    pub fn span_of(&self, page: usize) -> Range {
        assert!(page < self.pages);
        Range {
            start: self.start + page * PAGE,
            bytes: PAGE,
        }
    }

    /// Writes the frame's content.
    pub fn fill(&self, frame: usize, value: u64) -> Result<(), Errno> {
        let bytes = value.to_le_bytes().repeat(PAGE / 8);
        rustix::io::pwrite(&self.memory, &bytes, (frame * PAGE) as u64).map(drop)
    }

    /// Shows a frame at a page.
    pub fn map(&mut self, page: usize, frame: usize) -> Result<(), Errno> {
        let span = self.span_of(page);
        // SAFETY: a page of our own window, to which no reference exists.
        unsafe {
            rustix::mm::mmap(
                span.start as *mut _,
                PAGE,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::FIXED,
                &self.memory,
                (frame * PAGE) as u64,
            )
        }?;
        self.shown[page] = true;
        Ok(())
    }

    /// Shows nothing at a page.
    pub fn unmap(&mut self, range: Range) -> Result<(), Errno> {
        self.shown[(range.start - self.start) / PAGE] = false;
        // SAFETY: a page of our own window, to which no reference exists.
        match unsafe { libc::mprotect(range.start as *mut _, PAGE, libc::PROT_NONE) } {
            0 => Ok(()),
            _ => Err(last()),
        }
    }

    /// What a page shows, if it shows anything.
    pub fn read(&self, page: usize) -> Option<u64> {
        let span = self.span_of(page);
        // SAFETY: the page shows a frame, so it is readable; it is read once.
        self.shown[page].then(|| unsafe { (span.start as *const u64).read_volatile() })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: our own window; no reference to it exists.
        let _ = unsafe { rustix::mm::munmap(self.start as *mut _, self.pages * PAGE) };
    }
}
