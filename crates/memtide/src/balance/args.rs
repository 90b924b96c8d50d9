//! The options of `memtide balance`.

use crate::tier::SelectionArgs;
use crate::tier::size;
use clap::{Args, ValueEnum};

/// Bring pages to the NUMA nodes that use them.
#[derive(Args, Debug)]
pub struct BalanceArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// How it is found out who uses what
    #[arg(long, value_enum, default_value_t = SourceArg::Auto)]
    pub source: SourceArg,

    /// Have threads run on the node of their memory, until the end; `propose` only says so. Threads that somebody pinned stay
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "set", value_name = "HOW")]
    pub tasks: Option<TasksArg>,

    /// Samples a second of each CPU that are wanted (1000); of writes: faults a second in all (5000)
    #[arg(long, value_name = "N", value_parser = rate, allow_negative_numbers = true)]
    pub rate: Option<u32>,

    /// Keep at least this much free on each node, above its high watermark
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = size, allow_negative_numbers = true)]
    pub headroom: u64,

    /// Share of one CPU that memtide itself may take in the long run, in percent, moves included; what 20 s of quiet leave may be spent at once
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = permille, allow_negative_numbers = true)]
    pub cpu_limit: u32,

    /// Decide and report, but change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Say of each range of pages why it moved or stayed
    #[arg(long)]
    pub explain: bool,

    /// Stop after so many seconds instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "N", value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceArg {
    /// The best that works here, except writes
    Auto,
    /// AMD's instruction-based sampling
    Ibs,
    /// Intel's load latency sampling
    Pebs,
    /// NUMA hint faults; needs bit 0 of kernel.numa_balancing
    Faults,
    /// Page faults on writes, provoked; takes soft-dirty bits away from others
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TasksArg {
    /// Set their affinity, and put it back at the end
    Set,
    /// Only say where they should run
    Propose,
}

/// The longest run: a hundred years.
const MOST_SECONDS: u64 = 100 * 366 * 86_400;

fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ 1..=MOST_SECONDS) => Ok(seconds),
        _ => Err("not a number of seconds from 1".to_owned()),
    }
}

fn rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ 1..=1_000_000) => Ok(rate),
        _ => Err("not a number from 1 to 1000000".to_owned()),
    }
}

/// A percentage with at most one decimal, in thousandths.
fn permille(text: &str) -> Result<u32, String> {
    let bad = || "not a percentage from 0.1 to 100, with at most one decimal".to_owned();
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(tenth) || tenth.len() != 1 {
        return Err(bad());
    }
    let whole: u32 = whole.parse().map_err(|_| bad())?;
    let tenth: u32 = tenth.parse().map_err(|_| bad())?;
    match whole.saturating_mul(10).saturating_add(tenth) {
        permille @ 1..=1000 => Ok(permille),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_cpu_have_one_decimal() {
        assert_eq!(permille("5"), Ok(50));
        assert_eq!(permille("0.1"), Ok(1));
        assert_eq!(permille("100.0"), Ok(1000));
        for wrong in [
            "0",
            "0.0",
            "100.1",
            "-1",
            "1.25",
            ".5",
            "5%",
            "",
            "99999999999",
        ] {
            assert!(permille(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_and_times_are_bounded() {
        assert_eq!(rate("1000"), Ok(1000));
        assert!(rate("0").is_err() && rate("1000001").is_err() && rate("-1").is_err());
        assert_eq!(seconds("10"), Ok(10));
        assert!(seconds("0").is_err() && seconds("10s").is_err());
    }
}
