//! The options of `memtide weights`.

use crate::shared::nodes::List;
use clap::ValueEnum;
use memtide_core::mempolicy::measured::Mix;
use memtide_core::numbers;
use memtide_core::units::NodeId;
use memtide_loop::options::{self, Size};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Show, compute and set the kernel's interleave weights.
///
/// Without options: what the kernel's own rule makes of the bandwidths that the
/// firmware tells. Nothing is written without --apply, --set, --reset or
/// --restore.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Write the computed weights into the kernel's table
    #[arg(long, conflicts_with_all = ["set", "reset", "restore"])]
    pub apply: bool,

    /// Say what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Reads to writes of the programs that the weights are for
    #[arg(long, value_enum, default_value_t = MixArg::TwoToOne)]
    pub mix: MixArg,

    /// Measure these nodes [default: all with memory]
    #[arg(
        long,
        value_name = "NODES",
        requires = "measure",
        allow_negative_numbers = true
    )]
    pub nodes: Option<List>,

    /// Measure from these CPUs [default: those nearest to each node]
    #[arg(
        long,
        value_name = "CPUS",
        requires = "measure",
        allow_negative_numbers = true
    )]
    pub cpus: Option<List>,

    /// Measure each node for this long [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "measure", allow_negative_numbers = true)]
    pub time: Option<Duration>,

    /// Measure with this much memory of each node [default: 1GiB, or 8 times its CPUs' caches, at
    /// most a quarter of what is free]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "measure", allow_negative_numbers = true)]
    pub memory: Option<u64>,
}

/// Where weights come from. At most one; the firmware's figures if none.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct SourceArgs {
    /// Compute from these bandwidths, in GB/s or with a unit: 0=200,2=22
    #[arg(long, value_name = "NODE=BANDWIDTH,...", value_parser = bandwidths, allow_hyphen_values = true)]
    pub bandwidth: Option<BTreeMap<NodeId, u64>>,

    /// Measure bandwidth and latency, and compute from that
    #[arg(long)]
    pub measure: bool,

    /// Compute from an earlier measurement: what --measure --json printed
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,

    /// Write these weights: 0=9,2=1
    #[arg(long, value_name = "NODE=WEIGHT,...", value_parser = options::weights, allow_hyphen_values = true)]
    pub set: Option<BTreeMap<NodeId, u8>>,

    /// Put the kernel's default back
    #[arg(long)]
    pub reset: bool,

    /// Put back the weights from before memtide changed them
    #[arg(long)]
    pub restore: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixArg {
    /// Reads only
    Read,
    /// Two reads for each write
    #[value(name = "2:1")]
    TwoToOne,
    /// As many reads as writes
    #[value(name = "1:1")]
    OneToOne,
    /// Writes only
    Write,
}

impl From<MixArg> for Mix {
    fn from(mix: MixArg) -> Mix {
        match mix {
            MixArg::Read => Mix::Read,
            MixArg::TwoToOne => Mix::TwoToOne,
            MixArg::OneToOne => Mix::OneToOne,
            MixArg::Write => Mix::Write,
        }
    }
}

/// The shortest time in which threads start, run and stop 46 times.
const SHORTEST: Duration = Duration::from_millis(500);

fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time < SHORTEST => Err("too short; it takes 500ms at least".to_owned()),
        Ok(time) if time > Duration::from_secs(3600) => Err("more than an hour".to_owned()),
        Ok(time) => Ok(time),
        Err(_) => Err("not a time with its unit; write it as 500ms or 10s".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|size| size.0)
}

fn bandwidths(text: &str) -> Result<BTreeMap<NodeId, u64>, String> {
    options::pairs(text, "bandwidth", |word| {
        bandwidth(word)
            .ok_or_else(|| "no bandwidth above 0; write it as 22, 22.5GB/s or 22000MB/s".to_owned())
    })
}

/// A bandwidth in MB/s; without a unit it is in GB/s.
fn bandwidth(word: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 6] = [
        ("GiB", 1_073.741_824),
        ("MiB", 1.048_576),
        ("GB", 1000.0),
        ("MB", 1.0),
        ("G", 1000.0),
        ("M", 1.0),
    ];
    let plain = word.strip_suffix("/s").unwrap_or(word);
    let unit = UNITS.iter().find(|(unit, _)| plain.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (plain.strip_suffix(unit)?.trim_end(), *factor),
        None if plain.len() == word.len() => (plain, 1000.0),
        None => return None,
    };
    let mbps = (numbers::fraction(number)? * factor).round();
    (1.0..=1e9).contains(&mbps).then_some(mbps as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_have_units_or_are_in_gigabytes() {
        for (word, mbps) in [
            ("200", 200_000),
            ("22.5", 22_500),
            ("22.5GB/s", 22_500),
            ("22G", 22_000),
            ("900MB/s", 900),
            ("900 M", 900),
            ("2GiB/s", 2147),
            ("0.001", 1),
        ] {
            assert_eq!(bandwidth(word), Some(mbps), "{word}");
        }
        for word in [
            "", "0", "-1", "+1", "inf", "1e9", "GB", "5/s", "5KB", "x", "1.2.3", "9999999",
        ] {
            assert_eq!(bandwidth(word), None, "{word}");
        }
        assert_eq!(
            bandwidths("0=200,2=3x").unwrap_err(),
            "\"3x\" in \"2=3x\" is no bandwidth above 0; write it as 22, 22.5GB/s or 22000MB/s"
        );
    }

    #[test]
    fn times_are_checked() {
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        for text in ["5", "0s", "499ms", "2h", "-1s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
