//! `userfaultfd(2)`: a missing page of a registered range is the program's to
//! fill. With `UFFD_USER_MODE_ONLY` any user may have one (Linux 5.11); with
//! `UFFD_FEATURE_SIGBUS` the faulting thread itself is told, by SIGBUS, and no
//! thread has to read events.

use super::{Errno, check};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// A new descriptor, for faults of user code only, which raise SIGBUS.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
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
