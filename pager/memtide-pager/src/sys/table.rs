//! A few pages of memory that several processes share, by the name of a file.
//!
//! They lie in a place that is kept for them from the start. To map memory at a later moment, from another thread, would
//! be to take addresses that the program has just unmapped and is about to map again.
//!
//! A lock on a byte of the file lasts as long as the mapping that it was taken for, and ends with the process, in
//! whatever way that ends ([`range_lock`](super::range_lock)). So no descriptor stays open, and a child has
//! neither the mapping nor the lock (but for one that is forked between two system calls).

use super::Errno;
use super::known_file::KnownFile;
use super::range_lock::{Lock, set};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses for so many tables, at which nothing is.
#[derive(Debug)]
pub(crate) struct Places {
    address: usize,
    /// Of one.
    bytes: usize,
    taken: Mutex<Vec<bool>>,
    process: u32,
}

impl Places {
    /// Keeps `number` places of `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// What mapping says.
    pub fn new(number: usize, bytes: usize) -> Result<Arc<Places>, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        let all = number * bytes;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), all, ProtFlags::empty(), flags) }?;
        let places = Places {
            address: start as usize,
            bytes,
            taken: Mutex::new(vec![false; number]),
            process: std::process::id(),
        };
        // SAFETY: advice on our own mapping that changes no content.
        unsafe { rustix::mm::madvise(start, all, Advice::LinuxDontFork) }?;
        Ok(Arc::new(places))
    }

    fn taken(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that nobody has.
    pub fn take(self: &Arc<Places>) -> Option<Place> {
        let mut taken = self.taken();
        let nth = taken.iter().position(|taken| !taken)?;
        taken[nth] = true;
        Some(Place {
            places: self.clone(),
            nth,
        })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // A child may have something else there by now.
        if std::process::id() == self.process {
            let all = self.taken().len() * self.bytes;
            // SAFETY: our own mapping; each place refers to `self`, so nobody has one any more. It can fail only for
            // a wrong range, and this one came from mmap.
            let _ = unsafe { rustix::mm::munmap(self.address as *mut _, all) };
        }
    }
}

/// Addresses for one table. With this value nothing is there any more, and they are another one's to take.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    nth: usize,
}

impl Place {
    fn address(&self) -> usize {
        self.places.address + self.nth * self.places.bytes
    }

    /// Whether this is the process that has it: a child does not.
    fn is_here(&self) -> bool {
        std::process::id() == self.places.process
    }

    /// Shows the file there.
    fn show(&self, file: &KnownFile) -> Result<(), Errno> {
        let (at, bytes) = (self.address() as *mut _, self.places.bytes);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: in the place of our own mapping, to which nobody has a reference.
        unsafe { rustix::mm::mmap(at, bytes, rights, flags, file, 0) }?;
        // A child that is made before this has the mapping, and the lock with it.
        // SAFETY: advice on our own mapping that changes no content.
        unsafe { rustix::mm::madvise(at, bytes, Advice::LinuxDontFork) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let (at, bytes) = (self.address() as *mut _, self.places.bytes);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: in the place of our own mapping, to which nobody has a reference any more.
        let emptied = unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::empty(), flags) };
        // SAFETY: advice on our own mapping that changes no content.
        let apart =
            emptied.and_then(|at| unsafe { rustix::mm::madvise(at, bytes, Advice::LinuxDontFork) });
        // One that could not be emptied is taken for ever.
        if apart.is_ok() {
            self.places.taken()[self.nth] = false;
        }
    }
}

/// It ends with this value, in the process that made it.
#[derive(Debug)]
pub(crate) struct Table {
    place: Place,
    /// Device and inode of the file.
    file: (u64, u64),
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is ours, and so is the mapping: and the lock that it was.
    Ours(Table, u64),
    /// Others have all of them.
    Others,
}

impl Table {
    /// Shows the file at `path`, which `make` makes if it is not there, at `place`, and takes the lock of the first of
    /// `locks` that nobody else has. For a thread of its own: it opens the file for a moment.
    ///
    /// # Errors
    /// What opening, making room, or mapping says; `AGAIN` if somebody removed the name meanwhile.
    pub fn map(place: Place, path: &Path, locks: Range<u64>, make: bool) -> Result<Asked, Errno> {
        let file = open(path, make)?;
        // Memory that is not to be had is an error here, and no signal later.
        let bytes = place.places.bytes as u64;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        for at in locks {
            if !set(file.as_fd(), Lock::Write, at..at + 1)? {
                continue;
            }
            // Whoever removed the name had all locks.
            if !is_named(path, &file) {
                return Err(Errno::AGAIN);
            }
            let stat = rustix::fs::fstat(&file)?;
            place.show(&file)?;
            let table = Table {
                place,
                file: (stat.st_dev, stat.st_ino),
            };
            return Ok(Asked::Ours(table, at));
        }
        Ok(Asked::Others)
    }

