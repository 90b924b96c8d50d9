//! `cargo xtask swarm`: many seeds of the loop's swarm.

use anyhow::Context;
use std::process::Command;
use testbed::lab::{Workspace, cargo};

/// Run the loop over machines, programs, options and faults that seeds draw.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// How many at once; as many as there are CPUs if not given
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Only these things of what a seed draws, as a failure names them
    #[arg(long, value_name = "N,N")]
    only: Option<String>,
}

/// Exit status 1 if a seed fails; the command that repeats it is printed.
pub fn run(arguments: &Arguments) -> anyhow::Result<i32> {
    let jobs = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let numbers = [arguments.first, arguments.seeds, jobs as u64];
    let status = Command::new(cargo())
        .args(["run", "--release", "--quiet", "-p", "memtide-loop"])
        .args(["--features", "testing", "--example", "swarm", "--"])
        .args(numbers.map(|number| number.to_string()))
        .args(&arguments.only)
        .current_dir(Workspace::find()?.root)
        .status()
        .context("cargo run --example swarm")?;
    Ok(status.code().unwrap_or(1))
}
