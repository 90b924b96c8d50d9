//! Reading and writing the files through which DAMON is told what to do.
//!
//! A trait, so that the configurator can be tried against a kernel made of a
//! map, which also refuses the nth write. Every error names the file and, if
//! it was a write, what was to be written: sysfs answers nearly all mistakes
//! with the same "invalid argument".

use crate::files::step;
use rustix::fs::{Mode, OFlags, open, openat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A file could not be read, written or understood.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Writing failed.
    #[error("{}: writing {value:?}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why not.
        source: io::Error,
    },
    /// The file says something unexpected.
    #[error("{}: {value:?} is not {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it says.
        value: String,
        /// What it should say.
        expected: &'static str,
    },
}

impl KnobError {
    /// The kernel's errno, if this came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            KnobError::Read { source, .. } | KnobError::Write { source, .. } => {
                source.raw_os_error()
            }
            KnobError::Malformed { .. } => None,
        }
    }
}

/// A tree of settings. Paths are relative to the tree's root.
pub trait Knobs {
    /// A file's text without the line's end.
    ///
    /// # Errors
    ///
    /// [`KnobError::Read`].
    fn read(&self, path: &str) -> Result<String, KnobError>;

    /// Writes one value.
    ///
    /// # Errors
    ///
    /// [`KnobError::Write`].
    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError>;

    /// Writes many values below one folder.
    ///
    /// # Errors
    ///
    /// The first [`KnobError::Write`].
    fn write_each(
        &mut self,
        folder: &str,
        values: &mut dyn FnMut(&mut String, &mut String) -> bool,
    ) -> Result<(), KnobError> {
        let (mut name, mut value) = (String::new(), String::new());
        while values(&mut name, &mut value) {
            self.write(&format!("{folder}/{name}"), &value)?;
            name.clear();
            value.clear();
        }
        Ok(())
    }

    /// Whether the file is there.
    fn exists(&self, path: &str) -> bool;

    /// The path as an error should show it.
    fn shown(&self, path: &str) -> PathBuf;

    /// A file that holds a number.
    ///
    /// # Errors
    ///
    /// It cannot be read or is no number.
    fn read_number(&self, path: &str) -> Result<u64, KnobError> {
        let value = self.read(path)?;
        value.parse().map_err(|_| KnobError::Malformed {
            path: self.shown(path),
            value,
            expected: "a number",
        })
    }
}

/// The tree of a running kernel, or a copy of it.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// The tree under `root`.
    pub fn new(root: &Path) -> Sysfs {
        Sysfs {
            root: root.to_owned(),
        }
    }
}

/// How often and how far apart a busy interface is tried again.
const BUSY_TRIES: u32 = 5;
const BUSY_WAIT: std::time::Duration = std::time::Duration::from_millis(10);

/// Repeats what the kernel refuses with `EBUSY`: its interface has one lock,
/// which a kdamond that starts or ends holds for a moment.
fn while_busy<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(BUSY_WAIT);
            }
            result => return result,
        }
    }
    call()
}

impl Knobs for Sysfs {
    fn read(&self, path: &str) -> Result<String, KnobError> {
        let path = self.shown(path);
        match while_busy(|| std::fs::read_to_string(&path)) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(source) => Err(KnobError::Read { path, source }),
        }
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), KnobError> {
        let path = self.shown(path);
        let write = || {
            open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(io::Error::from)
                .and_then(|file| write_at_once(&file, value))
        };
        let asked = step(&path.to_string_lossy());
        let written = asked.and_then(|()| while_busy(write));
        written.map_err(|source| KnobError::Write {
            path,
            value: value.to_owned(),
            source,
        })
    }

    // Thousands of files lie below one folder; walking its long path for each
    // would cost more than the writes.
    fn write_each(
        &mut self,
        folder: &str,
        values: &mut dyn FnMut(&mut String, &mut String) -> bool,
    ) -> Result<(), KnobError> {
        let path = self.shown(folder);
        let folder = open(
            &path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| KnobError::Read {
            path: path.clone(),
            source: error.into(),
        })?;
        let (mut name, mut value) = (String::new(), String::new());
        while values(&mut name, &mut value) {
            let open = || {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                Ok(openat(&folder, name.as_str(), flags, Mode::empty())?)
            };
            let written = step(&name).and_then(|()| open());
            let written = written.and_then(|file| write_at_once(&file, &value));
            written.map_err(|source| KnobError::Write {
                path: path.join(&name),
                value: value.clone(),
                source,
            })?;
            name.clear();
            value.clear();
        }
        Ok(())
    }

    fn exists(&self, path: &str) -> bool {
        self.shown(path).exists()
    }

    fn shown(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// sysfs takes a value as one write or not at all.
fn write_at_once(file: &OwnedFd, value: &str) -> io::Result<()> {
    let written = rustix::io::write(file, value.as_bytes())?;
    if written == value.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

#[cfg(test)]
#[path = "knobs_fake.rs"]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_reach_the_files_and_errors_name_them() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..3 {
            std::fs::create_dir(root.path().join(n.to_string())).unwrap();
            std::fs::write(root.path().join(format!("{n}/start")), "").unwrap();
        }
        let mut tree = Sysfs::new(root.path());
        let mut n = 0;
        tree.write_each("", &mut |name, value| {
            use std::fmt::Write;
            write!(name, "{n}/start").unwrap();
            write!(value, "{}", n * 10).unwrap();
            n += 1;
            n <= 3
        })
        .unwrap();
        assert_eq!(tree.read_number("2/start").unwrap(), 20);

        let error = tree.write("absent", "7").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(
            error.to_string().contains("absent: writing \"7\""),
            "{error}"
        );
        tree.write("1/start", "x7").unwrap();
        assert!(
            tree.read_number("1/start")
                .unwrap_err()
                .to_string()
                .contains("not a number")
        );
    }
}
