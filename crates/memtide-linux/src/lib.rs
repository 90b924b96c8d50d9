//! The running kernel: observes accesses and moves pages.
//!
//! Readers take the root of the tree that they read, so that tests can hand
//! them a copy. `unsafe` stands only in [`sys`].
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod files;
pub mod fs;
pub mod lent;
pub mod live;
pub mod measure;
pub mod mover;
pub mod open_files;
pub mod perf;
mod pidfd;
pub mod priority;
pub mod probe;
pub mod respread;
pub mod source;
pub mod sys;
pub mod text;
pub mod weight_table;

pub use sys::huge_pages::HugePages;
