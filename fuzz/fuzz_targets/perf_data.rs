//! The reader of perf.data files on any bytes: accesses in the order of their times and a summary
//! that counts them, or one line of error. A good first corpus is
//! `crates/memtide-linux/tests/recordings`.
#![no_main]

use memtide_linux::perf::recording::Recording;
use std::io::Cursor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut last_ns = 0;
    let mut accesses = 0;
    let read = Recording::new(Cursor::new(bytes)).and_then(|mut recording| {
        recording.read(|access| {
            assert!(access.time_ns >= last_ns);
            last_ns = access.time_ns;
            accesses += 1;
        })
    });
    match read {
        Ok(summary) => {
            assert_eq!(summary.accesses, accesses);
            assert_eq!(summary.by_process.values().sum::<u64>(), accesses);
            assert!(summary.walk.samples >= accesses);
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
