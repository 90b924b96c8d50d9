//! What comes at the service's control socket, as any bytes: cut into messages, read as calls, answered
//! with replies that can be read. Nobody who may not change things gets a reload.
#![no_main]

// The command's own files: a command is no library.
#[path = "../../crates/memtide/src/shared/control"]
#[allow(dead_code)]
mod control {
    pub mod interface;
    pub mod varlink;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::interface::fuzz(bytes));
