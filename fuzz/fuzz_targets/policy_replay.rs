//! `memtide policy replay` on any bytes: an answer to each line, up to one that makes no sense.
#![no_main]

// The command's own files: a command is no library.
#[path = "../../crates/memtide/src/outside.rs"]
#[allow(dead_code)]
mod outside;
#[path = "../../crates/memtide/src/policy"]
#[allow(dead_code)]
mod policy {
    pub mod call;
    pub mod fields;
    pub mod machine;
    pub mod replay;
}
#[path = "../../crates/memtide/src/weight_words.rs"]
mod weight_words;

/// What the files above want of the command around them, and what no line of a replay reaches.
#[allow(dead_code)]
mod cli {
    pub struct Context {
        pub root: memtide_linux::fs::Root,
    }

    pub fn unless_gone(written: std::io::Result<()>) -> anyhow::Result<()> {
        Ok(written?)
    }

    pub fn complain(_: &str) {}
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| policy::replay::fuzz(bytes));
