//! `memtide doctor`: what this host can do, proved, and why not where not.
//!
//! # Problem
//!
//! Everything that memtide needs of a kernel may be missing, turned off,
//! forbidden, taken by somebody else, or there and without effect. The last is
//! the worst: memory is then managed by reports that say nothing.
//!
//! # Approach
//!
//! A list of [`check::Check`]s. Some only read ([`machine`]); the others try
//! the thing on pages of doctor's own and compare with what must come out
//! ([`proofs`], over `memtide_linux::probe`). Each ends in a named
//! [`check::State`] with the figures or the reason. [`check::verdict`] makes
//! the exit status of them.
//!
//! # Properties
//!
//! - Everything is afterwards as it was, and the last check says so: settings
//!   that a source changes while it is tried are read before and after.
//! - What somebody else uses is not touched.
//! - Under another root than `/`, and with `--no-probe`, nothing is tried.
//! - A proof of a source has a time limit, and SIGINT, SIGTERM and SIGHUP end it
//!   in order. The other proofs are a few dozen system calls.

mod check;
mod machine;
mod print;
mod proofs;
mod restore;
mod settings;
mod slow_memory;

use crate::shared::context::Context;
use crate::shared::signals;
use anyhow::bail;
use check::{Check, Report};
use machine::Machine;
use memtide_core::topology::HandTiers;
use proofs::Trial;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Show what this host can do, proved, and why not where not.
///
/// Exit status 0: memtide tier can run here, or there is one tier of memory and
/// nothing is broken. 1: something that should work does not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only read: try nothing, change nothing
    #[arg(long, conflicts_with = "restore")]
    no_probe: bool,

    /// Put back what a memtide that crashed left changed, and do nothing else
    #[arg(long)]
    restore: bool,

    /// Judge with these tiers of nodes, from fast to slow, as in 0,1/2/3
    #[arg(long, value_name = "NODES/NODES...", conflicts_with = "restore")]
    tiers: Option<HandTiers>,

    /// How long each proof may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = limit)]
    limit: Duration,
}

fn limit(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time >= Duration::from_secs(1) => Ok(time),
        Ok(_) => Err("a proof takes a second or more; write it as 10s".into()),
        Err(error) => Err(format!("{error}; write it as 10s")),
    }
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if args.restore {
        return restore::run(context);
    }
    let report = examine(&args, context)?;
    if context.json {
        context.print_json(&report)?;
    } else {
        context.print(&print::text(&report, context.styled))?;
    }
    Ok(ExitCode::from(report.verdict.exit_status()))
}

fn examine(args: &Args, context: &Context) -> anyhow::Result<Report> {
    let began = Instant::now();
    let stop = signals::hear()?;
    let mut machine = Machine::read(&context.root);
    if let Some(tiers) = &args.tiers {
        machine = machine.with_tiers(tiers)?;
    }
    let trial = match (args.no_probe, context.root.is_live()) {
        (true, _) => Err("--no-probe"),
        (_, false) => Err("a copy of a machine was given, not this one"),
        (false, true) => Ok(Trial::new(&context.root, args.limit, stop.clone())?),
    };
    let before = settings::read(&context.root);
    let mut checks = machine.checks();
    checks.extend(proofs::checks(&machine, &trial));
    if stop.load(Ordering::Relaxed) != 0 {
        // What was begun has been closed.
        bail!("interrupted; nothing is left changed");
    }
    if trial.is_ok() {
        let kept = settings::compare(&before, &settings::read(&context.root));
        checks.push(Check::named("settings_kept", kept));
    }
    let verdict = check::verdict(&checks, machine.has_two_tiers());
    Ok(Report {
        verdict,
        probed: trial.is_ok(),
        elapsed: began.elapsed(),
        checks,
    })
}
