//! `memtide rebalance`: moves the pages that a process has to a wanted spread.
//!
//! Interleave weights and `memtide run` say where new pages go; this is for the
//! pages that are there already. Exit status 0: all but a hundredth of the
//! pages that may be spread are where they belong, or the process ended
//! meanwhile, or it was a dry run. Exit status 1: pages that should have moved
//! did not, or it was interrupted.

pub mod pacing;
mod print;

use crate::cli::{BadUsage, Context};
use crate::nodes::{Known, Machine};
use crate::tier::{pid, size};
use crate::weight_words;
use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::fs::{Root, node};
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::mover::SharedPages;
use memtide_linux::respread::{End, Options, Respread, Spread};
use memtide_linux::sys::signals::Blocked;
use pacing::{Ended, spread_out};
use print::Progress;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Weights by node, as written.
pub type WeightsArg = BTreeMap<NodeId, u8>;

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

/// As the command line gives them.
pub fn weights(text: &str) -> Result<WeightsArg, String> {
    weight_words::weights(text)
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
    let per_second = page.pages(args.rate_limit);
    let interrupted = |wait| signals.wait(wait).is_some();
    let ended = spread_out(&mut respread, per_second, interrupted, |respread| {
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

/// The wanted spread, if this machine has its nodes. `option` is what to blame.
pub fn wanted(weights: &WeightsArg, memory: &Known, option: &str) -> anyhow::Result<Spread> {
    for node in weights.keys() {
        memory
            .check(u32::from(node.0))
            .map_err(|why| BadUsage(format!("{option}: {why}")))?;
    }
    let pairs = weights.iter().map(|(node, weight)| (*node, *weight));
    Spread::new(pairs).context("no weights")
}

/// `wanted` with the numbers of the kernel's table where that has the same
/// proportions, so that new pages and moved ones are counted alike.
pub fn as_the_kernel_counts(root: &Root, wanted: Spread) -> anyhow::Result<Spread> {
    let table = node::weights(root)?.map_or_else(BTreeMap::new, |table| table.weights);
    let same = wanted.as_in_table(|node| table.get(&node).copied());
    Ok(same.unwrap_or(wanted))
}

/// The running machine's base page.
pub fn page_size() -> anyhow::Result<PageSize> {
    PageSize::new(rustix::param::page_size() as u32).context("unknown page size")
}
