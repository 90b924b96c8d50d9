//! The words of a board: the only place that says where what is.
//!
//! A board is [`BYTES`] bytes at the start of a mapping with the name [`NAME`]: 64-bit
//! words in the machine's byte order, first those of the head, then the counters by the
//! order of their names, then files. Whoever changes what a word means raises
//! [`LAYOUT`]; a reader takes its own layout and no other.
//!
//! What is read comes from a process that may be anybody's. So [`parse`] takes any bytes
//! and gives an answer or a reason, and no text in its answer is longer than
//! [`NAME_BYTES`]; to print it safely is the reader's business.

use crate::statistics::Statistics;
use serde::Serialize;
use std::ffi::CStr;
use std::fmt;

/// What the mapping is called.
pub const NAME: &CStr = c"memtide-pager";
/// The same as `/proc/PID/maps` has it, at the end of a line.
pub const MAPPED_AS: &str = "/memfd:memtide-pager (deleted)";
/// Bytes that a board takes, of whole pages for pages of 4 KiB.
pub const BYTES: usize = 16 << 10;
/// Files that have a place of their own; the others are summed.
pub const FILES: usize = 60;
/// Bytes of a file's name that are kept: the last ones.
pub const NAME_BYTES: usize = NAME_WORDS * 8;

pub(super) const WORDS: usize = BYTES / 8;
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"memtidep");
pub(super) const LAYOUT: u64 = 1;
/// Not known, where a number is expected.
pub(super) const UNKNOWN: u64 = u64::MAX;

pub(super) const AT_MAGIC: usize = 0;
pub(super) const AT_LAYOUT: usize = 1;
/// Odd while the words behind it are being written.
pub(super) const AT_SEQUENCE: usize = 2;
pub(super) const AT_PID: usize = 3;
pub(super) const AT_SHOOTDOWNS_BEFORE: usize = 4;
pub(super) const AT_FILES: usize = 5;
/// When the rest was written: milliseconds of `CLOCK_MONOTONIC`.
pub(super) const AT_WRITTEN: usize = 6;
/// Not 0 when nothing will be written any more.
pub(super) const AT_ENDED: usize = 7;
pub(super) const AT_COUNTS: usize = 8;
pub(super) const AT_STATISTICS: usize = AT_COUNTS + Counts::NAMES.len();
/// Files without a place, summed: [`Figures`].
pub(super) const AT_REST: usize = AT_STATISTICS + Statistics::NAMES.len();
pub(super) const AT_FIRST_FILE: usize = AT_REST + Figures::NAMES.len();

/// A file's place: its figures, the length of its name, and the end of the name.
pub(super) const AT_NAME_LENGTH: usize = Figures::NAMES.len();
pub(super) const AT_NAME: usize = AT_NAME_LENGTH + 1;
const NAME_WORDS: usize = 26;
pub(super) const FILE_WORDS: usize = AT_NAME + NAME_WORDS;

const _: () = assert!(AT_FIRST_FILE + FILES * FILE_WORDS <= WORDS);

/// Byte of a board at which its sequence is: eight bytes that are odd while the others
/// are being written.
pub const SEQUENCE_AT: u64 = AT_SEQUENCE as u64 * 8;

crate::statistics::words! {
    /// What a library did that stands between a program and the kernel.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct Counts {
        /// Mappings taken into the pager's care.
        pub kept_mappings: u64,
        /// Bytes of them.
        pub kept_bytes: u64,
        /// Calls after which pages that stayed mapped were the kernel's again.
        pub handed_over: u64,
        /// Calls that would have read everything in, answered and not done.
        pub not_read_in: u64,
        /// Calls of mlock on kept pages, refused.
        pub locks_refused: u64,
        /// Mappings of wanted files that were left to the kernel.
        pub left_out: u64,
    }
}

