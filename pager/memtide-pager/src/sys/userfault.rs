//! `userfaultfd(2)`: a missing page of a registered range is the program's to
//! fill. With `UFFD_USER_MODE_ONLY` any user may have one (Linux 5.11); with
//! `UFFD_FEATURE_SIGBUS` the faulting thread itself is told, by SIGBUS, and no
//! thread has to read events.

use super::apart::{alone_but_for, spawn_deaf};
use super::known_file::KnownFile;
use super::thread::Thread;
use super::{Errno, check};
use crate::bell::Bell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xaa;
const FEATURE_SIGBUS: u64 = 1 << 7;
const REGISTER_MODE_MISSING: u64 = 1;
const IOCTL_API: libc::Ioctl = number(0x3f, size_of::<Api>());
const IOCTL_REGISTER: libc::Ioctl = number(0, size_of::<Register>());
const IOCTL_COPY: libc::Ioctl = number(3, size_of::<Copy>());

/// An ioctl of type 0xAA that reads and writes `bytes` bytes. The C libraries
/// do not agree on its type; the kernel looks at 32 bits.
const fn number(which: u32, bytes: usize) -> libc::Ioctl {
    (3 << 30 | (bytes as u32) << 16 | 0xaa << 8 | which) as libc::Ioctl
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    copied: i64,
}

/// A userfaultfd that stays registered whatever the program closes.
///
/// Without one, absent pages would read as zeros. So a thread holds it open in a table of its own, until this
/// value ends. A program that closes ours all the same gets SIGBUS where it reads what is not in memory.
#[derive(Debug)]
pub(crate) struct Held {
    fd: KnownFile,
    ends: Arc<Bell>,
    thread: Option<Thread>,
    process: u32,
}

impl Held {
    /// A new one.
    ///
    /// # Errors
    /// Those of [`open`], and whatever keeps a thread from starting.
    pub fn new() -> Result<Held, Errno> {
        const FOR_EVER: Duration = Duration::from_secs(1 << 30);
        let fd = KnownFile::new(open()?).high();
        let (begun, ends) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let (number, begins, end) = (fd.as_fd().as_raw_fd(), begun.clone(), ends.clone());
        let thread = spawn_deaf(c"pager-faults", move || {
            // Before Linux 5.9 the table stays the program's.
            let _ = alone_but_for(number);
            begins.ring();
            while end.heard() == 0 {
                end.wait(0, FOR_EVER);
            }
        });
        let thread =
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        while begun.heard() == 0 {
            begun.wait(0, FOR_EVER);
        }
        Ok(Held {
            fd,
            ends,
            thread: Some(thread),
            process: std::process::id(),
        })
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ends.ring();
        // In a forked child there is no such thread.
        if let Some(thread) = self.thread.take_if(|_| std::process::id() == self.process) {
            thread.join();
        }
    }
}

/// A new descriptor, for faults of user code only, which raise SIGBUS.
fn open() -> Result<OwnedFd, Errno> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: numbers only.
    let raw = check(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
    let raw = i32::try_from(raw).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel just gave us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let mut api = Api {
        api: API,
        features: FEATURE_SIGBUS,
        ioctls: 0,
    };
    // SAFETY: the kernel reads and writes one `struct uffdio_api`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_API, &raw mut api) }.into())?;
    Ok(fd)
}

/// Has missing pages of an anonymous mapping of ours raise SIGBUS from now on.
pub(crate) fn register(fd: BorrowedFd<'_>, address: usize, bytes: usize) -> Result<(), Errno> {
    let mut register = Register {
        start: address as u64,
        bytes: bytes as u64,
        mode: REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the kernel reads and writes one `struct uffdio_register`. What
    // missing pages hold is for us to say: the caller owns the mapping.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_REGISTER, &raw mut register) }.into())
        .map(drop)
}

/// Puts whole pages in at `to`, which lies in a registered range; each page
/// appears at once as a whole. Returns the bytes done, and the reason why not
/// all: `EEXIST` if the next page is there already, `EAGAIN` if it is to be tried
/// again.
pub(crate) fn fill(fd: BorrowedFd<'_>, to: usize, from: &[u8]) -> (usize, Option<Errno>) {
    let mut copy = Copy {
        to: to as u64,
        from: from.as_ptr() as u64,
        bytes: from.len() as u64,
        mode: 0,
        copied: 0,
    };
    // SAFETY: the kernel reads `from`, which outlives the call, and writes one
    // `struct uffdio_copy`. It fills only missing pages of ranges registered with
    // this descriptor, with what the data's source says belongs there.
    match check(unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_COPY, &raw mut copy) }.into()) {
        Ok(_) => (from.len(), None),
        // A partial copy says so in `copied`; otherwise that holds the error.
        Err(Errno::AGAIN) if copy.copied > 0 => (copy.copied as usize, Some(Errno::AGAIN)),
        Err(errno) => (usize::try_from(copy.copied).unwrap_or(0), Some(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(IOCTL_API as u32, 0xc018_aa3f);
        assert_eq!(IOCTL_REGISTER as u32, 0xc020_aa00);
        assert_eq!(IOCTL_COPY as u32, 0xc028_aa03);
    }
}
