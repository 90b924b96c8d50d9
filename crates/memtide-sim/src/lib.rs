//! A machine made of numbers, on which memtide's decisions run.
//!
//! A *scenario* names a machine, a workload and the configurations to compare. Each configuration is
//! one run: threads make accesses through simulated TLBs, page tables, caches and memory, a simulated
//! kernel answers their faults, and whatever decides where a page belongs is `memtide-core`, the same
//! code that the live commands run.
//!
//! The same scenario, seed and scale give the same bytes, whatever the number of jobs. Nothing here
//! reads a clock, a file or an unseeded random number.
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
pub mod engine;
pub mod hardware;
mod host;
pub mod kernel;
pub mod page;
pub mod result;
pub mod rng;
pub mod scenario;
pub mod spec;
pub mod text;
pub mod units;
pub mod workload;
pub mod world;
