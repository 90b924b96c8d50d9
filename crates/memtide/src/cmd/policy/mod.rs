//! `memtide policy`: what the kernel would do with a memory policy.
//!
//! All three subcommands ask the model in the core; none of them makes a
//! system call. `docs/policy-replay.md` says what the model covers.

mod call;
mod fields;
mod judge;
mod machine;
mod place;
mod replay;
mod validate;
mod words;

use crate::shared::context::Context;
use std::process::ExitCode;

/// Say what a memory policy would do, without doing it.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Validate(validate::Args),
    Place(place::Args),
    Replay(replay::Args),
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Validate(args) => validate::run(args, context),
        Command::Place(args) => place::run(args, context),
        Command::Replay(args) => replay::run(args, context),
    }
}
