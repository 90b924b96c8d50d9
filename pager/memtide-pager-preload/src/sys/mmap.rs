//! `mmap`: a mapping of a wanted file is made shared and kept.

use super::file::Held;
use super::section::section;
use super::state::{self, Then};
use super::{home, pages, section, start};
use crate::decide;
use crate::reasons::Reason;
use crate::tally::{TALLY, count};
use libc::{c_int, c_void, off_t, size_t};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Replaces the C library's.
///
/// # Safety
///
/// As mmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0
        && flags & libc::MAP_FIXED_NOREPLACE != libc::MAP_FIXED_NOREPLACE
    {
        let over = pages(address as usize, length).filter(state::is_kept);
        // What is replaced goes only if the call succeeds; if it does not,
        // nobody can say what is left, so it is what the program asked for.
        if let Some(over) = over
            && state::release(&over, Then::Stays).is_none()
        {
            section::set_errno(libc::ENOMEM);
            return libc::MAP_FAILED;
        }
    }
    if decide::may_keep(length, prot, flags, fd) && state::is_on() && home::here() {
        // SAFETY: the caller's promise, passed on.
        let made = section(|| unsafe { make(address, length, flags, fd, offset) });
        if let Some(Some(at)) = made {
            return at;
        }
    } else if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && state::is_on() && home::here() {
        state::left_out_if_wanted(fd);
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { raw_mmap(address, length, prot, flags, fd, offset) }
}

/// Replaces the C library's, which on machines of 64 bits is the same function.
///
/// # Safety
///
/// As mmap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise, passed on.
    unsafe { mmap(address, length, prot, flags, fd, offset) }
}

/// The kernel's call; sets `errno`.
///
/// # Safety
///
/// As mmap(2).
pub unsafe fn raw_mmap(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise; the kernel checks every word.
    let result = unsafe { libc::syscall(libc::SYS_mmap, address, length, prot, flags, fd, offset) };
    result as *mut c_void
}

/// Makes a kept mapping, or `None` with nothing changed if it is none of ours
/// or cannot be kept: the kernel then gets the call as it came.
///
/// # Safety
///
/// As mmap(2).
unsafe fn make(
    address: *mut c_void,
    length: size_t,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> Option<*mut c_void> {
    let private = decide::is_private(flags);
    let held: Arc<Held> = state::wanted(fd, private)?;
    let ours = held.fd()?.as_raw_fd();
    let shared = decide::kept_flags(flags);
    // SAFETY: the caller's promise; another descriptor of the same file.
    let at = unsafe { raw_mmap(address, length, libc::PROT_READ, shared, ours, offset) };
    if at == libc::MAP_FAILED {
        // Some files cannot be mapped shared; and other errors are the program's.
        if private && section::errno() == libc::ENODEV {
            state::left_out(fd, Reason::Shared);
        }
        return None;
    }
    let range = pages(at as usize, length)?;
    if state::keep(range, offset as u64, private, &held) {
        if flags & libc::MAP_POPULATE != 0 {
            if start::is_local() {
                populate(at as usize, length);
                return Some(at);
            }
            count(&TALLY.not_read_in);
            state::read_ahead_now(at as usize, length);
        }
        return Some(at);
    }
    let again = flags | libc::MAP_FIXED;
    // SAFETY: in the place of the mapping that was just made and that nobody
    // knows yet.
    let plain = unsafe { raw_mmap(at, length, libc::PROT_READ, again, fd, offset) };
    if plain == libc::MAP_FAILED {
        // SAFETY: as above.
        unsafe { super::munmap::raw_munmap(at, length) };
        return None;
    }
    Some(plain)
}

/// Reads a mapping in, as the kernel does for `MAP_POPULATE`: as far as it goes.
fn populate(at: usize, length: usize) {
    // SAFETY: advice that changes no content, on the mapping just made.
    unsafe { libc::syscall(libc::SYS_madvise, at, length, libc::MADV_POPULATE_READ) };
}
