//! Weights by node, and the spread of pages that they ask for.

use super::context::BadUsage;
use super::nodes::Known;
use anyhow::Context as _;
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::fs::{Root, node};
use memtide_linux::respread::Spread;
use memtide_loop::options;
use std::collections::BTreeMap;

/// Weights by node, as written.
pub type WeightsArg = BTreeMap<NodeId, u8>;

/// As the command line gives them.
pub fn weights(text: &str) -> Result<WeightsArg, String> {
    options::weights(text)
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