    /// Those of `locks` that nobody has. For a thread of its own.
    ///
    /// # Errors
    /// What opening the file or asking says; `AGAIN` where `path` is another file's by now.
    pub fn unlocked(&self, path: &Path, locks: &[u64]) -> Result<Vec<u64>, Errno> {
        let file = open(path, false)?;
        if self.is_of(&file) {
            let mut free = Vec::new();
            for at in locks {
                if set(file.as_fd(), Lock::Write, *at..at + 1)? {
                    free.push(*at);
                }
            }
            return Ok(free);
        }
        Err(Errno::AGAIN)
    }

    fn is_of(&self, file: &KnownFile) -> bool {
        rustix::fs::fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.file)
    }

    /// Whether both are of one file.
    pub fn is_with(&self, other: &Table) -> bool {
        self.file == other.file
    }

    /// Removes the file at `path` if nobody has a lock in one of `locks`. For a thread of its own.
    pub fn remove(path: &Path, locks: &[Range<u64>]) {
        let remove = || {
            let file = open(path, false)?;
            for locks in locks.iter().filter(|locks| !locks.is_empty()) {
                if !set(file.as_fd(), Lock::Write, locks.clone())? {
                    return Ok(());
                }
            }
            match is_named(path, &file) {
                true => rustix::fs::unlink(path),
                false => Ok(()),
            }
        };
        // What stays is a file of a few pages, which the next one uses.
        let _: Result<(), Errno> = remove();
    }

    /// Whether this is the process that has it: a child does not.
    pub fn is_here(&self) -> bool {
        self.place.is_here()
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        let (at, bytes) = (self.place.address(), self.place.places.bytes);
        // SAFETY: our own mapping, readable and writable, at a page's start; it lives as long as `self`. Other
        // processes write to it by atomic operations, too.
        unsafe { std::slice::from_raw_parts(at as *const AtomicU64, bytes / 8) }
    }

    /// One half of a word, to wait for.
    pub fn half(&self, word: usize) -> &AtomicU32 {
        let word = std::ptr::from_ref(&self.words()[word]);
        // SAFETY: inside of the mapping and aligned; nobody uses this word as a whole.
        unsafe { &*word.cast::<AtomicU32>() }
    }
}

fn open(path: &Path, make: bool) -> Result<KnownFile, Errno> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    flags.set(OFlags::CREATE, make);
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(KnownFile::new)
}

fn is_named(path: &Path, file: &KnownFile) -> bool {
    let of = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let named = rustix::fs::stat(path).map(of);
    named.is_ok() && named == rustix::fs::fstat(file).map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn what_one_writes_the_other_reads_and_locks_end_with_their_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let places = Places::new(4, 8192).unwrap();
        let place = || places.take().unwrap();
        let map = |locks| match Table::map(place(), &path, locks, true).unwrap() {
            Asked::Ours(table, at) => Some((table, at)),
            Asked::Others => None,
        };
        let (first, at) = map(1..3).unwrap();
        let (second, next) = map(1..3).unwrap();
        assert_eq!((at, next), (1, 2));
        assert!(map(1..3).is_none() && first.is_with(&second));
        assert_eq!(first.unlocked(&path, &[0, 1, 2, 3]), Ok(vec![0, 3]));
        first.words()[1000].store(7, SeqCst);
        second.half(1).store(8, SeqCst);
        assert_eq!(second.words()[1000].load(SeqCst), 7);
        assert_eq!(first.half(1).load(SeqCst), 8);
        let all = std::slice::from_ref(&(1..3));
        Table::remove(&path, all);
        assert!(path.exists(), "two have it");
        drop(first);
        let (third, at) = map(1..3).unwrap();
        assert_eq!(at, 1);
        drop(second);
        Table::remove(&path, all);
        assert!(path.exists(), "one has it");
        // But for that one.
        Table::remove(&path, &[0..1, 2..3]);
        assert!(!path.exists());
        assert!(Table::map(place(), &path, 1..3, false).is_err());
        // Who makes it again has another one.
        let (anew, _) = map(1..3).unwrap();
        assert!(!anew.is_with(&third));
        assert_eq!(third.unlocked(&path, &[1]), Err(Errno::AGAIN));
        // Those that ended gave their places back.
        let free: Vec<Place> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(free.len(), 2);
        drop(free);
        // Where no file can be.
        assert!(Table::map(place(), &folder.path().join("no/table"), 1..3, true).is_err());
    }
}
