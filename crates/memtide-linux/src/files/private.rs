//! A folder that is ours alone.
//!
//! What memtide believes after a crash it reads from here, and acts on it as
//! root. So the folder belongs to us and nobody else may write to it, or nothing
//! in it is believed. We make it with mode 0700; one that others may look into, as
//! an earlier version made it, gets that mode before anything is put there. Its
//! files are regular, ours and of mode 0600; no link is followed; and a file is
//! replaced whole: written beside, synced, renamed.
//!
//! The locks are here too: nobody else can open them, so nobody else can hold
//! them. To hold a lock it is enough to read the file. So a file of ours that
//! others may read, as an earlier version made it, is closed to them before
//! anything else. It is not made again: a living memtide may hold it.

use super::step;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Why a folder or a file in it is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Others could have put something there.
    #[error("{}: {why}; memtide uses it only if nobody else can change it: remove it", path.display())]
    Refused {
        /// The folder or the file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// The kernel's error.
    #[error("{}: cannot {doing}: {cause}{}", path.display(), hint(cause))]
    Io {
        /// The folder or the file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        cause: io::Error,
    },
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        _ => "",
    }
}

impl FolderError {
    /// The kernel's errno, if this came from the kernel.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            FolderError::Io { cause, .. } => Errno::from_io_error(cause),
            FolderError::Refused { .. } => None,
        }
    }

    /// Whether it takes more rights.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(Errno::ACCESS | Errno::PERM))
    }
}

/// A folder that belongs to this process's user, and to which nobody else may write.
#[derive(Debug)]
pub struct Private {
    fd: OwnedFd,
    path: PathBuf,
}

/// A lock of a [`Private`] folder, held until it is dropped.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was just forked has the file open,
        // too, until it executes its program.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Private {
    /// The folder, if it is there. Changes nothing.
    ///
    /// # Errors
    ///
    /// It is a link, somebody else's, or others may write to it.
    pub fn open(path: &Path) -> Result<Option<Private>, FolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            // Of a link the kernel says the one or the other.
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(refused(path, "not a folder")),
            Err(errno) => return Err(failed(path, "open", errno)),
        };
        let stat = fs::fstat(&fd).map_err(|errno| failed(path, "open", errno))?;
        if stat.st_uid == 0 && !geteuid().is_root() {
            // Root's: what is in it is nobody else's business.
            return Err(failed(path, "open", Errno::ACCESS));
        }
        only_ours(path, &stat)?;
        Ok(Some(Private {
            fd,
            path: path.to_owned(),
        }))
    }

    /// The folder, made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and where it cannot be made.
    pub fn make(path: &Path) -> Result<Private, FolderError> {
        let io = |cause| FolderError::Io {
            path: path.to_owned(),
            doing: "make",
            cause,
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        step("make the folder").map_err(io)?;
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(path, "make", errno)),
        }
        let Some(folder) = Private::open(path)? else {
            return Err(failed(path, "open", Errno::NOENT));
        };
        // One of an earlier version lets others look in.
        fs::fchmod(&folder.fd, Mode::RWXU).map_err(|errno| failed(path, "make", errno))?;
        Ok(folder)
    }

    /// The file's bytes, or `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// It is no regular file of ours, others may write to it, it cannot be
    /// closed to those who may read it, or it has more than `limit` bytes.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, FolderError> {
        let Some(file) = self.existing(name, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read =
            step("read the note").and_then(|()| file.take(limit + 1).read_to_end(&mut bytes));
        read.map_err(|cause| self.io(name, "read", cause))?;
        match bytes.len() as u64 > limit {
            true => Err(refused(&self.path.join(name), "too large")),
            false => Ok(Some(bytes)),
        }
    }

    /// Makes the file hold `bytes`, all of them; otherwise it stays as it is.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let new = format!("{name}.new");
        // Of a memtide that was killed while it wrote.
        self.unlink(&new)?;
        let written = self.write_new(&new, bytes).and_then(|()| {
            step("rename the note")?;
            Ok(fs::renameat(&self.fd, &new, &self.fd, name)?)
        });
        written.map_err(|cause| {
            let _ = self.unlink(&new);
            self.io(name, "write", cause)
        })?;
        self.sync()
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        step("create the note")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        let mut file: File = fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?.into();
        step("write the note")?;
        file.write_all(bytes)?;
        step("sync the note")?;
        file.sync_all()
    }

    /// Removes the file, if it is there.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        self.unlink(name)?;
        self.sync()
    }

    /// The lock of this name, until it is dropped; `None` if another process
    /// holds it.
    ///
    /// # Errors
    ///
    /// The file is not ours, or the kernel's.
    pub fn lock(&self, name: &str) -> Result<Option<Lock>, FolderError> {
        let create = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let flags = flags | OFlags::NONBLOCK;
            fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
        };
        let file = create().map_err(|errno| self.failed(name, "open", errno))?;
        self.check(name, &file)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed(name, "lock", errno)),
        }
    }

    /// Whether a process holds the lock of this name.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn is_locked(&self, name: &str) -> Result<bool, FolderError> {
        let Some(file) = self.existing(name, OFlags::RDONLY)? else {
            return Ok(false);
        };
        match fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                drop(Lock(file.into()));
                Ok(false)
            }
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(self.failed(name, "lock", errno)),
        }
    }

    fn existing(&self, name: &str, flags: OFlags) -> Result<Option<File>, FolderError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(refused(&self.path.join(name), "a link")),
            Err(errno) => return Err(self.failed(name, "open", errno)),
        };
        self.check(name, &file)?;
        Ok(Some(file.into()))
    }

    /// Refuses what is not ours alone, and closes it to others if they may only
    /// read it.
    fn check(&self, name: &str, file: &OwnedFd) -> Result<(), FolderError> {
        let stat = fs::fstat(file).map_err(|errno| self.failed(name, "open", errno))?;
        let path = self.path.join(name);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(&path, "not a regular file"));
        }
        only_ours(&path, &stat)?;
        if stat.st_mode & 0o7177 == 0 {
            return Ok(());
        }
        // Its other name is somewhere else, where its mode is not ours to choose.
        if stat.st_nlink > 1 {
            return Err(refused(&path, "it has another name, too"));
        }
        let close = || -> io::Result<()> {
            step("close the file to others")?;
            Ok(fs::fchmod(file, Mode::RUSR | Mode::WUSR)?)
        };
        close().map_err(|cause| self.io(name, "close to others", cause))
    }

    fn unlink(&self, name: &str) -> Result<(), FolderError> {
        let unlink = || -> io::Result<()> {
            step("remove the note")?;
            match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        };
        unlink().map_err(|cause| self.io(name, "remove", cause))
    }

    /// Has the names reach the disk, if there is one.
    fn sync(&self) -> Result<(), FolderError> {
        let sync = || -> io::Result<()> {
            step("sync the folder")?;
            match fs::fsync(&self.fd) {
                // A file system that cannot has nothing to sync.
                Ok(()) | Err(Errno::INVAL) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        };
        sync().map_err(|cause| FolderError::Io {
            path: self.path.clone(),
            doing: "sync",
            cause,
        })
    }

    fn io(&self, name: &str, doing: &'static str, cause: io::Error) -> FolderError {
        FolderError::Io {
            path: self.path.join(name),
            doing,
            cause,
        }
    }

    fn failed(&self, name: &str, doing: &'static str, errno: Errno) -> FolderError {
        failed(&self.path.join(name), doing, errno)
    }
}

