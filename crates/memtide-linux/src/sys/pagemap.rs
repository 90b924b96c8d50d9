//! `/proc/PID/pagemap`: eight bytes for every page of a process.
//!
//! The file is indexed by virtual page number. Entries are the kernel's
//! (Documentation: admin-guide/mm/pagemap). Frame numbers are zero for a reader
//! without `CAP_SYS_ADMIN`; everything else needs only permission to trace.
//!
//! A task without an address space (a kernel thread, one that is exiting) has a
//! page map too. Current kernels refuse to open it (6.12.95 and 7.2 do); older
//! ones opened it and left every later call to deal with the absence.
//! [`Pagemap::open`] therefore proves with a read that there is an address space
//! behind the file, before anybody sends it a `PAGEMAP_SCAN`; it stays behind it
//! for as long as the file is open.

use super::Errno;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// One page, as the kernel describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PagemapEntry(pub u64);

impl PagemapEntry {
    /// In memory.
    pub fn present(self) -> bool {
        self.bit(63)
    }

    /// In swap.
    pub fn swapped(self) -> bool {
        self.bit(62)
    }

    /// A file's page or a page of shared anonymous memory.
    pub fn file(self) -> bool {
        self.bit(61)
    }

    /// Guarded by the program: every touch of it faults (`MADV_GUARD_INSTALL`; shown since
    /// Linux 6.15).
    pub fn guard(self) -> bool {
        self.bit(58)
    }

    /// Mapped by this process only.
    pub fn exclusive(self) -> bool {
        self.bit(56)
    }

    /// Written since soft-dirty was last cleared (always false where the
    /// kernel was built without it).
    pub fn soft_dirty(self) -> bool {
        self.bit(55)
    }

    /// The frame number, `None` if the page is not present or the reader may
    /// not know it.
    pub fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        (self.present() && frame != 0).then_some(frame)
    }

    fn bit(self, n: u32) -> bool {
        self.0 >> n & 1 == 1
    }
}

/// Why a process's page map cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file could not be opened or read.
    #[error("{path}: {errno}; is the process alive, and may this user trace it (CAP_SYS_PTRACE)?")]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        errno: Errno,
    },
    /// A kernel thread, or a process that is exiting.
    #[error("{path}: the task has no address space; choose a user process that is not exiting")]
    NoAddressSpace {
        /// The file.
        path: PathBuf,
    },
}

/// An open page map. It keeps naming the same address space when the pid is
/// used again.
#[derive(Debug)]
pub struct Pagemap {
    file: OwnedFd,
}

impl Pagemap {
    /// Opens `proc_root/PID/pagemap` and proves that an address space is there.
    pub fn open(proc_root: &Path, pid: u32) -> Result<Pagemap, OpenError> {
        let path = proc_root.join(pid.to_string()).join("pagemap");
        let file = match open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            // Newer kernels refuse at once.
            Err(Errno::SRCH) => return Err(OpenError::NoAddressSpace { path }),
            Err(errno) => return Err(OpenError::Open { path, errno }),
        };
        let map = Pagemap { file };
        match map.read(0, &mut [PagemapEntry::default()]) {
            Ok(1) => Ok(map),
            Ok(_) => Err(OpenError::NoAddressSpace { path }),
            Err(errno) => Err(OpenError::Open { path, errno }),
        }
    }

    /// Fills `entries` from virtual page number `vpn` on. Returns how many were
    /// read: fewer at the end of the address space, none once it is gone.
    pub fn read(&self, vpn: u64, entries: &mut [PagemapEntry]) -> Result<usize, Errno> {
        read(&self.file, vpn, entries)
    }
}

/// [`Pagemap::read`] of a page map that the caller opened.
pub fn read(file: impl AsFd, vpn: u64, entries: &mut [PagemapEntry]) -> Result<usize, Errno> {
    let Some(offset) = vpn.checked_mul(8) else {
        return Ok(0);
    };
    // SAFETY: `PagemapEntry` is a transparent u64, which has no padding and
    // no invalid values, and `u8` has no alignment: the same bytes, borrowed
    // for as long as `entries` is.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            entries.as_mut_ptr().cast::<u8>(),
            std::mem::size_of_val(entries),
        )
    };
    let mut done = 0;
    while done < bytes.len() {
        match pread(&file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done / 8)
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_the_kernel_puts_them() {
        let entry = PagemapEntry(1 << 63 | 1 << 61 | 0x1234);
        assert!(entry.present() && entry.file());
        assert!(!entry.swapped() && !entry.exclusive() && !entry.soft_dirty());
        assert_eq!(entry.frame(), Some(0x1234));
        // The kernel shows a guard as something swapped.
        let guarded = PagemapEntry(1 << 62 | 1 << 58);
        assert!(guarded.guard() && !guarded.present() && !entry.guard());
        // A swapped page's low bits are a swap slot, not a frame.
        assert_eq!(PagemapEntry(1 << 62 | 0x1234).frame(), None);
        // Hidden from the reader.
        assert_eq!(PagemapEntry(1 << 63).frame(), None);
    }

    #[test]
    fn entries_are_read_from_the_offset_of_their_page() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        let bytes: Vec<u8> = (0..5u64).flat_map(|n| (n * 10).to_ne_bytes()).collect();
        std::fs::write(root.path().join("7/pagemap"), bytes).unwrap();
        let map = Pagemap::open(root.path(), 7).unwrap();
        let mut entries = [PagemapEntry(99); 4];
        assert_eq!(map.read(3, &mut entries), Ok(2));
        assert_eq!(entries.map(|e| e.0), [30, 40, 99, 99]);
    }

    #[test]
    fn a_file_without_an_address_space_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("2")).unwrap();
        std::fs::write(root.path().join("2/pagemap"), b"").unwrap();
        let error = Pagemap::open(root.path(), 2).unwrap_err();
        assert!(matches!(error, OpenError::NoAddressSpace { .. }));
        let error = Pagemap::open(root.path(), 3).unwrap_err();
        assert!(matches!(
            error,
            OpenError::Open {
                errno: Errno::NOENT,
                ..
            }
        ));
    }

    #[test]
    fn our_own_stack_is_present() {
        let here = 0u64;
        let vpn = std::ptr::from_ref(&here) as u64 / rustix::param::page_size() as u64;
        let map = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let mut entry = [PagemapEntry::default()];
        assert_eq!(map.read(vpn, &mut entry), Ok(1));
        assert!(entry[0].present());
    }
}
