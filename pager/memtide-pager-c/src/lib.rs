//! The C interface of [`memtide_pager`]; `include/memtide_pager.h` describes it.
//!
//! Every function checks what C cannot: null, text that is no text, structs of
//! another size. A failure is a code and a message that the thread keeps; a
//! panic is the code `MEMTIDE_INTERNAL` and does not cross into C. The header is
//! written by hand; a test compiles it, as C and as C++, and compares the layout
//! of every struct with the one here.
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![deny(unsafe_code)]

mod code;
pub mod sys;
