//! `memtide tier`: promote hot pages, demote cold ones to make room.
//!
//! In the foreground until SIGINT, SIGTERM, the given duration, or the end of
//! the last managed process. Whatever way it ends, it says what it did, and the
//! kernel's settings are as they were before.

mod args;
mod print;

pub use args::TierArgs as Args;

use crate::shared::context::Context;
use crate::shared::foreground::Foreground;
use crate::shared::journal::{self, Journaled, Run};
use crate::shared::metrics::Metrics;
use crate::shared::report::Printer;
use crate::shared::selection::{check_privileges, selection};
use crate::shared::signals;
use crate::shared::source;
use anyhow::{Context as _, bail};
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_linux::fs::topology;
use memtide_linux::live::{LiveSource, LiveWorld};
use memtide_linux::priority;
use memtide_loop::journal::Line;
use memtide_loop::tier::{TierConfig, Tierer};
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.selection.from_journal {
        context.print(&journal::run_again(path, "tier")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let machine = topology::read(&context.root)?;
    let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
    check_tiers(&machine.topology)?;
    check_privileges(&context.root, args.options.dry_run)?;
    let signal = signals::hear()?;
    LiveWorld::stay_off_fast_memory(&machine.topology);
    let opened = source::open(args.options.source, &context.root, page)?;
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let seed = u64::from(std::process::id());
    let config = TierConfig::new(&args.options, &machine.topology, page, seed)?;
    // Before the priority: who asks for metrics has none.
    let metrics = Metrics::begin(&args.metrics, "tier", page)?;
    priority::ask();
    let mut printer = Printer::new(context.json, page);
    metrics.announce(&mut printer);
    for notice in &opened.notices {
        printer.notice(notice);
    }
    let mut world = LiveWorld::new(
        context.root.clone(),
        machine.topology,
        page,
        selection(&args.selection),
        vec![LiveSource::Views(opened.source)],
    );
    let options = args.options.clone();
    let run = Run::Tier { options, seed };
    let journal = Journaled::begin(args.journal.as_deref(), &world, run)?;
    let mut tierer = journal.note(None, &mut world, &mut printer, |world, _| {
        Tierer::new(world, config)
    });
    metrics.tell(&mut printer, &tierer.status(&mut world));
    let foreground = Foreground {
        signal: &signal,
        limit: args.duration,
        ends_with_processes: !args.selection.pid.is_empty(),
        journal: &journal,
    };
    let end = foreground.work(
        &mut tierer,
        &mut world,
        &mut printer,
        Tierer::step,
        |printer, tierer, world| {
            let status = tierer.status(world);
            metrics.tell(printer, &status);
            print::status(printer, &status);
        },
    );
    // What was done until now must not be lost over an error.
    let finish = Some(Line::Finish);
    let put_back = journal.note(finish, &mut world, &mut printer, |world, _| {
        tierer.finish(world)
    });
    let why = end.as_deref().unwrap_or("failed");
    let status = tierer.status(&mut world);
    metrics.end(&mut printer, &status);
    print::summary(&mut printer, &status, why);
    put_back?;
    end?;
    Ok(ExitCode::SUCCESS)
}

/// There must be a tier to promote from and one to promote to.
fn check_tiers(topology: &Topology) -> anyhow::Result<()> {
    let lower = topology
        .nodes()
        .iter()
        .find(|node| !node.top_tier && node.has_memory());
    match lower {
        None => bail!(
            "this machine has one tier of memory, so there is nothing to promote; memtide topology shows its nodes"
        ),
        Some(node) if node.promotion_target.is_none() => bail!(
            "node {}: no faster node has memory; memtide topology shows the nodes",
            node.id
        ),
        Some(_) => Ok(()),
    }
}
