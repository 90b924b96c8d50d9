//! Where each managed process stands.
//!
//! Counts of pages are kept as pages come and go, so the answer costs as much as
//! there are processes, and sections of 128 MiB that they have: nothing looks at pages.

use super::shared::Shared;
use crate::report::{ProcessAccount, ProcessOrder, ProcessStatus};
use std::cmp::Reverse;

/// The first `most` managed processes in `order`; of equal ones the oldest numbers.
pub(super) fn list(shared: &Shared, order: ProcessOrder, most: usize) -> Vec<ProcessStatus> {
    let Shared {
        ledger, budgets, ..
    } = shared;
    let counted = ledger.processes.iter().map(|watched| {
        let (top, lower) = ledger.resident_of(watched.owner);
        let by = match order {
            ProcessOrder::Slow => lower,
            ProcessOrder::Fast => top,
            ProcessOrder::Promoted => watched.promoted_pages,
            ProcessOrder::Demoted => watched.demoted_pages,
            ProcessOrder::Returned => watched.returned_pages,
        };
        (Reverse(by), watched.process.pid, watched, top, lower)
    });
    let mut all: Vec<_> = counted.collect();
    all.sort_by_key(|(by, pid, ..)| (*by, *pid));
    let first = all.into_iter().take(most);
    first
        .map(|(_, pid, watched, top, lower)| ProcessStatus {
            pid,
            name: watched.memory.name.clone(),
            class: watched.class.and_then(|class| budgets.name(class)),
            top_pages: top,
            lower_pages: lower,
            promoted_pages: watched.promoted_pages,
            demoted_pages: watched.demoted_pages,
            returned_pages: watched.returned_pages,
            account: shared.account.as_ref().map(|account| {
                let flow = account.flow_of(watched.owner);
                ProcessAccount {
                    won_ns_per_s: flow.won_per_s,
                    spent_ns_per_s: flow.spent_per_s,
                    rests: account.rests(watched.owner).is_some(),
                }
            }),
        })
        .collect()
}
