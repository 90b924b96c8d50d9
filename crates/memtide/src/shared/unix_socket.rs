//! A UNIX socket that has its name only while somebody listens.
//!
//! It is made beside its place and then put there: it is complete before others find it, and a socket that
//! is in the place is given up when the new one is complete, and stays if there is none.

use super::outside;
use anyhow::{Context as _, bail};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// A socket's name until it is complete.
const BESIDE: &str = ".memtide.new";

/// A socket's name in a folder, until it is dropped.
pub struct Bound {
    path: PathBuf,
    /// The device and the number of what has the name.
    file: (u64, u64),
}

impl Bound {
    /// What has just got this name.
    fn of(path: PathBuf) -> Result<Bound, Errno> {
        let about = rustix::fs::lstat(&path)?;
        let file = (about.st_dev, about.st_ino);
        Ok(Bound { path, file })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it still has its name: others may have taken it away.
    pub fn is_there(&self) -> bool {
        rustix::fs::lstat(&self.path).is_ok_and(|about| (about.st_dev, about.st_ino) == self.file)
    }

    /// Lets everybody connect who gets to its folder.
    ///
    /// # Errors
    /// The kernel's; or the name is another one's by now.
    pub fn open_to_all(&self) -> Result<(), Errno> {
        // By its name it might be what somebody has put there a moment ago.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let about = rustix::fs::fstat(&held)?;
        if (about.st_dev, about.st_ino) != self.file {
            return Err(Errno::EXIST);
        }
        let held = format!("/proc/self/fd/{}", held.as_raw_fd());
        rustix::fs::chmod(held, Mode::from_raw_mode(0o666))
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// The kernel's; or another one came at the same time.
    pub fn put(mut self, path: PathBuf) -> anyhow::Result<Bound> {
        std::fs::rename(&self.path, &path).with_context(|| outside::path(&path))?;
        self.path = path;
        if !self.is_there() {
            let path = outside::path(&self.path);
            bail!("{path}: another program began to listen there just now; try again");
        }
        Ok(self)
    }
}

impl Drop for Bound {
    /// A name that is another one's by now stays.
    fn drop(&mut self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket of mode 0600 beside `path`, in a folder in which nobody else may put something in its place. It
/// does not wait for connections.
///
/// # Errors
/// Something is there that is no socket of ours, which `advice` says what to do about; or the kernel's.
pub fn bind(path: &Path, advice: &str) -> anyhow::Result<(UnixListener, Bound)> {
    // It is replaced when the new one is put in its place.
    is_left(path, advice)?;
    let beside = path.with_file_name(BESIDE);
    if is_left(&beside, advice)? {
        std::fs::remove_file(&beside).with_context(|| outside::path(&beside))?;
    }
    let bind = || -> Result<(UnixListener, Bound), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The name gets the mode that the socket has.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&beside)?)?;
        let bound = Bound::of(beside)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((socket.into(), bound))
    };
    bind().with_context(|| format!("cannot listen at {}", outside::path(path)))
}

/// Whether a socket of ours is there.
///
/// # Errors
/// Something else is.
fn is_left(path: &Path, advice: &str) -> anyhow::Result<bool> {
    let about = match rustix::fs::lstat(path) {
        Ok(about) => about,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno).context(outside::path(path)),
    };
    let socket = FileType::from_raw_mode(about.st_mode) == FileType::Socket;
    if !socket || about.st_uid != rustix::process::geteuid().as_raw() {
        bail!("{}: no socket of memtide's; {advice}", outside::path(path));
    }
    Ok(true)
}
