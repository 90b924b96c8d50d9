//! What most workloads ask of their figures, in the same words.

use super::{Wrong, want};

/// At least one thread.
pub(super) fn some_threads(threads: u32) -> Result<(), Wrong> {
    let why = "0 threads do nothing; give at least 1";
    want(threads > 0, "threads", why)
}

/// At least one access of each thread.
pub(super) fn some_accesses(accesses: u64) -> Result<(), Wrong> {
    let why = "0 accesses do nothing; give at least 1";
    want(accesses > 0, "accesses", why)
}

/// At least one operation for each access.
pub(super) fn some_operations(ops_per_access: u32) -> Result<(), Wrong> {
    let why = "an access retires at least 1 operation";
    want(ops_per_access > 0, "ops_per_access", why)
}

/// A share of stores.
pub(super) fn stores_of_100(stores_percent: u32) -> Result<(), Wrong> {
    let why = "at most 100 of 100 accesses store";
    want(stores_percent <= 100, "stores_percent", why)
}

/// No node twice.
pub(super) fn each_node_once(key: &'static str, nodes: &[u16]) -> Result<(), Wrong> {
    let twice = (1..nodes.len()).find(|&at| nodes[..at].contains(&nodes[at]));
    match twice {
        Some(at) => want(
            false,
            key,
            format!("node {} is named twice; name it once", nodes[at]),
        ),
        None => Ok(()),
    }
}
