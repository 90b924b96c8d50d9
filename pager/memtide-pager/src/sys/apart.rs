//! Work on descriptors that the program never sees.
//!
//! A new descriptor gets the lowest free number, if only for a moment, and a program that opens a
//! file in that moment gets another number than it would without us. So the work is done on a
//! thread with a table of descriptors of its own, an empty one, which ends with the thread.

use super::{Errno, check, thread};
use memtide_linux::sys::descriptors;
use std::ptr::null_mut;

/// Does `work`, which must not panic, on such a thread, with all signals blocked, and waits for it.
///
/// # Errors
/// Those of `work`; `NOSYS` before Linux 5.9, and whatever keeps a thread from starting.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    let mut result = Err(Errno::NOSYS);
    let slot = &mut result;
    let body: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        *slot = alone().and_then(|()| work());
    });
    // SAFETY: the thread is joined below, before anything that the body borrows ends.
    let body: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(body) };
    match spawn_deaf(c"memtide-apart", body) {
        Ok(thread) => thread.join(),
        Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)),
    }
    result
}

/// Gives the calling thread a table of descriptors of its own, an empty one.
///
/// # Errors
/// `NOSYS` before Linux 5.9.
pub(crate) fn alone() -> Result<(), Errno> {
    descriptors::of_own_table();
    // SAFETY: numbers only; what this thread shared with others stays theirs.
    let closed = check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            0 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    });
    closed.map(|_| ())
}

/// The same with one descriptor of the shared table in it, by the number that it has.
///
/// # Errors
/// As [`alone`].
pub(crate) fn alone_but_for(fd: std::os::fd::RawFd) -> Result<(), Errno> {
    descriptors::of_own_table();
    let fd = fd.cast_unsigned();
    let close = |first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint| {
        // SAFETY: numbers only; what this thread shared with others stays theirs.
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })
    };
    close(fd + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if fd > 0 {
        close(0, fd - 1, 0)?;
    }
    Ok(())
}

/// Starts a thread with all signals blocked. `body` must not panic.
///
/// # Errors
/// Those of [`thread::spawn`].
pub(crate) fn spawn_deaf(
    name: &'static std::ffi::CStr,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<thread::Thread> {
    let before = block_signals();
    let started = thread::spawn(name, body);
    restore_signals(&before);
    started
}

/// The thread inherits it: a handler of the program's must not run with this table.
fn block_signals() -> libc::sigset_t {
    // SAFETY: sets of our own that outlive the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: what the same thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_numbers_there_are_not_those_here() {
        let here = File::open("/dev/null").unwrap();
        let number = here.as_raw_fd();
        let there = apart(|| {
            // SAFETY: a question about a number.
            let shared = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
            Ok((File::open("/dev/null").unwrap().as_raw_fd(), shared))
        });
        assert_eq!(there, Ok((0, false)));
        assert!(here.metadata().is_ok());
        assert_eq!(apart(|| Err::<(), _>(Errno::BADF)), Err(Errno::BADF));
    }
}
