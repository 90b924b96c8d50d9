//! The file behind a descriptor of the program.

use memtide_linux::sys::descriptors::{self, Identity, high, identity};
use std::fs::{File, Metadata};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that we hold open, and by which we know it again: programs close
/// descriptors that they did not open.
#[derive(Debug)]
pub struct Held {
    own: Own,
    /// Where it was when it was mapped.
    path: PathBuf,
}

/// A descriptor of ours, closed only while it still is its file's: the program may close
/// any number at any moment, and then open a file that gets it. Not left to the standard
/// library, which ends the process where the number is closed already.
#[derive(Debug)]
pub struct Own {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

impl Own {
    fn new(fd: OwnedFd) -> Own {
        descriptors::is_in_use(fd.as_raw_fd());
        Own {
            identity: identity(fd.as_fd()),
            fd: ManuallyDrop::new(fd),
        }
    }

    fn is_ours(&self) -> bool {
        self.identity.is_some() && identity(self.fd.as_fd()) == self.identity
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: closed once, here; `self` is not used any more.
        unsafe { descriptors::close(self.fd.as_raw_fd(), self.identity) };
    }
}

/// A file of ours, by the descriptor that is held or by one that was opened just now.
#[derive(Debug)]
pub enum Open<'a> {
    /// By ours.
    Held(BorrowedFd<'a>),
    /// By its name.
    Now(Own),
}

impl AsFd for Open<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Open::Held(fd) => *fd,
            Open::Now(own) => own.fd.as_fd(),
        }
    }
}

impl Held {
    /// Holds the file of the program's `fd` open as well, for reading only if
    /// the mapping is `private`: what was never opened for writing cannot be
    /// written through a shared mapping that stands in for a private one.
    /// `None` if it is no regular file or cannot be held.
    pub fn new(fd: RawFd, private: bool) -> Option<Held> {
        // SAFETY: asks about a number; one that is not open is an error.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 {
            return None;
        }
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let own = if private && writable {
            // SAFETY: as below.
            let waits =
                identity(unsafe { BorrowedFd::borrow_raw(fd) }).and_then(descriptors::to_read);
            match waits {
                Some(own) => own,
                None => high(open_to_read(&link(fd))?.fd.as_fd())?,
            }
        } else {
            // SAFETY: it was open a moment ago, and the program gave it to us
            // for the length of this call.
            high(unsafe { BorrowedFd::borrow_raw(fd) })?
        };
        let own = Own::new(own);
        is_regular(own.fd.as_fd()).then_some(())?;
        Some(Held {
            own,
            path: path(fd)?,
        })
    }

    /// The file; a program that closes all descriptors still has it mapped. `None` if it
    /// has no name any more, or another.
    pub fn open(&self) -> Option<Open<'_>> {
        if let Some(fd) = self.fd() {
            return Some(Open::Held(fd));
        }
        let opened = open_to_read(&self.path)?;
        let same = self.own.identity.is_some() && opened.identity == self.own.identity;
        same.then_some(Open::Now(opened))
    }

    /// The descriptor; `None` if the program has closed it, or has put another
    /// file in its place.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.is_ours().then(|| self.own.fd.as_fd())
    }
}

/// How long a file is.
pub fn bytes_of(fd: BorrowedFd<'_>) -> Option<u64> {
    Some(metadata(fd)?.len())
}

/// Where the file is, as far as the kernel can tell.
pub fn path(fd: RawFd) -> Option<PathBuf> {
    std::fs::read_link(link(fd)).ok()
}

/// By the thread's own folder: that of a process whose first thread has ended is empty.
fn link(fd: RawFd) -> PathBuf {
    format!("/proc/thread-self/fd/{fd}").into()
}

fn open_to_read(path: &Path) -> Option<Own> {
    let flags = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    Some(Own::new(opened.ok()?.into()))
}

fn is_regular(fd: BorrowedFd<'_>) -> bool {
    metadata(fd).is_some_and(|metadata| metadata.is_file())
}

fn metadata(fd: BorrowedFd<'_>) -> Option<Metadata> {
    // A `File` is closed when it is dropped, which must not happen to this one.
    // SAFETY: open for at least as long as `fd`; never closed through this.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd.as_raw_fd()) });
    file.metadata().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_file_is_read_only_if_private_and_known_again() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = named.as_file();
        let held = Held::new(file.as_raw_fd(), true).unwrap();
        let fd = held.fd().expect("nobody closed it").as_raw_fd();
        // SAFETY: asks about an open descriptor.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        assert_eq!(flags & libc::O_ACCMODE, libc::O_RDONLY);
        let null = File::open("/dev/null").unwrap();
        // What a program does that closes everything and opens anew.
        // SAFETY: both are open, and the copy replaces ours on purpose.
        assert!(unsafe { libc::dup2(null.as_raw_fd(), fd) } >= 0);
        assert!(held.fd().is_none());
        // By its name it is still found, until that leads to another file.
        let again = held.open().expect("its name is still there");
        assert_eq!(identity(again.as_fd()), identity(file.as_fd()));
        assert!(is_regular(again.as_fd()) && !is_regular(null.as_fd()));
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::rename(other.path(), named.path()).unwrap();
        assert!(held.open().is_none());
        assert!(Held::new(null.as_raw_fd(), false).is_none());
        assert!(Held::new(-1, false).is_none());
    }
}
