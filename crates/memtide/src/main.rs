//! The command. Only this crate prints.
//!
//! `cmd/` has a folder or a file for each subcommand: an `Args` struct and a function
//! `run(args, context) -> anyhow::Result<ExitCode>`. `shared/` has what more than one of them needs. No
//! subcommand knows another, and nothing in `shared/` knows a subcommand. To add one, add a module to
//! `cmd/`, a variant to [`Command`] and an arm to [`run()`].
//!
//! Promises of every subcommand: exit status 0 done, 1 failed, 2 bad usage; an
//! error is one line on standard error that begins with `memtide: `; with
//! `--json`, standard output is JSON as in `docs/json.md`: one document, or one
//! object a line of what goes on.
//! [`Printing`] gives a subcommand that option; one whose `--json` means more
//! declares its own.
#![forbid(unsafe_code)]

mod cmd;
mod shared;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use cmd::{
    balance, config, doctor, explain, generate, pager, pause, policy, rebalance, reload, run,
    serve, sim, status, tier, top, topology, trace, weights,
};
use memtide_linux::fs::Root;
use shared::context::{BadUsage, Context, complain, say, unless_gone};
use shared::outside;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::panic::{PanicHookInfo, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

/// A simulated machine's tables are on huge pages.
#[global_allocator]
static ALLOCATOR: memtide_linux::HugePages = memtide_linux::HugePages;

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
    Config(Printing<config::Args>),
    Topology(Printing<topology::Args>),
    Doctor(Printing<doctor::Args>),
    Explain(Printing<explain::Args>),
    Generate(generate::Args),
    Pager(Box<Printing<pager::Args>>),
    Pause(Printing<pause::Args>),
    Policy(Box<Printing<policy::Args>>),
    Rebalance(Printing<rebalance::Args>),
    Reload(Printing<reload::Args>),
    Resume(Printing<pause::ResumeArgs>),
    Run(Printing<run::Args>),
    Serve(Printing<serve::Args>),
    Sim(sim::Args),
    Status(Printing<status::Args>),
    Tier(Printing<tier::Args>),
    Top(Printing<top::Args>),
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

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(say_mistake));
    // What ends here by a mistake of memtide's has failed like anything else.
    catch_unwind(command).unwrap_or(ExitCode::FAILURE)
}

fn command() -> ExitCode {
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

/// Says that something which must stay true did not.
fn say_mistake(panic: &PanicHookInfo<'_>) {
    let what = panic.payload_as_str().unwrap_or("it gives no reason");
    let place = panic.location().map(ToString::to_string);
    complain(&mistake_line(what, &place.unwrap_or_default()));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        say(&trace.to_string());
    }
}

fn mistake_line(what: &str, place: &str) -> String {
    format!(
        "a mistake in memtide itself, at {place}: {what}; please report it. What is lent is put back by the next start, or by memtide doctor --restore"
    )
}

fn run(command: Command, context: Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Balance(args) => args.with(context, balance::run),
        Command::Config(args) => args.with(context, config::run),
        Command::Topology(args) => args.with(context, topology::run),
        Command::Doctor(args) => args.with(context, doctor::run),
        Command::Explain(args) => args.with(context, explain::run),
        Command::Generate(args) => generate::run(args, Cli::command(), &context),
        Command::Pager(args) => args.with(context, pager::run),
        Command::Pause(args) => args.with(context, pause::run),
        Command::Policy(args) => args.with(context, policy::run),
        Command::Rebalance(args) => args.with(context, rebalance::run),
        Command::Reload(args) => args.with(context, reload::run),
        Command::Resume(args) => args.with(context, pause::resume),
        Command::Run(args) => args.with(context, run::run),
        Command::Serve(args) => args.with(context, serve::run),
        Command::Sim(args) => sim::run(args, &context),
        Command::Status(args) => args.with(context, status::run),
        Command::Tier(args) => args.with(context, tier::run),
        Command::Top(args) => args.with(context, top::run),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_must_not_be_is_one_line_too() {
        let line = outside::message(&mistake_line("a\nb \x1b[2J", "ledger.rs:7:9"));
        assert!(
            line.starts_with("a mistake in memtide itself, at ledger.rs:7:9: a b \\u{1b}[2J; "),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
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
