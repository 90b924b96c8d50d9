//! Whereto a cold page goes: by tier first, by distance second.
//!
//! The nearest nodes of the next lower tier are preferred; among several equally
//! near ones the caller's random number decides, so that they fill evenly. If
//! none of them is allowed or has room, the nearest allowed node of any lower
//! tier takes the page. A node outside the allowed set never does, not even when
//! memory is short.

use crate::nodemask::NodeMask;
use crate::pages::NodeSpace;
use crate::topology::Topology;
use crate::units::NodeId;
use serde::Serialize;

/// A target and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// Whereto.
    pub node: NodeId,
    /// Whether it is one of the preferred nodes.
    pub preferred: bool,
}

/// The node that takes `pages` cold pages of `from`, or `None` if no allowed
/// lower node has room above its high watermark.
///
/// `space` tells a node's room; unknown room counts as room, as the kernel finds
/// out only by allocating. `random` picks among equals; any number will do.
pub fn choose_target(
    topology: &Topology,
    from: NodeId,
    pages: u64,
    allowed: &NodeMask,
    space: impl Fn(NodeId) -> Option<NodeSpace>,
    random: u64,
) -> Option<Chosen> {
    let targets = topology.demotion_targets(from).within(allowed);
    let roomy = |node: &NodeId| space(*node).is_none_or(|s| s.takes(pages));
    let preferred: Vec<NodeId> = targets.preferred.iter().filter(roomy).collect();
    if !preferred.is_empty() {
        let node = preferred[(random % preferred.len() as u64) as usize];
        return Some(Chosen {
            node,
            preferred: true,
        });
    }
    targets
        .fallback
        .iter()
        .filter(roomy)
        .filter_map(|node| {
            let tier = topology.node(node)?.tier?;
            Some((tier, topology.distance(from, node)?, node))
        })
        .min()
        .map(|(_, _, node)| Chosen {
            node,
            preferred: false,
        })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::topology::{NodeInput, TierId, TopologyInput};

    /// DRAM 0; tier 22: nodes 1 and 2 at 20, node 3 at 30; tier 40: node 4 at 15.
    fn topology() -> Topology {
        let node = |id, tier| NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: 1 << 30,
            cpus: if id == 0 { vec![0] } else { vec![] },
            distances: (id == 0).then(|| vec![10, 20, 20, 30, 15]),
            figures: Default::default(),
            tier: Some(TierId(tier)),
        };
        let nodes = [4, 22, 22, 22, 40].into_iter().zip(0..);
        let nodes = nodes.map(|(tier, id)| node(id, tier)).collect();
        TopologyInput::new(nodes).try_into().unwrap()
    }

    /// Chooses with these nodes full.
    fn choose(full: &[u16], allowed: &NodeMask, random: u64) -> Option<(u16, bool)> {
        let space = |node: NodeId| {
            let free = if full.contains(&node.0) { 110 } else { 111 };
            Some(NodeSpace {
                free,
                high: 100,
                promo: 200,
                present: 1000,
            })
        };
        choose_target(&topology(), NodeId(0), 10, allowed, space, random)
            .map(|c| (c.node.0, c.preferred))
    }

    #[test]
    fn equally_near_nodes_share_and_the_rest_are_fallbacks() {
        let all = NodeMask::ALL;
        let chosen: Vec<_> = (0..4).map(|r| choose(&[], &all, r).unwrap().0).collect();
        assert_eq!(chosen, [1, 2, 1, 2]);
        assert_eq!(choose(&[1], &all, 0), Some((2, true)));
        // The tier counts before the distance: 3 at 30 before 4 at 15.
        assert_eq!(choose(&[1, 2], &all, 0), Some((3, false)));
        assert_eq!(choose(&[1, 2, 3], &all, 0), Some((4, false)));
        assert_eq!(choose(&[1, 2, 3, 4], &all, 0), None);
    }

    #[test]
    fn what_is_not_allowed_is_never_chosen() {
        let allowed: NodeMask = [NodeId(0), NodeId(4)].into_iter().collect();
        assert_eq!(choose(&[], &allowed, 1), Some((4, false)));
        assert_eq!(choose(&[4], &allowed, 1), None);
        assert_eq!(choose(&[], &NodeMask::EMPTY, 1), None);
    }

    #[test]
    fn unknown_room_counts_as_room() {
        let all = NodeMask::ALL;
        let chosen = choose_target(&topology(), NodeId(0), 10, &all, |_| None, 1);
        assert_eq!(chosen.map(|c| c.node), Some(NodeId(2)));
    }
}
