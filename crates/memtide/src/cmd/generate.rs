//! `memtide generate`: what a package brings beside the program.
//!
//! The program writes these itself, so that whoever builds a package, from
//! whatever tool, gets what belongs to the very version that is packed.

use crate::shared::context::Context;
use anyhow::Context as _;
use clap::Subcommand;
use clap_complete::Shell;
use memtide_linux::files;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write man pages or shell completions, for packages
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a man page for memtide and for each of its commands
    Man {
        /// Where to; made if it is not there
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print completions for a shell
    Completion {
        /// Which
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// Runs the command. `command` is the command line as clap describes it.
pub fn run(args: Args, mut command: clap::Command, context: &Context) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Man { folder } => man(&folder, command)?,
        What::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "memtide", &mut text);
            context.print(std::str::from_utf8(&text)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn man(folder: &Path, command: clap::Command) -> anyhow::Result<()> {
    let cannot = || format!("{}: man pages cannot be written there", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    pages(&command, folder).with_context(cannot)
}

/// The page of `command` and those below it. `generate_to` of clap_mangen would write through
/// anybody's links.
fn pages(command: &clap::Command, folder: &Path) -> std::io::Result<()> {
    let below = command.get_subcommands();
    for command in below.filter(|command| !command.is_hide_set()) {
        pages(command, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    files::write(&folder.join(page.get_filename()), &text)
}
