//! Descriptors in the table of a program that does not know of them.
//!
//! Three things of the program's are at stake. It expects the lowest free number when it opens a file. It may
//! close any number at any moment, and then a number of ours is another file's. And closing *any* descriptor
//! of a file ends all record locks (fcntl(2), `F_SETLK`) that the process has on that file, by which databases
//! keep others out.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A copy gets at least this number, so that a program gets the numbers that it would get without us. Where
/// fewer are allowed it is one of the upper half.
const LOWEST: u64 = 512;

/// What the kernel tells as the process of a lock of an open file.
const OF_OPEN_FILE: libc::pid_t = -1;
/// Locks that are asked about, about; a file with more is one with record locks.
const MOST_LOCKS: usize = 64;

/// Those that wait are asked about in turn, so many whenever another one is closed.
const FEW: usize = 8;

/// Device and inode.
pub type Identity = (u64, u64);

/// Descriptors that are not needed any more, and whose files have record locks.
static WAITING: Mutex<Vec<(RawFd, Identity)>> = Mutex::new(Vec::new());
/// How often it is tried for: a child that was forked while another thread had it finds it locked for ever.
const TRIES: u32 = 1000;

thread_local! {
    /// Whether this thread has a table of its own, in which nothing is the program's.
    static OWN_TABLE: Cell<bool> = const { Cell::new(false) };
}

