//! Which calls change something, and how they are counted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Files to which a write changes something: the kernel's, memtide's own, and configurations.
const PLACES: [&str; 4] = ["/sys", "/proc", "/run/memtide", "/etc"];
/// What an open socket's name begins with.
const SOCKET: &str = "socket:";
/// The longest path, and as much of what is sent is looked at.
const LONGEST: usize = 4096;
/// Of struct sockaddr_un: where the path begins, and what is before it.
const FAMILY: usize = 2;

/// What a call does that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    /// Changes something outside of its process, in words.
    Changes(String),
    /// Sends this.
    Sends(String),
}

/// What the call `number` does; the rest is as for [`change`].
///
/// # Errors
/// What its arguments point to cannot be read.
pub(super) fn does(
    thread: &Path,
    number: libc::c_long,
    arguments: [u64; 6],
) -> io::Result<Option<Does>> {
    let [to, text, length, ..] = arguments;
    let sends = match number {
        libc::SYS_sendto => true,
        libc::SYS_write => path_of(thread, to)?.to_string_lossy().starts_with(SOCKET),
        _ => false,
    };
    if sends {
        let bytes = bytes_at(thread, text, (length as usize).min(LONGEST))?;
        return Ok(Some(Does::Sends(
            String::from_utf8_lossy(&bytes).into_owned(),
        )));
    }
    Ok(change(thread, number, arguments)?.map(Does::Changes))
}

/// What the call `number` of the thread whose folder in /proc is `thread` will change, in words; `None` if
/// nothing outside of its process.
///
/// # Errors
/// What its arguments point to cannot be read.
fn change(thread: &Path, number: libc::c_long, arguments: [u64; 6]) -> io::Result<Option<String>> {
    let [a, b, c, d, ..] = arguments;
    let makes = |flags: u64| flags as i32 & libc::O_CREAT != 0;
    let empties = |flags: u64| flags as i32 & libc::O_TRUNC != 0;
    let here = libc::AT_FDCWD as u64;
    let one = |verb: &str, folder: u64, name: u64| -> io::Result<Option<String>> {
        let path = path_at(thread, folder, name)?;
        Ok(Some(format!("{verb} {}", path.display())))
    };
    // What is there cannot be made, and what is not cannot be removed.
    let only = |verb: &str, folder: u64, name: u64, there: bool| -> io::Result<Option<String>> {
        let path = path_at(thread, folder, name)?;
        let counts = path.symlink_metadata().is_ok() == there;
        Ok(counts.then(|| format!("{verb} {}", path.display())))
    };
    let two = |verb: &str, from: (u64, u64), to: (u64, u64)| -> io::Result<Option<String>> {
        let (from, to) = (
            path_at(thread, from.0, from.1)?,
            path_at(thread, to.0, to.1)?,
        );
        Ok(Some(format!("{verb} {} {}", from.display(), to.display())))
    };
    let held = |verb: &str| -> io::Result<Option<String>> {
        let path = path_of(thread, a)?;
        let counts = PLACES.iter().any(|place| path.starts_with(place));
        Ok(counts.then(|| format!("{verb} {}", path.display())))
    };
    match number {
        libc::SYS_open if empties(b) => one("empty", here, a),
        libc::SYS_openat if empties(c) => one("empty", a, b),
        libc::SYS_open if makes(b) => only("make", here, a, false),
        libc::SYS_openat if makes(c) => only("make", a, b, false),
        libc::SYS_creat => one("empty", here, a),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev => held("write"),
        libc::SYS_ftruncate => held("cut"),
        libc::SYS_fchmod | libc::SYS_fchown => held("give"),
        libc::SYS_truncate => one("cut", here, a),
        libc::SYS_chmod | libc::SYS_chown => one("give", here, a),
        libc::SYS_fchmodat | libc::SYS_fchownat => one("give", a, b),
        libc::SYS_rename => two("rename", (here, a), (here, b)),
        libc::SYS_renameat | libc::SYS_renameat2 => two("rename", (a, b), (c, d)),
        libc::SYS_link => two("link", (here, a), (here, b)),
        libc::SYS_linkat => two("link", (a, b), (c, d)),
        libc::SYS_symlink => one("link", here, b),
        libc::SYS_symlinkat => one("link", b, c),
        libc::SYS_unlink | libc::SYS_rmdir => only("remove", here, a, true),
        libc::SYS_unlinkat => only("remove", a, b, true),
        libc::SYS_mkdir => only("make", here, a, false),
        libc::SYS_mkdirat => only("make", a, b, false),
        libc::SYS_bind => bound(thread, b, c),
        // Of its own threads it may do what it likes.
        libc::SYS_sched_setaffinity => Ok((a != 0 && !thread.join(format!("task/{a}")).exists())
            .then(|| format!("pin thread {a}"))),
        // Without nodes it only asks.
        libc::SYS_move_pages => Ok((d != 0).then(|| format!("move {b} pages of {a}"))),
        libc::SYS_migrate_pages => Ok(Some(format!("move the pages of {a}"))),
        libc::SYS_process_madvise => Ok(Some("advise of another one's memory".to_owned())),
        _ => Ok(None),
    }
}

