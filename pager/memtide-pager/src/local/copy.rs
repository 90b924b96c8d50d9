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
//! What stays true: data is written first and its byte last, under the node's lock, and a granule
//! whose byte is 1 is never written again. So only whole granules are ever mapped, and a process
//! that is killed while it fills one leaves one that somebody else fills again. The file's size is
//! sealed: nobody can cut off what is mapped.

use super::version::Version;
use crate::sys::Errno;
use memtide_core::units::NodeId;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that are copied at a time: a huge page's, so that a copy may lie on huge pages.
pub(crate) const GRANULE: u64 = 2 << 20;
/// Where the granules' bytes begin.
const STATES: u64 = 128;
/// "memtidel" in ASCII, and the format of this file's comment.
const MAGIC: u64 = u64::from_le_bytes(*b"memtidel");
const FORMAT: u64 = 1;
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
    /// The same, open for reading only: a mapping of it can never be made writable.
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
        let again = format!(
            "/proc/thread-self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        );
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let readable = File::from(rustix::fs::open(again, flags, Mode::empty())?);
        Ok(Copy {
            file,
            readable,
            version,
            node,
            memory: (about.dev(), about.ino()),
        })
    }

    /// Whether a granule's data is whole.
    pub fn holds(&self, granule: u64) -> io::Result<bool> {
        let mut state = [0];
        self.file.read_exact_at(&mut state, STATES + granule)?;
        Ok(state == [1])
    }

    /// Copies a granule from `from`; it is not whole before [`seal`](Self::seal). Under the node's
    /// lock only.
    pub fn fill(&self, granule: u64, from: &File) -> io::Result<()> {
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
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = granule_bytes(self.version.bytes, granule);
        fallocate(&self.file, flags, self.at(granule * GRANULE), bytes)?;
        Ok(())
    }

    /// Where the byte of the file at `offset` is.
    pub fn at(&self, offset: u64) -> u64 {
        data_at(self.version.bytes) + offset
    }

    /// For mapping.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// The number by which others find it in procfs.
    pub fn number(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.file)
    }
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
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn version(bytes: u64) -> Version {
        Version {
            file: (1, 2),
            bytes,
            written: (3, 4),
            changed: (5, 6),
        }
    }

    /// 5 MiB and a byte: three granules, the last of 1 MiB and a page. States from 128 on, so the
    /// data begins at 2 MiB.
    #[test]
    fn the_layout() {
        let bytes = (5 << 20) + 1;
        assert_eq!(granules(bytes), 3);
        assert_eq!(data_at(bytes), 2 << 20);
        assert_eq!(granule_bytes(bytes, 0), 2 << 20);
        assert_eq!(granule_bytes(bytes, 2), (1 << 20) + page());
        assert_eq!(granule_bytes(bytes, 3), 0);
        assert_eq!(whole_bytes(bytes), (7 << 20) + page());
        // 4 TiB have 2 Mi granules: their bytes reach beyond 2 MiB.
        assert_eq!(data_at(4 << 40), 4 << 20);
    }

    fn made(bytes: u64) -> Copy {
        Copy::make(version(bytes), NodeId(1), |_, _| Ok(())).unwrap()
    }

    fn link(copy: &Copy) -> std::path::PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), copy.number()).into()
    }

    #[test]
    fn what_is_filled_is_the_files_and_found_by_another() {
        let bytes = GRANULE + 777;
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        let copy = made(bytes);
        copy.fill(1, &file).unwrap();
        assert!(
            !copy.holds(1).unwrap(),
            "nobody maps it before it is sealed"
        );
        copy.seal(1).unwrap();
        let other = Copy::open(&link(&copy), copy.memory, version(bytes), NodeId(1)).unwrap();
        assert!(other.holds(1).unwrap() && !other.holds(0).unwrap());
        let mut read = vec![0; 777];
        other
            .file
            .read_exact_at(&mut read, other.at(GRANULE))
            .unwrap();
        assert_eq!(read, content[GRANULE as usize..]);
    }

    #[test]
    fn a_copy_of_something_else_is_not_opened() {
        let copy = made(GRANULE);
        let open = |memory, version, node| Copy::open(&link(&copy), memory, version, node).is_ok();
        assert!(open(copy.memory, version(GRANULE), NodeId(1)));
        assert!(!open(copy.memory, version(GRANULE), NodeId(0)));
        assert!(!open(copy.memory, version(GRANULE + 1), NodeId(1)));
        assert!(!open((0, 0), version(GRANULE), NodeId(1)));
        let rewritten = Version {
            changed: (5, 7),
            ..version(GRANULE)
        };
        assert!(!open(copy.memory, rewritten, NodeId(1)));
    }

    #[test]
    fn nobody_can_cut_it_or_write_through_a_mapping() {
        let copy = made(GRANULE);
        assert!(copy.file.set_len(4096).is_err());
        let readable = copy.readable.try_clone().unwrap();
        assert!(readable.write_at(b"x", 0).is_err());
        assert_ne!(readable.as_raw_fd(), copy.number());
    }

    #[test]
    fn an_emptied_granule_takes_no_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(GRANULE).unwrap();
        let copy = made(GRANULE);
        let memory_bytes = |copy| seen(&link(copy)).unwrap().unwrap().bytes;
        let before = memory_bytes(&copy);
        copy.fill(0, &file).unwrap();
        let filled = memory_bytes(&copy);
        assert!(filled >= before + GRANULE, "{before} {filled}");
        copy.empty(0).unwrap();
        assert_eq!(memory_bytes(&copy), before);
    }

    #[test]
    fn what_is_no_more_is_known_from_what_the_kernel_does_not_tell() {
        let place = tempfile::tempdir().unwrap();
        let [gone, round, folder] = ["gone", "round", "."].map(|name| place.path().join(name));
        // A process that has ended, and one of which nobody is told, answer like these.
        std::os::unix::fs::symlink(&round, &round).unwrap();
        assert_eq!(seen(&gone).unwrap(), None);
        assert_eq!(seen(&folder).unwrap(), None, "no file");
        assert!(seen(&round).is_err());
        for (error, ended) in [
            (libc::ENOENT, true),
            (libc::ESRCH, true),
            (libc::EACCES, false),
        ] {
            assert_eq!(has_ended(&io::Error::from_raw_os_error(error)), ended);
        }
    }

    #[test]
    #[should_panic(expected = "what is mapped is not written to")]
    fn a_whole_granule_is_never_written_again() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(GRANULE).unwrap();
        let copy = made(GRANULE);
        copy.seal(0).unwrap();
        let _ = copy.fill(0, &file);
    }
}
