//! `--from-journal` on any bytes: turns that agree, or a difference, or an error of one line.
#![no_main]

// The command's own files: a command is no library.
#[path = "../../crates/memtide/src/shared"]
#[allow(dead_code)]
mod shared {
    pub mod journal;
    pub mod outside;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shared::journal::fuzz(bytes));
