//! `memtide sim`
use crate::cli::Context;
use std::process::ExitCode;

/// Try a placement on a simulated machine, before owning the hardware.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
}

/// Run it
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    names: Vec<String>,
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<std::path::PathBuf>,
}
/// x
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    println!("{args:?} {context:?}");
    Ok(ExitCode::SUCCESS)
}

mod causes;
mod comparison;
mod html;
mod table;
mod words;
