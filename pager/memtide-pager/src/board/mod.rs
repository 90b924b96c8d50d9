//! What a process tells of its pager while it runs, to whoever may read its memory.
//!
//! The counters of a pager are in its process, and a process that is kept waiting or
//! forks cannot be asked. So they stand in a few pages of its memory that have a name
//! ([`NAME`]), by which another process finds them in `/proc/PID/maps` and reads them
//! through `/proc/PID/mem`. Nobody is asked, stopped or told: the program cannot notice a
//! reader.
//!
//! The evictor writes them after each of its turns, so nothing is added to what
//! the program itself does. What stays true:
//!
//! - Writing it allocates nothing.
//! - One thread writes a board. Its sequence is odd meanwhile, so that a reader knows
//!   what belongs together.
//! - The time of the last turn and a word at the pager's end tell one that works from one
//!   that hangs and one that ended.
//! - A child, however it was made, has no board of its parent's: the pages are not
//!   inherited. With `exec` they end.
//! - No descriptor stays open.
//!
//! `layout.rs` says which word is what, for both sides.

mod layout;

pub use layout::{
    BYTES, Counts, FILES, Figures, File, MAPPED_AS, NAME, NAME_BYTES, Posted, SEQUENCE_AT,
    Unreadable, parse,
};

use crate::statistics::Statistics;
use crate::sys::Errno;
use crate::sys::named::Named;
use layout::{
    AT_COUNTS, AT_ENDED, AT_FILES, AT_FIRST_FILE, AT_LAYOUT, AT_MAGIC, AT_NAME, AT_NAME_LENGTH,
    AT_PID, AT_REST, AT_SEQUENCE, AT_SHOOTDOWNS_BEFORE, AT_STATISTICS, AT_WRITTEN, FILE_WORDS,
    LAYOUT, MAGIC, UNKNOWN,
};
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

/// Milliseconds of `CLOCK_MONOTONIC`, to compare with [`Posted::written_ms`].
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// A board, being written.
#[derive(Debug)]
pub(crate) struct Board {
    memory: Named,
    /// What is counted beside the pager.
    beside: fn() -> Counts,
}

impl Board {
    /// A board of this process on which nothing stands but who it is.
    pub fn new(beside: fn() -> Counts, shootdowns_before: Option<u64>) -> Result<Board, Errno> {
        let board = Board {
            memory: Named::new(NAME, BYTES)?,
            beside,
        };
        let put = |at: usize, word| board.words()[at].store(word, Relaxed);
        put(AT_LAYOUT, LAYOUT);
        put(AT_PID, u64::from(std::process::id()));
        put(AT_SHOOTDOWNS_BEFORE, shootdowns_before.unwrap_or(UNKNOWN));
        Ok(board)
    }

    /// Writes everything. One thread at a time; `files` adds them one by one.
    pub fn post(&self, statistics: &Statistics, files: impl FnOnce(&mut Files<'_>)) {
        let words = self.words();
        let sequence = words[AT_SEQUENCE].load(Relaxed) | 1;
        words[AT_SEQUENCE].store(sequence, Relaxed);
        fence(Release);
        put_all(words, AT_COUNTS, &(self.beside)().words());
        put_all(words, AT_STATISTICS, &statistics.words());
        let mut added = Files {
            words,
            number: 0,
            rest: Figures::default(),
        };
        files(&mut added);
        put_all(words, AT_REST, &added.rest.words());
        words[AT_FILES].store(added.number as u64, Relaxed);
        words[AT_WRITTEN].store(now_ms(), Relaxed);
        // Before the first time nobody is to take it for a board.
        words[AT_MAGIC].store(MAGIC, Relaxed);
        words[AT_SEQUENCE].store(sequence.wrapping_add(1), Release);
    }

    /// Says that nothing will be posted any more.
    pub fn end(&self) {
        self.words()[AT_ENDED].store(1, Relaxed);
    }

    /// As another would read it.
    #[cfg(test)]
    pub fn read(&self) -> Result<Posted, Unreadable> {
        let words = self.words().iter();
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Relaxed).to_ne_bytes())
            .collect();
        parse(&bytes)
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

/// Takes files, the first of which get a place.
pub(crate) struct Files<'a> {
    words: &'a [AtomicU64],
    number: usize,
    rest: Figures,
}

