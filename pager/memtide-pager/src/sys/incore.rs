//! `mincore(2)`: which pages of a mapping are in memory, mapped or not.

use super::Errno;

/// Sets the lowest bit of one byte of `out` for each page from `address` (of a
/// whole page) on that is in memory. For a file that this user may not write to,
/// the kernel says that all are.
pub(crate) fn in_core(address: usize, out: &mut [u8]) -> Result<(), Errno> {
    let bytes = out.len() * rustix::param::page_size();
    // SAFETY: the kernel writes one byte for each page of the range; the address
    // is only looked up.
    let result = unsafe { libc::mincore(address as *mut libc::c_void, bytes, out.as_mut_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(super::last()),
    }
}
