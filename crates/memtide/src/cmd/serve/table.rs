//! The kernel's table of interleave weights, as `[weights]` wants it while the service runs.
//!
//! The table is the whole machine's and none of a run's: it stays as it is wanted when a reload begins
//! another run, and is put back when the service ends or the wish does.

use super::fitting::at;
use crate::shared::configuration::Configuration;
use crate::shared::context::Context;
use crate::shared::firmware_weights;
use crate::shared::lent_weights::{Holder, Lent, THEIRS};
use crate::shared::outside::causes;
use crate::shared::weights_options::TableWeights;
use anyhow::{Context as _, anyhow};
use memtide_core::units::NodeId;
use memtide_linux::fs::topology;
use memtide_linux::weight_table::WeightTable;
use memtide_loop::options::in_words;
use std::collections::BTreeMap;

type Weights = BTreeMap<NodeId, u8>;

/// What the table is to read, if anything, on this machine.
///
/// # Errors
/// It cannot: the kernel has no table, the machine has no such node, or nothing tells bandwidths. The
/// place of the value comes first.
pub fn wanted(context: &Context, configuration: &Configuration) -> anyhow::Result<Option<Weights>> {
    let Some(table) = &configuration.settings.weights.table else {
        return Ok(None);
    };
    let weights = by_node(context, table).map_err(|why| {
        let at = at(configuration, "weights", "table");
        anyhow!("{at}table: {}", causes(&why))
    });
    weights.map(Some)
}

fn by_node(context: &Context, table: &TableWeights) -> anyhow::Result<Weights> {
    let kernels = WeightTable::open(&context.root)
        .context("the weights cannot be in force; leave this out")?;
    let weights = match table {
        TableWeights::Given(weights) => weights.by_node().clone(),
        TableWeights::Compute => firmware_weights::weights(&topology::read(&context.root)?)
            .context("the firmware tells no bandwidths; write the weights, as \"0=9,2=1\"")?,
    };
    kernels.check(&weights)?;
    Ok(weights)
}

/// The table as it is lent, if it is.
#[derive(Default)]
pub struct Table {
    lent: Option<Lent>,
    wanted: Option<Weights>,
    dry_run: bool,
}

impl Table {
    /// What it reads for the service, or would with a dry run.
    pub fn weights(&self) -> Option<String> {
        self.wanted.as_ref().map(in_words)
    }

    /// Has it as `configuration` wants it; what to say.
    ///
    /// # Errors
    /// It cannot be. Then it is as the service found it, or as before if this machine cannot have what is
    /// wanted.
    pub fn follow(
        &mut self,
        context: &Context,
        configuration: &Configuration,
    ) -> anyhow::Result<Vec<String>> {
        let wanted = wanted(context, configuration)?;
        let dry_run = configuration.settings.weights.dry_run;
        if (&wanted, dry_run) == (&self.wanted, self.dry_run) {
            return Ok(Vec::new());
        }
        // Where this fails, it is as nobody wants it.
        let Table { lent, .. } = std::mem::take(self);
        let mut says = Vec::new();
        let lent = match (lent, wanted.as_ref().filter(|_| !dry_run)) {
            (None, None) => None,
            (Some(lent), None) => {
                says.extend(said_of(lent.give_back()?));
                None
            }
            (None, Some(weights)) => {
                let (lent, said) = Lent::take(&context.root, weights, Holder::Service)?;
                says.extend(said);
                Some(lent)
            }
            (Some(mut lent), Some(weights)) => {
                says.extend(lent.change(weights)?);
                Some(lent)
            }
        };
        if let Some(weights) = &wanted {
            let weights = in_words(weights);
            says.push(match dry_run {
                true => format!("would have the kernel's interleave weights be {weights}"),
                false => {
                    format!("the kernel's interleave weights are {weights} until the service ends")
                }
            });
        }
        *self = Table {
            lent,
            wanted,
            dry_run,
        };
        Ok(says)
    }

    /// Puts it back; what to say.
    pub fn give_back(&mut self) -> anyhow::Result<Option<String>> {
        match std::mem::take(self).lent {
            Some(lent) => Ok(said_of(lent.give_back()?)),
            None => Ok(None),
        }
    }
}

fn said_of(ours: bool) -> Option<String> {
    (!ours).then(|| THEIRS.to_owned())
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