fn waiting() -> Option<MutexGuard<'static, Vec<(RawFd, Identity)>>> {
    for _ in 0..TRIES {
        match WAITING.try_lock() {
            Ok(waiting) => return Some(waiting),
            Err(TryLockError::Poisoned(waiting)) => return Some(waiting.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// From now on the calling thread has a table of descriptors of its own.
pub fn of_own_table() {
    OWN_TABLE.set(true);
}

/// A copy with a high number; `None` where there is none left. One that waits to be closed serves again: a program
/// that has a lock, and maps and unmaps, gets no more and more of them.
pub fn high(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    if let Some(copy) =
        identity(fd).and_then(|file| once_more(file, |flags| Some(flags) == flags_of(fd)))
    {
        return Some(copy);
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let lowest = LOWEST.min(limit / 2) as RawFd;
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, lowest).ok()?;
    is_in_use(copy.as_raw_fd());
    Some(copy)
}

/// The number is somebody's again: the one that waited under it was closed by the program.
pub fn is_in_use(fd: RawFd) {
    if !OWN_TABLE.get()
        && let Some(mut waiting) = waiting()
    {
        waiting.retain(|(number, _)| *number != fd);
    }
}

/// A descriptor of `file` that waits to be closed, and can only read.
pub fn to_read(file: Identity) -> Option<OwnedFd> {
    once_more(file, |flags| flags & OFlags::ACCMODE == OFlags::RDONLY)
}

fn once_more(file: Identity, fits: impl Fn(OFlags) -> bool) -> Option<OwnedFd> {
    if OWN_TABLE.get() {
        return None;
    }
    let mut waiting = waiting()?;
    let at = waiting.iter().position(|(fd, of)| {
        // SAFETY: a number that was left to us; what is not open is an error.
        let open = unsafe { BorrowedFd::borrow_raw(*fd) };
        *of == file && identity(open) == Some(file) && flags_of(open).is_some_and(&fits)
    })?;
    let (fd, _) = waiting.swap_remove(at);
    // SAFETY: left to us by who called `close`, and still that file's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn flags_of(fd: BorrowedFd<'_>) -> Option<OFlags> {
    rustix::fs::fcntl_getfl(fd).ok()
}

/// The file behind a descriptor; `None` if it is not open.
pub fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Closes `fd` if it still is the file of `identity`: at once, or when no process has a record lock on that file any
/// more. Nothing tells whose such a lock is where others have one on the same bytes, so that anybody's counts.
/// One that is taken between the question and the closing is lost; these are less than a microsecond apart.
///
/// # Safety
///
/// `fd` is the caller's to close, and not used any more, unless the program closed it.
pub unsafe fn close(fd: RawFd, identity: Option<Identity>) {
    close_some(FEW);
    // SAFETY: the caller's promise, for as long as the file is that one.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(file) = identity.filter(|file| self::identity(open) == Some(*file)) else {
        return;
    };
    if OWN_TABLE.get() || !has_record_locks(open) {
        // SAFETY: the caller's promise.
        unsafe { libc::close(fd) };
    } else if let Some(mut waiting) = waiting() {
        waiting.retain(|(number, _)| *number != fd);
        waiting.push((fd, file));
    }
}

/// Closes those that have waited, as far as no process has a record lock on their files any more. To be called now
/// and then.
pub fn close_waiting() {
    close_some(usize::MAX);
}

/// The same of `most` of them, which the next call goes on behind.
fn close_some(most: usize) {
    if OWN_TABLE.get() {
        return;
    }
    let Some(mut waiting) = waiting() else {
        return;
    };
    let asked = most.min(waiting.len());
    waiting.rotate_left(asked);
    let mut left = waiting.len() - asked;
    waiting.retain(|(fd, file)| {
        if left > 0 {
            left -= 1;
            return true;
        }
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
/// to nobody yet, so that it meets our own. Locks of open files (`F_OFD_SETLK`) end with these, and what lies on
/// both sides of one is asked about; a lock to read on the same bytes is passed over.
fn has_record_locks(fd: BorrowedFd<'_>) -> bool {
    // Beginning and length, 0 for all that is behind it.
    let mut open: [(libc::off_t, libc::off_t); MOST_LOCKS] = [(0, 0); MOST_LOCKS];
    let mut left = 1;
    for _ in 0..2 * MOST_LOCKS {
        if left == 0 {
            return false;
        }
        left -= 1;
        let (start, bytes) = open[left];
        // SAFETY: a `flock` may be all zeros.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
        (lock.l_start, lock.l_len) = (start, bytes);
        // SAFETY: the kernel reads and writes one `flock`.
        let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        if asked != 0 {
            // A kernel or a filter without the call. Another error is a server's, which may have one.
            let error = std::io::Error::last_os_error().raw_os_error();
            match error {
                Some(libc::EINVAL | libc::EBADF | libc::ENOSYS | libc::EPERM) => continue,
                _ => return true,
            }
        }
        if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
            continue;
        }
        if lock.l_pid != OF_OPEN_FILE || left + 2 > MOST_LOCKS || answers_by_itself(fd) {
            return true;
        }
        if lock.l_start > start {
            open[left] = (start, lock.l_start - start);
            left += 1;
        }
        // One without a length goes on to the end, however far that will be.
        let end = lock
            .l_start
            .checked_add(lock.l_len)
            .filter(|_| lock.l_len > 0);
        let rest = |end: libc::off_t| match bytes {
            0 => Some(0),
            _ => Some(start + bytes - end).filter(|rest| *rest > 0),
        };
        if let Some((end, rest)) = end.and_then(|end| Some((end, rest(end)?))) {
            open[left] = (end, rest);
            left += 1;
        }
    }
    true
}

/// Whether the file system is one that tells of every lock as if it were an open file's: FUSE, Ceph, CIFS, SMB, as in
/// `linux/magic.h`.
fn answers_by_itself(fd: BorrowedFd<'_>) -> bool {
    const TYPES: [u32; 4] = [0x6573_5546, 0x00c3_6400, 0xff53_4d42, 0xfe53_4d42];
    rustix::fs::fstatfs(fd).is_ok_and(|about| TYPES.contains(&(about.f_type as u32)))
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

    /// `F_SETLK` or `F_OFD_SETLK` on eight bytes.
    fn lock_at(file: &std::fs::File, how: libc::c_int, start: libc::off_t) {
        // SAFETY: a `flock` may be all zeros, and the kernel reads it.
        let set = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
            (lock.l_start, lock.l_len) = (start, 8);
            libc::fcntl(file.as_raw_fd(), how, &raw const lock)
        };
        assert_eq!(set, 0);
    }

    /// They end with that file and with no copy; record locks beside them count, wherever they are.
    #[test]
    fn locks_of_open_files_keep_no_copy_and_hide_no_record_lock() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let other = std::fs::File::open(named.path()).unwrap();
        lock_at(named.as_file(), libc::F_OFD_SETLK, 100);
        assert!(!has_record_locks(other.as_fd()));
        for start in [0, 92, 108, 1 << 40] {
            lock_at(named.as_file(), libc::F_SETLK, start);
            assert!(has_record_locks(other.as_fd()), "{start}");
            lock(named.as_file(), libc::F_UNLCK);
            lock_at(named.as_file(), libc::F_OFD_SETLK, 100);
        }
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
        // It serves again instead of another one.
        let (again, of) = copy();
        assert_eq!(again, first);
        // SAFETY: as above.
        unsafe { close(again, of) };
        lock(file, libc::F_UNLCK);
        close_waiting();
        assert!(is_closed(first));
        let (second, of) = copy();
        // SAFETY: as above.
        unsafe { close(second, of) };
        assert!(is_closed(second));
    }
}
