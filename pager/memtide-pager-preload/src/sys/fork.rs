//! `fork`: the child gets the mappings and not the evictor, so it gets one of
//! its own.
//!
//! Our lock is held while the process forks, or the child might find it taken
//! for ever by a thread that it does not have. Handlers of other libraries run in
//! between, on the same thread, and may unmap what is kept: they find the lock open
//! to them. Ours are registered when the library is loaded, so that the locks of
//! libraries that come later are taken before ours and not behind it.

use super::section::section;
use super::state::{self, Inner};
use super::{alloc, home};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::MutexGuard;

thread_local! {
    // Without a destructor: registering one takes the loader's lock, and who has that may
    // be unloading a library that unmaps what is kept.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Inner>>>> = const { Cell::new(None) };
}

/// Asks to be called around every fork. Once, when the library is loaded.
pub fn watch() {
    // An allocator registers its own handlers with its first allocation: before ours,
    // or fork would wait for our lock with the allocator's in hand.
    drop(std::hint::black_box(Box::new(0u8)));
    // SAFETY: three functions without arguments that live as long as this
    // library; it is not unloaded while the program runs.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// The lock, if this thread holds it because it is forking.
pub fn held() -> Option<MutexGuard<'static, Inner>> {
    HELD.take().map(ManuallyDrop::into_inner)
}

/// Holds it again.
pub fn hold(guard: MutexGuard<'static, Inner>) {
    HELD.set(Some(ManuallyDrop::new(guard)));
}

extern "C" fn before() {
    section(|| {
        if home::here()
            && let Some(guard) = state::take_lock()
        {
            hold(guard);
        }
    });
}

extern "C" fn in_parent() {
    section(held);
}

extern "C" fn in_child() {
    alloc::after_fork();
    section(|| {
        // Without the lock nothing is sure, and the child goes on without us.
        let mut guard = held()?;
        home::settle();
        guard.after_fork();
        Some(())
    });
}
