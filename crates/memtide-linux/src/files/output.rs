//! A file that the user asked for, written whole or not at all.
//!
//! It is written under another name beside its place, synced, and renamed over
//! what was there: a reader finds the old content or the new, and a
//! write that fails leaves the old. What is removed after a failure is what was
//! made here, and nothing else.
//!
//! Links. The last part of the name may be a link of the user's own or of
//! root's, and is followed; one of anybody else's is refused, since it may lead
//! to a file that only we may write. The folders before it are the user's word.
//!
//! What is no regular file (`/dev/stdout`, `/dev/null`, a pipe) has no beside:
//! it is written to as it comes, and never removed or replaced. Between the look
//! at it and its opening somebody may put a link or a file in its place, which is
//! neither followed nor written to. Only procfs has links that are followed
//! whatever they lead to: those of what a process has open (`/dev/fd/63`, as a
//! shell writes `>(jq .)`).

use super::step;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// Names beside that may be taken.
const TRIES: u32 = 100;
/// Bytes of the name that are kept in the name beside; 255 are allowed.
const LONGEST_STEM: usize = 200;

/// How what has no beside is opened.
const DIRECT: OFlags = OFlags::WRONLY.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file that is being written. Dropped without [`Output::commit`], it leaves
/// what was there.
#[derive(Debug)]
pub struct Output {
    file: File,
    beside: Option<Beside>,
}

/// A file under another name, to be renamed.
#[derive(Debug)]
struct Beside {
    folder: OwnedFd,
    made: OsString,
    name: OsString,
    /// Whether what is in its place then is replaced.
    replaces: bool,
}

impl Output {
    /// Begins to write the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be made, is a folder, or is a link that is not followed.
    pub fn create(path: &Path) -> io::Result<Output> {
        Output::begin(path, false)
    }

    /// The same of a file that nobody else may read, at no moment: its mode is 0600, whatever
    /// was there.
    ///
    /// # Errors
    ///
    /// As [`Output::create`].
    pub fn create_private(path: &Path) -> io::Result<Output> {
        Output::begin(path, true)
    }

