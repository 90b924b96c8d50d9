//! Memory for our own tables, and what happens when there is none.
//!
//! A program that is refused memory decides what to do; what is written in Rust ends the
//! process instead, and this process is not ours. So what the C library refuses comes out
//! of a reserve, which is enough to end what was begun. From then on [`is_short`]: what is
//! kept is given back to the kernel with the next call ([`super::state`]), after which
//! nothing of ours needs memory any more.
//!
//! The reserve is not for tables that grow with a file: [`has`] asks for their room before
//! a mapping is kept.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Costs addresses only, until it is used.
const RESERVE_BYTES: usize = 4 << 20;
/// Sizes of what is taken of it: powers of two, the first of 16 bytes.
const SIZES: usize = 19;
const SMALLEST: usize = 16;

/// The C library's memory, and a reserve.
#[expect(missing_debug_implementations, reason = "megabytes")]
pub struct Reserved {
    reserve: UnsafeCell<Bytes>,
    /// Bytes of it that were ever taken.
    taken: AtomicUsize,
    /// Of each size the first that was put back; its first word is the next one. Every
    /// change is one store, so that a copy of the process never sees half of one.
    free: [AtomicUsize; SIZES],
    locked: AtomicBool,
    short: AtomicBool,
}

#[repr(align(4096))]
struct Bytes(#[expect(dead_code, reason = "read by address")] [u8; RESERVE_BYTES]);

// SAFETY: every byte of the reserve is one caller's at a time.
unsafe impl Sync for Reserved {}

#[cfg_attr(not(test), global_allocator)]
static ALLOCATOR: Reserved = Reserved::new();

/// Whether the C library ever refused memory.
pub fn is_short() -> bool {
    ALLOCATOR.short.load(Relaxed)
}

/// In a forked child: who had the lock is not there.
pub fn after_fork() {
    ALLOCATOR.locked.store(false, Release);
}

/// Whether there is memory for `bytes` bytes now.
pub fn has(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: of more than zero bytes; given back as it came, unused.
    unsafe {
        let at = System.alloc(layout);
        if !at.is_null() {
            System.dealloc(at, layout);
        }
        !at.is_null()
    }
}

impl Reserved {
    const fn new() -> Reserved {
        Reserved {
            reserve: UnsafeCell::new(Bytes([0; RESERVE_BYTES])),
            taken: AtomicUsize::new(0),
            free: [const { AtomicUsize::new(0) }; SIZES],
            locked: AtomicBool::new(false),
            short: AtomicBool::new(false),
        }
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        self.short.store(true, Relaxed);
        let Some((size, bytes)) = size_of(layout) else {
            return null_mut();
        };
        let _locked = Locked::new(&self.locked);
        let free = self.free[size].load(Relaxed);
        if free != 0 {
            let at = free as *mut u8;
            // SAFETY: what was put back has the next one's address in its first word.
            self.free[size].store(unsafe { at.cast::<usize>().read() }, Relaxed);
            return at;
        }
        let start = self.taken.load(Relaxed).next_multiple_of(bytes.min(4096));
        if start + bytes > RESERVE_BYTES {
            return null_mut();
        }
        self.taken.store(start + bytes, Relaxed);
        self.reserve.get().cast::<u8>().wrapping_add(start)
    }

    /// Puts back what [`Reserved::take`] gave.
    fn put_back(&self, at: *mut u8, layout: Layout) {
        let Some((size, _)) = size_of(layout) else {
            return;
        };
        let _locked = Locked::new(&self.locked);
        let next = self.free[size].load(Relaxed);
        // SAFETY: it is nobody's any more, and at least a word long.
        unsafe { at.cast::<usize>().write(next) };
        self.free[size].store(at as usize, Relaxed);
    }

    fn is_ours(&self, at: *mut u8) -> bool {
        let start = self.reserve.get() as usize;
        (start..start + RESERVE_BYTES).contains(&(at as usize))
    }
}

/// Which size is given for it, and the bytes of that; `None` if it is too large.
fn size_of(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST);
    let bytes = bytes.checked_next_power_of_two()?;
    let size = (bytes / SMALLEST).trailing_zeros() as usize;
    (size < SIZES && layout.align() <= 4096).then_some((size, bytes))
}

/// Spins: held for a few words. Signals do not come here: our own work has them blocked.
struct Locked<'a>(&'a AtomicBool);

impl Locked<'_> {
    fn new(lock: &AtomicBool) -> Locked<'_> {
        while lock.swap(true, Acquire) {
            std::thread::yield_now();
        }
        Locked(lock)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

// SAFETY: the C library's allocator, and bytes that nobody else was given. Nothing here
// panics.
unsafe impl GlobalAlloc for Reserved {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let at = unsafe { System.alloc(layout) };
        if at.is_null() { self.take(layout) } else { at }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match self.is_ours(at) {
            true => self.put_back(at, layout),
            // SAFETY: it came from there; the caller's promise, passed on.
            false => unsafe { System.dealloc(at, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let at = unsafe { System.alloc_zeroed(layout) };
        if !at.is_null() {
            return at;
        }
        let at = self.take(layout);
        if !at.is_null() {
            // SAFETY: so long, and nobody else's.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let ours = self.is_ours(at);
        if !ours {
            // SAFETY: it came from there; the caller's promise, passed on.
            let moved = unsafe { System.realloc(at, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        let moved = self.take(wanted);
        if !moved.is_null() {
            // SAFETY: both are at least so long, and the new one is nobody's yet. The old
            // one goes, where it did not come from the reserve.
            unsafe {
                copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_gives_what_is_nobodys_and_then_nothing() {
        static RESERVED: Reserved = Reserved::new();
        let layout = |bytes, align| Layout::from_size_align(bytes, align).unwrap();
        let first = RESERVED.take(layout(3, 1)) as usize;
        let second = RESERVED.take(layout(100, 64)) as usize;
        assert!(second >= first + 3 && second.is_multiple_of(64));
        assert!(RESERVED.short.load(Relaxed) && RESERVED.is_ours(second as *mut u8));
        assert!(RESERVED.take(layout(RESERVE_BYTES + 1, 1)).is_null());
        let word = RESERVED.take(layout(8, 8));
        // SAFETY: eight bytes of the reserve that are ours; grown, they are the same. What
        // was put back is given again, as zeros if that is asked for.
        unsafe {
            word.cast::<u64>().write(77);
            let more = RESERVED.realloc(word, layout(8, 8), 5000);
            assert_eq!(more.cast::<u64>().read(), 77);
            assert_eq!(RESERVED.take(layout(16, 16)), word);
            RESERVED.dealloc(more, layout(5000, 8));
            assert_eq!(RESERVED.take(layout(6000, 1)), more);
        }
        let mut places = std::collections::BTreeSet::new();
        loop {
            let at = RESERVED.take(layout(4096, 4096));
            if at.is_null() {
                break;
            }
            assert!((at as usize).is_multiple_of(4096) && places.insert(at));
        }
        assert!((1000..1024).contains(&places.len()), "{}", places.len());
        assert!(has(1) && !has(usize::MAX) && !has(1 << 60));
    }
}
