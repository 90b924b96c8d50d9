//! Serves large read-only data (model weights, for example) in a bounded amount
//! of memory, with few TLB shootdowns.
//!
//! A page that leaves memory has to leave the page tables first, and every
//! processor that may hold its translation gets an interrupt. Memory that is
//! only read allows to put that off: until the memory is needed for something
//! else, an old translation still reads the right bytes. So the pager
//!
//! 1. chooses what to evict ahead of need and leaves it mapped on a *pending*
//!    list, readable as before;
//! 2. unmaps everything pending in *one* call, with one flush, when memory is
//!    needed (`memtide_core::lazy_flush` keeps the generations);
//! 3. drops what nobody touched since then; what somebody touched is *rescued*
//!    by a minor fault, without being read again.
//!
//! [`Mode::File`] does this with a plain mapping of a file: the kernel handles
//! every fault, and the budget holds but for short overruns. [`Mode::Strict`]
//! does it with anonymous memory and userfaultfd: the budget holds exactly, and
//! the data may come from anywhere ([`Source`]).
//!
//! ```no_run
//! use memtide_pager::Pager;
//!
//! let pager = Pager::builder().budget(2 << 30).start()?;
//! let weights = pager.open("model.gguf")?;
//! let magic = &weights.as_slice()[..4];
//! println!("{magic:?}, {:?}", pager.statistics());
//! # Ok::<(), memtide_pager::Error>(())
//! ```
//!
//! `docs/pager.md` has how it works, what was measured, and the limits.
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod adopt;
mod bell;
pub mod board;
mod builder;
mod error;
#[cfg(test)]
mod faults;
mod file_mode;
mod kernel;
mod limit;
pub mod local;
mod order;
mod pager;
mod placement;
mod range;
mod region;
mod round;
mod shared;
mod shown;
mod source;
mod state;
mod statistics;
mod strict;
mod sys;
mod unmap;

pub use builder::{Builder, Mode, Policy, ReadAhead, Unmapping};
pub use error::Error;
pub use memtide_core::units::NodeId;
pub use order::ReadOrder;
pub use pager::Pager;
pub use placement::{MemoryPolicy, ParsePolicyError};
pub use region::{Adopted, Region};
pub use shown::{Shown, guards, shown};
pub use source::Source;
pub use state::{Means, RegionState, State};
pub use statistics::Statistics;
