//! A change of the cpuset: policies are bound anew, pages follow.
//!
//! A control group of version 2 moves the pages that a process already has, by
//! position: what lay on the k-th node of the old set goes to the k-th of the
//! new, modulo its size. If the sets differ in size, pages on nodes that both
//! have stay. Policies do not matter for that move.

use super::super::machine::Machine;
use super::super::rebind::remap_node;
use super::Process;
use crate::nodemask::NodeMask;
use crate::units::NodeId;

/// The nodes of a cpuset that have memory; one that has none of those takes
/// its parent's, here all.
pub(super) fn effective(cpuset: &NodeMask, machine: &Machine) -> NodeMask {
    let nodes = cpuset.intersection(machine.memory_nodes());
    match nodes.is_empty() {
        true => *machine.memory_nodes(),
        false => nodes,
    }
}

impl Process {
    /// The process is now in a cpuset with these memory nodes. Nothing happens,
    /// and the answer is no, if those with memory are the same as before. In a
    /// family, [`Family::set_cpuset`](super::Family::set_cpuset) is the call.
    pub fn set_cpuset(&mut self, nodes: &NodeMask) -> bool {
        let new = effective(nodes, &self.machine);
        if new == self.allowed {
            return false;
        }
        let old = std::mem::replace(&mut self.allowed, new);
        let kernel = *self.machine.kernel();
        let mapped = self.mappings.values_mut();
        let policies = mapped.filter_map(|m| m.policy.as_mut());
        policies
            .chain(self.policy.as_mut())
            .for_each(|p| p.rebind(&new, &kernel));
        self.make_landings();
        let moves = moves(&old, &new);
        self.pages.change(0..u64::MAX, |_, entry| {
            if let Some(node) = entry.node() {
                let step = |at, &(from, to): &(NodeId, NodeId)| if at == from { to } else { at };
                *entry = entry.moved(moves.iter().fold(node, step));
            }
        });
        true
    }
}

/// Which node's pages move to which, in the order in which they do: where
/// possible a node is emptied before it is filled.
fn moves(old: &NodeMask, new: &NodeMask) -> Vec<(NodeId, NodeId)> {
    let mut left = *old;
    let mut moves = Vec::new();
    loop {
        let mut found = None;
        for from in left.iter() {
            let to = remap_node(from, old, new);
            if from == to || old.len() != new.len() && new.contains(from) {
                continue;
            }
            found = Some((from, to));
            if !left.contains(to) {
                break;
            }
        }
        let Some((from, to)) = found else {
            return moves;
        };
        left.remove(from);
        moves.push((from, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<(u16, u16)> {
        let moves = moves(&old.parse().unwrap(), &new.parse().unwrap());
        moves.iter().map(|(a, b)| (a.0, b.0)).collect()
    }

    #[test]
    fn pages_move_by_position_emptied_nodes_first() {
        assert_eq!(shown("0-1", "2-3"), [(0, 2), (1, 3)]);
        // 4 goes before 3 and 3 before 2, so that nothing moves twice.
        assert_eq!(shown("2-4", "3-5"), [(4, 5), (3, 4), (2, 3)]);
        // Different sizes: 3 to 5 are in both and stay, so no target is ever
        // emptied, and of several the last goes first.
        assert_eq!(
            shown("0-7", "3-5"),
            [(7, 4), (6, 3), (2, 5), (1, 4), (0, 3)]
        );
        assert_eq!(shown("0-1", "1"), [(0, 1)]);
        assert_eq!(shown("0", "0-1"), []);
    }
}
