//! Words of the command line that several commands take.

use memtide_core::numbers;
use memtide_loop::options::Size;
use std::time::Duration;

/// The units of amounts of memory.
const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// The kernel's largest process id.
const LARGEST_PID: u32 = 1 << 22;

/// `64MiB`, `1G`: bytes, in powers of two.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse().map(|Size(bytes)| bytes)
}

/// Bytes for people: `512 KiB`, `1.5 GiB`.
pub fn amount(bytes: u64) -> String {
    if bytes < 1 << 20 {
        return format!("{} KiB", bytes >> 10);
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be written as 1024.0 is 1.0 of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `500ms`, `10s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "not a time with its unit; write it as 500ms or 10s".to_owned())
}

/// A process id that the kernel could give.
pub fn pid(text: &str) -> Result<u32, String> {
    match numbers::decimal(text) {
        Some(pid @ 1..=LARGEST_PID) => Ok(pid),
        _ => Err(format!("not a process id, 1 to {LARGEST_PID}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_one_place_behind_the_point() {
        for (bytes, text) in [
            (0, "0 KiB"),
            (1 << 19, "512 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(duration("5").is_err());
    }
}
