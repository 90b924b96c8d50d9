//! What the pager asks of the kernel, as one table of operations, so that tests
//! can make the nth of them fail.

use crate::order::ReadOrder;
pub(crate) use crate::range::Range;
use crate::sys::kept::Kept;
use crate::sys::known_file::{KnownFile, text_of};
use crate::sys::vma::Vma;
use crate::sys::{self, Errno};
use memtide_linux::fs::proc::maps;
use memtide_linux::sys::pagemap::{self, PagemapEntry};
use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;
use std::fmt::Debug;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Pages that a read brings into the page cache leave it again with the read
/// (Linux 6.14 and later, by file system). No crate names it yet.
const RWF_DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// What says that a file is still the one that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub bytes: u64,
    /// Last write, seconds and nanoseconds.
    pub written: (i64, i64),
    pub device: u64,
    pub inode: u64,
}

/// The operations.
pub(crate) trait Kernel: Send + Sync + Debug {
    /// Unmaps up to 1,024 ranges with one flush; returns the bytes done.
    fn zap(&self, ranges: &[Range]) -> Result<usize, Errno>;
    /// Unmaps one range.
    fn zap_one(&self, range: Range) -> Result<(), Errno>;
    /// Takes unmapped pages of a file out of memory.
    fn drop_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno>;
    /// How many pages of a part of a file are in memory.
    fn count_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, Errno>;
    /// Which pages from an address on are in memory, one byte each.
    fn in_core(&self, address: usize, out: &mut [u8]) -> Result<(), Errno>;
    /// Which pages from an address on are mapped.
    fn mapped(&self, address: usize, out: &mut [PagemapEntry]) -> Result<(), Errno>;
    /// Whether the kernel tells this user what of a file is in memory.
    fn may_see(&self, file: BorrowedFd<'_>) -> bool;
    fn facts(&self, file: BorrowedFd<'_>) -> Result<FileFacts, Errno>;
    /// The mapping that covers an address: `ENOENT` if none does, `ENOTTY` if the
    /// kernel answers no single question (before Linux 6.11).
    fn query(&self, address: usize) -> Result<Vma, Errno>;
    /// Every mapping of the process, by address.
    fn vmas(&self) -> Result<Vec<Vma>, Errno>;
    /// The mapping that covers an address, whatever the kernel; `ENOENT` if none does.
    fn vma(&self, address: usize) -> Result<Vma, Errno> {
        match self.query(address) {
            Err(Errno::NOTTY) => crate::sys::vma::among(&self.vmas()?, address),
            other => other,
        }
    }
    fn read(&self, file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Reads what is kept elsewhere then, so that next to no copy of it stays in the
    /// page cache: it would be memory beyond the budget.
    fn read_once(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        self.read(file, buffer, offset)
    }
    /// Reads through this description bring in what they ask for and no more: what
    /// the kernel reads ahead would be memory beyond the budget.
    fn read_exactly(&self, file: BorrowedFd<'_>) {
        // Without it the bytes are right all the same.
        let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
    }
    /// Starts reading a part of a file into memory.
    fn read_ahead(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno>;
    /// Says in which order a range is read.
    fn advise(&self, range: Range, order: ReadOrder) -> Result<(), Errno>;
    /// Has the kernel make no huge page of a range's pages (khugepaged): it would read in 2 MiB of the file
    /// for a single page, outside of any budget.
    fn keep_small(&self, range: Range) {
        sys::advice::keep_small(range);
    }
    /// Bytes that the process had read from devices so far, by whatever call or fault; nothing where the
    /// kernel does not count them.
    fn read_bytes(&self) -> Option<u64>;
    /// How much the kernel reads around a fault in a file of this device, in bytes, if
    /// that can be known.
    fn read_around(&self, device: u64) -> Option<u64>;
    /// Puts whole pages into a registered range; see [`sys::userfault::fill`].
    fn fill(&self, faults: BorrowedFd<'_>, to: usize, from: &[u8]) -> (usize, Option<Errno>);
}

/// The running kernel.
///
/// What it holds open has high numbers: to open it for each question would take a low
/// one for a moment, in the middle of a program that reckons with it.
#[derive(Debug)]
pub(crate) struct Linux {
    oneself: Kept,
    pagemap: Kept,
    maps: Kept,
    io: Kept,
    /// The kernel does not count what is read, or tells this process no more.
    counts_nothing: AtomicBool,
    /// Reads that leave nothing behind were refused: an older kernel, or a file
    /// system that has none.
    leaves_copies: AtomicBool,
}

impl Linux {
    pub fn new() -> Result<Linux, crate::Error> {
        let linux = Linux {
            oneself: Kept::new(|| sys::zap::oneself().map(KnownFile::new)),
            pagemap: Kept::new(own_pagemap),
            maps: Kept::new(own_maps),
            io: Kept::new(|| KnownFile::open(Path::new("/proc/self/io"))),
            counts_nothing: AtomicBool::new(false),
            leaves_copies: AtomicBool::new(false),
        };
        // Opened here, not in the middle of the program.
        linux.read_bytes();
        linux
            .oneself
            .with(|_| Ok(()))
            .map_err(|errno| crate::Error::Limit {
                what: "a descriptor of the process itself (pidfd_open)",
                errno,
                advice: "raise RLIMIT_NOFILE, or use Linux 5.3 or later",
            })?;
        linux
            .mapped(0, &mut [PagemapEntry::default()])
            .map_err(|errno| crate::Error::File {
                path: "/proc/self/pagemap".into(),
                what: "read",
                errno,
            })?;
        Ok(linux)
    }
}

pub(crate) fn own_maps() -> Result<KnownFile, Errno> {
    own("maps")
}

pub(crate) fn own_pagemap() -> Result<KnownFile, Errno> {
    own("pagemap")
}

/// By the thread's own folder: that of a process whose first thread has ended is empty.
fn own(name: &str) -> Result<KnownFile, Errno> {
    KnownFile::open(&Path::new("/proc/thread-self").join(name))
}

/// What a device, or the disk that a partition is on, reads around a fault, below the
/// root of sysfs.
fn read_around(root: &Path, device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let places = [
        format!("class/bdi/{major}:{minor}/read_ahead_kb"),
        format!("dev/block/{major}:{minor}/../queue/read_ahead_kb"),
    ];
    let read = |place: &String| text_of(&root.join(place));
    let text = places.iter().find_map(read)?;
    text.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// What `/proc/PID/io` says was read from devices.
fn read_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    bytes.trim().parse().ok()
}

/// Every mapping of the process, by address.
pub(crate) fn own_vmas() -> Result<Vec<Vma>, Errno> {
    let bytes = own_maps()?.contents()?;
    let mappings = maps::parse(&bytes).map_err(|_| Errno::IO)?;
    Ok(mappings.iter().map(Vma::from).collect())
}

impl Kernel for Linux {
    fn zap(&self, ranges: &[Range]) -> Result<usize, Errno> {
        self.oneself.with(|oneself| sys::zap::many(oneself, ranges))
    }

    fn zap_one(&self, range: Range) -> Result<(), Errno> {
        sys::zap::one(range)
    }

    fn drop_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
        let bytes = NonZeroU64::new(bytes);
        rustix::fs::fadvise(file, offset, bytes, Advice::DontNeed)
    }

    fn count_cached(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, Errno> {
        sys::cachestat::cached_pages(file, offset, bytes)
    }

    fn in_core(&self, address: usize, out: &mut [u8]) -> Result<(), Errno> {
        sys::incore::in_core(address, out)
    }

    fn mapped(&self, address: usize, out: &mut [PagemapEntry]) -> Result<(), Errno> {
        let first = (address / rustix::param::page_size()) as u64;
        let read = self.pagemap.with(|file| pagemap::read(file, first, out))?;
        match read == out.len() {
            true => Ok(()),
            false => Err(Errno::NOMEM),
        }
    }

    fn query(&self, address: usize) -> Result<Vma, Errno> {
        self.maps.with(|maps| sys::vma::at(&maps, address))
    }

    fn vmas(&self) -> Result<Vec<Vma>, Errno> {
        own_vmas()
    }

    fn may_see(&self, file: BorrowedFd<'_>) -> bool {
        let owner = rustix::fs::fstat(file)
            .is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
        let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        owner || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn facts(&self, file: BorrowedFd<'_>) -> Result<FileFacts, Errno> {
        let stat = rustix::fs::fstat(file)?;
        Ok(FileFacts {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            written: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn read(&self, file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        rustix::io::pread(file, buffer, offset)
    }

    fn read_once(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        if !self.leaves_copies.load(Relaxed) {
            let whole = &mut [IoSliceMut::new(buffer)];
            match rustix::io::preadv2(file, whole, offset, RWF_DONTCACHE) {
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    self.leaves_copies.store(true, Relaxed);
                }
                other => return other,
            }
        }
        let read = self.read(file, buffer, offset)?;
        // Without it the bytes are right all the same.
        let _ = self.drop_cached(file, offset, read as u64);
        Ok(read)
    }

    fn read_ahead(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
        let bytes = NonZeroU64::new(bytes);
        rustix::fs::fadvise(file, offset, bytes, Advice::WillNeed)
    }

    fn advise(&self, range: Range, order: ReadOrder) -> Result<(), Errno> {
        sys::advice::order(range, order)
    }

    fn read_bytes(&self) -> Option<u64> {
        if self.counts_nothing.load(Relaxed) {
            return None;
        }
        let mut text = [0; 512];
        let read = self.io.with(|file| rustix::io::pread(file, &mut text, 0));
        let text = read
            .ok()
            .and_then(|read| std::str::from_utf8(&text[..read]).ok());
        let bytes = text.and_then(read_bytes);
        self.counts_nothing.store(bytes.is_none(), Relaxed);
        bytes
    }

    fn read_around(&self, device: u64) -> Option<u64> {
        read_around(Path::new("/sys"), device)
    }

    fn fill(&self, faults: BorrowedFd<'_>, to: usize, from: &[u8]) -> (usize, Option<Errno>) {
        sys::userfault::fill(faults, to, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_were_read_is_found_among_the_rest() {
        let text = "rchar: 3\nwchar: 0\nsyscr: 1\nsyscw: 0\nread_bytes: 8192\nwrite_bytes: 4096\n";
        assert_eq!(read_bytes(text), Some(8192));
        assert_eq!(read_bytes("rchar: 3\n"), None);
        // This kernel's, if it counts.
        let linux = Linux::new().unwrap();
        let before = linux.read_bytes();
        assert!(linux.read_bytes() >= before);
    }

    #[test]
    fn a_partition_reads_around_as_its_disk_does() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let write = |path: std::path::PathBuf, text| {
            std::fs::write(path.join("read_ahead_kb"), text).unwrap();
        };
        let device = |major, minor| rustix::fs::makedev(major, minor);
        write(folder("class/bdi/8:0"), "128\n");
        write(folder("devices/sda/queue"), "4096\n");
        folder("devices/sda/sda1");
        let link = folder("dev/block").join("8:1");
        std::os::unix::fs::symlink("../../devices/sda/sda1", link).unwrap();
        assert_eq!(read_around(root.path(), device(8, 0)), Some(128 << 10));
        assert_eq!(read_around(root.path(), device(8, 1)), Some(4 << 20));
        assert_eq!(read_around(root.path(), device(0, 40)), None);
    }
}
