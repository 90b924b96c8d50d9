//! The options of `memtide balance`.

use crate::tier::SelectionArgs;
use clap::Args;
use memtide_loop::options::BalanceOptions;
use std::path::PathBuf;

/// Bring pages to the NUMA nodes that use them.
#[derive(Args, Debug)]
pub struct BalanceArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    #[command(flatten)]
    pub options: BalanceOptions,

    /// Stop after so many seconds instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "N", value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Option<u64>,

    /// Write what the loop asked and did, to be run again by --from-journal
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// The longest run: a hundred years.
const MOST_SECONDS: u64 = 100 * 366 * 86_400;

fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ 1..=MOST_SECONDS) => Ok(seconds),
        _ => Err("not a number of seconds from 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        assert_eq!(seconds("10"), Ok(10));
        assert!(seconds("0").is_err() && seconds("10s").is_err());
    }
}
