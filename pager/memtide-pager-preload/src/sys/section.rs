//! Work of our own in the middle of a program's call.
//!
//! The program must not notice it. So `errno` is as it was afterwards; no
//! signal handler of the program runs in between, for it might call what is
//! hooked while our lock is held; nor does the thread end in between, if somebody
//! cancelled it; what our own code calls is not hooked; and a panic ends here and not in
//! the program.

use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    // No destructor, so that it works as long as its thread does.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` so. `None` if it was called from inside of such work, or
/// panicked.
pub fn section<T>(work: impl FnOnce() -> T) -> Option<T> {
    if INSIDE.get() {
        return None;
    }
    INSIDE.set(true);
    let done = kept(|| {
        let signals = Blocked::all();
        let done = catch_unwind(AssertUnwindSafe(work)).ok();
        drop(signals);
        done
    });
    INSIDE.set(false);
    done
}

/// What a [`section`] gives to its caller and what is work of our own to drop: locks are
/// taken for it.
#[derive(Debug)]
pub struct Outside<T>(Option<T>);

impl<T> Outside<T> {
    /// Wraps it.
    pub fn new(inner: T) -> Outside<T> {
        Outside(Some(inner))
    }
}

impl<T> Deref for Outside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there until the drop")
    }
}

impl<T> Drop for Outside<T> {
    fn drop(&mut self) {
        let inner = self.0.take();
        section(|| drop(inner));
    }
}

/// Runs `work` and puts `errno` back.
pub fn kept<T>(work: impl FnOnce() -> T) -> T {
    let errno = errno();
    let done = work();
    set_errno(errno);
    done
}

/// The calling thread's error number.
pub fn errno() -> i32 {
    // SAFETY: the C library keeps one for each thread, always readable.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set_errno(errno: i32) {
    // SAFETY: as above, and only this thread uses it.
    unsafe { *libc::__errno_location() = errno }
}

/// Signals blocked in this thread, and its cancellation put off, until it is dropped.
struct Blocked {
    signals: libc::sigset_t,
    cancelling: libc::c_int,
}

// SAFETY: as in <pthread.h> of both C libraries; the crate libc does not have it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Blocked {
    fn all() -> Blocked {
        const DISABLE: libc::c_int = 1;
        // SAFETY: signal sets are plain data of our own; blocking all of them
        // is allowed to any thread, and so is it not to be cancelled.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut signals: libc::sigset_t = std::mem::zeroed();
            let mut cancelling = DISABLE;
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut signals);
            pthread_setcancelstate(DISABLE, &raw mut cancelling);
            Blocked {
                signals,
                cancelling,
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: the state and the set that this thread had.
        unsafe {
            pthread_setcancelstate(self.cancelling, &raw mut ours);
            let signals = &raw const self.signals;
            libc::pthread_sigmask(libc::SIG_SETMASK, signals, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_kept_and_nesting_is_seen() {
        set_errno(7);
        let nested = section(|| {
            set_errno(8);
            section(|| ())
        });
        assert_eq!((nested, errno()), (Some(None), 7));
        assert_eq!(section(|| 1), Some(1));
    }

    #[test]
    fn what_goes_out_is_dropped_inside() {
        struct Dropped<'a>(&'a Cell<bool>);
        impl Drop for Dropped<'_> {
            fn drop(&mut self) {
                set_errno(9);
                self.0.set(section(|| ()).is_none());
            }
        }
        let inside = Cell::new(false);
        set_errno(7);
        drop(section(|| Outside::new(Dropped(&inside))));
        assert!(inside.get());
        assert_eq!(errno(), 7);
    }

    #[test]
    fn a_panic_ends_here() {
        assert_eq!(section(|| -> () { panic!("on purpose") }), None);
        assert_eq!(section(|| 1), Some(1));
    }
}
