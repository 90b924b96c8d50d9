//! The room on each node.

use crate::world::{World, WorldError};
use memtide_core::pages::NodeSpace;
use memtide_core::units::NodeId;

/// The room on each node, with what is to stay free added to the watermarks.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    rooms: Vec<(NodeId, NodeSpace)>,
}

impl Rooms {
    /// Reads the room of every node that holds memory. `headroom` pages beyond
    /// the high watermark stay free. Of a node that does not say how much is
    /// free nothing is known: that never counts as plenty.
    pub fn read(&mut self, world: &mut dyn World, headroom: u64) -> Result<(), WorldError> {
        world.rooms(&mut self.rooms)?;
        for (_, space) in &mut self.rooms {
            space.high = space.high.saturating_add(headroom);
            space.promo = space.promo.saturating_add(headroom);
        }
        Ok(())
    }

    /// The room on `node`.
    pub fn get(&self, node: NodeId) -> Option<NodeSpace> {
        let known = self.rooms.iter().find(|(id, _)| *id == node);
        known.map(|(_, space)| *space)
    }

    /// Free pages of each node.
    pub fn free(&self) -> Vec<(NodeId, u64)> {
        let free = |(node, space): &(NodeId, NodeSpace)| (*node, space.free);
        self.rooms.iter().map(free).collect()
    }

    /// Pages that must leave `node` before it can take in `wanted`; none if its
    /// room is unknown. What is taken in leaves more free than the watermark
    /// ([`NodeSpace::takes`]), so that is one more than the difference.
    pub fn short_of(&self, node: NodeId, wanted: u64) -> u64 {
        let needed = wanted + u64::from(wanted > 0);
        let short = |room: NodeSpace| (room.high + needed).saturating_sub(room.free);
        self.get(node).map_or(0, short)
    }

    /// Pages that `node` can take in.
    pub fn takes(&self, node: NodeId) -> u64 {
        self.get(node)
            .map_or(0, |space| space.free.saturating_sub(space.high))
    }
}
