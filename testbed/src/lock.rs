//! One guest at a time on a machine.
//!
//! Software emulation uses every core it is given; two guests at once make each other's timings
//! meaningless (two boots together take 13 s where one takes 5). The lock is an advisory file lock
//! in the system's temporary directory, so it also holds between checkouts and users, and the
//! `flock` tool can take it. The kernel drops it when its holder ends, however it ends.
//!
//! Somebody may wrap a whole script in `flock` and boot guests from it. Waiting would then wait for
//! ourselves, so a lock held by one of our ancestors counts as ours; `/proc/locks` says who holds it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

/// Where the guests' lock lies.
#[must_use]
pub fn guest_lock_path() -> PathBuf {
    std::env::temp_dir().join("memtide-guest.lock")
}

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its drop")] File);

impl Lock {
    /// Waits for the lock on `path`, telling `waiting` once the process that holds it, if known.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub fn take(path: PathBuf, waiting: impl FnOnce(Option<u32>)) -> Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open the lock {}", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
            let holder = flock_holder(&locks, file.metadata()?.ino());
            if holder.is_some_and(is_ancestor) {
                return Ok(Self(file));
            }
            waiting(holder);
            flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(Self(file))
    }
}

/// The process that holds the lock on `inode` in the text of /proc/locks, whose lines read
/// `1: FLOCK ADVISORY WRITE 1396 fe:00:9978145 0 EOF`; those that wait have an arrow.
fn flock_holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else {
            return None;
        };
        let same = file.rsplit(':').next()?.parse() == Ok(inode);
        same.then(|| pid.parse().ok())?
    })
}

/// Whether `pid` is this process's parent, or its parent's parent, and so on.
fn is_ancestor(pid: u32) -> bool {
    let mut at = std::process::id();
    while at > 1 {
        let status = std::fs::read_to_string(format!("/proc/{at}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let Some(parent) = parent.and_then(|parent| parent.trim().parse().ok()) else {
            return false;
        };
        if parent == pid {
            return true;
        }
        at = parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_line_without_an_arrow() {
        let locks = "1: FLOCK  ADVISORY  WRITE 1396 fe:00:77 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 1405 fe:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 9 fe:00:78 0 EOF\n";
        assert_eq!(flock_holder(locks, 77), Some(1396));
        assert_eq!(flock_holder(locks, 78), None);
    }

    #[test]
    fn our_parent_is_an_ancestor_and_we_are_not() {
        assert!(is_ancestor(std::os::unix::process::parent_id()));
        assert!(!is_ancestor(std::process::id()));
    }
}
