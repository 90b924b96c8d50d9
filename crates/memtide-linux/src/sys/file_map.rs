//! A file mapped for reading, as any program would map it, and how much of it
//! is in memory.
//!
//! What `memtide pager` compares with: the kernel alone takes care of it. The
//! bytes are read as atomic words, since somebody may write to the file; one
//! that is cut short meanwhile ends the process with SIGBUS, as it ends any.

use super::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared read-only mapping of a whole file.
#[derive(Debug)]
pub struct FileMap {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is only read, as atomics.
unsafe impl Send for FileMap {}
// SAFETY: as above.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `bytes` bytes of `file`.
    ///
    /// # Errors
    ///
    /// What mmap(2) says.
    pub fn new(file: impl AsFd, bytes: usize) -> Result<FileMap, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Ok(FileMap { start, bytes })
    }

    /// Tells the kernel that reads come in no order, so that it reads in what
    /// is asked for and nothing around it.
    pub fn expect_random(&self) {
        // SAFETY: advice on our own mapping that changes how the kernel reads ahead and no content. A failure is
        // advice that was not taken.
        let _ = unsafe { rustix::mm::madvise(self.start, self.bytes, Advice::Random) };
    }

    /// Has the kernel make no huge page of it: it would read in all that such a page lacks.
    pub fn keep_small(&self) {
        // SAFETY: advice on our own mapping that changes no content. A kernel that refuses it has no huge
        // pages.
        let _ = unsafe { rustix::mm::madvise(self.start, self.bytes, Advice::LinuxNoHugepage) };
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.start as usize
    }

    /// How many whole words there are.
    pub fn words(&self) -> usize {
        self.bytes / size_of::<u64>()
    }

    /// The words from `first` on, `count` of them.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn read(&self, first: usize, count: usize) -> impl Iterator<Item = u64> + '_ {
        assert!(
            first
                .checked_add(count)
                .is_some_and(|end| end <= self.words()),
            "{count} words from {first} of {}",
            self.words()
        );
        // SAFETY: inside the mapping, which begins on a page and lives as long
        // as `self`; a load through a read-only page is all that is done.
        let words =
            unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU64>().add(first), count) };
        words.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Pages of it in the page cache, whoever brought them there; `None` where
    /// the kernel does not tell: it tells those who may write to the file.
    pub fn resident_pages(&self) -> Option<u64> {
        let resident = self.resident()?;
        Some(resident.into_iter().filter(|there| *there).count() as u64)
    }

    /// Of each page, whether it is in the page cache; `None` as of [`FileMap::resident_pages`].
    pub fn resident(&self) -> Option<Vec<bool>> {
        let page = rustix::param::page_size();
        let mut seen = vec![0u8; self.bytes.div_ceil(page)];
        // SAFETY: the mapping is ours, and the vector has a byte for each page.
        let result = unsafe { libc::mincore(self.start, self.bytes, seen.as_mut_ptr()) };
        (result == 0).then(|| seen.into_iter().map(|byte| byte & 1 != 0).collect())
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference outlives `self`. It
        // can fail only for a wrong range, and this one came from mmap.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn words_of_a_file() {
        let mut file = tempfile::tempfile().unwrap();
        // 513 words are a page and a word; the last 4 bytes are half a word.
        let bytes: Vec<u8> = (0..513u64).flat_map(u64::to_ne_bytes).collect();
        file.write_all(&bytes).unwrap();
        file.write_all(&[1, 2, 3, 4]).unwrap();
        let map = FileMap::new(&file, bytes.len() + 4).unwrap();
        assert_eq!(map.words(), 513);
        assert_eq!(map.read(510, 3).collect::<Vec<_>>(), [510, 511, 512]);
        assert_eq!(map.resident_pages(), Some(2));
        assert_eq!(map.resident(), Some(vec![true, true]));
    }

    #[test]
    #[should_panic(expected = "2 words from 511 of 512")]
    fn words_beyond_the_end_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let _ = FileMap::new(&file, 4096).unwrap().read(511, 2);
    }
}