impl Files<'_> {
    pub fn add(&mut self, name: &Path, figures: &Figures) {
        let nth = self.number;
        self.number += 1;
        if nth >= FILES {
            let mut sums = self.rest.words();
            for (sum, more) in sums.iter_mut().zip(figures.words()) {
                *sum += more;
            }
            self.rest = Figures::of(|nth| sums[nth]);
            return;
        }
        let place = AT_FIRST_FILE + nth * FILE_WORDS;
        put_all(self.words, place, &figures.words());
        let name = name.as_os_str().as_bytes();
        self.words[place + AT_NAME_LENGTH].store(name.len() as u64, Relaxed);
        let end = &name[name.len().saturating_sub(NAME_BYTES)..];
        for (at, part) in end.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.words[place + AT_NAME + at].store(u64::from_ne_bytes(word), Relaxed);
        }
    }
}

fn put_all(words: &[AtomicU64], at: usize, values: &[u64]) {
    for (word, value) in words[at..].iter().zip(values) {
        word.store(*value, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        Counts {
            kept_mappings: 3,
            left_out: 2,
            ..Counts::default()
        }
    }

    #[test]
    fn what_is_posted_is_read() {
        let board = Board::new(counts, Some(50)).unwrap();
        assert_eq!(board.read(), Err(Unreadable::NoBoard));
        let statistics = Statistics {
            budget_bytes: 1 << 20,
            held_back: 9,
            ..Statistics::default()
        };
        let long = format!("/{}/model.gguf", "x".repeat(300));
        let figures = |n| Figures {
            mapped_bytes: 8192 * n,
            resident_bytes: 4096 * n,
            evicted_pages: n,
            refilled_pages: n / 2,
        };
        for turn in 1..3 {
            let before = now_ms();
            board.post(&statistics, |files| {
                files.add(Path::new("/data/a.bin"), &figures(turn));
                files.add(Path::new(&long), &figures(5));
            });
            let posted = board.read().unwrap();
            assert_eq!(
                (posted.pid, posted.shootdowns_before),
                (std::process::id(), Some(50))
            );
            assert!((before..=now_ms()).contains(&posted.written_ms) && !posted.ended);
            assert_eq!((posted.counts, posted.statistics), (counts(), statistics));
            assert_eq!(posted.files[0].name, "/data/a.bin");
            assert_eq!(posted.files[0].figures, figures(turn));
            assert_eq!(
                posted.files[1].name,
                format!("...{}", &long[long.len() - 208..])
            );
            assert_eq!((posted.files.len(), posted.more_files), (2, 0));
            assert_eq!(board.words()[AT_SEQUENCE].load(Relaxed), 2 * turn);
        }
        // 62 files: the last two, of 60 and 61 pages, are summed.
        board.post(&statistics, |files| {
            (0..62).for_each(|n| files.add(Path::new("b"), &figures(n)));
        });
        let posted = board.read().unwrap();
        assert_eq!((posted.files.len(), posted.more_files), (60, 2));
        let rest = (posted.rest.evicted_pages, posted.rest.refilled_pages);
        assert_eq!(rest, (60 + 61, 30 + 30));
        assert_eq!(posted.files[59].figures, figures(59));
    }

    /// In a child, where no other test maps anything meanwhile.
    #[test]
    fn it_has_its_name_while_it_is_there_and_no_descriptor() {
        let status = crate::sys::child::run(|| {
            let lines = || {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                let lines = maps.lines().filter(|line| line.ends_with(MAPPED_AS));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            // One that another test's thread was just making when this child was made may be here.
            let before = lines();
            let board = Board::new(counts, None).unwrap();
            let mut new = lines();
            new.retain(|line| !before.contains(line));
            let [line] = &new[..] else {
                panic!("{new:?} beside {before:?}");
            };
            let address = format!("{:x}-", board.words().as_ptr() as usize);
            assert!(
                line.starts_with(&address) && line.contains(" rw-p "),
                "{line}"
            );
            let open = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            let mut links = links.map(|link| link.display().to_string());
            assert!(links.all(|link| link != MAPPED_AS));
            drop(board);
            assert_eq!(lines(), before);
            0
        });
        assert_eq!(status, Ok(0));
    }

    /// A limit of file sizes is one of memory files, too, and who passes it is ended.
    #[test]
    fn a_limit_of_file_sizes_ends_nobody() {
        let status = crate::sys::child::run(|| {
            use rustix::process::{Resource, Rlimit, setrlimit};
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            setrlimit(Resource::Fsize, none).unwrap();
            i32::from(Board::new(counts, None).is_ok())
        });
        assert_eq!(status, Ok(0));
    }

    #[test]
    fn a_child_has_none() {
        let board = Board::new(counts, None).unwrap();
        let address = format!("{:x}-", board.words().as_ptr() as usize);
        let status = crate::sys::child::run(|| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            i32::from(maps.lines().any(|line| line.starts_with(&address)))
        });
        assert_eq!(status, Ok(0));
    }
}
