//! A memory allocator that puts large tables on huge pages: `mmap(2)`, `madvise(2)`.
//!
//! What memtide keeps for each page of a machine is hundreds of megabytes that are read in no order. On
//! base pages most of these reads miss the TLB before they miss the cache. So in a program that asks for
//! it ([`HugePages::ask`]) allocations of [`LEAST_BYTES`] and more are mappings of their own, begin at a
//! multiple of 2 MiB, and ask the kernel for huge pages; it gives them where it can
//! (`transparent_hugepage` is `always` or `madvise`). All other allocations are the system allocator's,
//! and so is everything in a program that does not ask, as one does not that runs beside a user's.
//!
//! Whether it asks is settled by the first large allocation, and stays: what allocated memory is what
//! frees it. A program chooses the allocator with `#[global_allocator]`.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

/// Allocations of so many bytes and more are on huge pages.
pub const LEAST_BYTES: usize = 8 << 20;
const HUGE: usize = 2 << 20;

/// Nobody asked, and nothing large was allocated.
const OPEN: u8 = 0;
const ASKED: u8 = 1;
/// Something large is the system allocator's.
const SETTLED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(OPEN);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct HugePages;

impl HugePages {
    /// Large allocations shall be on huge pages. Returns false, and changes nothing, if there was a large
    /// one before.
    pub fn ask() -> bool {
        let asked = STATE.compare_exchange(OPEN, ASKED, Ordering::Relaxed, Ordering::Relaxed);
        matches!(asked, Ok(_) | Err(ASKED))
    }
}

fn is_large(layout: Layout) -> bool {
    if layout.size() < LEAST_BYTES || layout.align() > HUGE {
        return false;
    }
    let settled = STATE.compare_exchange(OPEN, SETTLED, Ordering::Relaxed, Ordering::Relaxed);
    settled == Err(ASKED)
}

/// A mapping of zeroes for `size` bytes; null if there is none.
fn map(size: usize) -> *mut u8 {
    let length = size.next_multiple_of(HUGE);
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice touches nobody's memory.
    let mapped = unsafe { mmap_anonymous(null_mut(), length + HUGE, flags, MapFlags::PRIVATE) };
    let Ok(mapped) = mapped else {
        return null_mut();
    };
    let before = mapped.align_offset(HUGE);
    // SAFETY: `before < HUGE`, so both stay within the mapping; what is unmapped are its pages outside
    // `start..start + length`, which nobody has seen.
    unsafe {
        let start = mapped.byte_add(before);
        if before > 0 {
            let _ = munmap(mapped, before);
        }
        let _ = munmap(start.byte_add(length), HUGE - before);
        // A kernel without huge pages refuses; base pages do as well.
        let _ = madvise(start, length, Advice::LinuxHugepage);
        start.cast()
    }
}

// SAFETY: each allocation is the system allocator's or a mapping of its own, decided by the layout and by
// a state that large allocations do not change after the first, so the same when it is given back; mappings are at least as long and as aligned as asked for.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promise is passed on.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promise is passed on.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match is_large(layout) {
            // SAFETY: `map` made this mapping for this size, and nobody uses it any more.
            true => drop(unsafe { munmap(pointer.cast(), layout.size().next_multiple_of(HUGE)) }),
            // SAFETY: it came from the system allocator, as its layout says.
            false => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout with the same alignment.
        let grown = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(grown) {
            // SAFETY: it came from the system allocator and stays there.
            return unsafe { System.realloc(pointer, layout, size) };
        }
        // SAFETY: old and new do not overlap and both hold the shorter of the two sizes.
        unsafe {
            let new = self.alloc(grown);
            if !new.is_null() {
                new.copy_from_nonoverlapping(pointer, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tables_are_aligned_zero_and_keep_what_was_written_when_they_grow() {
        assert!(HugePages::ask());
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        let (small, large) = (layout(LEAST_BYTES - 8), layout(LEAST_BYTES + 8));
        // SAFETY: each pointer is used within its layout and given back once, with the layout that it
        // has then.
        unsafe {
            let first = HugePages.alloc_zeroed(small);
            first.write(7);
            let second = HugePages.realloc(first, small, large.size());
            assert_eq!(second.addr() % HUGE, 0);
            assert_eq!((second.read(), second.add(LEAST_BYTES).read()), (7, 0));
            let third = HugePages.realloc(second, large, small.size());
            assert_eq!(third.read(), 7);
            HugePages.dealloc(third, small);
        }
    }
}
