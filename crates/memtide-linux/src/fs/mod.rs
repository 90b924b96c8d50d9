//! Readers of procfs, sysfs and cgroupfs.
//!
//! Problem: what memtide knows about a machine comes from some twenty small
//! text files whose formats differ from kernel to kernel, and most of the
//! machines that matter (three tiers, HBM, holes in the node numbers) are
//! not at hand when the code is written.
//!
//! Approach: each format has a *parser*, a pure function from bytes to a
//! value, and a *reader*, which finds the file under a [`Root`]. The root is
//! `/` in production and a directory of small files in tests, so every
//! machine that was ever seen can be kept as a fixture.
//!
//! Promises that every reader keeps:
//!
//! - A file or a field that is not there is `None`, never zero. Only where a
//!   value is meaningless without the file is its absence an error.
//! - What is there but cannot be understood is an error that names the path,
//!   the line and the item. It is never skipped.
//! - No bytes make a parser panic, and what it allocates is bounded by its
//!   input and by the number of ids that a kernel can have.
//! - Nothing here writes.

pub mod cache;
pub mod cgroup;
pub mod hotplug;
pub mod interrupts;
pub mod kept;
pub mod list;
pub mod meminfo;
pub mod node;
pub mod numa;
mod parse;
pub mod pods;
pub mod pressure;
pub mod proc;
pub mod topology;
pub mod vmstat;
pub mod zoneinfo;

pub use parse::ParseError;

use crate::files::input;
use memtide_core::topology::TopologyError;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of the kernel could not be read or understood.
///
/// A message is one whole line; causes are in it and not chained behind it.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The file or directory is there but the system call failed.
    #[error("{}: cannot read: {cause}", path.display())]
    Read {
        /// The file, under the root that was given.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The content is not what this kernel interface documents.
    #[error("{}:{}", path.display(), cause)]
    Malformed {
        /// The file, under the root that was given.
        path: PathBuf,
        /// The line, the item and what was wrong with it.
        cause: ParseError,
    },
    /// A file that the answer cannot do without is not there.
    #[error("{}: missing: {needed_for}", path.display())]
    Missing {
        /// The file, under the root that was given.
        path: PathBuf,
        /// What it was needed for, and what to do.
        needed_for: &'static str,
    },
    /// The process ended, or its pid now belongs to another process.
    #[error("process {pid} is gone")]
    Gone {
        /// The process id that was asked for.
        pid: u32,
    },
    /// The files are good one by one and contradict each other.
    #[error("{}: {cause}", path.display())]
    Contradiction {
        /// The directory, under the root that was given.
        path: PathBuf,
        /// What cannot be.
        cause: TopologyError,
    },
    /// The path does not name a cgroup of the version 2 hierarchy.
    #[error("{}: not a cgroup: {why}", path.display())]
    NotCgroup {
        /// The path as looked up, under the root that was given.
        path: PathBuf,
        /// What told them apart.
        why: &'static str,
    },
}

impl FsError {
    /// Whether the kernel refused with `errno`.
    pub fn is_errno(&self, errno: Errno) -> bool {
        matches!(self, FsError::Read { cause, .. } if Errno::from_io_error(cause) == Some(errno))
    }
}

/// The result of every reader.
pub type Result<T> = std::result::Result<T, FsError>;

/// The directory under which `proc` and `sys` are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    /// The running machine: `/`.
    fn default() -> Root {
        Root::new("/")
    }
}

