//! `process_vm_readv(2)`: the memory of another process, copied.
//!
//! Unlike `/proc/PID/mem`, a reader of memory that its owner does not fill (a file system in
//! user space) waits so that it can be ended.

use super::{Errno, check};
use std::ffi::c_void;

/// Copies what stands at `address` of process `pid`; all of it, or an error.
///
/// # Errors
///
/// What the call says; `EFAULT` if there is less memory than that.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    // SAFETY: `local` is all of `into`, which is borrowed for the call; the kernel checks the other
    // process's addresses.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match check(read as libc::c_long)? == into.len() {
        true => Ok(()),
        false => Err(Errno::FAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_and_nothing_is_not() {
        let words = [7_u64, 8, 9];
        let mut bytes = [0; 16];
        let own = std::process::id();
        let second = &raw const words[1];
        read(own, second as u64, &mut bytes).unwrap();
        assert_eq!(bytes[..8], 8_u64.to_ne_bytes());
        assert_eq!(bytes[8..], 9_u64.to_ne_bytes());
        assert_eq!(read(own, 8, &mut bytes), Err(Errno::FAULT));
        assert_eq!(read(u32::MAX, 8, &mut bytes), Err(Errno::SRCH));
    }
}
