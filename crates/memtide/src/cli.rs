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

use crate::outside;
use crate::{
    balance, doctor, generate, pager, policy, rebalance, run, sim, tier, topology, trace, weights,
};
use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
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
#[command(
    name = "memtide",
    version,
    propagate_version = true,
    after_help = "Environment:\n  MEMTIDE_ROOT  Read /proc, /sys and /run under this directory instead of /\n  NO_COLOR      Print without styles, if set"
)]
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
    Generate(generate::Args),
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
        let text = outside::screen(text, self.styled);
        unless_gone(out(text.as_bytes()))
    }

    /// Writes `document` as JSON, indented, with a line end.
    pub fn print_json(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        unless_gone(out(outside::json(&text).as_bytes()))
    }
}

fn out(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// What writing to standard output gave. A reader that has seen enough, as
/// `head` does, is no error.
pub fn unless_gone(written: std::io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
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
            complain(&outside::causes(&error));
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
        Command::Generate(args) => generate::run(args, &context),
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

/// The command line as clap describes it, for man pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// An environment variable that is set and not empty.
fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Help and version go out as they are; a mistake becomes one line.
fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            match unless_gone(printed) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    complain(&outside::causes(&error));
                    ExitCode::FAILURE
                }
            }
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
    say(&format!("memtide: {}", outside::message(message)));
}

/// A line on standard error. If that takes nothing there is nobody to tell.
pub fn say(line: &str) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

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
