//! The options of `memtide balance`.

use crate::shared::metrics::MetricsArgs;
use crate::shared::selection::SelectionArgs;
use crate::shared::words::duration;
use clap::Args;
use memtide_loop::options::BalanceOptions;
use std::path::PathBuf;
use std::time::Duration;

/// Bring pages to the NUMA nodes that use them.
#[derive(Args, Debug)]
pub struct BalanceArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    #[command(flatten)]
    pub options: BalanceOptions,

    /// Stop after this long instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Write what the loop asked and did, to be run again by --from-journal
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    #[command(flatten)]
    pub metrics: MetricsArgs,
}
