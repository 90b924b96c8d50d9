//! `memtide balance`: bring pages to the NUMA nodes that use them.
//!
//! In the foreground until SIGINT, SIGTERM, the given time, or the end of the
//! last managed process. Whatever way it ends, it says what it did and what that
//! cost, and threads may run where they might before.

mod args;

pub use args::BalanceArgs as Args;

use crate::shared::balancing::{self, print, source};
use crate::shared::context::Context;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::journal::{self, Journaled, Run};
use crate::shared::metrics::{Metrics, Names};
use crate::shared::report::Printer;
use crate::shared::selection::{check_privileges, selection};
use crate::shared::signals;
use anyhow::{Context as _, bail};
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_linux::fs::topology;
use memtide_linux::live::{LiveSource, LiveWorld};
use memtide_linux::open_files;
use memtide_loop::balance::{BalanceConfig, Balancer, Tasks, has_choice, tasks};
use memtide_loop::journal::Line;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.selection.from_journal {
        context.print(&journal::run_again(path, "balance")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let machine = topology::read(&context.root)?;
    let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
    check_nodes(&machine.topology)?;
    check_privileges(&context.root, args.options.dry_run)?;
    let opened = source::open(args.options.source, &context.root, args.options.rate, &[])?;
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let selection = selection(&args.selection, &context.root)?;
    let signal = signals::hear()?;
    let (turn, left) = balancing::take_turn(&context.root)?;
    let mut printer = Printer::new(context.json, page);
    if let Some(left) = left {
        printer.notice(&left);
    }
    if turn.is_none() && tasks(&args.options) == Tasks::Set {
        bail!("another memtide balance --tasks runs; end it first, or use --tasks=propose");
    }
    let metrics = Metrics::begin(&args.metrics, &Names::of_options(), "balance", page)?;
    metrics.announce(&mut printer);
    for notice in &opened.notices {
        printer.notice(notice);
    }
    open_files::ask();
    let config = BalanceConfig::new(&args.options, page, opened.by_rounds)?;
    let mut world = LiveWorld::new(
        context.root.clone(),
        machine.topology,
        page,
        selection,
        vec![LiveSource::Samples(Box::new(opened.sampling))],
    );
    let run = Run::Balance {
        options: args.options.clone(),
        by_rounds: opened.by_rounds,
    };
    let journal = Journaled::begin(args.journal.as_deref(), &world, run)?;
    let mut balancer = journal.note(None, &mut world, &mut printer, |world, _| {
        Balancer::new(world, config)
    })?;
    metrics.tell(&mut printer, &balancer.status(&mut world));
    let foreground = Foreground {
        signal: &signal,
        reload: None,
        limit: args.duration,
        ends_with_processes: !args.selection.pid.is_empty(),
    };
    let end = foreground.work(
        &journal,
        &mut balancer,
        &mut world,
        &mut printer,
        Balancer::step,
        |printer, balancer, world| {
            let status = balancer.status(world);
            metrics.tell(printer, &status);
            print::status(printer, &status);
        },
    );
    // What was done until now must not be lost over an error.
    let finish = Some(Line::Finish);
    let freed = journal.note(finish, &mut world, &mut printer, |world, _| {
        balancer.finish(world)
    });
    let why = end.as_ref().map_or("failed".to_owned(), Ended::to_string);
    let status = balancer.status(&mut world);
    metrics.end(&mut printer, &status);
    print::summary(&mut printer, &status, &why, *freed.as_ref().unwrap_or(&0));
    drop(turn);
    end?;
    freed?;
    Ok(ExitCode::SUCCESS)
}

/// There must be nodes to choose from.
fn check_nodes(topology: &Topology) -> anyhow::Result<()> {
    if !has_choice(topology) {
        bail!(
            "fewer than two nodes have both CPUs and memory, so every page is where it should be; memtide topology shows the nodes"
        );
    }
    Ok(())
}
