//! Where a page should be that was just accessed (`mpol_misplaced`).
//!
//! A hint fault asks: does the page's policy want it on another node? Only
//! policies on which hint faults act can say so: the built-in one of a task
//! without policy, and bind or preferred-many with the balancing flag. Those
//! move a page to the node that accesses it, if the NUMA-balancing gate agrees;
//! bind and preferred-many only to nodes of their mask.

use super::machine::Machine;
use super::mode::Mode;
use super::place::Spread;
use super::policy::Policy;
use super::weights::Weights;
use crate::units::NodeId;

/// A page and who accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// The node that holds the page.
    pub current: NodeId,
    /// The node of the CPU that accesses it.
    pub accessor: NodeId,
    /// The page's interleave index.
    pub index: u64,
}

/// The node that the page should move to; `None` if it stays.
///
/// `gate` is NUMA balancing's verdict on a move to the accessor's node. It is
/// asked at most once, and only where the policy leaves the decision to it:
/// the real one remembers who asked.
pub fn misplaced(
    policy: &Policy,
    fault: HintFault,
    machine: &Machine,
    weights: &Weights,
    gate: impl FnOnce() -> bool,
) -> Option<NodeId> {
    if !policy.on_fault {
        return None;
    }
    let nodes = &policy.nodes;
    let spread = |spread: Option<Spread>| Some(spread?.node_at(fault.index));
    let wanted = match policy.mode {
        Mode::Interleave => spread(Spread::plain(nodes)),
        Mode::WeightedInterleave => spread(Spread::weighted(nodes, weights)),
        Mode::Local | Mode::Default => Some(fault.accessor),
        Mode::Bind | Mode::PreferredMany if policy.to_accessor => {
            Some(fault.accessor).filter(|&n| nodes.contains(n))
        }
        _ if nodes.contains(fault.current) => None,
        Mode::Preferred => nodes.iter().next(),
        Mode::Bind | Mode::PreferredMany => machine.nearest(fault.accessor, nodes),
    }?;
    let target = match policy.to_accessor {
        true if !gate() => return None,
        true => fault.accessor,
        false => wanted,
    };
    (target != fault.current).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Kernel, MachineInput};
    use super::super::policy::Request;
    use super::super::{RawMask, parse_mode};
    use super::*;
    use crate::nodemask::NodeMask;
    use crate::units::PageSize;

    fn machine() -> Machine {
        let nodes: NodeMask = "0-2".parse().unwrap();
        Machine::new(MachineInput::new(nodes, nodes, Kernel::WITH_AUTO)).unwrap()
    }

    fn policy(word: u32, nodes: u64) -> Policy {
        let (mode, flags) = parse_mode(word).unwrap();
        let mask = RawMask::Words(vec![nodes]);
        let mask = mask.nodes(64, PageSize::KIB_4).unwrap();
        let request = Request::new(mode, flags, mask).unwrap().unwrap();
        Policy::new(request, &NodeMask::ALL, &machine()).unwrap()
    }

    fn ask(policy: &Policy, current: u16, accessor: u16, gate: bool) -> Option<u16> {
        let fault = HintFault {
            current: NodeId(current),
            accessor: NodeId(accessor),
            index: 1,
        };
        let weights = Weights::new(&[2, 1, 1]);
        misplaced(policy, fault, &machine(), &weights, || gate).map(|n| n.0)
    }

    #[test]
    fn a_policy_that_hint_faults_leave_alone_says_nothing() {
        for (word, nodes) in [
            (1, 0b10),
            (2, 0b10),
            (3, 0b11),
            (4, 0),
            (5, 0b10),
            (6, 0b11),
        ] {
            assert_eq!(ask(&policy(word, nodes), 0, 1, true), None);
        }
    }

    #[test]
    fn balancing_moves_to_the_accessor_within_the_mask() {
        for word in [0x2002, 0x2005] {
            let bound = policy(word, 0b011);
            assert_eq!(ask(&bound, 0, 1, true), Some(1));
            assert_eq!(ask(&bound, 0, 1, false), None);
            assert_eq!(ask(&bound, 1, 1, true), None);
            // Also from outside the mask, but never to outside.
            assert_eq!(ask(&bound, 2, 1, true), Some(1));
            assert_eq!(ask(&bound, 1, 2, true), None);
        }
    }

    #[test]
    fn the_built_in_policy_moves_to_the_accessor() {
        assert_eq!(ask(&Policy::built_in(NodeId(2)), 0, 2, true), Some(2));
        assert_eq!(ask(&Policy::built_in(NodeId(2)), 2, 2, true), None);
        assert_eq!(ask(&Policy::built_in(NodeId(2)), 0, 2, false), None);
    }

    #[test]
    fn without_the_accessor_rule_the_policys_own_node_counts() {
        let on_fault = |word, nodes| Policy {
            on_fault: true,
            ..policy(word, nodes)
        };
        // Index 1: second of {0, 1}; by weights 2 and 1 still node 0's.
        assert_eq!(ask(&on_fault(3, 0b11), 0, 2, false), Some(1));
        assert_eq!(ask(&on_fault(6, 0b11), 1, 2, false), Some(0));
        assert_eq!(ask(&on_fault(1, 0b10), 0, 2, false), Some(1));
        assert_eq!(ask(&on_fault(4, 0), 0, 2, false), Some(2));
        // In the mask it stays, else the nearest of the mask to the accessor.
        assert_eq!(ask(&on_fault(2, 0b11), 1, 0, false), None);
        assert_eq!(ask(&on_fault(2, 0b11), 2, 0, false), Some(0));
    }
}
