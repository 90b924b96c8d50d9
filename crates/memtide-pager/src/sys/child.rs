//! What only tests do: children of this process, and limits set in them.

use super::{Errno, last};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Exit status of a child whose own handler saw a fault.
pub(crate) const HANDLER_SAW_IT: i32 = 42;

/// Runs `work` in a forked child; its exit status, or the signal that ended it.
pub(crate) fn run(work: impl FnOnce() -> i32) -> Result<i32, i32> {
    // SAFETY: the child leaves by `_exit` and never returns into the test runner.
    // It allocates though other threads exist, which glibc makes possible.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", last());
    if pid == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is ours.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        assert_eq!(last(), Errno::INTR);
    }
    match libc::WIFEXITED(status) {
        true => Ok(libc::WEXITSTATUS(status)),
        false => Err(libc::WTERMSIG(status)),
    }
}

extern "C" fn saw_it(_: libc::c_int) {
    // SAFETY: `_exit` may be called in a handler.
    unsafe { libc::_exit(HANDLER_SAW_IT) };
}

/// The same, in a process that had a SIGBUS handler before the pager came.
pub(crate) fn run_with_handler(work: impl FnOnce() -> i32) -> Result<i32, i32> {
    run(|| {
        super::sigbus::pretend_before(saw_it);
        work()
    })
}

/// Locks a range in memory.
pub(crate) fn lock(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range is mapped; locking changes no content.
    match unsafe { libc::mlock2(address as *const _, bytes, libc::MLOCK_ONFAULT) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// Maps private memory over a range and fills it.
pub(crate) fn overwrite(address: usize, bytes: usize, value: u8) {
    // SAFETY: the range belongs to a mapping of the test's, which reads it only as
    // bytes.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(address as *mut _, bytes, rights, flags, -1, 0);
        assert_eq!(start as usize, address, "{}", last());
        std::ptr::write_bytes(start.cast::<u8>(), value, bytes);
    }
}

/// Lets the process have no descriptor above the first few.
pub(crate) fn limit_descriptors(most: u64) {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(most),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}
