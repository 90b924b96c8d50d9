//! The options of `memtide serve`.

use clap::Args;
use std::path::PathBuf;

/// Run as a service: what memtide tier does, by a configuration file.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The main file; drop-ins are in FILE.d [default: /etc/memtide/memtide.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say whether the configuration is valid, and run nothing
    #[arg(long)]
    pub check: bool,

    /// Decide and report, but move nothing
    #[arg(long)]
    pub dry_run: bool,
}
