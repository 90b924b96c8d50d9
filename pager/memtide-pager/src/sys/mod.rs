//! The system calls that no safe crate wraps, one file each.
//!
//! This is the only place of the crate where `unsafe` may stand. A wrapper
//! returns the kernel's own `Errno`: what an error means is for the caller to
//! decide.
#![allow(unsafe_code)]

pub(crate) mod advice;
pub(crate) mod apart;
pub(crate) mod cachestat;
#[cfg(test)]
pub(crate) mod child;
pub(crate) mod fork;
#[cfg(test)]
pub(crate) mod frames;
pub(crate) mod incore;
pub(crate) mod kept;
pub(crate) mod known_file;
pub(crate) mod lease;
pub(crate) mod mapping;
pub(crate) mod named;
pub(crate) mod place;
pub(crate) mod range_lock;
pub(crate) mod sigbus;
pub(crate) mod stderr;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod thread_time;
pub(crate) mod userfault;
pub(crate) mod vma;
pub(crate) mod zap;

pub(crate) use rustix::io::Errno;

/// The result of a raw `libc::syscall`: -1 means that `errno` holds the reason.
fn check(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last())
}

fn last() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
}
