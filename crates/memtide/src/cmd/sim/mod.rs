//! `memtide sim`: placements tried on a machine made of numbers.
//!
//! What runs is `memtide-sim`; here are the words around it. A scenario comes from a file or out of
//! the program ([`load`]), its runs become a [`comparison`], and that is printed as
//! JSON as it stands, as tables ([`table`]) or as a page with charts ([`html`]). Only the number of
//! simulated accesses a second depends on the clock on the wall, and it is in the tables alone.

mod args;
mod causes;
mod command;
mod compare;
mod comparison;
mod estimate;
mod explain;
mod home;
mod html;
mod list;
mod load;
mod programs;
mod progress;
mod replay;
mod run;
mod table;
mod translations;
mod words;

pub use args::Args;

use crate::shared::context::Context;
use args::Command;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(&args, context),
        Command::List(args) => list::run(&args, context),
        Command::Explain(args) => explain::run(&args, context),
    }
}
