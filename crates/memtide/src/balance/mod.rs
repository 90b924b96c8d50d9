//! `memtide balance`: bring pages to the NUMA nodes that use them.
//!
//! In the foreground until SIGINT, SIGTERM, the given time, or the end of the
//! last managed process. Whatever way it ends, it says what it did and what that
//! cost, and threads may run where they might before.

mod args;
mod print;
mod source;

pub use args::BalanceArgs as Args;

use crate::cli::Context;
use crate::tier::{check_privileges, hear_signals, selection, signal_name};
use anyhow::{Context as _, bail};
use args::TasksArg;
use memtide_core::hotness::{Config, Layout};
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_linux::fs::topology;
use memtide_linux::live::balance::affinity::{self, Affinities};
use memtide_linux::live::balance::{Balancing, Options, Tasks};
use print::Printer;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the status is printed.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// 4 GiB/s.
const PAGES_PER_SECOND: u64 = 1 << 20;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let machine = topology::read(&context.root)?;
    let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
    check_nodes(&machine.topology)?;
    check_privileges(&context.root, args.dry_run)?;
    let opened = source::open(args.source, &context.root, args.rate)?;
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let signal = hear_signals()?;
    let turn = affinity::journal(&context.root).turn()?;
    let mut printer = Printer::new(context.json, page);
    match &turn {
        // Nobody else is at it: what is noted was left.
        Some(turn) => {
            if let Some(freed) = Affinities::put_back_left(&context.root, turn)? {
                printer.notice(&format!(
                    "put back what a killed memtide left: the affinity of {freed} threads"
                ));
            }
        }
        None if tasks(&args) == Tasks::Set => {
            bail!("another memtide balance --tasks runs; end it first, or use --tasks=propose")
        }
        None => {}
    }
    for notice in &opened.notices {
        printer.notice(notice);
    }
    let options = options(&args, opened.by_rounds, page)?;
    let (root, ears) = (context.root.clone(), opened.ears);
    let mut balancing = Balancing::new(root, machine.topology, page, ears, options)?;
    let end = work(&mut balancing, &args, &mut printer, || {
        signal.load(Ordering::Relaxed)
    });
    // What was done until now must not be lost over an error.
    let freed = balancing.finish();
    let why = end.as_deref().unwrap_or("failed");
    printer.summary(&balancing.status(), why, *freed.as_ref().unwrap_or(&0));
    drop(turn);
    end?;
    freed?;
    Ok(ExitCode::SUCCESS)
}

/// Turns until something ends them; what that was.
fn work(
    balancing: &mut Balancing,
    args: &Args,
    printer: &mut Printer,
    signal: impl Fn() -> usize,
) -> anyhow::Result<String> {
    let started = Instant::now();
    let mut printed = started;
    loop {
        match signal() {
            0 => {}
            number => return Ok(format!("stopped by {}", signal_name(number))),
        }
        let over = |seconds| started.elapsed() >= Duration::from_secs(seconds);
        if args.seconds.is_some_and(over) {
            return Ok("done".to_owned());
        }
        let any_left = balancing.step(printer)?;
        if !any_left && !args.selection.pid.is_empty() {
            return Ok("all processes have ended".to_owned());
        }
        if printed.elapsed() >= STATUS_EVERY {
            printed = Instant::now();
            printer.status(&balancing.status());
        }
    }
}

/// There must be nodes to choose from.
fn check_nodes(topology: &Topology) -> anyhow::Result<()> {
    let nodes = topology.nodes().iter();
    let choice = nodes.filter(|node| node.has_cpus() && node.has_memory());
    if choice.count() < 2 {
        bail!(
            "fewer than two nodes have both CPUs and memory, so every page is where it should be; memtide topology shows the nodes"
        );
    }
    Ok(())
}

fn tasks(args: &Args) -> Tasks {
    match args.tasks {
        None => Tasks::Leave,
        Some(TasksArg::Set) if !args.dry_run => Tasks::Set,
        Some(_) => Tasks::Propose,
    }
}

fn options(args: &Args, by_rounds: bool, page: PageSize) -> anyhow::Result<Options> {
    // A fault stands for a scan or a round, in which no page comes twice: the gate,
    // which wants two from one node, is all that can be asked for.
    let threshold = if by_rounds { 1 } else { 2 };
    Ok(Options {
        selection: selection(&args.selection),
        tasks: tasks(args),
        hotness: Config::new(Layout::Precise).with_threshold(threshold)?,
        headroom: page.pages(args.headroom),
        pages_per_s: PAGES_PER_SECOND,
        cpu_permille: args.cpu_limit,
        dry_run: args.dry_run,
        explain: args.explain,
    })
}
