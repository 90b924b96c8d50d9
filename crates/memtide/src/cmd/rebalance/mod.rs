//! `memtide rebalance`: moves the pages that a process has to a wanted spread.
//!
//! Interleave weights and `memtide run` say where new pages go; this is for the
//! pages that are there already. Exit status 0: all but a hundredth of the
//! pages that may be spread are where they belong, or the process ended
//! meanwhile, or it was a dry run. Exit status 1: pages that should have moved
//! did not, or it was interrupted.

mod print;

use crate::shared::context::Context;
use crate::shared::nodes::Machine;
use crate::shared::pacing::{Budget, Ended, spread_out};
use crate::shared::spread::{WeightsArg, as_the_kernel_counts, page_size, wanted, weights};
use crate::shared::words::{pid, size};
use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::mover::SharedPages;
use memtide_linux::respread::{End, Options, Respread};
use memtide_linux::sys::signals::Blocked;
use print::Progress;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::ExitCode;

/// Spread the memory that a process already has over nodes by weight
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// The process
    #[arg(long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pid: u32,

    /// Pages for each node out of every round, such as 0=9,2=1
    #[arg(long, value_name = "NODE=WEIGHT,..", value_parser = weights, allow_negative_numbers = true)]
    weights: WeightsArg,

    /// Move at most this much a second
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size, allow_negative_numbers = true)]
    rate_limit: u64,

    /// Move pages too that other processes map, such as those of shared files
    #[arg(long)]
    shared: bool,

    /// Say what would move, but move nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let machine = Machine::read(&context.root, true)?;
    let wanted = wanted(&args.weights, &machine.memory_nodes, "--weights")?;
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let page = page_size()?;
    let options = Options {
        spread: as_the_kernel_counts(&context.root, wanted)?,
        shared: match args.shared {
            true => SharedPages::Move,
            false => SharedPages::Leave,
        },
        dry_run: args.dry_run,
        page,
    };
    let signals = Blocked::new(&[SIGINT, SIGTERM, SIGHUP]).context("cannot hear signals")?;
    let kernel = RunningKernel::new(context.root.clone());
    let mut respread = Respread::open(&context.root, kernel, args.pid, options)?;
    let progress = Progress::new(context, respread.pages());
    let mut budget = Budget::new(page.pages(args.rate_limit));
    let interrupted = |wait| signals.wait(wait).is_some();
    let ended = spread_out(&mut respread, &mut budget, interrupted, |respread| {
        progress.show(respread.looked_at(), respread.moved());
    })?;
    progress.clear();
    let report = respread.finish(ended == Ended::Interrupted)?;
    match context.json {
        true => context.print_json(&report)?,
        false => context.print(&print::text(&report, page))?,
    }
    Ok(match report.reached || report.end == End::ProcessEnded {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
