//! `fcntl(2)`, `F_OFD_SETLK`: locks on ranges of a file that belong to an open file description.
//!
//! Such a lock ends with the last reference to its description. A mapping is one, and so are a child's
//! inherited mappings. So a lock that was taken through the descriptor of a mapping lasts as long as
//! anything is mapped through it, in whatever process, and whatever way these processes end.

use super::{Errno, check};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// With others.
    Read,
    /// Alone.
    Write,
    /// None any more.
    None,
}

/// Takes a lock of `bytes` of `file`, or gives it up; nobody waits. False if another description has
/// one that forbids it.
///
/// # Errors
///
/// What the call says: `BADF` for a lock to write through a descriptor that only reads.
pub(crate) fn set(file: BorrowedFd<'_>, lock: Lock, bytes: Range<u64>) -> Result<bool, Errno> {
    let kind = match lock {
        Lock::Read => libc::F_RDLCK,
        Lock::Write => libc::F_WRLCK,
        Lock::None => libc::F_UNLCK,
    };
    let offset = |at: u64| libc::off_t::try_from(at).map_err(|_| Errno::OVERFLOW);
    // SAFETY: numbers only; all zeros is a valid value. The process id must be 0 for these locks.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = offset(bytes.start)?;
    range.l_len = offset(bytes.end - bytes.start)?;
    assert!(
        range.l_len > 0,
        "a length of 0 would be the rest of the file"
    );
    // SAFETY: the kernel reads the struct.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    match check(done.into()) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mapping::Mapping;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    /// The invariant on which copies rest: a mapping keeps its descriptor's locks, and a child's does.
    #[test]
    fn a_lock_lasts_as_long_as_anything_is_mapped_through_its_descriptor() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().set_len(1 << 16).unwrap();
        let lock = |file: &File, kind, bytes| set(file.as_fd(), kind, bytes).unwrap();
        let other = || lock(named.as_file(), Lock::Write, 3..4);
        let reader = File::open(named.path()).unwrap();
        assert!(lock(&reader, Lock::Read, 0..8));
        assert!(set(reader.as_fd(), Lock::Write, 0..1).is_err());
        assert!(!other());
        assert!(lock(named.as_file(), Lock::Write, 8..9), "that is free");
        let first = Mapping::of_file(reader.as_fd(), 0, 1 << 14).unwrap();
        let second = Mapping::of_file(reader.as_fd(), 0, 1 << 14).unwrap();
        drop(reader);
        assert!(!other());
        drop(first);
        assert!(!other(), "the second is there");
        // A child that goes on maps it, too, until it ends.
        let (mut begins, told) = std::io::pipe().unwrap();
        let (waits, ends) = std::io::pipe().unwrap();
        let child = std::thread::spawn(move || {
            crate::sys::child::run(|| {
                let _ = (&told).write_all(b"x");
                let _ = (&waits).read(&mut [0]);
                0
            })
        });
        begins.read_exact(&mut [0]).unwrap();
        drop(second);
        assert!(!other(), "the child has it");
        (&ends).write_all(b"x").unwrap();
        assert_eq!(child.join().unwrap(), Ok(0));
        // Other tests have children, too.
        while !other() {
            std::thread::yield_now();
        }
    }
}
