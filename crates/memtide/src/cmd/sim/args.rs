//! The options of `memtide sim`.

use memtide_core::numbers;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Try a placement on a simulated machine, before owning the hardware.
///
/// A scenario holds a machine, a workload, the configurations to compare and, if it comes from a
/// document, the figures that were published. It is named, as sim list shows them, or is a file.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Run(Box<RunArgs>),
    List(ListArgs),
    Explain(ExplainArgs),
}

/// Run scenarios and compare their configurations, beside what was published.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Scenarios: names that sim list shows, or files
    #[arg(value_name = "NAME|FILE", required_unless_present = "trace")]
    pub scenarios: Vec<String>,

    /// Replay recorded accesses (.parquet or .csv) instead of a scenario: without moves, with the
    /// kernel's tiering, with memtide's
    #[arg(long, value_name = "FILE", conflicts_with = "scenarios")]
    pub trace: Option<PathBuf>,

    /// The machine of --trace: a name of sim list, or a file [default: the machine of pghot-mode1]
    #[arg(
        long,
        value_name = "NAME|FILE",
        requires = "trace",
        conflicts_with = "scenarios"
    )]
    pub machine: Option<String>,

    /// Write the results as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write a page with tables and charts, for a browser
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// What randomness begins from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,

    /// Run with so many seeds, from --seed on: prints medians, intervals of 95 %, and which rows are not
    /// different from the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seeds, allow_negative_numbers = true)]
    pub seeds: u32,

    /// Start whatever the estimate says: runs of more than ten minutes or of more memory than the host
    /// has to spare are asked about otherwise
    #[arg(long)]
    pub yes: bool,

    /// Skip the runs on a coarser machine, which measure the error of the scale and of a single seed
    #[arg(long)]
    pub no_scale_error: bool,

    /// How much smaller the simulated machine is than the real one: 1, 1/16 [default: the scenario's]
    #[arg(long, value_name = "1/N", value_parser = scale, allow_negative_numbers = true)]
    pub scale: Option<u32>,

    /// Configurations to run at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs, allow_negative_numbers = true)]
    pub jobs: Option<NonZeroUsize>,

    /// Check that every access finds the content of its page, never an older one or another page's; takes
    /// time and memory
    #[arg(long)]
    pub check: bool,

    /// Run only these configurations; may be given several times
    #[arg(long, value_name = "NAME,...")]
    pub only: Vec<String>,
}

/// Show the scenarios and machines that come with memtide.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// Say what a scenario is: its machine, its workload, its configurations, what was published.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// A name that sim list shows, or a file
    #[arg(value_name = "NAME|FILE")]
    pub scenario: String,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// The names in `--only`: a list with commas, in which a name that is known may hold commas itself.
pub fn names(only: &[String], known: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for list in only {
        let mut parts: &[&str] = &list.split(',').collect::<Vec<_>>();
        while !parts.is_empty() {
            let joined = |count: usize| parts[..count].join(",").trim().to_owned();
            let longest = (1..=parts.len())
                .rev()
                .find(|&n| known.contains(&joined(n)));
            let count = longest.unwrap_or(1);
            names.push(joined(count));
            parts = &parts[count..];
        }
    }
    names
}

fn seed(text: &str) -> Result<u64, String> {
    numbers::decimal(text).ok_or_else(|| "not a number from 0 to 2^64 - 1".to_owned())
}

fn seeds(text: &str) -> Result<u32, String> {
    match numbers::decimal(text) {
        Some(seeds @ 1..=100) => Ok(seeds),
        _ => Err("not a number from 1 to 100".to_owned()),
    }
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    match numbers::decimal::<NonZeroUsize>(text) {
        Some(jobs) if jobs.get() <= 1024 => Ok(jobs),
        _ => Err("not a number from 1 to 1024".to_owned()),
    }
}

/// The largest S of 1/S.
const SMALLEST: u32 = 1 << 16;

fn scale(text: &str) -> Result<u32, String> {
    let denominator = match text.strip_prefix("1/") {
        Some(denominator) => numbers::decimal(denominator),
        None => (text == "1").then_some(1u32),
    };
    denominator
        .filter(|scale| scale.is_power_of_two() && *scale <= SMALLEST)
        .ok_or_else(|| {
            format!("not 1 or 1/N with N a power of two up to {SMALLEST}; write it as 1/16")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_commas() {
        let known = ["a", "b, c", "b"].map(str::to_owned);
        let names = |only: &str| names(&[only.to_owned()], &known);
        assert_eq!(names("a,b, c"), ["a", "b, c"]);
        assert_eq!(names("b, a"), ["b", "a"]);
        // An unknown one is left for whoever knows what to say.
        assert_eq!(names("b, d"), ["b", "d"]);
    }

    #[test]
    fn counts_have_no_sign() {
        assert_eq!((seed("01"), seeds("01")), (Ok(1), Ok(1)));
        assert!(seed("+1").is_err() && seeds("+1").is_err() && jobs("+1").is_err());
    }

    #[test]
    fn scales_are_one_over_a_power_of_two() {
        assert_eq!(scale("1"), Ok(1));
        assert_eq!(scale("1/1"), Ok(1));
        assert_eq!(scale("1/16"), Ok(16));
        for text in [
            "0", "16", "1/0", "1/3", "1/131072", "2/16", "1/", "1/-2", "1/+16", "+1", "0.5", "",
        ] {
            assert!(scale(text).is_err(), "{text}");
        }
    }
}
