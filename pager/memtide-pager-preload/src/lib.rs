//! The pager for programs that know nothing of it.
//!
//! Loaded with `LD_PRELOAD`, this library stands between a program and the C
//! library's `mmap` and its kin. When the program maps a file whose name it was
//! given ([`settings`]) for reading, the mapping is made as asked and a
//! [`memtide_pager::Pager`] takes care that all such mappings together stay
//! within a budget. Everything else goes to the kernel as it came.
//!
//! What stays true:
//!
//! - The program reads the bytes that it would read without us, gets the same
//!   results and the same `errno`; what cannot be kept is the kernel's, as ever.
//!   The one call that is refused is `mlock` on kept pages.
//! - Before the program unmaps, moves, replaces or makes writable what is kept,
//!   the pager has let go of it ([`sys::state`]).
//! - Nothing of ours ends the program: errors are said once, panics end here.
//!
//! Not seen are programs that call the kernel by themselves (static ones, Go)
//! or through functions inside of the C library.
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![deny(unsafe_code)]

mod decide;
mod pattern;
mod pieces;
mod ranges;
mod reasons;
mod report;
mod settings;
pub mod sys;
mod tally;
