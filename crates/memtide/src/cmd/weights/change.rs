//! What a call does to the kernel's table.
//!
//! The table may be lent to a `memtide run` or to the service: then nothing is written. What a
//! killed one left, or a change that was cut short, is put back first, so that it is never taken for what stood
//! there before.

use super::args::Args;
use super::blame;
use super::compute::Computed;
use crate::shared::lent_weights::{self, Left, Standing};
use anyhow::{Context as _, bail};
use memtide_core::units::NodeId;
use memtide_linux::fs::Root;
use memtide_linux::fs::node::Weights;
use memtide_linux::lent::Turn;
use memtide_linux::weight_table::{Change, ResetWay, WeightError, WeightTable};
use serde::Serialize;
use std::collections::BTreeMap;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Weights were computed and written.
    Apply,
    /// Weights were given and written.
    Set,
    /// The kernel's default came back.
    Reset,
    /// What stood there before came back.
    Restore,
}

/// What was or would be changed.
#[derive(Clone, Debug)]
pub struct Changed {
    /// How.
    pub action: Action,
    /// Whether it was only said.
    pub dry_run: bool,
    /// The table before and after; with a dry run, as it would be.
    pub change: Change,
    /// How the default came back.
    pub way: Option<ResetWay>,
    /// Whether what a killed memtide had left was put back first, or would be.
    pub put_back_first: bool,
}

/// Why nothing is written while the table is lent.
pub const LENT: &str = "a memtide run --apply-weights or the service has written the interleave \
                        weights and puts them back when it ends; change them then";

/// Whether `args` ask for a change that needs no bandwidths.
pub fn is_direct(args: &Args) -> bool {
    args.source.set.is_some() || args.source.reset || args.source.restore
}

/// What to do, with what was given.
enum Plan<'a> {
    Write(Action, &'a BTreeMap<NodeId, u8>),
    Reset,
    Restore,
}

/// Changes the table as `args` say, or says how.
pub fn change(
    args: &Args,
    computed: Option<&Computed>,
    standing: &Standing,
    table: &mut WeightTable,
    root: &Root,
) -> anyhow::Result<Changed> {
    let plan = match (&args.source.set, computed) {
        _ if args.source.reset => Plan::Reset,
        _ if args.source.restore => Plan::Restore,
        (Some(set), _) => Plan::Write(Action::Set, set),
        (None, Some(computed)) => Plan::Write(Action::Apply, &computed.weights),
        (None, None) => bail!(
            "nothing to apply: the firmware tells no bandwidths; use --bandwidth or --measure"
        ),
    };
    if let Plan::Write(_, weights) = plan {
        table.check(weights).map_err(blame)?;
    }
    if args.dry_run {
        return Ok(would_change(&plan, standing, table)?);
    }
    let Some(turn) = lent_weights::journal(root).turn()? else {
        bail!(LENT);
    };
    match lent_weights::put_back_by(root, &turn)? {
        None => Ok(really(&plan, table, &turn, None)?),
        Some(left) => really(&plan, table, &turn, Some(left))
            .context("what a killed memtide had left was put back, but not more"),
    }
}

/// `left` is what was put back before.
fn really(
    plan: &Plan<'_>,
    table: &mut WeightTable,
    turn: &Turn,
    left: Option<Change>,
) -> Result<Changed, WeightError> {
    let put_back_first = left.is_some();
    let (action, change, way) = match plan {
        Plan::Write(action, weights) => (*action, table.write(turn, weights)?, None),
        Plan::Reset => {
            let (change, way) = table.reset(turn)?;
            (Action::Reset, change, Some(way))
        }
        Plan::Restore => match (table.restore(turn), left) {
            // That was all.
            (Err(WeightError::NothingRemembered), Some(left)) => (Action::Restore, left, None),
            (change, _) => (Action::Restore, change?, None),
        },
    };
    Ok(Changed {
        action,
        dry_run: false,
        change,
        way,
        put_back_first,
    })
}

fn would_change(
    plan: &Plan<'_>,
    standing: &Standing,
    table: &WeightTable,
) -> Result<Changed, WeightError> {
    let left = match standing {
        Standing::Left(left) => Some(left),
        Standing::Free | Standing::Lent | Standing::Hidden => None,
    };
    let before = match left {
        Some(left) => left.before.clone(),
        None => table.read()?,
    };
    let (action, change, way) = match plan {
        Plan::Write(action, weights) => (*action, would_write(before, weights), None),
        Plan::Reset => {
            let (change, way) = would_reset(table, before);
            (Action::Reset, change, Some(way))
        }
        Plan::Restore => (Action::Restore, would_restore(table, before, left)?, None),
    };
    Ok(Changed {
        action,
        dry_run: true,
        change,
        way,
        put_back_first: left.is_some(),
    })
}

fn would_write(before: Weights, weights: &BTreeMap<NodeId, u8>) -> Change {
    let mut after = before.clone();
    after.weights.extend(weights);
    let written = match after == before {
        true => Vec::new(),
        false => {
            after.auto = after.auto.map(|_| false);
            weights.keys().copied().collect()
        }
    };
    Change {
        before,
        after,
        written,
    }
}

/// What the kernel would compute is the kernel's to say: the table stays as it
/// is read, but for the switch.
fn would_reset(table: &WeightTable, before: Weights) -> (Change, ResetWay) {
    let mut after = before.clone();
    match after.auto {
        Some(_) => after.auto = Some(true),
        None => after.weights.values_mut().for_each(|weight| *weight = 1),
    }
    let way = match table.has_auto() {
        true => ResetWay::Auto,
        false => ResetWay::EachNode,
    };
    let change = Change {
        written: Vec::new(),
        before,
        after,
    };
    (change, way)
}

fn would_restore(
    table: &WeightTable,
    before: Weights,
    left: Option<&Left>,
) -> Result<Change, WeightError> {
    let (before, after) = match (table.remembered_at(&before)?, left) {
        (Some(noted), _) => (before, noted.before()),
        (None, Some(left)) => (left.now.clone(), before),
        (None, None) => return Err(WeightError::NothingRemembered),
    };
    Ok(Change {
        written: after.weights.keys().copied().collect(),
        before,
        after,
    })
}
