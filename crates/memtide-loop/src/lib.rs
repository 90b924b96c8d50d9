//! The loop around the decisions.
//!
//! What memtide does in one turn, over a *world* that is a live kernel or a
//! simulated machine: no clock, no I/O, no threads, no `unsafe`. Time and what
//! came are the world's to tell; what to observe next and which pages to move
//! are the loop's to decide, with `memtide-core`.

#![forbid(unsafe_code)]

pub mod options;
pub mod search;
pub mod world;

pub use world::World;
