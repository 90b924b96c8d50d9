//! `memtide policy replay` on any bytes: an answer to each line, up to one that makes no sense.
#![no_main]

// The command's own files: a command is no library.
#[path = "../../crates/memtide/src/cmd/policy"]
#[allow(dead_code)]
mod policy {
    pub mod call;
    pub mod fields;
    pub mod machine;
    pub mod replay;
}
#[path = "../../crates/memtide/src/shared"]
#[allow(dead_code)]
mod shared {
    pub mod context;
    pub mod outside;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| policy::replay::fuzz(bytes));