crate::statistics::words! {
    /// How much of a file is where, and what became of it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct Figures {
        /// Mapped now, each mapping by itself.
        pub mapped_bytes: u64,
        /// In memory, as last seen.
        pub resident_bytes: u64,
        /// Pages chosen for eviction.
        pub evicted_pages: u64,
        /// Pages that came into memory a second time or more.
        pub refilled_pages: u64,
    }
}

/// A file on a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its path; only the end of a long one, behind `...`.
    pub name: String,
    /// See [`Figures`].
    #[serde(flatten)]
    pub figures: Figures,
}

/// What a board said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The process, as it calls itself in its own pid namespace.
    pub pid: u32,
    /// The machine's TLB shootdown interrupts when the program began.
    pub shootdowns_before: Option<u64>,
    /// When this was so: milliseconds of the process's `CLOCK_MONOTONIC`.
    pub written_ms: u64,
    /// The pager ended, and will write nothing any more; the process goes on.
    pub ended: bool,
    /// What the library did.
    pub counts: Counts,
    /// What the pager did.
    pub statistics: Statistics,
    /// At most [`FILES`].
    pub files: Vec<File>,
    /// How many more there are.
    pub more_files: u64,
    /// Those together.
    pub rest: Figures,
}

/// Why bytes are no board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They do not begin as one does.
    NoBoard,
    /// The words are those of another version.
    Layout(u64),
    /// A number cannot be what it stands for.
    Number {
        /// What it stands for.
        what: &'static str,
        /// The number.
        value: u64,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::NoBoard => {
                f.write_str("what it shows under that name are no statistics of a pager")
            }
            Unreadable::Layout(layout) => write!(
                f,
                "its statistics have layout {layout} and this memtide reads layout {LAYOUT}; use \
                 the memtide that its library came with"
            ),
            Unreadable::Number { what, value } => {
                write!(f, "its statistics are broken: {value} as {what}")
            }
        }
    }
}

