//! `memtide tier`: promote hot pages, demote cold ones to make room.
//!
//! In the foreground until SIGINT, SIGTERM, the given duration, or the end of
//! the last managed process. Whatever way it ends, it says what it did, and the
//! kernel's settings are as they were before.

mod args;
mod print;

pub use args::{SelectionArgs, TierArgs as Args, pid, size};

use crate::cli::Context;
use crate::foreground::{Foreground, hear_signals};
use crate::journal::{self, Journaled, Run};
use crate::report::Printer;
use crate::source;
use anyhow::{Context as _, bail};
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_linux::fs::numa::{self, Capability};
use memtide_linux::fs::{Root, topology};
use memtide_linux::live::processes::Selection;
use memtide_linux::live::{LiveSource, LiveWorld};
use memtide_loop::journal::Line;
use memtide_loop::tier::{TierConfig, Tierer};
use std::process::ExitCode;

/// Processes below this much address space are left alone by `--all`: they have
/// less to move than looking at them costs.
const LEAST_ADDRESS_SPACE: u64 = 8 << 20;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.selection.from_journal {
        return journal::run_again(path, "tier");
    }
    let machine = topology::read(&context.root)?;
    let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
    check_tiers(&machine.topology)?;
    check_privileges(&context.root, args.options.dry_run)?;
    let signal = hear_signals()?;
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
    let mut printer = Printer::new(context.json, page);
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
        |printer, tierer, world| print::status(printer, &tierer.status(world)),
    );
    // What was done until now must not be lost over an error.
    let finish = Some(Line::Finish);
    let put_back = journal.note(finish, &mut world, &mut printer, |world, _| {
        tierer.finish(world)
    });
    let why = end.as_deref().unwrap_or("failed");
    print::summary(&mut printer, &tierer.status(&mut world), why);
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

/// Names the capability that is missing, before anything is tried.
pub fn check_privileges(root: &Root, dry_run: bool) -> anyhow::Result<()> {
    let Some(held) = numa::capabilities(root)? else {
        return Ok(());
    };
    let needed = match dry_run {
        true => &[Capability::SysPtrace, Capability::SysAdmin][..],
        false => &[
            Capability::SysPtrace,
            Capability::SysAdmin,
            Capability::SysNice,
        ][..],
    };
    let missing: Vec<&str> = needed
        .iter()
        .filter(|capability| !held.has(**capability))
        .map(|capability| capability.name())
        .collect();
    if !missing.is_empty() {
        bail!(
            "not permitted: {} is missing; run as root",
            missing.join(", ")
        );
    }
    Ok(())
}

/// The processes that were named.
pub fn selection(args: &SelectionArgs) -> Selection {
    match (&args.cgroup, args.all) {
        (Some(path), _) => Selection::Cgroup(path.clone()),
        (None, true) => Selection::All {
            at_least: LEAST_ADDRESS_SPACE,
        },
        (None, false) => Selection::Pids(args.pid.clone()),
    }
}
