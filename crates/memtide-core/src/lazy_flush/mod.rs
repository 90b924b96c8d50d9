//! Lazy unmap flush: a page is unmapped now, and translations of it are flushed
//! when its memory is about to be used again.
//!
//! *Problem.* Whoever takes a page out of a page table must make every CPU
//! forget it: interrupts for all, for each page or small batch.
//!
//! *Idea* (document `002_b3095b50ce4e3345`). While a page that was mapped read-only
//! lies unused, its content cannot change, so a CPU that still reads it through
//! an old translation reads what is right. The flush may wait until the page is
//! given to somebody else, and by then one flush serves all that were unmapped
//! before.
//!
//! *Parts.* [`eligible()`] says which pages may wait; [`LazyFlush`] numbers the
//! unmaps and says when a flush is due; [`Zoned`] keeps one of them for each zone
//! of memory; [`Cause`] names the events that cannot wait. Who flushes, and what
//! ([`Pending`]), is the caller's: CPUs of a simulated machine in one place,
//! ranges of addresses of a real process in the other.
//!
//! *What stays true.* A page whose memory is handed out has no translation left
//! that was made before it was unmapped, provided the caller
//!
//! 1. defers only what [`eligible()`] admits,
//! 2. keeps the stamp of [`LazyFlush::defer`] with the free page,
//! 3. asks [`LazyFlush::take`] with that stamp before the page leaves the free
//!    lists, for whatever use, and
//! 4. calls [`LazyFlush::force`] before content that may still be read through an
//!    old translation changes in place.

mod eligible;
mod generation;
mod pending;
mod zoned;

pub use eligible::{Backing, PageFacts, Refusal, eligible};
pub use generation::{Generation, Stamp};
pub use pending::{Cause, Due, LazyFlush, Pending, Round, Tally};
pub use zoned::Zoned;
