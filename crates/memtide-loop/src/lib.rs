//! The loop around the decisions.
//!
//! What memtide does in one turn, over a *world* that is a live kernel or a
//! simulated machine: no clock, no I/O, no threads, no `unsafe`. Time and what
//! came are the world's to tell; what to observe next and which pages to move
//! are the loop's to decide, with `memtide-core`.

// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod balance;
pub mod carry;
pub mod journal;
pub mod ledger;
pub mod options;
mod random;
pub mod records;
pub mod report;
pub mod search;
#[cfg(any(test, feature = "testing"))]
pub mod swarm;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tier;
pub mod world;
pub mod write_rounds;

pub use world::World;
