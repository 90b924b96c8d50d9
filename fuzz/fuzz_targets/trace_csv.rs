//! The reader of CSV traces on any bytes: rows in time order, or one error that names a row.
#![no_main]

use memtide_trace::Rows;
use std::path::Path;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut last_ns = 0;
    let mut ended = false;
    for row in Rows::from_csv(std::io::Cursor::new(bytes.to_vec()), Path::new("t.csv")) {
        assert!(!ended, "a row after an error");
        match row {
            Ok(row) => {
                assert!(row.time_ns >= last_ns);
                last_ns = row.time_ns;
            }
            Err(error) => {
                assert_eq!(error.to_string().lines().count(), 1);
                ended = true;
            }
        }
    }
});
