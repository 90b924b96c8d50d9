//! What becomes of a policy when the cpuset's nodes change.
//!
//! - *Static*: the caller's nodes, as far as the new set has them.
//! - *Relative*: the caller's numbers count within the new set, modulo its size.
//! - *Positional*, without either flag: the node that was the k-th of the old
//!   set becomes the k-th (modulo the size) of the new. A node that was not in
//!   the old set stays.
//! - Preferred and preferred-many keep their nodes. They only remember the new
//!   set, and do so even where the caller's mask should stand.

use super::machine::Kernel;
use super::mode::Mode;
use super::policy::Policy;
use crate::nodemask::NodeMask;
use crate::units::NodeId;

impl Policy {
    /// The cpuset's nodes are now `allowed`.
    pub fn rebind(&mut self, allowed: &NodeMask, kernel: &Kernel) {
        let unchanged = !self.keeps_user_mask(kernel) && self.remembered == *allowed;
        if self.mode == Mode::Local || unchanged {
            return;
        }
        if matches!(self.mode, Mode::Preferred | Mode::PreferredMany) {
            self.remembered = *allowed;
            return;
        }
        let nodes = if self.flags.static_nodes {
            self.remembered.intersection(allowed)
        } else if self.flags.relative_nodes {
            relative(&self.remembered, allowed)
        } else {
            // Where the balancing flag alone keeps the caller's mask, that is
            // what positions are counted in, and what is overwritten here.
            let old = std::mem::replace(&mut self.remembered, *allowed);
            remap(&self.nodes, &old, allowed)
        };
        self.nodes = if nodes.is_empty() { *allowed } else { nodes };
    }
}

/// The n-th node of a set, counted from 0.
fn nth(set: &NodeMask, n: usize) -> Option<NodeId> {
    set.iter().nth(n)
}

/// `mask`'s numbers, modulo the size of `allowed`, as positions in `allowed`.
pub(super) fn relative(mask: &NodeMask, allowed: &NodeMask) -> NodeMask {
    let size = allowed.len();
    let place = |n: NodeId| nth(allowed, n.index().checked_rem(size)?);
    mask.iter().filter_map(place).collect()
}

/// Where a node of set `old` is in set `new`, by position; a node that is not
/// in `old` stays.
pub(super) fn remap_node(node: NodeId, old: &NodeMask, new: &NodeMask) -> NodeId {
    let position = old.iter().position(|n| n == node);
    position
        .and_then(|p| nth(new, p.checked_rem(new.len())?))
        .unwrap_or(node)
}

fn remap(mask: &NodeMask, old: &NodeMask, new: &NodeMask) -> NodeMask {
    mask.iter().map(|n| remap_node(n, old, new)).collect()
}
