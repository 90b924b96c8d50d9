//! Every procfs and sysfs parser on the same bytes. A good first corpus is
//! `crates/memtide-linux/tests/fixtures`, flattened.
#![no_main]

#[path = "../../crates/memtide-linux/tests/fs_parsers/mod.rs"]
mod fs_parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fs_parsers::every_parser(bytes));
