//! A copy of one version of a file on one node: memory that belongs to no process.
//!
//! It is a memory file (`memfd_create(2)`), so the kernel frees it with the last process that has
//! it open or mapped, whatever way that process ends. Its layout, in bytes:
//!
//! | from | what |
//! |---|---|
//! | 0 | magic, format, node, the version's words: 8 bytes each |
//! | 128 | a byte for each granule: 1 if its data is whole |
//! | a multiple of 2 MiB | the data, at the file's offsets from here |
//!
//! Each granule has a lock (`range_lock`), which is on its byte. What stays true:
//!
//! 1. A granule is mapped only through a file description that has a read lock on it, taken while its
//!    byte was 1 ([`Copy::hold`]). Nobody gives such a lock up. The kernel does so, when neither a
//!    descriptor nor a mapping of that description is left in any process: not in one that is stopped,
//!    and not in a child that knows nothing of us.
//! 2. A granule is written and taken away only under a write lock, which excludes all of these, and under
//!    the node's lock, which excludes all others who fill or take.
//! 3. Data is written first and its byte last. When a granule is taken away, its byte goes first.
//!
//! So whoever maps a granule reads whole data, and it stays. A process may be killed at any moment:
//! it leaves granules whose byte is 0, with memory or without, that somebody else fills again or empties
//! ([`Copy::take`]). The file's size is sealed: nobody can cut off what is mapped.

use super::version::Version;
use crate::sys::Errno;
use crate::sys::range_lock::{self, Lock};
use memtide_core::units::NodeId;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that are copied at a time: a huge page's, so that a copy may lie on huge pages.
pub(crate) const GRANULE: u64 = 2 << 20;
/// Granules that are mapped through one description, 64 MiB: few enough that they can be mapped anew when
/// one of them leaves, many enough that a process needs few mappings.
pub(crate) const STRETCH: u64 = 32;
/// Where the granules' bytes begin.
const STATES: u64 = 128;
/// "memtidel" in ASCII, and the format of this file's comment.
const MAGIC: u64 = u64::from_le_bytes(*b"memtidel");
const FORMAT: u64 = 2;
const HEADER_WORDS: usize = 10;
/// Its name in `/proc/PID/maps`, behind `/memfd:`.
pub(crate) const NAME: &str = "memtide-local";
/// Bytes that are read and written at a time.
const PART: usize = 256 << 10;

/// Device and inode of the memory file.
pub(crate) type MemoryFile = (u64, u64);

/// A copy that this process has open.
#[derive(Debug)]
pub(crate) struct Copy {
    file: File,
    /// The same, open for reading only.
    readable: File,
    pub version: Version,
    pub node: NodeId,
    pub memory: MemoryFile,
}

