//! The reader of Parquet traces on any bytes: rows in time order, or one error of one line. The
//! library panics on some damaged files; the reader makes errors of that.
#![no_main]

use memtide_trace::Rows;

libfuzzer_sys::fuzz_target!(
    init: {
        // A panic that the reader catches is none; one that it lets through still ends the run.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |bytes: &[u8]| {
        let file = std::env::temp_dir().join(format!("fuzz-{}.parquet", std::process::id()));
        std::fs::write(&file, bytes).expect("a folder for temporary files");
        let mut last_ns = 0;
        match Rows::open(&file) {
            Ok(rows) => {
                for row in rows.take(1 << 20) {
                    match row {
                        Ok(row) => {
                            assert!(row.time_ns >= last_ns);
                            last_ns = row.time_ns;
                        }
                        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
                    }
                }
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1),
        }
    }
);
