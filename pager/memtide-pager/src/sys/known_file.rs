//! A descriptor that is closed only while it still is its file's.
//!
//! Programs close descriptors that they did not open: daemons close all of
//! them. In a program that knows nothing of the pager the number of ours may
//! then be another file's, and to close that would be a fault in the program.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A copy gets at least this number, so that a program gets the numbers that it
/// would get without us.
const LOWEST: i32 = 512;

/// A file that is known again by its device and inode.
#[derive(Debug)]
pub(crate) struct KnownFile {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<(u64, u64)>,
}

impl KnownFile {
    pub fn new(fd: OwnedFd) -> KnownFile {
        // The number that it has is one that the program expects to be free.
        let fd = high(fd.as_fd()).unwrap_or(fd);
        KnownFile {
            identity: identity(fd.as_fd()),
            fd: ManuallyDrop::new(fd),
        }
    }

    /// The file of a descriptor that stays the caller's.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<KnownFile> {
        let copy = match high(fd) {
            Some(copy) => copy,
            None => fd.try_clone_to_owned()?,
        };
        Ok(KnownFile {
            identity: identity(copy.as_fd()),
            fd: ManuallyDrop::new(copy),
        })
    }

    /// Whether the number still is this file's.
    pub fn is_ours(&self) -> bool {
        self.identity.is_some() && identity(self.fd.as_fd()) == self.identity
    }

    /// Another descriptor of the same file.
    pub fn try_clone(&self) -> io::Result<KnownFile> {
        KnownFile::of(self.as_fd())
    }
}

impl AsFd for KnownFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here; `self` is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// A copy with a high number; `None` where those are not allowed.
fn high(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    // SAFETY: a copy of an open descriptor; a new number comes back.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) };
    // SAFETY: it is new and nobody else's.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Device and inode; `None` if it is not open.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    // A `File` is closed when it is dropped, which must not happen to this one.
    // SAFETY: only looked at; what is not open is an error.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd.as_raw_fd()) });
    let metadata = file.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_files_number_is_left_alone() {
        let file = KnownFile::new(tempfile::tempfile().unwrap().into());
        let number = file.as_fd().as_raw_fd();
        assert!(number >= LOWEST || high(file.as_fd()).is_none());
        let null = File::open("/dev/null").unwrap();
        // SAFETY: both are open; the number is another file's from here on.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
        drop(file);
        // SAFETY: asks about a number, then closes what this test put there.
        unsafe {
            assert!(libc::fcntl(number, libc::F_GETFD) >= 0);
            libc::close(number);
        }
    }
}
