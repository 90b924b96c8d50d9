//! Threads without the standard library's handles.
//!
//! Those are allocated past the program's allocator, and the process ends where there is no
//! memory for one. A preloaded pager lives in processes of others: there a thread that
//! cannot be started must be an error.

use std::ffi::CStr;
use std::io;

/// What the standard library gives; by default it would be the main thread's.
const STACK_BYTES: usize = 2 << 20;

type Body = Box<dyn FnOnce() + Send>;

/// A running thread, which nobody waits for unless it is joined.
#[derive(Debug)]
pub(crate) struct Thread(libc::pthread_t);

// SAFETY: a number, or with musl an address that only the C library reads; any thread may name it.
unsafe impl Send for Thread {}
// SAFETY: as above; nothing can be done by reference.
unsafe impl Sync for Thread {}

/// Starts one. `body` must not panic.
pub(crate) fn spawn(
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    extern "C" fn run(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the box that was leaked for this thread, taken once.
        let body = unsafe { Box::from_raw(body.cast::<Body>()) };
        body();
        std::ptr::null_mut()
    }
    let named = move || {
        // By itself: whoever names another thread opens a file of /proc for a moment, and takes a
        // number that the program may be about to get.
        // SAFETY: a name that lives for ever, at most 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        body();
    };
    let body: *mut Body = Box::into_raw(Box::new(Box::new(named)));
    // SAFETY: a number or a pointer, for which all bytes zero is a value.
    let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: attributes of our own, made, used and ended here; `id` outlives the call; the
    // function takes the box and returns.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        let error = libc::pthread_create(&raw mut id, &raw const attributes, run, body.cast());
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    if error != 0 {
        // SAFETY: no thread has taken it.
        drop(unsafe { Box::from_raw(body) });
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Thread(id))
}

impl Thread {
    /// Waits for its end; a thread does not wait for itself.
    ///
    /// The caller may be a thread of the program's that somebody cancelled (pthread_cancel). It
    /// would end here, in the middle of our work, so that has to wait.
    pub fn join(self) {
        const DISABLE: libc::c_int = 1;
        // SAFETY: its own number; any thread may ask.
        if unsafe { libc::pthread_self() } != self.0 {
            let mut before = DISABLE;
            // SAFETY: `before` outlives the calls; the thread is joined once, here, and never
            // detached; afterwards the caller's state is what it was.
            unsafe {
                pthread_setcancelstate(DISABLE, &raw mut before);
                libc::pthread_join(self.0, std::ptr::null_mut());
                pthread_setcancelstate(before, &raw mut before);
            }
        }
    }
}

// SAFETY: as in <pthread.h> of both C libraries; the crate libc does not have it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn it_runs_and_is_waited_for() {
        let (tell, told) = channel();
        let name = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let (go, gone) = channel::<()>();
        let body = move || {
            let _ = gone.recv();
            tell.send(name()).unwrap();
        };
        let thread = spawn(c"some-thread", body).unwrap();
        go.send(()).unwrap();
        thread.join();
        assert_eq!(told.recv().unwrap(), "some-thread\n");
    }

    /// In a child: before, it ended by SIGABRT, as its thread was unwound from the join.
    #[test]
    fn a_cancelled_thread_waits_and_goes_on() {
        let status = crate::sys::child::run(|| {
            // SAFETY: this thread, which is there.
            unsafe { libc::pthread_cancel(libc::pthread_self()) };
            spawn(c"some-thread", || {}).unwrap().join();
            7
        });
        assert_eq!(status, Ok(7));
    }
}
