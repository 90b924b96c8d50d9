//! The running machine as the core's decisions see it.

use super::processes::Processes;
use super::survey::HUGE_PAGES;
use crate::fs::zoneinfo::ZoneInfo;
use memtide_core::pages::{Folio, Immovable, NodeSpace, Pages};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::Space;
use memtide_core::topology::Topology;
use memtide_core::units::{NodeId, PageNumber};

/// The room on each node, with what is to stay free added to the watermark.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    rooms: Vec<(NodeId, NodeSpace)>,
}

impl Rooms {
    /// Reads the room of every node that holds memory. `headroom` pages beyond
    /// the high watermark stay free. A node whose zones do not say how much is
    /// free is left out: unknown room never counts as plenty.
    pub fn new(topology: &Topology, zones: &ZoneInfo, headroom: u64) -> Rooms {
        let room = |node: NodeId| {
            let present: u64 = zones.of(node).filter_map(|zone| zone.present).sum();
            let populated: Vec<(u64, u64, u64)> = zones
                .of(node)
                // A zone for old devices is small, and kept from ordinary pages.
                .filter(|zone| zone.present.is_some_and(|pages| pages >= present / 16))
                .filter_map(|zone| {
                    let (free, high, low) = (zone.free?, zone.high?, zone.low?);
                    let promo = zone.promo.unwrap_or(high + high.saturating_sub(low));
                    (zone.managed? > 0).then_some((free, high + headroom, promo + headroom))
                })
                .collect();
            Some((node, NodeSpace::of_zones(populated, present)?))
        };
        Rooms {
            rooms: topology.memory_nodes().iter().filter_map(room).collect(),
        }
    }

    /// The room on `node`.
    pub fn get(&self, node: NodeId) -> Option<NodeSpace> {
        self.rooms
            .iter()
            .find(|(id, _)| *id == node)
            .map(|(_, space)| *space)
    }

    /// Free pages of each node.
    pub fn free(&self) -> Vec<(NodeId, u64)> {
        self.rooms
            .iter()
            .map(|(node, space)| (*node, space.free))
            .collect()
    }

    /// Pages that must leave `node` before it can take in `wanted`; none if its
    /// room is unknown.
    pub fn short_of(&self, node: NodeId, wanted: u64) -> u64 {
        let short = |room: NodeSpace| (room.high + wanted).saturating_sub(room.free);
        self.get(node).map_or(0, short)
    }

    /// Pages that `node` can take in.
    pub fn takes(&self, node: NodeId) -> u64 {
        self.get(node)
            .map_or(0, |space| space.free.saturating_sub(space.high))
    }
}

/// What the core asks about pages, answered from what was surveyed.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Which dense page is whose.
    pub space: &'a Space,
    /// Where each page is.
    pub placement: &'a Placement,
    /// What their owners allow.
    pub processes: &'a Processes,
    /// How much room there is.
    pub rooms: &'a Rooms,
}

impl Pages for Machine<'_> {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        Some(self.placement.get(page)?.node())
    }

    fn folio(&self, page: PageNumber) -> Folio {
        match self.placement.get(page) {
            // Sections begin at multiples of a huge page, so alignment in the
            // dense space is alignment in the process.
            Some(place) if place.huge() => Folio {
                first: PageNumber(page.0 / HUGE_PAGES * HUGE_PAGES),
                pages: HUGE_PAGES as u32,
            },
            _ => Folio {
                first: page,
                pages: 1,
            },
        }
    }

    fn group(&self, page: PageNumber) -> u64 {
        self.space
            .locate(page)
            .map_or(u64::MAX, |(owner, _)| u64::from(owner.0))
    }

    fn may_move(&self, page: PageNumber, target: NodeId) -> Result<(), Immovable> {
        if self.placement.get(page).is_some_and(|place| place.stuck()) {
            return Err(Immovable::Other("it was tried lately and did not move"));
        }
        let gone = Err(Immovable::Other("its process is gone"));
        let Some((owner, page)) = self.space.locate(page) else {
            return gone;
        };
        self.processes
            .get(owner)
            .map_or(gone, |watched| watched.may_move(page, target))
    }

    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        self.rooms.get(node)
    }
}
