//! `memtide tier`: promote hot pages, demote cold ones to make room.
//!
//! In the foreground until SIGINT, SIGTERM, the given duration, or the end of
//! the last managed process. Whatever way it ends, it says what it did, and the
//! kernel's settings are as they were before.

mod args;

pub use args::TierArgs as Args;

use crate::shared::context::Context;
use crate::shared::foreground::{Ended, Foreground};
use crate::shared::journal;
use crate::shared::metrics::{Metrics, Names};
use crate::shared::report::Printer;
use crate::shared::selection::selection;
use crate::shared::signals;
use crate::shared::spread::page_size;
use crate::shared::tiering::{self, print};
use memtide_linux::{open_files, priority};
use memtide_loop::options::{Classes, Tiered};
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.selection.from_journal {
        context.print(&journal::run_again(path, "tier")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let nodes = tiering::nodes(context, &args.options, "")?;
    tiering::check(context, &nodes, &args.options)?;
    let selection = selection(&args.selection, &context.root)?;
    let signal = signals::hear()?;
    let whom = (&Classes::new(), Tiered::default());
    let opened = tiering::open(context, nodes, &args.options, whom, None, None)?;
    let page = page_size()?;
    // Before the priority: who asks for metrics has none.
    let metrics = Metrics::begin(&args.metrics, &Names::of_options(), "tier", page)?;
    let mut printer = Printer::new(context.json, page);
    priority::ask();
    open_files::ask();
    metrics.announce(&mut printer);
    let journal = args.journal.as_deref();
    let mut tiering = opened.begin(context, selection, journal, &mut printer)?;
    metrics.tell(&mut printer, &tiering.status());
    let foreground = Foreground {
        signal: &signal,
        reload: None,
        limit: args.duration,
        ends_with_processes: !args.selection.pid.is_empty(),
    };
    let end = tiering.work(&foreground, &mut printer, &metrics, &());
    // What was done until now must not be lost over an error.
    let (status, put_back) = tiering.finish(&mut printer);
    let why = end.as_ref().map_or("failed".to_owned(), Ended::to_string);
    metrics.end(&mut printer, &status);
    print::summary(&mut printer, &status, &why);
    put_back?;
    end?;
    Ok(ExitCode::SUCCESS)
}
