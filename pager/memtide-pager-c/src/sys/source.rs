//! `memtide_pager_open_source`: data that a C function reads.

use super::{give, open};
use crate::code::{Failure, call};
use memtide_pager::{Pager, Region, Source};
use std::ffi::{c_int, c_void};
use std::io;

/// As in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSource {
    user: *mut c_void,
    bytes: u64,
    read_at: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64) -> i64>,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// One that is released when it is dropped.
struct Held(CSource);

// SAFETY: the header asks for functions that threads may call at once.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Source for Held {
    fn len(&self) -> u64 {
        self.0.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(read_at) = self.0.read_at else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: the caller's function, called as the header says; the buffer
        // is writable for its length.
        let read = unsafe {
            read_at(
                self.0.user,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                offset,
            )
        };
        match usize::try_from(read) {
            Ok(read) if read <= buffer.len() => Ok(read),
            Ok(read) => Err(io::Error::other(format!(
                "read_at returned {read} for {} bytes",
                buffer.len()
            ))),
            Err(_) => Err(io::Error::from_raw_os_error(
                i32::try_from(-read).unwrap_or(libc::EIO),
            )),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the caller's function, called once.
            unsafe { release(self.0.user) };
        }
    }
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_open_source(
    pager: *const Pager,
    source: *const CSource,
    region: *mut *mut Region,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let source = Held(*unsafe { open(source, "source") }?);
        if source.0.read_at.is_none() {
            return Err(Failure::argument("source: read_at is null"));
        }
        // SAFETY: the caller's promise.
        let pager = unsafe { open(pager, "pager") }?;
        // SAFETY: the caller's promise.
        unsafe { give(pager.open_source(source)?, region, "region") }
    })
}