/// How many granules a file has.
pub(crate) fn granules(bytes: u64) -> u64 {
    bytes.div_ceil(GRANULE)
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Bytes of a file's granule, in whole pages.
pub(crate) fn granule_bytes(file_bytes: u64, granule: u64) -> u64 {
    let end = file_bytes.next_multiple_of(page());
    end.saturating_sub(granule * GRANULE).min(GRANULE)
}

fn data_at(file_bytes: u64) -> u64 {
    (STATES + granules(file_bytes)).next_multiple_of(GRANULE)
}

fn whole_bytes(file_bytes: u64) -> u64 {
    data_at(file_bytes) + file_bytes.next_multiple_of(page())
}

fn header(version: &Version, node: NodeId) -> [u64; HEADER_WORDS] {
    let mut words = [0; HEADER_WORDS];
    words[..3].copy_from_slice(&[MAGIC, FORMAT, node.0.into()]);
    words[3..].copy_from_slice(&version.words());
    words
}

impl Copy {
    /// An empty one. `bind` gives its memory a node, before any of it is used.
    pub fn make(
        version: Version,
        node: NodeId,
        bind: impl FnOnce(BorrowedFd<'_>, usize) -> Result<(), Errno>,
    ) -> io::Result<Copy> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Before Linux 6.3 this is unknown; later ones may insist on it.
        let never_run = flags | MemfdFlags::NOEXEC_SEAL;
        let made = match rustix::fs::memfd_create(NAME, never_run) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
            made => made,
        };
        let file = File::from(made?);
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let bytes = whole_bytes(version.bytes);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        bind(
            file.as_fd(),
            usize::try_from(bytes).map_err(|_| Errno::FBIG)?,
        )?;
        let words = header(&version, node);
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&words, 0)?;
        Copy::with(file, version, node)
    }

    /// One that another process of this user holds open, at `path` of procfs, if it is what it is
    /// said to be.
    pub fn open(
        path: &Path,
        memory: MemoryFile,
        version: Version,
        node: NodeId,
    ) -> io::Result<Copy> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        // Looked at before it is opened: what has the number by now may be a device.
        if !seen(path).is_ok_and(|seen| seen.is_some_and(|seen| seen.memory == memory)) {
            return Err(ErrorKind::NotFound.into());
        }
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let about = file.metadata()?;
        let owned = about.uid() == rustix::process::geteuid().as_raw();
        let known = (about.dev(), about.ino()) == memory;
        let mut words = [0; HEADER_WORDS * 8];
        file.read_exact_at(&mut words, 0)?;
        let expected = header(&version, node);
        let same = words
            .chunks_exact(8)
            .zip(expected)
            .all(|(bytes, word)| bytes == word.to_ne_bytes());
        if !owned || !known || !same || about.len() != whole_bytes(version.bytes) {
            return Err(ErrorKind::InvalidData.into());
        }
        Copy::with(file, version, node)
    }

    fn with(file: File, version: Version, node: NodeId) -> io::Result<Copy> {
        let about = file.metadata()?;
        let readable = reopened(&file)?;
        Ok(Copy {
            file,
            readable,
            version,
            node,
            memory: (about.dev(), about.ino()),
        })
    }

    /// A description of its own, that only reads: a mapping of it can never be made writable.
    fn again(&self) -> io::Result<File> {
        reopened(&self.file)
    }

    /// Whether a granule's data is whole.
    pub fn holds(&self, granule: u64) -> io::Result<bool> {
        let mut state = [0];
        self.file.read_exact_at(&mut state, STATES + granule)?;
        Ok(state == [1])
    }

    /// The granules of `wanted` that are whole, held as long as the answer or anything that is mapped
    /// through it lives.
    pub fn hold(&self, wanted: &BTreeSet<u64>) -> io::Result<Held> {
        let file = self.again()?;
        let mut granules = BTreeSet::new();
        for run in runs(wanted) {
            match lock(&file, Lock::Read, run.clone())? {
                true => granules.extend(run),
                false => {
                    for granule in run {
                        if lock(&file, Lock::Read, granule..granule + 1)? {
                            granules.insert(granule);
                        }
                    }
                }
            }
        }
        // Not before: until it is held, it may be taken away.
        for granule in granules.clone() {
            if !self.holds(granule)? {
                granules.remove(&granule);
                lock(&file, Lock::None, granule..granule + 1)?;
            }
        }
        Ok(Held { file, granules })
    }

    /// Does `work` while nobody maps a granule and nobody begins to; nothing if somebody does.
    fn alone<T>(
        &self,
        granule: u64,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let own = granule..granule + 1;
        if !lock(&self.file, Lock::Write, own.clone())? {
            return Ok(None);
        }
        let done = work();
        lock(&self.file, Lock::None, own)?;
        done.map(Some)
    }

    /// Takes away a granule that nobody maps, and its memory. How many bytes that were, of memory that it
    /// had. Under the node's lock only.
    pub fn take(&self, granule: u64) -> io::Result<Option<u64>> {
        if !self.holds(granule)? && !self.has_memory(granule)? {
            return Ok(None);
        }
        self.alone(granule, || {
            // First of all: from here on nobody takes it for whole.
            self.file.write_all_at(&[0], STATES + granule)?;
            self.punch(granule)?;
            Ok(granule_bytes(self.version.bytes, granule))
        })
    }

    /// How many granules it has.
    pub fn granules(&self) -> u64 {
        granules(self.version.bytes)
    }

    fn has_memory(&self, granule: u64) -> io::Result<bool> {
        let start = self.at(granule * GRANULE);
        match rustix::fs::seek(&self.file, SeekFrom::Data(start)) {
            Ok(at) => Ok(at < start + granule_bytes(self.version.bytes, granule)),
            // There is no data behind it.
            Err(Errno::NXIO) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Copies a granule from `from`; it is not whole before [`seal`](Self::seal). Under the node's
    /// lock only. [`ErrorKind::WouldBlock`] while somebody asks whether it is whole.
    pub fn fill(&self, granule: u64, from: &File) -> io::Result<()> {
        let done = self.alone(granule, || self.write(granule, from))?;
        done.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    fn write(&self, granule: u64, from: &File) -> io::Result<()> {
        assert!(!self.holds(granule)?, "what is mapped is not written to");
        let end = self.version.bytes.min((granule + 1) * GRANULE);
        let mut at = granule * GRANULE;
        let mut part = vec![0; PART];
        while at < end {
            let bytes = usize::try_from(end - at).unwrap_or(PART).min(PART);
            from.read_exact_at(&mut part[..bytes], at)?;
            self.file
                .write_all_at(&part[..bytes], data_at(self.version.bytes) + at)?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Says that a granule's data is whole.
    pub fn seal(&self, granule: u64) -> io::Result<()> {
        self.file.write_all_at(&[1], STATES + granule)
    }

    /// Gives back the memory of a granule that is not whole. Under the node's lock only.
    pub fn empty(&self, granule: u64) -> io::Result<()> {
        assert!(!self.holds(granule)?, "what is mapped is not taken away");
        self.punch(granule)
    }

    fn punch(&self, granule: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = granule_bytes(self.version.bytes, granule);
        fallocate(&self.file, flags, self.at(granule * GRANULE), bytes)?;
        Ok(())
    }

    /// Where the byte of the file at `offset` is.
    pub fn at(&self, offset: u64) -> u64 {
        data_at(self.version.bytes) + offset
    }

    /// For a look at what nobody else sees yet: what is mapped through it is not held.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// The number by which others find it in procfs.
    pub fn number(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.file)
    }
}

/// Granules that may be mapped through `file`.
#[derive(Debug)]
pub(crate) struct Held {
    pub file: File,
    pub granules: BTreeSet<u64>,
}

fn reopened(file: &File) -> io::Result<File> {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let again = format!("/proc/thread-self/fd/{number}");
    Ok(File::from(rustix::fs::open(again, flags, Mode::empty())?))
}

fn lock(file: &File, lock: Lock, granules: Range<u64>) -> Result<bool, Errno> {
    range_lock::set(
        file.as_fd(),
        lock,
        STATES + granules.start..STATES + granules.end,
    )
}

/// Numbers in a row, joined.
fn runs(granules: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for granule in granules.iter().copied() {
        match runs.last_mut().filter(|run| run.end == granule) {
            Some(run) => run.end += 1,
            None => runs.push(granule..granule + 1),
        }
    }
    runs
}

/// A memory file as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub memory: MemoryFile,
    /// Memory that it takes, in bytes.
    pub bytes: u64,
}

/// What is behind a descriptor in procfs, without opening it; `None` where there is no file.
///
/// # Errors
///
/// Where the kernel does not say, as of a process that does not let itself be looked at.
pub(crate) fn seen(path: &Path) -> io::Result<Option<Seen>> {
    let seen = |about: std::fs::Metadata| Seen {
        memory: (about.dev(), about.ino()),
        bytes: about.blocks() * 512,
    };
    match std::fs::metadata(path) {
        Ok(about) => Ok(about.is_file().then(|| seen(about))),
        Err(error) if has_ended(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says that a process, a thread or a descriptor is no more.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
