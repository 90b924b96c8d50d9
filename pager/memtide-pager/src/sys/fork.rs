//! `pthread_atfork(3)`: a function that runs in every child that libc forks.

use std::sync::Once;

type Hook = Option<extern "C" fn()>;

unsafe extern "C" {
    /// Of POSIX; the libc crate does not declare it.
    fn pthread_atfork(prepare: Hook, parent: Hook, child: Hook) -> libc::c_int;
}

/// Has `in_child` run in forked children, from now on, once for the process.
/// It must not allocate or lock.
pub(crate) fn at_fork(in_child: extern "C" fn()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function keeps to what is allowed between fork and exec.
        // The only failure is a lack of memory; children then find a hole where
        // a strict region was, and end with SIGSEGV.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}
