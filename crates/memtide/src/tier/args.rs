//! The options of `memtide tier`.

use clap::{Args, ValueEnum};
use memtide_core::hotness::{Config, Layout};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel's largest process id.
const LARGEST_PID: u32 = 1 << 22;

/// Promote hot pages to fast memory and demote cold ones to make room.
#[derive(Args, Debug)]
pub struct TierArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// How accesses are observed
    #[arg(long, value_enum, default_value_t = SourceArg::Auto)]
    pub source: SourceArg,

    /// Which rule admits hot pages to fast memory
    #[arg(long, value_enum, default_value_t = GateArg::Pghot)]
    pub gate: GateArg,

    /// Promote at most this much a second
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size, allow_negative_numbers = true)]
    pub rate_limit: u64,

    /// Keep at least this much free on each fast node, above its high watermark
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = size, allow_negative_numbers = true)]
    pub headroom: u64,

    /// Accesses within the window that make a page hot
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = threshold, allow_negative_numbers = true)]
    pub threshold: u8,

    /// How far apart two accesses may be to count together
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = window, allow_negative_numbers = true)]
    pub window: Duration,

    /// Long-run share of one CPU that observing may take, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = percent, allow_negative_numbers = true)]
    pub observe_cpu: u8,

    /// Decide and report, but move nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Say of each page or range why it moved or stayed
    #[arg(long)]
    pub explain: bool,

    /// Stop after this long instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceArg {
    /// The best that works here, except page-table scans
    Auto,
    /// DAMON: accessed bits, kept intact for reclaim
    Damon,
    /// NUMA hint faults; needs kernel.numa_balancing
    HintFaults,
    /// Accessed bits read from the page tables; fastest, hides them from reclaim
    PageTable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// Every page that is touched often enough, within the rate limit
    Pghot,
    /// The hottest pages that fit into fast memory, if moving them pays
    ThresholdFree,
}

/// `64MiB`, `1G`: bytes, in powers of two.
pub fn size(text: &str) -> Result<u64, String> {
    parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|error| match error {
            parse_size::Error::PosOverflow => "more than there can be".to_owned(),
            _ => "not a size; write it as 64MiB or 1G".to_owned(),
        })
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "not a time with its unit; write it as 500ms or 10s".to_owned())
}

/// A time that the records of accesses can tell.
fn window(text: &str) -> Result<Duration, String> {
    let window = duration(text)?;
    let ms = u32::try_from(window.as_millis()).unwrap_or(u32::MAX);
    match Config::new(Layout::Precise).with_window_ms(ms) {
        Ok(_) => Ok(window),
        Err(error) => Err(error.to_string()),
    }
}

/// A process id that the kernel could give.
pub fn pid(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid @ 1..=LARGEST_PID) => Ok(pid),
        _ => Err(format!("not a process id, 1 to {LARGEST_PID}")),
    }
}

fn threshold(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(threshold @ 1..=7) => Ok(threshold),
        _ => Err("not a number from 1 to 7".to_owned()),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err("not a number from 1 to 100, without a sign".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert!(size("-1").is_err());
        assert!(
            size("much")
                .unwrap_err()
                .ends_with("write it as 64MiB or 1G")
        );
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(duration("5").is_err());
    }

    #[test]
    fn a_window_must_fit_the_records() {
        assert_eq!(window("5s"), Ok(Duration::from_secs(5)));
        for text in ["0s", "999ms", "17s", "100years"] {
            let error = window(text).unwrap_err();
            assert!(error.contains("1000 to 16383 ms"), "{error}");
        }
    }
}
