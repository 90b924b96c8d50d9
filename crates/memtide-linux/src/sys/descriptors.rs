//! Descriptors in the table of a program that does not know of them.
//!
//! Three things of the program's are at stake. It expects the lowest free number when it opens a file. It may
//! close any number at any moment, and then a number of ours is another file's. And closing *any* descriptor
//! of a file ends all record locks (fcntl(2), `F_SETLK`) that the process has on that file, by which databases
//! keep others out.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::process::{Resource, getrlimit};
use std::sync::Mutex;

/// A copy gets at least this number, so that a program gets the numbers that it would get without us. Where
/// fewer are allowed it is one of the upper half.
const LOWEST: u64 = 512;

/// What the kernel tells as the process of a lock of an open file.
const OF_OPEN_FILE: libc::pid_t = -1;
/// Locks that are asked about; a file with more is one with record locks.
const MOST_LOCKS: usize = 64;

/// Device and inode.
pub type Identity = (u64, u64);

/// Descriptors that are not needed any more, and whose files have record locks.
static WAITING: Mutex<Vec<(RawFd, Identity)>> = Mutex::new(Vec::new());

/// A copy with a high number; `None` where there is none left.
pub fn high(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let lowest = LOWEST.min(limit / 2) as RawFd;
    rustix::io::fcntl_dupfd_cloexec(fd, lowest).ok()
}

/// The file behind a descriptor; `None` if it is not open.
pub fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Closes `fd` if it still is the file of `identity`: at once, or when nobody has a record lock on that file any
/// more. Nothing tells whose such a lock is where others have one on the same bytes, so that anybody's counts.
/// One that is taken between the question and the closing is lost; these are less than a microsecond apart.
///
/// # Safety
///
/// `fd` is the caller's to close, and not used any more, unless the program closed it.
pub unsafe fn close(fd: RawFd, identity: Option<Identity>) {
    close_waiting();
    // SAFETY: the caller's promise, for as long as the file is that one.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(file) = identity.filter(|file| self::identity(open) == Some(*file)) else {
        return;
    };
    if !has_record_locks(open) {
        // SAFETY: the caller's promise.
        unsafe { libc::close(fd) };
    } else if let Ok(mut waiting) = WAITING.try_lock() {
        waiting.push((fd, file));
    }
    // Else it stays open: a forked child may find the list locked for ever.
}

/// Closes those that have waited, as far as nobody has a record lock on their files any more.
pub fn close_waiting() {
    let Ok(mut waiting) = WAITING.try_lock() else {
        return;
    };
    waiting.retain(|(fd, file)| {
        // SAFETY: a number that was left to us; what is not open is an error.
        let open = unsafe { BorrowedFd::borrow_raw(*fd) };
        if identity(open) != Some(*file) {
            return false;
        }
        let locked = has_record_locks(open);
        if !locked {
            // SAFETY: left to us by who called `close`, and still that file's.
            unsafe { libc::close(*fd) };
        }
        locked
    });
}

/// Whether a process, this one included, has a record lock on a file. `F_OFD_GETLK` asks for a lock that belongs
/// to nobody yet, so that it meets our own. Locks of open files (`F_OFD_SETLK`) end with these, and are passed over;
/// so is a lock to read on the same bytes.
fn has_record_locks(fd: BorrowedFd<'_>) -> bool {
    let mut start = 0;
    for _ in 0..MOST_LOCKS {
        // SAFETY: a `flock` may be all zeros.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
        lock.l_start = start;
        // SAFETY: the kernel reads and writes one `flock`.
        let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        if asked != 0 || libc::c_int::from(lock.l_type) == libc::F_UNLCK {
            return false;
        }
        if lock.l_pid != OF_OPEN_FILE {
            return true;
        }
        match lock.l_start.checked_add(lock.l_len) {
            // To the end of the file, however long that will be.
            Some(_) if lock.l_len == 0 => return false,
            Some(end) => start = end,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, IntoRawFd};

    fn is_closed(fd: RawFd) -> bool {
        // SAFETY: a question about a number.
        unsafe { libc::fcntl(fd, libc::F_GETFD) < 0 }
    }

    fn lock(file: &std::fs::File, kind: libc::c_int) {
        // SAFETY: a `flock` may be all zeros, and the kernel reads it.
        let set = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_whence) = (kind as _, libc::SEEK_SET as _);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock)
        };
        assert_eq!(set, 0);
    }

    #[test]
    fn locks_of_open_files_keep_no_copy() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let other = std::fs::File::open(named.path()).unwrap();
        // SAFETY: a `flock` may be all zeros, and the kernel reads it.
        let set = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
            lock.l_len = 8;
            libc::fcntl(named.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock)
        };
        assert_eq!(set, 0);
        assert!(!has_record_locks(other.as_fd()));
    }

    /// The lock is asked for by an open file of its own, as another process would.
    #[test]
    fn record_locks_outlive_copies() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let other = std::fs::File::open(named.path()).unwrap();
        let file = named.as_file();
        let copy = || {
            let copy = high(file.as_fd()).unwrap();
            let file = identity(copy.as_fd());
            (copy.into_raw_fd(), file)
        };
        lock(file, libc::F_WRLCK);
        assert!(has_record_locks(other.as_fd()));
        let (first, of) = copy();
        // SAFETY: made above, and not used any more.
        unsafe { close(first, of) };
        assert!(has_record_locks(other.as_fd()), "the lock is lost");
        assert!(!is_closed(first));
        lock(file, libc::F_UNLCK);
        close_waiting();
        assert!(is_closed(first));
        let (second, of) = copy();
        // SAFETY: as above.
        unsafe { close(second, of) };
        assert!(is_closed(second));
    }
}
