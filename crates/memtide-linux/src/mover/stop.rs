//! A failure that settles more than the page that met it.

use super::outcome::Outcome;
use memtide_core::units::NodeId;

/// What later batches of the same list need not try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub outcome: Outcome,
    pub scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Nothing of this process can be moved.
    Process,
    /// Nothing can be moved to this node.
    Target(NodeId),
    /// No huge page can be moved to this node.
    HugeOn(NodeId),
}

impl Stop {
    /// Whether it says anything about pages that go to `target`.
    pub fn holds_for(self, target: NodeId) -> bool {
        match self.scope {
            Scope::Process => true,
            Scope::Target(node) | Scope::HugeOn(node) => node == target,
        }
    }
}