fn only_ours(path: &Path, stat: &Stat) -> Result<(), FolderError> {
    if stat.st_uid != geteuid().as_raw() {
        return Err(refused(path, "belongs to another user"));
    }
    match stat.st_mode & 0o022 {
        0 => Ok(()),
        _ => Err(refused(path, "others may write to it")),
    }
}

fn refused(path: &Path, why: &'static str) -> FolderError {
    FolderError::Refused {
        path: path.to_owned(),
        why,
    }
}

fn failed(path: &Path, doing: &'static str, errno: Errno) -> FolderError {
    FolderError::Io {
        path: path.to_owned(),
        doing,
        cause: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{self, Fault};
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    fn says<T: std::fmt::Debug>(result: Result<T, FolderError>, what: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }

    #[test]
    fn the_folder_and_its_files_are_ours_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/memtide");
        assert!(Private::open(&path).unwrap().is_none());
        let folder = Private::make(&path).unwrap();
        folder.replace("a", b"1").unwrap();
        let _lock = folder.lock("l").unwrap().unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("a")), 0o600);
        assert_eq!(mode(&path.join("l")), 0o600);
        assert_eq!(folder.read("a", 1).unwrap().unwrap(), b"1");
        assert!(folder.is_locked("l").unwrap());
        assert!(folder.lock("l").unwrap().is_none());
        // One that others may look into, as earlier versions made it.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Private::make(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    /// As a child has it between `fork` and `execve`.
    #[test]
    fn a_lock_ends_though_a_child_has_its_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Private::make(&dir.path().join("memtide")).unwrap();
        let lock = folder.lock("l").unwrap().unwrap();
        let _childs = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(!folder.is_locked("l").unwrap());
        assert!(folder.lock("l").unwrap().is_some());
    }

    #[test]
    fn what_others_could_have_put_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memtide");
        std::fs::create_dir(dir.path().join("theirs")).unwrap();
        symlink("theirs", &path).unwrap();
        says(Private::open(&path), "not a folder");
        says(Private::make(&path), "not a folder");
        std::fs::remove_file(&path).unwrap();
        let folder = Private::make(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o770)).unwrap();
        says(Private::open(&path), "others may write");
        says(Private::make(&path), "others may write");
        assert_eq!(mode(&path), 0o770, "not taken over");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();

        std::fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("../secret", path.join("note")).unwrap();
        says(folder.read("note", 9), "a link");
        assert!(folder.lock("note").is_err() && folder.is_locked("note").is_err());
        folder.replace("note", b"ours").unwrap();
        assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"s");
        assert_eq!(folder.read("note", 9).unwrap().unwrap(), b"ours");

        let flags = libc::S_IFIFO | 0o600;
        let fifo = FileType::from_raw_mode(flags);
        rustix::fs::mknodat(&folder.fd, "fifo", fifo, Mode::RUSR, 0).unwrap();
        says(folder.read("fifo", 9), "not a regular file");
        folder.replace("big", &[0; 10]).unwrap();
        says(folder.read("big", 9), "too large");
    }

    #[test]
    fn files_that_others_may_read_are_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memtide");
        let folder = Private::make(&path).unwrap();
        let make = |name: &str, bits| {
            std::fs::write(path.join(name), "1").unwrap();
            std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(bits)).unwrap();
        };
        for bits in [0o644, 0o640, 0o604, 0o700] {
            make("note", bits);
            assert_eq!(folder.read("note", 1).unwrap().unwrap(), b"1");
            make("asked", bits);
            assert!(!folder.is_locked("asked").unwrap());
            make("lock", bits);
            let held = folder.lock("lock").unwrap().unwrap();
            for name in ["note", "asked", "lock"] {
                assert_eq!(mode(&path.join(name)), 0o600, "{name}, {bits:o}");
            }
            drop(held);
            // One that a living memtide of an earlier version holds is still held.
            let held = folder.lock("lock").unwrap();
            make("lock", bits);
            assert!(folder.is_locked("lock").unwrap());
            make("lock", bits);
            assert!(folder.lock("lock").unwrap().is_none());
            assert_eq!(mode(&path.join("lock")), 0o600, "{bits:o}");
            drop(held);
        }
        make("note", 0o644);
        let fault = Fault::Fail(libc::EROFS);
        let read = faults::with(0, fault, || folder.read("note", 1));
        says(read, "note: cannot close to others");
        // Of two names the other may be anybody's.
        std::fs::hard_link(path.join("note"), dir.path().join("other")).unwrap();
        says(folder.read("note", 1), "it has another name, too");
        says(folder.lock("note"), "it has another name, too");
        assert_eq!(mode(&dir.path().join("other")), 0o644);
        for bits in [0o620, 0o602, 0o666] {
            make("lock", bits);
            says(folder.lock("lock"), "others may write");
            says(folder.is_locked("lock"), "others may write");
            assert_eq!(mode(&path.join("lock")), bits, "not taken over");
        }
    }

    /// Killed while it replaces the file, and the next one, too: the file holds
    /// something whole, and what is beside it goes.
    #[test]
    fn whenever_the_next_one_is_killed_too_the_file_is_whole() {
        let make = |dir: &tempfile::TempDir| Private::make(&dir.path().join("memtide"));
        let replace = |dir: &_, bytes| drop(make(dir).and_then(|it| it.replace("a", bytes)));
        let pairs = faults::mended(
            || {
                let dir = faults::folder();
                replace(&dir, b"old");
                dir
            },
            |dir| replace(dir, b"one"),
            |dir| replace(dir, b"two"),
            |dir, at| {
                let folder = make(dir).unwrap();
                let now = folder.read("a", 9).unwrap().unwrap();
                assert!([&b"old"[..], b"one", b"two"].contains(&&now[..]), "{at}");
                folder.replace("a", b"next").unwrap();
                assert_eq!(folder.read("a", 9).unwrap().unwrap(), b"next", "{at}");
                let names = std::fs::read_dir(dir.path().join("memtide")).unwrap();
                assert_eq!(names.count(), 1, "{at}");
            },
        );
        assert!(pairs > 6 * 6, "only {pairs}");
    }

    /// Whatever fails, the file reads as before or as it should after.
    #[test]
    fn the_nth_failure_leaves_the_old_or_the_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memtide");
        let folder = Private::make(&path).unwrap();
        folder.replace("a", b"old").unwrap();
        let (_, trail) = faults::trail(|| folder.replace("a", b"old").unwrap());
        assert!(trail.len() >= 6, "{trail:?}");
        for nth in 0..trail.len() {
            for fault in [Fault::Fail(libc::ENOSPC), Fault::Die] {
                folder.replace("a", b"old").unwrap();
                let done = faults::with(nth, fault, || folder.replace("a", b"new"));
                let now = folder.read("a", 9).unwrap().unwrap();
                // Only after the rename is the name synced.
                let renamed = trail[..nth].iter().any(|what| what == "rename the note");
                let wanted: &[u8] = if renamed { b"new" } else { b"old" };
                assert_eq!(now, wanted, "{nth}: {}", trail[nth]);
                assert!(done.is_err(), "{nth}: {}", trail[nth]);
                folder.replace("a", b"next").unwrap();
                assert_eq!(folder.read("a", 9).unwrap().unwrap(), b"next");
                let names = std::fs::read_dir(&path).unwrap().count();
                assert_eq!(names, 1, "{nth}: {}", trail[nth]);
            }
        }
    }
}
