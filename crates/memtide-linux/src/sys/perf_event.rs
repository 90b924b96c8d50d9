//! `perf_event_open(2)`, its ring in shared memory and its ioctls.
//!
//! The kernel writes records into a ring and publishes how far it got in
//! `data_head`; the reader publishes how far it has read in `data_tail`. The
//! kernel never writes between tail and head, which is what makes it sound to
//! lend that stretch out as slices for as long as the tail stands still:
//! [`RingMap::pending`] borrows the ring, [`RingMap::consume`] borrows it
//! mutably. Both counters only grow; a position in the ring is a counter
//! modulo the ring's size, which is a power of two.

use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERIOD, perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{CStr, c_int};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an event counts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// One thread, on whichever CPU it runs.
    Thread(u32),
    /// Everything that runs on one CPU.
    Cpu(u32),
}

/// Opens an event, close-on-exec, in the group of `leader` if there is one.
/// `attr.size` is filled in here.
///
/// # Errors
///
/// The kernel's errno as it came; [`crate::perf::event`] gives it a name.
pub fn open(
    attr: &perf_event_attr,
    watch: Watch,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    attr.size = size_of::<perf_event_attr>() as u32;
    let id = |n: u32| c_int::try_from(n).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (pid, cpu) = match watch {
        Watch::Thread(tid) => (id(tid)?, -1),
        Watch::Cpu(cpu) => (-1, id(cpu)?),
    };
    let group = leader.map_or(-1, |leader| leader.as_raw_fd());
    // SAFETY: `attr` is an initialized local whose size field matches it. The
    // kernel reads it, and writes nothing of ours but that size field.
    let fd = unsafe { perf_event_open(&mut attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is open and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Hands the kernel a filter expression over a tracepoint's fields.
///
/// # Errors
///
/// `EINVAL` if the expression does not parse or names an unknown field.
pub fn set_filter(event: BorrowedFd<'_>, filter: &CStr) -> io::Result<()> {
    // SAFETY: the kernel copies a NUL-terminated string from the pointer,
    // which `filter` keeps alive; it does not write through it.
    check(unsafe { ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) })
}

/// Makes `event` write its records into the ring of `owner`, which must watch
/// the same thread or CPU.
///
/// # Errors
///
/// `EINVAL` if the two do not watch the same.
pub fn set_output(event: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two open descriptors, no memory.
    check(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) })
}

/// Starts an event that was opened disabled.
///
/// # Errors
///
/// The kernel's errno; none is expected on a descriptor of an event.
pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: one open descriptor, no memory.
    check(unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) })
}

/// Sets after how many events the next samples are taken.
///
/// # Errors
///
/// `EINVAL` if the unit cannot count that far.
pub fn set_period(event: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // SAFETY: the kernel reads eight bytes from the pointer, which are `period`'s,
    // and does not write through it.
    check(unsafe { libc::ioctl(event.as_raw_fd(), PERIOD as _, &raw const period) })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The records that the kernel has written and the reader has not yet taken.
#[derive(Debug)]
pub struct Pending<'a> {
    /// The older bytes.
    pub older: &'a [u8],
    /// What follows them, from the ring's start. Empty unless the stretch
    /// wraps around.
    pub newer: &'a [u8],
    /// The counter to hand to [`RingMap::consume`] when all is read.
    pub head: u64,
}

/// A mapped ring.
#[derive(Debug)]
pub struct RingMap {
    base: NonNull<u8>,
    page: usize,
    data_bytes: usize,
    tail: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this value
// is its only user.
unsafe impl Send for RingMap {}

impl RingMap {
    /// Maps a ring of `data_pages` pages (a power of two) for `event`, with
    /// the control page in front.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `data_pages` is not a power of two; `EPERM` if the pages
    /// exceed `kernel.perf_event_mlock_kb` and the caller has no
    /// `CAP_IPC_LOCK`; `ENOMEM`.
    pub fn map(event: BorrowedFd<'_>, data_pages: usize) -> io::Result<RingMap> {
        let page = rustix::param::page_size();
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if !data_pages.is_power_of_two() {
            return Err(invalid());
        }
        let data_bytes = data_pages.checked_mul(page).ok_or_else(invalid)?;
        let total = data_bytes.checked_add(page).ok_or_else(invalid)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs
        // no other memory.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                total,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event.as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(invalid)?;
        Ok(RingMap {
            base,
            page,
            data_bytes,
            tail: 0,
        })
    }

    /// What is there to read. Records that the kernel writes meanwhile are
    /// for the next call.
    pub fn pending(&self) -> Pending<'_> {
        // Acquire: the records must be read after the counter that covers them.
        let head = self
            .counter(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        self.pending_until(head)
    }

    /// As [`pending`](Self::pending), up to a head that it returned earlier.
    pub fn pending_until(&self, head: u64) -> Pending<'_> {
        let published = self
            .counter(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        // A head from elsewhere must not show what the kernel still writes.
        let head = match published.wrapping_sub(head) <= published.wrapping_sub(self.tail) {
            true => head,
            false => self.tail,
        };
        let bytes = usize::try_from(head.wrapping_sub(self.tail)).unwrap_or(usize::MAX);
        if bytes > self.data_bytes {
            return Pending {
                older: &[],
                newer: &[],
                head,
            };
        }
        let start = (self.tail & (self.data_bytes as u64 - 1)) as usize;
        let older = bytes.min(self.data_bytes - start);
        // SAFETY: both stretches lie inside the data area, which starts one
        // page after `base` and is `data_bytes` long. The kernel does not
        // write between tail and head, and the tail cannot move while `self`
        // is borrowed, because `consume` needs it mutably.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            Pending {
                older: std::slice::from_raw_parts(data.add(start), older),
                newer: std::slice::from_raw_parts(data, bytes - older),
                head,
            }
        }
    }

    /// Gives everything before `head`, as [`pending`](Self::pending) returned
    /// it, back to the kernel.
    pub fn consume(&mut self, head: u64) {
        let published = self
            .counter(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        // A head from elsewhere must not let the tail overtake the kernel.
        if published.wrapping_sub(head) <= published.wrapping_sub(self.tail) {
            self.tail = head;
            // Release: the reads must be over before the kernel may overwrite.
            self.counter(offset_of!(perf_event_mmap_page, data_tail))
                .store(head, Ordering::Release);
        }
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives, the
        // field is aligned to eight bytes, and both sides access it atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for RingMap {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; slices into it cannot
        // outlive `self`. The result is of no use: the range is ours.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page + self.data_bytes) };
    }
}
