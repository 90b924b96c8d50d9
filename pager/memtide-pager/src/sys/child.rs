//! What only tests do: children of this process, and limits set in them.

use super::{Errno, last};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

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

/// The same, and what the child wrote to its standard error.
pub(crate) fn stderr_of(work: impl FnOnce() -> i32) -> (String, Result<i32, i32>) {
    let (mut read, write) = std::io::pipe().unwrap();
    let status = run(|| {
        // SAFETY: the child's own descriptor 2.
        unsafe { libc::dup2(write.as_raw_fd(), 2) };
        work()
    });
    drop(write);
    let mut said = String::new();
    let _ = read.read_to_string(&mut said);
    (said, status)
}

/// A private mapping of a file, readable.
pub(crate) struct Private {
    address: usize,
    bytes: usize,
}

impl Private {
    pub fn of(file: BorrowedFd<'_>, bytes: usize) -> Private {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", last());
        Private {
            address: start as usize,
            bytes,
        }
    }

    pub fn address(&self) -> usize {
        self.address
    }

    /// Writes one byte, and takes the right to write away again.
    pub fn write_once(&self, at: usize) {
        assert!(at < self.bytes);
        let start = self.address as *mut libc::c_void;
        // SAFETY: inside our own mapping, to which no reference exists.
        unsafe {
            libc::mprotect(start, self.bytes, libc::PROT_READ | libc::PROT_WRITE);
            start.cast::<u8>().add(at).write_volatile(1);
            libc::mprotect(start, self.bytes, libc::PROT_READ);
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference exists.
        unsafe { libc::munmap(self.address as *mut _, self.bytes) };
    }
}

/// Closes all but the standard descriptors, as daemons do.
pub(crate) fn close_all() {
    // SAFETY: numbers only; a child's own table.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// Has all memory be locked that is mapped from now on. Whether that is allowed, however much it is.
pub(crate) fn lock_all_to_come() -> bool {
    if rustix::process::getrlimit(Resource::Memlock)
        .current
        .is_some()
        && !rustix::process::geteuid().is_root()
    {
        return false;
    }
    // SAFETY: concerns the child's own memory, and changes none.
    unsafe { libc::mlockall(libc::MCL_FUTURE) == 0 }
}

/// Has the child end by SIGALRM if it is still there after so many seconds.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: sets a timer of the child's own.
    unsafe { libc::alarm(seconds) };
}

/// Drops what is shared with threads that stayed with the parent.
pub(crate) fn drop_last<T>(shared: Arc<T>) {
    let raw = Arc::into_raw(shared);
    // SAFETY: in a forked child the other owners were threads of the parent's, which
    // do not run here. One count is left for the last line.
    unsafe {
        let count = |raw| Arc::strong_count(&std::mem::ManuallyDrop::new(Arc::from_raw(raw)));
        while count(raw) > 1 {
            Arc::decrement_strong_count(raw);
        }
        drop(Arc::from_raw(raw));
    }
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
