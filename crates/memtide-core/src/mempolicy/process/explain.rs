//! Why a page goes where it goes.

use super::super::misplaced::{HintFault, misplaced};
use super::super::policy::Policy;
use super::Process;
use crate::units::NodeId;

/// Whose policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// The mapping's, set by `mbind`.
    Mapping,
    /// The task's, set by `set_mempolicy`.
    Task,
    /// Nobody set one.
    BuiltIn,
}

/// A page's place in an interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Pages in a round.
    pub round: u64,
    /// The page's place in it: its index modulo `round`.
    pub position: u64,
    /// Pages of a round that go to the page's node.
    pub weight: u8,
}

/// Where a first write to a page puts it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whose policy decides.
    pub source: PolicySource,
    /// That policy; the built-in one prefers the node of the CPU.
    pub policy: Policy,
    /// The interleave index: the virtual page number.
    pub index: u64,
    /// The place in the interleave, if it is one.
    pub turn: Option<Turn>,
    /// The node that the policy prefers.
    pub preferred: NodeId,
    /// The node that the page lands on. It differs from `preferred` where that
    /// has no memory, is not in the mask or not in the cpuset.
    pub node: NodeId,
}

impl Process {
    /// What a first write to `page` would do; `None` where nothing is mapped.
    pub fn place_of(&mut self, page: u64) -> Option<Explanation> {
        let (source, policy) = self.policy_at(page)?;
        self.see_weights();
        let landing = self.ready(&policy);
        let preferred = landing.preferred_at(page);
        Some(Explanation {
            source,
            index: page,
            turn: landing.spread().map(|spread| Turn {
                round: spread.total(),
                position: spread.position(page),
                weight: spread.weight(preferred),
            }),
            preferred,
            node: landing.node_at(page),
            policy,
        })
    }

    /// The policy that decides about `page`.
    fn policy_at(&self, page: u64) -> Option<(PolicySource, Policy)> {
        let (_, mapping) = self.mappings.at(page)?;
        Some(match (&mapping.policy, &self.policy) {
            (Some(policy), _) => (PolicySource::Mapping, policy.clone()),
            (None, Some(policy)) => (PolicySource::Task, policy.clone()),
            (None, None) => (PolicySource::BuiltIn, Policy::built_in(self.here)),
        })
    }

    /// The node that `page` should move to after a hint fault of this process;
    /// `None` if it stays or is not there. See [`misplaced`] for the gate.
    pub fn misplaced(&self, page: u64, gate: impl FnOnce() -> bool) -> Option<NodeId> {
        let (_, policy) = self.policy_at(page)?;
        let fault = HintFault {
            current: self.node_of(page)?,
            accessor: self.here,
            index: page,
        };
        let weights = &self.files.table().load().weights;
        misplaced(&policy, fault, &self.machine, weights, gate)
    }
}
