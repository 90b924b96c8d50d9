//! The command line: what all subcommands share.
//!
//! A subcommand is one file with an `Args` struct and one function
//! `run(args, context) -> anyhow::Result<ExitCode>`. To add one, add a
//! variant to [`Command`] and an arm to [`run()`].
//!
//! Promises of every subcommand: exit status 0 done, 1 failed, 2 bad usage; an
//! error is one line on standard error that begins with `memtide: `; with
//! `--json`, standard output is JSON as in `docs/json.md`: one document, or one
//! object a line of what goes on.
//! [`Printing`] gives a subcommand that option; one whose `--json` means more
//! declares its own.

use crate::{balance, doctor, pager, policy, rebalance, run, sim, tier, topology, trace, weights};
use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use memtide_linux::fs::Root;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status for a command line that makes no sense.
const BAD_USAGE: u8 = 2;

/// Puts every page of a Linux machine's memory on the tier where it belongs.
#[derive(Debug, Parser)]
#[command(name = "memtide", version, propagate_version = true)]
struct Cli {
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,

    /// Read /proc and /sys under this directory instead of /.
    #[arg(long, global = true, hide = true, value_name = "DIR")]
    root: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Balance(Printing<balance::Args>),
    Topology(Printing<topology::Args>),
    Doctor(Printing<doctor::Args>),
    Pager(Box<Printing<pager::Args>>),
    Policy(Box<Printing<policy::Args>>),
    Rebalance(Printing<rebalance::Args>),
    Run(Printing<run::Args>),
    Sim(sim::Args),
    Tier(Printing<tier::Args>),
    Trace(Printing<trace::Args>),
    Weights(Printing<weights::Args>),
}

// A subcommand's arguments with `--json`, which may stand before or after its name. (A doc comment
// here would take the place of the subcommand's own in the help.)
#[derive(Debug, clap::Args)]
struct Printing<A: clap::Args> {
    #[command(flatten)]
    args: A,

    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
}

impl<A: clap::Args> Printing<A> {
    /// Has the command with `context`, which then knows of the option here.
    fn with(
        self,
        mut context: Context,
        command: impl FnOnce(A, &Context) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        context.json |= self.json;
        command(self.args, &context)
    }
}

/// Words that are well formed and that this machine cannot make sense of: exit
/// status 2, as for words that are not.
#[derive(Debug)]
pub struct BadUsage(pub String);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// What a subcommand gets besides its own arguments.
#[derive(Debug)]
pub struct Context {
    /// Where to read; also from `MEMTIDE_ROOT`.
    pub root: Root,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether standard output is a terminal that may be styled.
    pub styled: bool,
}

impl Context {
    /// Writes `text` to standard output as it is.
    pub fn print(&self, text: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader has seen enough, as `head` does.
            Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write to standard output"),
        }
    }

    /// Writes `document` as JSON, indented, with a line end.
    pub fn print_json(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        self.print(&text)
    }
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let root = cli.root.or_else(|| set("MEMTIDE_ROOT").map(PathBuf::from));
    let context = Context {
        root: root.map_or_else(Root::default, Root::new),
        json: cli.json,
        styled: std::io::stdout().is_terminal() && set("NO_COLOR").is_none(),
    };
    match run(cli.command, context) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            match error.is::<BadUsage>() {
                true => ExitCode::from(BAD_USAGE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run(command: Command, context: Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Balance(args) => args.with(context, balance::run),
        Command::Topology(args) => args.with(context, topology::run),
        Command::Doctor(args) => args.with(context, doctor::run),
        Command::Pager(args) => args.with(context, pager::run),
        Command::Policy(args) => args.with(context, policy::run),
        Command::Rebalance(args) => args.with(context, rebalance::run),
        Command::Run(args) => args.with(context, run::run),
        Command::Sim(args) => sim::run(args, &context),
        Command::Tier(args) => args.with(context, tier::run),
        Command::Trace(args) => args.with(context, trace::run),
        Command::Weights(args) => args.with(context, weights::run),
    }
}

/// An environment variable that is set and not empty.
fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Help and version go out as they are; a mistake becomes one line.
fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(BAD_USAGE)
        }
        _ => {
            complain(&usage_line(&error.render().to_string()));
            ExitCode::from(BAD_USAGE)
        }
    }
}

/// The first paragraph says what was wrong; the rest repeats the help.
fn usage_line(rendered: &str) -> String {
    let paragraph = rendered.split("\n\n").next().unwrap_or_default();
    let sentence = paragraph.trim().trim_start_matches("error: ");
    format!("{sentence}; see memtide --help")
}

/// Says what was wrong on standard error: one line, whatever the message holds.
pub fn complain(message: &str) {
    let words: Vec<&str> = message.split_whitespace().collect();
    eprintln!("memtide: {}", words.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_mistake_becomes_one_sentence() {
        let error = Cli::try_parse_from(["memtide", "topology", "--colour"]).unwrap_err();
        assert_eq!(
            usage_line(&error.render().to_string()),
            "unexpected argument '--colour' found; see memtide --help"
        );
    }
}
