//! `fork`: the child gets the mappings and not the evictor, so it gets one of
//! its own.
//!
//! Our lock is held while the process forks, or the child might find it taken
//! for ever by a thread that it does not have.

use super::section::section;
use super::state::{self, Inner};
use std::cell::RefCell;
use std::sync::MutexGuard;
use std::sync::Once;

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Inner>>> = const { RefCell::new(None) };
}

/// Asks to be called around every fork. Later calls do nothing.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: three functions without arguments that live as long as this
        // library; it is not unloaded while the program runs.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    section(|| HELD.with_borrow_mut(|held| *held = state::lock()));
}

extern "C" fn in_parent() {
    section(|| HELD.with_borrow_mut(|held| *held = None));
}

extern "C" fn in_child() {
    section(|| {
        HELD.with_borrow_mut(|held| {
            if let Some(mut inner) = held.take() {
                inner.after_fork();
            }
        });
    });
}
