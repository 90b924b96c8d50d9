//! `memtide tier`: promote hot pages, demote cold ones to make room.
//!
//! In the foreground until SIGINT, SIGTERM, the given duration, or the end of
//! the last managed process. Whatever way it ends, it says what it did, and the
//! kernel's settings are as they were before.
//!
//! Where nodes of memory come or go, a run ends in order, and another one begins with the nodes of then, once there
//! are two tiers of them ([`runs`]).

mod args;
mod runs;

pub use args::TierArgs as Args;

use crate::shared::context::Context;
use crate::shared::journal;
use crate::shared::metrics::{Metrics, Names};
use crate::shared::nodes_watch::NodesWatch;
use crate::shared::report::Printer;
use crate::shared::selection::selection;
use crate::shared::signals;
use crate::shared::spread::page_size;
use crate::shared::tiering;
use memtide_linux::{open_files, priority};
use runs::Runs;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.selection.from_journal {
        context.print(&journal::run_again(path, "tier")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before the nodes: what comes from now on is seen.
    let watch = NodesWatch::new(&context.root);
    let nodes = tiering::nodes(context, &args.options, "")?;
    tiering::check(context, &nodes, &args.options)?;
    let selection = selection(&args.selection, &context.root)?;
    let signal = signals::hear()?;
    let opened = runs::open(context, nodes, &args.options)?;
    let page = page_size()?;
    // Before the priority: who asks for metrics has none.
    let metrics = Metrics::begin(&args.metrics, &Names::of_options(), "tier", page)?;
    let mut printer = Printer::new(context.json, page);
    priority::ask();
    open_files::ask();
    metrics.announce(&mut printer);
    let mut runs = Runs::new(context, &args, &signal, selection, printer);
    let ended = runs.all(opened, watch, &metrics);
    runs.finish(metrics);
    ended?;
    Ok(ExitCode::SUCCESS)
}
