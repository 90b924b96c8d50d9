//! `fcntl(2)`, `F_SETLEASE`: whether anybody may write to a file.
//!
//! The kernel grants a read lease only while nobody has the file open for writing, mappings
//! included. The lease is asked for and given back at once: only the answer is wanted.

use super::{Errno, check};
use rustix::thread::gettid;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `F_SETOWN_EX` and `F_OWNER_TID`, which the crate libc does not have everywhere.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// Whether somebody has `file`, which is open for reading only, open for writing.
///
/// Who opens it for writing in the moment of the lease waits for that moment, and the kernel
/// sends SIGIO. It goes to the calling thread alone, which must have all signals blocked.
///
/// # Errors
///
/// `ACCESS` for a file of another user, `INVAL` where the file system has no leases.
pub(crate) fn is_open_for_writing(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let fd = file.as_raw_fd();
    let owner = Owner {
        kind: F_OWNER_TID,
        id: gettid().as_raw_nonzero().get(),
    };
    // SAFETY: the kernel reads the struct. Without this the signal would be the process's, and
    // would end it.
    check(unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) }.into())?;
    // SAFETY: numbers only.
    match check(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) }.into()) {
        Err(Errno::AGAIN) => return Ok(true),
        other => other?,
    };
    // SAFETY: numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) }.into())?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::apart::apart;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_writer_is_seen_while_the_file_is_open() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let path = named.path().to_owned();
        let ask = || apart(|| is_open_for_writing(File::open(&path).unwrap().as_fd()));
        match ask() {
            Err(errno @ (Errno::ACCESS | Errno::INVAL)) => {
                println!("skipped: no lease on {}: {errno}", path.display());
            }
            // The temporary file itself is open for writing.
            answer => assert_eq!(answer, Ok(true)),
        }
        let (file, _path) = named.into_parts();
        drop(file);
        // Other tests have children, which have the file open, too, until they end.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while ask() == Ok(true) {
            assert!(std::time::Instant::now() < until, "it is still open");
            std::thread::yield_now();
        }
    }
}
