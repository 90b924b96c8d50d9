//! The simulated kernel under random scenarios whose choices the fuzzer makes; see
//! `crates/memtide-sim/tests/swarm/`.
#![no_main]

#[path = "../../crates/memtide-sim/tests/swarm/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::run(&mut cases::Choices::of_bytes(bytes));
});
