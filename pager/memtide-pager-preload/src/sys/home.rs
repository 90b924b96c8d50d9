//! Whether this is the process that our state is about.
//!
//! A process made by `_Fork` or a bare `clone` gets a copy of our memory as some
//! other thread was just changing it, and locks whose holders it does not have. It
//! must touch none of it. It is known by a page that the kernel wipes in every child
//! (`MADV_WIPEONFORK`), and by its number: a child that shares the parent's memory
//! for a while (`vfork`) finds the page as it is.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Which process; 0 before the library was started.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// A word that is 1 at home and 0 in a copy; null where there is no such page.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// Says that this process is the one: when the library is loaded, and in a child
/// that the C library's `fork` made once our state is in order there.
pub fn settle() {
    if WORD.load(Ordering::Relaxed).is_null() {
        WORD.store(wiped_page(), Ordering::Relaxed);
    }
    if let Some(word) = word() {
        word.store(1, Ordering::Relaxed);
    }
    PROCESS.store(std::process::id(), Ordering::Release);
}

/// Whether it is. Takes no lock and allocates nothing.
pub fn here() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    let wiped = word().is_some_and(|word| word.load(Ordering::Relaxed) == 0);
    process != 0 && !wiped && process == std::process::id()
}

fn word() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that is never unmapped.
    unsafe { WORD.load(Ordering::Relaxed).as_ref() }
}

/// A page that children get wiped; null if the kernel has none (before 4.14).
fn wiped_page() -> *mut AtomicU32 {
    let bytes = super::page_bytes();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { super::mmap::raw_mmap(null_mut(), bytes, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return null_mut();
    }
    // SAFETY: advice on the page that was just made.
    let advised = unsafe { libc::syscall(libc::SYS_madvise, page, bytes, libc::MADV_WIPEONFORK) };
    match advised {
        0 => page.cast(),
        _ => null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_process_is_not_at_home() {
        settle();
        assert!(here());
        // SAFETY: a bare clone is a fork without the C library's handlers; the child
        // asks about itself and leaves.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: ends the child only.
            unsafe { libc::_exit(i32::from(here())) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call, and the child is ours.
        unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert!(here());
    }
}
