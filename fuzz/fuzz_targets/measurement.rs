//! A measurement of bandwidth and latency out of any bytes, and what is computed from it: curves, or
//! an error of one line.
#![no_main]

use memtide_core::mempolicy::measured::{Measurement, Mix};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(measurement) = serde_json::from_slice::<Measurement>(bytes) else {
        return;
    };
    for mix in [Mix::Read, Mix::OneToOne] {
        if let Err(error) = measurement.curves(mix) {
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
    let text = serde_json::to_string(&measurement).expect("plain data");
    serde_json::from_str::<Measurement>(&text).expect("what was written is read");
});
