//! The pagers of running programs, as others see them.
//!
//! A process with a pager shows its counters in its own memory ([`memtide_pager::board`]).
//! `find.rs` reads them there, and `all.rs` does so for many processes within a bounded time.
//! `memtide pager status` does that once. The service does it again and again ([`Pagers`]), for its
//! metrics and its status. `known.rs` decides whom to look at, `sums.rs` adds up what was seen, and
//! `watch.rs` is the thread that does both.
//!
//! # Properties
//!
//! - Who scrapes or asks waits for nothing: the thread leaves what it saw, and they take it.
//! - The thread takes at most a hundredth of one CPU in the long run. A process that took no page
//!   fault since the last look has no new pager, and costs one line of the list of processes.
//! - What is told is bounded, whatever processes show: so many names of files, one line to the journal.
//! - A process that ends, shows nonsense, may not be read or keeps its reader waiting is no error and
//!   keeps no other one from being seen.

mod all;
mod find;
mod known;
mod sums;
mod watch;

pub use all::{Patience, look_at_all};
pub use find::{Answer, Shown};
pub use sums::{FileFigures, PagerCounts, PagerFigures};
pub use watch::Pagers;

/// The file name of the library of `memtide pager run`.
pub const LIBRARY: &str = "libmemtide_pager_preload.so";

/// Of a process whose reader gets no answer, for people.
pub const WAITS: &str = "its memory keeps who reads it waiting; it is no memory of a pager";