/// The path that a call has at the address `name`, from the open folder `folder`.
fn path_at(thread: &Path, folder: u64, name: u64) -> io::Result<PathBuf> {
    let bytes = bytes_at(thread, name, LONGEST)?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(name)).to_owned();
    match folder as i32 {
        _ if name.is_absolute() => Ok(name),
        libc::AT_FDCWD => Ok(thread.join("cwd").read_link()?.join(name)),
        _ => Ok(path_of(thread, folder)?.join(name)),
    }
}

/// What an open file is called; of what is no file, something that begins with no slash.
fn path_of(thread: &Path, file: u64) -> io::Result<PathBuf> {
    thread.join(format!("fd/{}", file as u32)).read_link()
}

/// A socket that gets a name.
fn bound(thread: &Path, address: u64, length: u64) -> io::Result<Option<String>> {
    let bytes = bytes_at(thread, address, length as usize)?;
    let (family, name) = bytes.split_at_checked(FAMILY).unwrap_or_default();
    let local = family == (libc::AF_UNIX as u16).to_ne_bytes();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok((local && !name.is_empty()).then(|| format!("listen at {}", String::from_utf8_lossy(name))))
}

/// Memory of the process, `most` bytes or as many as are there.
fn bytes_at(thread: &Path, address: u64, most: usize) -> io::Result<Vec<u8>> {
    let memory = File::open(thread.join("mem"))?;
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match memory.read_at(&mut bytes[filled..], address + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            // A path may end right before the end of what is mapped.
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The steps so far, and which one is due.
#[derive(Debug)]
pub(super) struct Steps {
    wanted: u64,
    /// Which write of a series.
    into: u64,
    counted: u64,
    /// The series that the last step was, and how many writes it has had.
    series: Option<(String, u64)>,
}

impl Steps {
    pub(super) fn new(wanted: u64, into: u64) -> Steps {
        Steps {
            wanted,
            into,
            counted: 0,
            series: None,
        }
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Counts a change; whether the kill comes before it.
    pub(super) fn is_due(&mut self, what: &str) -> bool {
        let series = series_of(what);
        match (&mut self.series, series) {
            (Some((before, writes)), Some(now)) if before == now => *writes += 1,
            (place, now) => {
                self.counted += 1;
                *place = now.map(|now| (now.to_owned(), 1));
            }
        }
        let enough = |(_, writes): &(String, u64)| *writes >= self.into;
        match self.counted.cmp(&self.wanted) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.series.as_ref().is_none_or(enough),
            std::cmp::Ordering::Greater => true,
        }
    }
}

/// The folder of DAMON's regions if what is written is the bound of one.
fn series_of(what: &str) -> Option<&str> {
    let file = what.strip_prefix("write ")?;
    let (folder, rest) = file.split_once("/regions/")?;
    let (number, bound) = rest.split_once('/')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && matches!(bound, "start" | "end")).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(steps: &mut Steps, what: &[&str]) -> Vec<bool> {
        what.iter().map(|what| steps.is_due(what)).collect()
    }

    const CHANGES: [&str; 6] = [
        "make /run/memtide/a",
        "write /sys/0/regions/nr_regions",
        "write /sys/0/regions/0/start",
        "write /sys/0/regions/0/end",
        "write /sys/0/regions/17/start",
        "write /sys/0/state",
    ];

    /// The six are four steps: the bounds of regions are one.
    #[test]
    fn a_series_is_one_step() {
        let mut steps = Steps::new(9, 1);
        assert_eq!(due(&mut steps, &CHANGES), [false; 6]);
        assert_eq!(steps.counted(), 4);
    }

    #[test]
    fn the_kill_comes_into_the_series_or_after_it() {
        let first = |step, into| {
            let mut steps = Steps::new(step, into);
            due(&mut steps, &CHANGES).iter().position(|due| *due)
        };
        assert_eq!(first(1, 1), Some(0));
        assert_eq!(first(2, 5), Some(1), "which is no series");
        assert_eq!(first(3, 1), Some(2));
        assert_eq!(first(3, 3), Some(4));
        assert_eq!(first(3, 4), Some(5), "it has three writes");
        assert_eq!(first(4, 1), Some(5));
        assert_eq!(first(5, 1), None);
    }

    /// Arguments as this very thread would have them.
    #[test]
    fn calls_are_told_by_what_they_change() {
        let thread = Path::new("/proc/thread-self");
        let told = |number, arguments| change(thread, number, arguments).unwrap();
        let name = c"/no/x".as_ptr() as u64;
        let here = libc::AT_FDCWD as u64;
        let make = (libc::O_CREAT | libc::O_WRONLY) as u64;
        let read = [here, name, libc::O_RDONLY as u64, 0, 0, 0];
        assert_eq!(told(libc::SYS_openat, read), None);
        assert_eq!(
            told(libc::SYS_openat, [here, name, make, 0, 0, 0]).unwrap(),
            "make /no/x"
        );
        let lock = [here, c"/proc/self".as_ptr() as u64, make, 0, 0, 0];
        assert_eq!(told(libc::SYS_openat, lock), None, "it is there");
        let relative = c"x".as_ptr() as u64;
        let cwd = std::env::current_dir().unwrap();
        assert_eq!(
            told(libc::SYS_openat, [here, relative, make, 0, 0, 0]).unwrap(),
            format!("make {}", cwd.join("x").display())
        );
        let some = c"/proc/self".as_ptr() as u64;
        assert_eq!(told(libc::SYS_mkdirat, [here, some, 0, 0, 0, 0]), None);
        assert_eq!(told(libc::SYS_unlinkat, [here, name, 0, 0, 0, 0]), None);
        assert_eq!(
            told(libc::SYS_mkdirat, [here, name, 0, 0, 0, 0]).unwrap(),
            "make /no/x"
        );
        assert_eq!(
            told(libc::SYS_unlinkat, [here, some, 0, 0, 0, 0]).unwrap(),
            "remove /proc/self"
        );
        use std::os::fd::AsRawFd;
        let file = |path: &str| File::open(path).unwrap();
        let (status, null) = (file("/proc/self/status"), file("/dev/null"));
        let write = |file: &File| told(libc::SYS_write, [file.as_raw_fd() as u64, 0, 0, 0, 0, 0]);
        assert!(write(&status).unwrap().starts_with("write /proc/"));
        assert_eq!(write(&null), None);
        let address = b"\x01\x00/run/memtide/socket\x00";
        let at = address.as_ptr() as u64;
        assert_eq!(
            told(libc::SYS_bind, [3, at, address.len() as u64, 0, 0, 0]).unwrap(),
            "listen at /run/memtide/socket"
        );
        let sent = does(thread, libc::SYS_sendto, [3, at + 2, 4, 0, 0, 0]).unwrap();
        assert_eq!(sent, Some(Does::Sends("/run".to_owned())));
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let to = socket.as_raw_fd() as u64;
        let written = does(thread, libc::SYS_write, [to, at + 2, 4, 0, 0, 0]).unwrap();
        assert_eq!(written, sent);
        assert_eq!(told(libc::SYS_move_pages, [7, 2, 0, 0, 0, 0]), None);
        assert_eq!(
            told(libc::SYS_move_pages, [7, 2, 0, 1, 0, 0]).unwrap(),
            "move 2 pages of 7"
        );
        assert_eq!(told(libc::SYS_sched_setaffinity, [0; 6]), None);
        assert_eq!(
            told(libc::SYS_sched_setaffinity, [1, 0, 0, 0, 0, 0]).unwrap(),
            "pin thread 1"
        );
    }
}
