//! The options of `memtide tier`.

use clap::Args;
use memtide_loop::options::{Size, TierOptions};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel's largest process id.
const LARGEST_PID: u32 = 1 << 22;

/// Promote hot pages to fast memory and demote cold ones to make room.
#[derive(Args, Debug)]
pub struct TierArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    #[command(flatten)]
    pub options: TierOptions,

    /// Stop after this long instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Write what the loop asked and did, to be run again by --from-journal
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// Which processes. Exactly one kind.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct SelectionArgs {
    /// Manage this process; may be given several times
    #[arg(long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<u32>,

    /// Manage all processes of this cgroup and of those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Manage every process of the machine
    #[arg(long)]
    pub all: bool,

    /// Run what a journal tells of again, and compare; nothing is managed
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub from_journal: Option<PathBuf>,
}

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
