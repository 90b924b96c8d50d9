//! Why an oracle is an estimate and no bound, or says little.
//!
//! The bound holds for a program whose pages have rates that the source tells, whose threads are alike and
//! keep pace, and whose rates change with its own work. What a program lacks of that is a doubt.

use super::super::Source;
use super::census::Kind;
use super::pieces::{Piece, as_they_ran};
use crate::hardware::Hardware;
use memtide_core::units::NodeId;

/// The share of a run's time that may count as it ran.
const AS_IT_RAN: f64 = 0.1;

/// Why the oracle of a program is an estimate; `None` if it is a bound.
pub fn of_program<W: Source>(
    source: &W,
    kinds: &[Kind],
    capacity: &[(NodeId, u64)],
    hw: &Hardware,
) -> Option<&'static str> {
    let plan = source.plan();
    let regions = || plan.regions.iter();
    let pages: u64 = regions().map(|region| u64::from(region.pages)).sum();
    let all: u64 = capacity.iter().map(|&(_, pages)| pages).sum();
    let role = |thread: &crate::workload::ThreadPlan| {
        (thread.group, thread.space, thread.think_ns.to_bits())
    };
    let first = plan.threads.first().map(role);
    let (kind, rest) = kinds.split_first()?;
    let cpus = kind
        .nodes
        .iter()
        .map(|&node| hw.cpus_of_node(NodeId(node)).len());
    let usable: usize = cpus.sum();
    let by_time = source.phase(0) != source.phase(u64::MAX)
        || regions().any(|region| region.freed_at_ns.is_some());
    if source.is_recorded() {
        Some("a recording says what was accessed, not at what rates")
    } else if pages > all {
        Some("the program is larger than memory, and reading it again is not counted")
    } else if kind.nodes.len() > 1 {
        Some("threads may move to other nodes, where caches hold other lines")
    } else if plan.threads.len() > usable {
        Some("threads share processors, and what one does not use another may")
    } else if !rest.is_empty() || plan.threads.iter().any(|t| Some(role(t)) != first) {
        Some("threads of several kinds share memory, and one kind may gain what another loses")
    } else if by_time && plan.ends_at_ns.is_none() {
        Some("rates change with time, and a slower run does other work at each")
    } else {
        None
    }
}

/// Why the oracle of a run says little, though it is a bound.
pub fn of_run(pieces: &[Piece]) -> Option<&'static str> {
    (as_they_ran(pieces) > AS_IT_RAN).then_some(
        "rates change so often that much of the run counts as on the nearest memory, idle",
    )
}
