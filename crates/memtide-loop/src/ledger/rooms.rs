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

    /// `pages` came to `node` since its room was read. What left is not counted
    /// as room: whoever knows how much that is reads it anew.
    pub fn came(&mut self, node: NodeId, pages: u64) {
        if let Some((_, space)) = self.rooms.iter_mut().find(|(id, _)| *id == node) {
            *space = space.less(pages);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};

    #[test]
    fn what_came_is_no_room_any_more() {
        // 100 pages, of which 40 are used and 10 are to stay free: room for 50.
        let mut world = FakeWorld::two_tiers(100, 100);
        world.processes.push(FakeProcess::new(7, 0, 40, FAST));
        let mut rooms = Rooms::default();
        rooms.read(&mut world, 10).unwrap();
        assert_eq!(rooms.takes(FAST), 50);
        rooms.came(FAST, 30);
        assert_eq!((rooms.takes(FAST), rooms.takes(SLOW)), (20, 90));
        rooms.came(FAST, 100);
        assert_eq!(rooms.takes(FAST), 0);
        rooms.read(&mut world, 10).unwrap();
        assert_eq!(rooms.takes(FAST), 50);
    }
}
