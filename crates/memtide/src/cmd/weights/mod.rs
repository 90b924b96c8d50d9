//! `memtide weights`: which interleave weights are in force, which would be
//! best, and setting them.
//!
//! Weights come from a source ([`compute`]), or are given; the change is
//! [`change`]; both together make a [`report::Report`], which is printed as JSON
//! as it stands or as text.

mod args;
mod change;
mod compute;
mod print;
mod progress;
mod report;

pub use args::Args;

use crate::shared::context::{BadUsage, Context};
use crate::shared::lent_weights::{self, Standing};
use memtide_linux::fs::topology;
use memtide_linux::measure::MeasureError;
use memtide_linux::weight_table::{WeightError, WeightTable};
use report::Report;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let machine = topology::read(&context.root)?;
    let table = match WeightTable::open(&context.root) {
        Ok(table) => Ok(table),
        Err(none @ WeightError::NoTable { .. }) => Err(none.to_string()),
        Err(error) => return Err(error.into()),
    };
    let changes = args.apply || change::is_direct(&args);
    let mut table = match (table, changes) {
        // Before a measurement that would take its time for nothing.
        (Err(none), true) => anyhow::bail!(none),
        (table, _) => table,
    };
    let standing = lent_weights::standing(&context.root)?;
    if changes && !args.dry_run && standing == Standing::Lent {
        anyhow::bail!(change::LENT);
    }
    let computed = match change::is_direct(&args) {
        true => None,
        false => compute::compute(&args, &machine, &context.root)?,
    };
    let before = match &table {
        Ok(table) => Some(table.read()?),
        Err(_) => None,
    };
    let change = match &mut table {
        Ok(table) if changes => {
            let root = &context.root;
            Some(change::change(
                &args,
                computed.as_ref(),
                &standing,
                table,
                root,
            )?)
        }
        _ => None,
    };
    // Whoever has written the table for good has it.
    let lent = match changes && !args.dry_run {
        true => None,
        false => report::Lent::of(&standing),
    };
    let no_table = table.err();
    let report = Report {
        lent,
        ..Report::new(&machine, before, computed.as_ref(), change, no_table)
    };
    if context.json {
        context.print_json(&report)?;
    } else {
        context.print(&print::text(&report, context.styled))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An error of the words that were given, or of what they asked for.
fn blame(error: WeightError) -> anyhow::Error {
    match error {
        WeightError::Empty
        | WeightError::Zero(_)
        | WeightError::NoNode { .. }
        | WeightError::NoMemory { .. } => BadUsage(error.to_string()).into(),
        error => error.into(),
    }
}

/// As [`blame`].
fn blame_measuring(error: MeasureError) -> anyhow::Error {
    match error {
        MeasureError::NoNode { .. } | MeasureError::NoMemory { .. } => {
            BadUsage(format!("--nodes: {error}")).into()
        }
        MeasureError::Cpu { .. } => BadUsage(format!("--cpus: {error}")).into(),
        error => error.into(),
    }
}
