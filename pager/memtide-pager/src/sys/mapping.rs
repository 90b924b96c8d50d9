//! Mappings: made, taken as bytes, and ended.

use super::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// A mapping that ends with this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// `bytes` bytes of `file` from `offset` (of a whole page), shared and only
    /// readable.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Result<Mapping, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        Ok(Mapping {
            address: start as usize,
            bytes,
        })
    }

    /// `bytes` bytes of anonymous memory at a multiple of `align`, not readable yet,
    /// without huge pages, and not inherited by a forked child.
    ///
    /// In a process that locks all that it maps (mlockall(2), `MCL_FUTURE`) readable memory would have the
    /// zero page everywhere before anybody could say that it is missing. This is not locked.
    pub(crate) fn anonymous(bytes: usize, align: usize) -> Result<Mapping, Errno> {
        let room = bytes.checked_add(align).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), room, ProtFlags::empty(), flags) }?;
        let start = start as usize;
        let address = start.next_multiple_of(align);
        for (from, to) in [(start, address), (address + bytes, start + room)] {
            if from < to {
                // SAFETY: the ends of our own mapping, which nobody knows yet.
                unsafe { rustix::mm::munmap(from as *mut _, to - from) }?;
            }
        }
        let mapping = Mapping { address, bytes };
        // SAFETY: our own mapping; its content does not change. Where nothing is locked it does nothing.
        let _ = unsafe { rustix::mm::munlock(address as *mut _, bytes) };
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontFork] {
            // SAFETY: advice on our own mapping that changes no content.
            match unsafe { rustix::mm::madvise(address as *mut _, bytes, advice) } {
                // A kernel without huge pages has no need of the first.
                Err(errno) if advice == Advice::LinuxDontFork => return Err(errno),
                _ => {}
            }
        }
        Ok(mapping)
    }

    /// It may be read from now on. Readable memory of which nothing was written takes none.
    pub(crate) fn allow_reading(&self) -> Result<(), Errno> {
        let flags = rustix::mm::MprotectFlags::READ;
        // SAFETY: our own mapping, to which nobody has a reference yet.
        unsafe { rustix::mm::mprotect(self.address as *mut _, self.bytes, flags) }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Unmaps a part of it, which nobody may read any more.
    #[cfg(test)]
    pub(crate) fn cut_out(&self, from: usize, bytes: usize) {
        // SAFETY: inside our own mapping.
        unsafe { rustix::mm::munmap((self.address + from) as *mut _, bytes) }.unwrap();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` bytes.
    pub(crate) fn as_slice(&self, bytes: usize) -> &[u8] {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        // SAFETY: inside the mapping, which is readable and lives as long as
        // `self`. Whoever opens a file promises that nobody writes to it; the
        // pager itself only ever replaces a page with an equal one.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference to it outlives `self`. It can
        // fail only for a wrong range, and this one came from mmap.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.bytes) };
    }
}

/// Maps `bytes` bytes of `file` over whatever is at `address`, private and only
/// readable: what a forked child finds in place of a strict region. Safe to call
/// between fork and exec. False if the kernel refused.
pub(crate) fn replace_in_child(address: usize, bytes: usize, file: i32) -> bool {
    // SAFETY: the address range belonged to a region of the parent and is not
    // mapped in the child, or is that region.
    let start = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            file,
            0,
        )
    };
    start as usize == address
}

/// Keeps addresses at which nothing is mapped, as a forked child finds them where a
/// strict region without a file was: whoever maps something may not get them, and who
/// reads there ends. Safe to call between fork and exec. False if the kernel refused.
pub(crate) fn reserve_in_child(address: usize, bytes: usize) -> bool {
    // SAFETY: a new mapping, at addresses where there is none.
    let start = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    start as usize == address
}
