//! `getsockopt(2)` with `SO_PEERCRED`: who connected to a Unix socket, as the kernel saw it then.
//!
//! Of the three numbers that the kernel gives only the user matters to us. The process is 0 where it
//! is in a PID namespace that the caller does not see, so a wrapper whose type has no 0 will not do.

use super::{Errno, check};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The user id of the other side, as the caller's user namespace numbers it.
pub fn user(socket: impl AsFd) -> Result<u32, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `length` outlive the call, and the kernel writes at most `length` bytes,
    // the size of `peer`. Any bytes are a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    check(result.into())?;
    match length as usize == size_of::<libc::ucred>() {
        true => Ok(peer.uid),
        false => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_side_is_us() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(user(&one).unwrap(), rustix::process::geteuid().as_raw());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(user(&file), Err(Errno::NOTSOCK));
    }
}
