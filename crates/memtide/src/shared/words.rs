//! Words of the command line that several commands take.

use memtide_loop::options::Size;
use std::time::Duration;

/// The kernel's largest process id.
const LARGEST_PID: u32 = 1 << 22;

/// `64MiB`, `1G`: bytes, in powers of two.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse().map(|Size(bytes)| bytes)
}

/// `500ms`, `10s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "not a time with its unit; write it as 500ms or 10s".to_owned())
}

/// A process id that the kernel could give.
pub fn pid(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid @ 1..=LARGEST_PID) => Ok(pid),
        _ => Err(format!("not a process id, 1 to {LARGEST_PID}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(duration("5").is_err());
    }
}