    /// Begins to write a file where there is none: never over what is there, and never
    /// through a link.
    ///
    /// # Errors
    ///
    /// Something is there, whatever it is, or it cannot be made. That something came there
    /// meanwhile is an error of [`Output::commit`].
    pub fn create_new(path: &Path) -> io::Result<Output> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Output::begin_beside(path, None, 0o666, false)
    }

    fn begin(path: &Path, private: bool) -> io::Result<Output> {
        let path = match through_trusted_links(path)? {
            Place::Named(path) => path,
            Place::Open(folder, name) => {
                step("open the output")?;
                // Opened a second time, a file is at its beginning.
                let flags = DIRECT | OFlags::APPEND;
                let file = fs::openat(&folder, &name, flags, Mode::empty())?.into();
                return Ok(Output { file, beside: None });
            }
        };
        let mode = match std::fs::symlink_metadata(&path) {
            Ok(there) if there.is_dir() => return Err(Errno::ISDIR.into()),
            Ok(there) if there.is_file() && private => None,
            Ok(there) if there.is_file() => Some(Mode::from_raw_mode(there.mode() & 0o777)),
            Ok(_) => return Output::direct(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Output::begin_beside(&path, mode, if private { 0o600 } else { 0o666 }, true)
    }

    /// With the mode `new` by the user's mask, or `mode` in spite of it.
    fn begin_beside(
        path: &Path,
        mode: Option<Mode>,
        new: u32,
        replaces: bool,
    ) -> io::Result<Output> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(folder_of(path), flags, Mode::empty())?;
        let (file, made) = make_beside(&folder, &name, Mode::from_raw_mode(new))?;
        let output = Output {
            file,
            beside: Some(Beside {
                folder,
                made,
                name,
                replaces,
            }),
        };
        if let Some(mode) = mode {
            fs::fchmod(&output.file, mode)?;
        }
        Ok(output)
    }

    /// What was seen to be no file. That it is one now, or a link, is somebody's doing.
    fn direct(path: &Path) -> io::Result<Output> {
        step("open the output")?;
        let replaced = || io::Error::other("it was replaced while it was opened; try again");
        let file = match fs::open(path, DIRECT | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(replaced()),
            Err(errno) => return Err(errno.into()),
        };
        match file.metadata()?.is_file() {
            true => Err(replaced()),
            false => Ok(Output { file, beside: None }),
        }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// What was there is there still, and nothing beside it. Only if the
    /// folder could not be synced at the end, the new file is in its place and
    /// may be lost if the power fails.
    pub fn commit(mut self) -> io::Result<()> {
        self.put_in_place()
    }

    /// Puts the file in its place, to be written on there: what follows is to be
    /// read even if the writer is killed.
    ///
    /// # Errors
    ///
    /// As [`Output::commit`].
    pub fn commit_and_go_on(mut self) -> io::Result<Output> {
        self.put_in_place()?;
        Ok(self)
    }

    fn put_in_place(&mut self) -> io::Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        step("sync the output")?;
        self.file.sync_all()?;
        step("rename the output")?;
        beside.rename()?;
        let beside = self.beside.take().expect("seen above");
        step("sync the output's folder")?;
        match fs::fsync(&beside.folder) {
            // A file system that cannot has nothing to sync.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Beside {
    fn rename(&self) -> io::Result<()> {
        let Beside {
            folder, made, name, ..
        } = self;
        if self.replaces {
            return Ok(fs::renameat(folder, made, folder, name)?);
        }
        match fs::renameat_with(folder, made, folder, name, RenameFlags::NOREPLACE) {
            // A file system that cannot: a second name, which is refused if it is taken.
            Err(Errno::INVAL) => {
                fs::linkat(folder, made, folder, name, AtFlags::empty())?;
                Ok(fs::unlinkat(folder, made, AtFlags::empty())?)
            }
            renamed => Ok(renamed?),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        step("write the output")?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(Beside { folder, made, .. }) = &self.beside
            && step("remove the output").is_ok()
        {
            let _ = fs::unlinkat(folder, made, AtFlags::empty());
        }
    }
}

/// Writes a whole file at once.
///
/// # Errors
///
/// As [`Output::create`], [`Output::commit`] and writing.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(bytes)?;
    output.commit()
}

/// A file to whose end is written; made if it is not there, for its user only.
///
/// # Errors
///
/// It cannot be written, or is a link of another user's.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o600);
    let file = match through_trusted_links(path)? {
        Place::Named(path) => fs::open(&path, flags | OFlags::NOFOLLOW, mode)?,
        Place::Open(folder, name) => fs::openat(&folder, &name, flags, mode)?,
    };
    Ok(file.into())
}

fn make_beside(folder: &OwnedFd, name: &OsStr, mode: Mode) -> io::Result<(File, OsString)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC;
    let stem = &name.as_bytes()[..name.len().min(LONGEST_STEM)];
    let own = std::process::id();
    for n in 0..TRIES {
        let mut made = b".".to_vec();
        made.extend(stem);
        made.extend(format!(".{own}.{n}.memtide").bytes());
        let made = OsString::from_vec(made);
        step("create the output")?;
        match fs::openat(folder, &made, flags, mode) {
            Ok(file) => return Ok((file.into(), made)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Where a path leads.
#[derive(Debug)]
enum Place {
    /// To what is there under this name, which was no link when it was looked at.
    Named(PathBuf),
    /// To what a process has open: a folder of procfs, and the link in it.
    Open(OwnedFd, OsString),
}

/// Whether a folder is one of procfs, where nobody but the kernel makes links.
fn is_procfs(folder: &OwnedFd) -> io::Result<bool> {
    Ok(fs::fstatfs(folder)?.f_type == fs::PROC_SUPER_MAGIC)
}

/// A name in its folder, held so that what is looked at is what is read.
struct Entry {
    folder: OwnedFd,
    name: OsString,
    held: OwnedFd,
}

impl Entry {
    /// What is at `path`; `None` if nothing is, or if the path ends in no name.
    fn find(path: &Path) -> io::Result<Option<Entry>> {
        let Some(name) = path.file_name() else {
            return Ok(None);
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entry = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let find = || {
            let folder = fs::open(folder_of(path), folder, Mode::empty())?;
            let held = fs::openat(&folder, name, entry, Mode::empty())?;
            let name = name.to_owned();
            Ok(Entry { folder, name, held })
        };
        match find() {
            Ok(entry) => Ok(Some(entry)),
            // Whether it can be made is seen later.
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where it leads, if it is a link; an error if that is one which is not followed.
    fn link(&self) -> io::Result<Option<PathBuf>> {
        let there = fs::fstat(&self.held)?;
        if FileType::from_raw_mode(there.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        if there.st_uid != 0 && there.st_uid != geteuid().as_raw() {
            return Err(io::Error::other(
                "a link of another user's, which is not followed; name the file itself",
            ));
        }
        let leads_to = fs::readlinkat(&self.held, "", Vec::new())?;
        Ok(Some(OsString::from_vec(leads_to.into_bytes()).into()))
    }
}

/// The folder that a path names, as it can be opened.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Where `path` leads by links that may be followed.
fn through_trusted_links(path: &Path) -> io::Result<Place> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(entry) = Entry::find(&path)? else {
            return Ok(Place::Named(path));
        };
        let Some(leads_to) = entry.link()? else {
            return Ok(Place::Named(path));
        };
        if is_procfs(&entry.folder)? {
            return Ok(Place::Open(entry.folder, entry.name));
        }
        path = folder_of(&path).join(leads_to);
    }
    Err(Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use super::super::faults::{self, Fault};
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_file_is_replaced_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"one").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["a"]);
        let long = dir.path().join("n".repeat(255));
        write(&long, b"long").unwrap();
        assert_eq!(std::fs::read(&long).unwrap(), b"long");
    }

    #[test]
    fn a_private_file_is_ours_alone_whatever_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"one").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let mut output = Output::create_private(&path).unwrap();
        let modes = std::fs::read_dir(dir.path()).unwrap();
        let beside = |entry: &std::fs::DirEntry| entry.file_name() != "a";
        let beside = modes.map(Result::unwrap).find(beside).unwrap();
        assert_eq!(beside.metadata().unwrap().mode() & 0o777, 0o600);
        output.write_all(b"two").unwrap();
        let mut output = output.commit_and_go_on().unwrap();
        output.write_all(b", three").unwrap();
        drop(output);
        assert_eq!(std::fs::read(&path).unwrap(), b"two, three");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_new_file_is_put_over_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a"), dir.path().join("link"));
        symlink("nowhere", &link).unwrap();
        for taken in [&link, dir.path()] {
            let error = Output::create_new(taken).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        let begin = || {
            let mut output = Output::create_new(&path).unwrap();
            output.write_all(b"new").unwrap();
            assert!(!path.exists());
            output
        };
        // Somebody else's came meanwhile.
        let output = begin();
        std::fs::write(&path, "theirs").unwrap();
        let error = output.commit().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(dir.path()), ["a", "link"]);
        std::fs::remove_file(&path).unwrap();
        begin().commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["a", "link"]);
    }

    /// Whatever fails, it is not there or whole.
    #[test]
    fn the_nth_failure_leaves_nothing_or_the_new() {
        let work = |path: &Path| {
            let mut output = Output::create_new(path)?;
            output.write_all(b"new")?;
            output.commit()
        };
        let dir = tempfile::tempdir().unwrap();
        let (_, trail) = faults::trail(|| work(&dir.path().join("a")).unwrap());
        assert!(trail.len() >= 5, "{trail:?}");
        for (nth, what) in trail.iter().enumerate() {
            for fault in [Fault::Fail(libc::ENOSPC), Fault::Die] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("a");
                let done = faults::with(nth, fault, || work(&path));
                assert!(done.is_err(), "{fault:?}: {what}");
                let renamed = trail[..nth].iter().any(|what| what == "rename the output");
                assert_eq!(std::fs::read(&path).is_ok_and(|now| now == b"new"), renamed);
                assert_eq!(path.exists(), renamed, "{fault:?}: {what}");
                let left = names(dir.path()).len() - usize::from(renamed);
                assert!(left == 0 || fault == Fault::Die, "{fault:?}: {what}");
            }
        }
    }

    #[test]
    fn own_links_are_followed_and_what_is_no_file_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        write(&file, b"one").unwrap();
        symlink("file", &link).unwrap();
        write(&link, b"two").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(write(&dir.path().join("loop"), b"x").is_err());
        // By way of a link, a device that takes nothing: it stays, and the link.
        let full = dir.path().join("full");
        symlink("/dev/full", &full).unwrap();
        assert_eq!(
            write(&full, b"x").unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert!(full.is_symlink() && Path::new("/dev/full").exists());
        write(Path::new("/dev/null"), b"x").unwrap();
        let kind = std::fs::symlink_metadata("/dev/null").unwrap();
        assert!(!kind.is_file(), "not replaced");
        assert!(write(dir.path(), b"x").is_err());
        assert_eq!(names(dir.path()), ["file", "full", "link", "loop"]);
    }

    /// As if the pipe or device that was seen there had been replaced since.
    #[test]
    fn what_takes_the_place_of_a_pipe_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "ours").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&link, &file] {
            let error = Output::direct(path).unwrap_err().to_string();
            assert!(error.starts_with("it was replaced while"), "{error}");
        }
        // Even to a device no link is followed that was not looked at.
        std::fs::remove_file(&link).unwrap();
        symlink("/dev/null", &link).unwrap();
        assert!(Output::direct(&link).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"ours");
    }

    /// `/dev/stdout` leads to such a link of the kernel's.
    #[test]
    fn what_is_open_is_written_to_whatever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, own) = (dir.path().join("a"), dir.path().join("own"));
        let file = File::create(&path).unwrap();
        let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        write(Path::new(&open), b"one").unwrap();
        symlink(&open, &own).unwrap();
        append(&own).unwrap().write_all(b", two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one, two");
        assert_eq!(names(dir.path()), ["a", "own"]);
        // A link beyond procfs is one as any other: its file is replaced, not written to.
        let old = std::fs::metadata(&path).unwrap().ino();
        let by_root = Path::new("/proc/self/root").join(dir.path().strip_prefix("/").unwrap());
        symlink("a", dir.path().join("b")).unwrap();
        write(&by_root.join("b"), b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_ne!(std::fs::metadata(&path).unwrap().ino(), old);
    }

    /// A shell gives `>(jq .)` as `/dev/fd/63`, a pipe; its folder is a link, too.
    #[test]
    fn a_pipe_of_a_shell_is_written_to() {
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let (mut reader, writer) = io::pipe().unwrap();
            let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
            write(Path::new(&format!("{folder}/{number}")), b"one").unwrap();
            drop(writer);
            let mut told = String::new();
            io::Read::read_to_string(&mut reader, &mut told).unwrap();
            assert_eq!(told, "one", "{folder}");
        }
    }

    /// As `--json /dev/fd/3 3>>log` has it: what the file had stays.
    #[test]
    fn a_file_that_is_open_is_added_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "what was there\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        write(Path::new(&format!("/dev/fd/{number}")), b"one").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"what was there\none");
    }

    /// An own link and one of another user's change places all the time: what was found to be our own
    /// is what is followed.
    #[test]
    fn the_link_that_was_looked_at_is_the_one_that_is_followed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        if !geteuid().is_root() {
            println!("skipped: only root can make a link of another user's");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (own, other) = (at("own"), at("other"));
        symlink("ours", &own).unwrap();
        symlink("victim", &other).unwrap();
        std::os::unix::fs::lchown(&other, Some(65534), None).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let change = RenameFlags::EXCHANGE;
                    let exchanged = fs::renameat_with(fs::CWD, &own, fs::CWD, &other, change);
                    exchanged.unwrap();
                }
            });
            for _ in 0..20_000 {
                let place = through_trusted_links(&own);
                if let Ok(Place::Named(path)) = place
                    && path != at("ours")
                {
                    done.store(true, Ordering::Relaxed);
                    panic!("{}", path.display());
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_link_of_another_users_is_refused() {
        if !geteuid().is_root() {
            println!("skipped: only root can make a link of another user's");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "ours").unwrap();
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        let error = write(&link, b"x").unwrap_err().to_string();
        assert!(error.contains("another user's"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"ours");
        assert_eq!(names(dir.path()), ["file", "link"]);
    }

    /// Whatever fails, the file has the old content or the new, and a failure
    /// that is not a death leaves nothing beside it.
    #[test]
    fn the_nth_failure_leaves_the_old_or_the_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let work = || {
            let mut output = Output::create(&path)?;
            output.write_all(b"n")?;
            output.write_all(b"ew")?;
            output.commit()
        };
        let (_, trail) = faults::trail(|| work().unwrap());
        assert!(trail.len() >= 6, "{trail:?}");
        for (nth, what) in trail.iter().enumerate() {
            for fault in [Fault::Fail(libc::ENOSPC), Fault::Die] {
                write(&path, b"old").unwrap();
                let done = faults::with(nth, fault, work);
                assert!(done.is_err(), "{fault:?}: {what}");
                let renamed = trail[..nth].iter().any(|what| what == "rename the output");
                let wanted: &[u8] = if renamed { b"new" } else { b"old" };
                assert_eq!(std::fs::read(&path).unwrap(), wanted, "{fault:?}: {what}");
                if fault != Fault::Die {
                    assert_eq!(names(dir.path()), ["a"], "{fault:?}: {what}");
                }
                for left in names(dir.path()).iter().filter(|name| *name != "a") {
                    std::fs::remove_file(dir.path().join(left)).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_is_added_follows_own_links_only() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        symlink(&file, &link).unwrap();
        for line in [b"one\n", b"two\n"] {
            append(&link).unwrap().write_all(line).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"one\ntwo\n");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        append(Path::new("/dev/null")).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(1), None).unwrap();
            let error = append(&link).unwrap_err().to_string();
            assert!(error.contains("another user's"), "{error}");
        }
    }
}