impl Root {
    /// Reads under `path` instead of `/`.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// True if this is the running machine and not a copy.
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `relative` is. A leading `/` is taken as this root, so a path
    /// that the kernel printed can be handed in as it is.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        let relative = relative.as_ref();
        self.0.join(relative.strip_prefix("/").unwrap_or(relative))
    }

    /// The file's bytes, or `None` if there is no such file.
    pub fn read(&self, relative: impl AsRef<Path>) -> Result<Option<Vec<u8>>> {
        self.read_within(relative, MOST_BYTES)
    }

    fn read_within(&self, relative: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(relative);
        match read_whole(&path, limit) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(cause) => Err(FsError::Read { path, cause }),
        }
    }

    /// The names in a directory, sorted, or `None` if there is no such
    /// directory. Names that are not UTF-8 are left out: the kernel makes none.
    pub fn names(&self, relative: impl AsRef<Path>) -> Result<Option<Vec<String>>> {
        let path = self.path(relative);
        let fail = |cause| FsError::Read {
            path: path.clone(),
            cause,
        };
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(Some(names))
    }

    /// The names of `most` directories in a directory or of all, links left out, or
    /// `None` if there is no such directory. They are in no order, and may be any bytes.
    pub fn folders(
        &self,
        relative: impl AsRef<Path>,
        most: usize,
    ) -> Result<Option<Vec<OsString>>> {
        let path = self.path(relative);
        let fail = |cause| FsError::Read {
            path: path.clone(),
            cause,
        };
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        let mut names = Vec::new();
        for entry in entries {
            if names.len() == most {
                break;
            }
            let entry = entry.map_err(fail)?;
            // What went meanwhile is none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.push(entry.file_name());
            }
        }
        Ok(Some(names))
    }

    /// Reads `relative` and parses it, or `None` if there is no such file.
    pub fn parse<T>(
        &self,
        relative: impl AsRef<Path>,
        parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
    ) -> Result<Option<T>> {
        self.parse_within(relative, MOST_BYTES, parser)
    }

    /// The same of at most `limit` bytes.
    pub fn parse_within<T>(
        &self,
        relative: impl AsRef<Path>,
        limit: u64,
        parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
    ) -> Result<Option<T>> {
        let relative = relative.as_ref();
        let Some(bytes) = self.read_within(relative, limit)? else {
            return Ok(None);
        };
        match parser(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(FsError::Malformed {
                path: self.path(relative),
                cause,
            }),
        }
    }

    /// A file that holds one unsigned number.
    pub fn number(&self, relative: impl AsRef<Path>) -> Result<Option<u64>> {
        self.parse(relative, parse::only_number)
    }
}

/// Page counts of a million mappings (`smaps`) are a little smaller. A copy of a
/// machine's files may hold anything.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// The kernel says of its files that they are empty, so a reader that trusts the
/// size begins with a few bytes and makes many calls. Most are below 16 KiB.
fn read_whole(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    input::whole(file, Vec::with_capacity(16 << 10), limit)
}

/// What is not there, or goes away while it is read: then sysfs says that there is no
/// such device.
fn is_absent(error: &io::Error) -> bool {
    let absent = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    );
    absent || Errno::from_io_error(error) == Some(Errno::NODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leading_slash_means_the_root() {
        let root = Root::new("/fixture");
        assert_eq!(root.path("/proc/stat"), Path::new("/fixture/proc/stat"));
        assert_eq!(root.path("proc/stat"), Path::new("/fixture/proc/stat"));
        assert!(!root.is_live());
        assert!(Root::default().is_live());
    }

    #[test]
    fn a_file_without_an_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("f")).unwrap();
        let error = Root::new(dir.path()).number("f").unwrap_err().to_string();
        assert!(error.contains("1024 MiB"), "{error}");
    }

    #[test]
    fn absent_is_none_and_a_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("f"), "7\n").unwrap();
        assert_eq!(root.number("absent").unwrap(), None);
        assert_eq!(root.number("f").unwrap(), Some(7));
        assert_eq!(root.number("f/below").unwrap(), None);
        assert_eq!(root.names("absent").unwrap(), None);
        assert_eq!(root.names("/").unwrap().unwrap(), ["d", "f"]);
        let error = root.number("d").unwrap_err().to_string();
        assert!(error.contains("cannot read"), "{error}");
    }

    #[test]
    fn a_malformed_file_is_named_with_line_and_item() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::write(dir.path().join("f"), "seven\n").unwrap();
        let error = root.number("f").unwrap_err().to_string();
        assert!(
            error.ends_with("f:1: value: \"seven\" is not an unsigned number"),
            "{error}"
        );
    }
}
