//! The running machine as a world for the loop.
//!
//! [`LiveWorld`] is what `memtide-loop` runs on: [`processes`] knows whom it
//! manages and what their owners allow, [`classes`] which share of fast memory is
//! whose, [`survey`] where pages are, the
//! [mover](crate::mover) moves them, [`sampling`] and the
//! [sources](crate::source) tell of accesses, [`affinity`] lends CPUs, and [`canary`] knows how
//! late each node answers.

pub mod affinity;
pub mod canary;
pub mod class_stalls;
pub mod classes;
pub mod kernel;
pub mod processes;
pub mod sampling;
pub mod survey;
mod world;

pub use world::{LiveSource, LiveWorld};