/// Reads a board.
///
/// # Errors
///
/// [`Unreadable`], for whatever is none.
pub fn parse(bytes: &[u8]) -> Result<Posted, Unreadable> {
    let (words, _) = bytes.as_chunks::<8>();
    if words.len() < WORDS {
        return Err(Unreadable::NoBoard);
    }
    let word = |at: usize| u64::from_ne_bytes(words[at]);
    match (word(AT_MAGIC), word(AT_LAYOUT)) {
        (MAGIC, LAYOUT) => {}
        (MAGIC, layout) => return Err(Unreadable::Layout(layout)),
        _ => return Err(Unreadable::NoBoard),
    }
    let number = |at, what| {
        let value = word(at);
        let small = u32::try_from(value)
            .ok()
            .filter(|value| *value <= i32::MAX as u32);
        small.ok_or(Unreadable::Number { what, value })
    };
    let all_files = u64::from(number(AT_FILES, "the number of its files")?);
    let shown = all_files.min(FILES as u64) as usize;
    let file = |nth: usize| {
        let place = AT_FIRST_FILE + nth * FILE_WORDS;
        let length = u64::from(number(
            place + AT_NAME_LENGTH,
            "the length of a file's name",
        )?);
        let name = words[place + AT_NAME..][..NAME_WORDS].as_flattened();
        let end = String::from_utf8_lossy(&name[..length.min(NAME_BYTES as u64) as usize]);
        let cut = if length > NAME_BYTES as u64 {
            "..."
        } else {
            ""
        };
        Ok(File {
            name: format!("{cut}{end}"),
            figures: Figures::of(|nth| word(place + nth)),
        })
    };
    let before = word(AT_SHOOTDOWNS_BEFORE);
    Ok(Posted {
        pid: number(AT_PID, "its process id")?,
        shootdowns_before: (before != UNKNOWN).then_some(before),
        written_ms: word(AT_WRITTEN),
        ended: word(AT_ENDED) != 0,
        counts: Counts::of(|nth| word(AT_COUNTS + nth)),
        statistics: Statistics::of(|nth| word(AT_STATISTICS + nth)),
        files: (0..shown).map(file).collect::<Result<_, _>>()?,
        more_files: all_files - shown as u64,
        rest: Figures::of(|nth| word(AT_REST + nth)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A board of a process 7 with the words given, the others 0.
    fn bytes(words: &[(usize, u64)]) -> Vec<u8> {
        let mut board = vec![0u64; WORDS];
        (board[AT_MAGIC], board[AT_LAYOUT], board[AT_PID]) = (MAGIC, LAYOUT, 7);
        for (at, word) in words {
            board[*at] = *word;
        }
        board.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Who changes it raises [`LAYOUT`], and then this test: a reader of another version would
    /// take one number for another.
    #[test]
    fn this_is_layout_1() {
        assert_eq!(LAYOUT, 1);
        assert_eq!((AT_FILES, AT_WRITTEN, AT_ENDED), (5, 6, 7));
        assert_eq!((AT_COUNTS, AT_STATISTICS, AT_REST), (8, 14, 35));
        assert_eq!((AT_FIRST_FILE, AT_NAME, FILE_WORDS), (39, 5, 31));
        let names = [Counts::NAMES, Statistics::NAMES, Figures::NAMES].concat();
        assert_eq!(
            names.join(" "),
            "kept_mappings kept_bytes handed_over not_read_in locks_refused left_out budget_bytes \
             resident_bytes peak_resident_bytes pending_pages evicted_pages rescued_pages \
             probed_pages zapped_pages flush_calls dropped_pages refilled_pages filled_pages \
             read_ahead_pages budget_overruns urgent_batches stuck_pages failed_calls read_errors \
             evictor_us rounds held_back mapped_bytes resident_bytes evicted_pages refilled_pages"
        );
    }

    #[test]
    fn what_is_none_is_refused_with_its_reason() {
        let reason = |words: &[(usize, u64)]| parse(&bytes(words)).unwrap_err().to_string();
        assert_eq!(parse(&[]), Err(Unreadable::NoBoard));
        assert_eq!(parse(&bytes(&[])[..BYTES - 1]), Err(Unreadable::NoBoard));
        assert_eq!(parse(&bytes(&[(AT_MAGIC, 5)])), Err(Unreadable::NoBoard));
        assert_eq!(
            reason(&[(AT_LAYOUT, 7)]),
            "its statistics have layout 7 and this memtide reads layout 1; use the memtide that \
             its library came with"
        );
        assert_eq!(
            reason(&[(AT_PID, 1 << 40)]),
            "its statistics are broken: 1099511627776 as its process id"
        );
        let long = AT_FIRST_FILE + AT_NAME_LENGTH;
        assert!(reason(&[(AT_FILES, 1), (long, u64::MAX)]).contains("a file's name"));
        assert!(reason(&[(AT_FILES, u64::MAX)]).contains("the number of its files"));
    }

    /// A name that claims to be longer than its place is cut, and files beyond the places are
    /// only a number.
    #[test]
    fn what_claims_to_be_large_takes_no_more() {
        let posted = parse(&bytes(&[
            (AT_FILES, 1 << 30),
            (AT_FIRST_FILE + AT_NAME_LENGTH, 1 << 30),
        ]))
        .unwrap();
        assert_eq!(
            (posted.files.len(), posted.more_files),
            (60, (1 << 30) - 60)
        );
        assert_eq!(posted.files[0].name.len(), 3 + NAME_BYTES);
        assert_eq!(posted.shootdowns_before, Some(0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            any in proptest::collection::vec(any::<u8>(), 0..BYTES + 16),
            words in proptest::collection::vec((3..WORDS, any::<u64>()), 0..40),
        ) {
            let _ = parse(&any);
            if let Ok(posted) = parse(&bytes(&words)) {
                prop_assert!(posted.files.len() <= FILES);
                // A byte that is no text becomes a mark of three.
                let longest = 3 + 3 * NAME_BYTES;
                prop_assert!(posted.files.iter().all(|file| file.name.len() <= longest));
            }
        }
    }
}
