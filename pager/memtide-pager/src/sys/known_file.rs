//! A descriptor that is closed only while it still is its file's.
//!
//! Programs close descriptors that they did not open: daemons close all of
//! them. In a program that knows nothing of the pager the number of ours may
//! then be another file's, and to close that would be a fault in the program.
//!
//! That may happen at any moment, also while a file is open for a few microseconds. So
//! every descriptor of ours in the program's table is one of these, and it is closed by
//! [`descriptors::close`]: the standard library's ends the process where the number is closed
//! already. The question and the closing are two calls, less than a microsecond apart.

use super::Errno;
use memtide_linux::sys::descriptors::{self, Identity, high, identity};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A file that is known again by its device and inode.
#[derive(Debug)]
pub(crate) struct KnownFile {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

impl KnownFile {
    /// With the number that it has.
    pub fn new(fd: OwnedFd) -> KnownFile {
        descriptors::is_in_use(fd.as_raw_fd());
        KnownFile {
            identity: identity(fd.as_fd()),
            fd: ManuallyDrop::new(fd),
        }
    }

    /// A file that was just opened for reading.
    pub fn open(path: &Path) -> Result<KnownFile, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(KnownFile::new)
    }

    /// With a high number: the one that it has is one that the program expects to be free.
    pub fn high(self) -> KnownFile {
        match high(self.as_fd()) {
            Some(copy) => KnownFile::new(copy),
            None => self,
        }
    }

    /// All that is in it, from its start.
    pub fn contents(&self) -> Result<Vec<u8>, Errno> {
        let (mut bytes, mut part) = (Vec::new(), [0; 1 << 14]);
        loop {
            // Where it stands in the file is not touched: the number may be another's by now.
            match rustix::io::pread(self, &mut part, bytes.len() as u64) {
                Ok(0) => return Ok(bytes),
                Ok(read) => bytes.extend_from_slice(&part[..read]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The file of a descriptor that stays the caller's.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<KnownFile> {
        let copy = high(fd).ok_or(Errno::MFILE)?;
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
        // SAFETY: closed once, here; `self` is not used any more.
        unsafe { descriptors::close(self.fd.as_raw_fd(), self.identity) };
    }
}

/// The text of a small file; `None` if there is none.
pub(crate) fn text_of(path: &Path) -> Option<String> {
    String::from_utf8(KnownFile::open(path).ok()?.contents().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn another_files_number_is_left_alone() {
        let file = KnownFile::new(tempfile::tempfile().unwrap().into()).high();
        let number = file.as_fd().as_raw_fd();
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

    /// A program that closes everything, on one thread, while the pager opens files and
    /// closes them, on another.
    #[test]
    fn a_program_that_closes_all_at_any_moment_is_survived() {
        let done = crate::sys::child::run(|| {
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let stopped = stop.clone();
            let closer = crate::sys::thread::spawn(c"closer", move || {
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: numbers only; this child has no file that it needs.
                    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
                }
            });
            let mut read = 0;
            for _ in 0..20_000 {
                let file = KnownFile::open(Path::new("/proc/thread-self/comm"));
                read += usize::from(file.is_ok_and(|file| file.high().contents().is_ok()));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            closer.unwrap().join();
            i32::from(read == 0)
        });
        assert_eq!(done, Ok(0));
    }
}
