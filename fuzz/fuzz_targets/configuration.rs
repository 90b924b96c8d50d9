//! The service's configuration out of any text, a main file and a drop-in: values, or an error of one line
//! with file, line and column.
#![no_main]

// The command's own files: a command is no library.
#[path = "../../crates/memtide/src/shared"]
#[allow(dead_code)]
mod shared {
    pub mod configuration;
    pub mod control_args;
    pub mod metrics_args;
    pub mod outside;
    pub mod pagers_options;
    pub mod weights_options;
}

libfuzzer_sys::fuzz_target!(|text: &str| shared::configuration::fuzz(text));
