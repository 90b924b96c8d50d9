//! A file of procfs that is read every second, and stays open.
//!
//! Opening and closing `/proc/pressure/memory` costs twice as much as reading it (8.5 and 3.6 us), and `/proc/zoneinfo` a twentieth.

use super::{FsError, ParseError, Result, Root, is_absent};
use crate::files::input;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// See the module's essay. Each reading starts at the beginning of the file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    /// The most bytes that are read.
    limit: u64,
    file: Option<File>,
}

/// A reading from the beginning, wherever the file's own position is.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Kept {
    /// The file `relative` to `root`, which is opened when it is first read. More than `limit` bytes are
    /// an error.
    pub fn new(root: &Root, relative: impl AsRef<Path>, limit: u64) -> Kept {
        Kept {
            path: root.path(relative),
            limit,
            file: None,
        }
    }

    /// Where it is, under the root that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and parses it, or `None` if there is no such file.
    pub fn parse<T>(
        &mut self,
        parser: impl FnOnce(&[u8]) -> std::result::Result<T, ParseError>,
    ) -> Result<Option<T>> {
        let whole = match self.file.take().map(|file| self.whole(file)) {
            Some(Ok(bytes)) => Ok(bytes),
            // The file that was kept may be gone, and another one there.
            _ => File::open(&self.path).and_then(|file| self.whole(file)),
        };
        let bytes = match whole {
            Ok(bytes) => bytes,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(cause) => {
                let path = self.path.clone();
                return Err(FsError::Read { path, cause });
            }
        };
        let malformed = |cause| FsError::Malformed {
            path: self.path.clone(),
            cause,
        };
        parser(&bytes).map(Some).map_err(malformed)
    }

    fn whole(&mut self, file: File) -> io::Result<Vec<u8>> {
        let from = FromStart { file: &file, at: 0 };
        let bytes = input::whole(from, Vec::with_capacity(16 << 10), self.limit)?;
        self.file = Some(file);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> std::result::Result<String, ParseError> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn each_reading_is_of_what_the_file_says_then() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(&Root::new(folder.path()), "/proc/some", 9);
        assert!(kept.parse(text).unwrap().is_none());
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let write = |what: &str| std::fs::write(folder.path().join("proc/some"), what).unwrap();
        for said in ["one", "another", ""] {
            write(said);
            assert_eq!(kept.parse(text).unwrap().unwrap(), said);
        }
    }

    #[test]
    fn more_than_the_limit_is_an_error_and_what_comes_later_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some");
        let mut kept = Kept::new(&Root::new(folder.path()), "some", 9);
        std::fs::write(&path, "1234567890").unwrap();
        let error = kept.parse(text).unwrap_err().to_string();
        assert!(error.contains("cannot read: larger than"), "{error}");
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(kept.parse(text).unwrap().unwrap(), "123456789");
    }

    /// In many readings, as a large machine's is.
    #[test]
    fn a_file_of_the_kernel_is_as_whole_as_when_opened() {
        let root = Root::default();
        let zones = |text: String| -> Vec<String> {
            let zones = text.lines().filter(|line| line.starts_with("Node "));
            zones.map(str::to_owned).collect()
        };
        let name = "proc/zoneinfo";
        let opened = root.parse(name, text).unwrap().map(zones).unwrap();
        let file = File::open(root.path(name)).unwrap();
        for piece in [64, 700, 16 << 10] {
            let mut from = FromStart { file: &file, at: 0 };
            let (mut all, mut bytes) = (Vec::new(), vec![0; piece]);
            while let read @ 1.. = from.read(&mut bytes).unwrap() {
                all.extend_from_slice(&bytes[..read]);
            }
            assert_eq!(zones(text(&all).unwrap()), opened, "pieces of {piece}");
        }
        let mut kept = Kept::new(&root, name, 1 << 20);
        for _ in 0..3 {
            assert_eq!(kept.parse(text).unwrap().map(zones).unwrap(), opened);
        }
    }
}
