//! Which class a pod chose: a file that it, or a helper, dropped into a folder.
//!
//! In the folder of the operator's choice a pod has its uid as a name. That is either the
//! file itself, for a helper that writes there; or a folder, as the kubelet makes one for
//! each pod, in which a volume of the kind `emptyDir` with the name `memtide` has the file
//! `class`. Into such a volume only this pod writes, so it speaks for nobody else.
//!
//! The file has the name of a class in one line. Whoever writes it may be hostile: no link
//! is followed on the way, only a regular file is read, opening it waits for nobody, and
//! it has at most [`MOST_BYTES`].

use super::Root;
use memtide_loop::options::{PodUid, check_name};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The longest file.
const MOST_BYTES: u64 = 64;
/// The way from a pod's folder to its file.
const WAY: [&str; 3] = ["volumes", "kubernetes.io~empty-dir", "memtide"];
/// The file at the end of it.
const FILE: &str = "class";

/// The name of the class that the pod of this uid chose in `folder`; `None` if it chose
/// none.
///
/// # Errors
///
/// Why its choice does not count, in a sentence.
pub fn choice(root: &Root, folder: &Path, uid: &PodUid) -> Result<Option<String>, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match open(root.path(folder), flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(format!("the folder cannot be opened: {error}")),
    };
    let Some(mut at) = below(&folder, uid.text())? else {
        return Ok(None);
    };
    if kind(&at)? == FileType::Directory {
        for name in WAY.into_iter().chain([FILE]) {
            let Some(next) = below(&at, name)? else {
                return Ok(None);
            };
            at = next;
        }
    }
    match kind(&at)? {
        FileType::RegularFile => read(at),
        _ => Err("its file is not a regular one".to_owned()),
    }
}

fn below(at: impl AsFd, name: &str) -> Result<Option<OwnedFd>, String> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match openat(at, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(format!("{name} is a link; links are not followed")),
        Err(error) => Err(format!("{name} cannot be opened: {error}")),
    }
}

fn kind(file: &OwnedFd) -> Result<FileType, String> {
    let stat = fstat(file).map_err(|error| format!("its file cannot be looked at: {error}"))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn read(file: OwnedFd) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    let mut file = File::from(file).take(MOST_BYTES + 1);
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| format!("its file cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("its file has more than {MOST_BYTES} bytes"));
    }
    parse(&bytes)
}

/// Parses such a file: the name of a class, or nothing.
pub fn parse(bytes: &[u8]) -> Result<Option<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "its file is no text in UTF-8")?;
    let name = text.trim_matches([' ', '\n']);
    if name.is_empty() {
        return Ok(None);
    }
    match check_name(name) {
        Ok(()) => Ok(Some(name.to_owned())),
        Err(what) => Err(format!("what its file has is {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::unix::fs::symlink;

    const UID: &str = "0f8b5c1e-7f1a";

    struct Pods(tempfile::TempDir);

    impl Pods {
        fn new() -> Pods {
            let pods = Pods(tempfile::tempdir().unwrap());
            std::fs::create_dir_all(pods.path("pods")).unwrap();
            pods
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.0.path().join(path)
        }

        /// The folder of the pod's volume.
        fn volume(&self) -> std::path::PathBuf {
            let path = self.path(&format!("pods/{UID}/{}", WAY.join("/")));
            std::fs::create_dir_all(&path).unwrap();
            path
        }

        fn choice(&self) -> Result<Option<String>, String> {
            let root = Root::new(self.0.path());
            choice(&root, Path::new("/pods"), &UID.parse().unwrap())
        }
    }

    #[test]
    fn a_helper_writes_the_pods_file_or_the_pod_its_volumes() {
        let pods = Pods::new();
        assert_eq!(pods.choice(), Ok(None));
        std::fs::write(pods.path(&format!("pods/{UID}")), "db\n").unwrap();
        assert_eq!(pods.choice(), Ok(Some("db".to_owned())));
        std::fs::remove_file(pods.path(&format!("pods/{UID}"))).unwrap();
        let volume = pods.volume();
        assert_eq!(pods.choice(), Ok(None));
        std::fs::write(volume.join(FILE), " web-1\n").unwrap();
        assert_eq!(pods.choice(), Ok(Some("web-1".to_owned())));
        std::fs::write(volume.join(FILE), "\n").unwrap();
        assert_eq!(pods.choice(), Ok(None));
        std::fs::remove_dir_all(pods.path("pods")).unwrap();
        assert_eq!(pods.choice(), Ok(None));
    }

    #[test]
    fn what_a_pod_drops_is_bounded_and_no_link_is_followed() {
        let pods = Pods::new();
        let file = pods.volume().join(FILE);
        std::fs::write(pods.path("secret"), "db\n").unwrap();
        symlink(pods.path("secret"), &file).unwrap();
        assert!(pods.choice().unwrap_err().contains("is a link"));
        std::fs::remove_file(&file).unwrap();
        // Opening a pipe would wait for who writes, and a device may do anything.
        mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(pods.choice().unwrap_err().contains("not a regular one"));
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(pods.choice().unwrap_err().contains("not a regular one"));
        std::fs::remove_dir(&file).unwrap();
        for (text, says) in [
            (vec![b'a'; 65], "more than 64 bytes"),
            (vec![b'a'; 40], "no name of a class"),
            (b"db\nweb\n".to_vec(), "no name of a class"),
            (b"../db".to_vec(), "no name of a class"),
            (b"db\0".to_vec(), "no name of a class"),
            (vec![0xff], "no text in UTF-8"),
        ] {
            std::fs::write(&file, &text).unwrap();
            let why = pods.choice().unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        // A link on the way is none, either.
        let empty_dirs = file.parent().unwrap().parent().unwrap().to_owned();
        std::fs::rename(&empty_dirs, pods.path("elsewhere")).unwrap();
        std::fs::write(pods.path("elsewhere/memtide/class"), "db").unwrap();
        symlink(pods.path("elsewhere"), &empty_dirs).unwrap();
        assert!(pods.choice().unwrap_err().contains("is a link"));
    }
}
