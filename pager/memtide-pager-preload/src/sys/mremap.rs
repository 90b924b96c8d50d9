//! `mremap`: the pager lets go of the pages, and keeps them again where they
//! are then.

use super::section::set_errno;
use super::state::{self, Then};
use super::{pages, start};
use libc::{c_int, c_void, size_t};

/// Replaces the C library's. The C one takes its last argument only if the
/// flags say that there is one; what is passed here without is not used.
///
/// # Safety
///
/// As mremap(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: size_t,
    new_length: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let call = || {
        // SAFETY: the caller's promise, passed on.
        let at =
            unsafe { libc::syscall(libc::SYS_mremap, old, old_length, new_length, flags, new) };
        at as *mut c_void
    };
    let refuse = |errno| {
        set_errno(errno);
        libc::MAP_FAILED
    };
    if flags & libc::MREMAP_FIXED != 0 {
        let over = pages(new as usize, new_length).filter(state::is_kept);
        if over.is_some_and(|over| state::release(&over, Then::Stays).is_none()) {
            return refuse(libc::ENOMEM);
        }
    }
    if old_length == 0 {
        // A second mapping of the same pages, which only shared ones can have.
        let first = pages(old as usize, 1).filter(state::is_kept);
        if first.is_some_and(|first| state::release(&first, Then::Stays).is_none()) {
            return refuse(libc::ENOMEM);
        }
        return call();
    }
    let Some(range) = pages(old as usize, old_length).filter(state::is_kept) else {
        return call();
    };
    // One call moves within one mapping of the kernel's. Where only parts are
    // kept it may be several, by our doing, and so it may be where copies are
    // shown: all of it becomes as it was.
    let one = state::is_one_piece(&range) && !start::is_local();
    if flags & libc::MREMAP_DONTUNMAP != 0 || !one {
        return match state::release(&range, Then::Stays) {
            Some(_) => call(),
            None => refuse(libc::ENOMEM),
        };
    }
    let Some(pieces) = state::release(&range, Then::Goes) else {
        return refuse(libc::ENOMEM);
    };
    let at = call();
    if at == libc::MAP_FAILED {
        state::keep_again(&pieces);
        return at;
    }
    if let (Some(now), [piece]) = (pages(at as usize, new_length), &pieces[..]) {
        state::keep_moved(piece, now);
    }
    at
}
