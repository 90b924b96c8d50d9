//! `memtide trace`: recordings of accesses, made elsewhere, for the simulated
//! machine.

mod import;

use crate::shared::context::Context;
use std::process::ExitCode;

/// Make traces for memtide sim out of other recordings
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Import(import::Args),
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Import(args) => import::run(&args, context),
    }
}
