//! What the loop knows of the machine: whose pages there are, where they lie,
//! where they may go, and how much room there is.
//!
//! Tiering and balancing keep one each. It is filled from a [`World`]'s answers
//! and answers what the core's decisions ask ([`Pages`]).

mod processes;
mod rooms;
mod visitors;

pub use processes::{Changes, Processes, Renumbered, Watched};
pub use rooms::Rooms;
pub use visitors::{Visit, Visitors};

use crate::world::{
    ClassId, Found, HUGE_PAGES, MoveHow, PageRun, Presence, ProcessId, Sought, Span, World,
    WorldError,
};
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::pages::{Folio, Immovable, NodeSpace, Pages};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, Space, SpaceFull, VirtualPage};
use memtide_core::topology::Topology;
use memtide_core::units::{NodeId, PageNumber, PageSize};

/// Why a page of a paused class stays where it is.
pub const PAUSED: Immovable = Immovable::Other("its class is paused");
/// The largest space: 8 TiB of watched addresses.
pub const SECTIONS: u32 = 1 << 16;
/// The pages of all of them.
pub const MOST_PAGES: u64 = SECTIONS as u64 * SECTION_PAGES as u64;

/// The ledger. See the module's essay.
#[derive(Debug)]
pub struct Ledger {
    /// The nodes and their tiers.
    pub topology: Topology,
    /// The base page.
    pub page: PageSize,
    /// Who is managed, and what their owners allow.
    pub processes: Processes,
    /// Which dense page is whose.
    pub space: Space,
    /// Where each page is.
    pub placement: Placement,
    /// Which pages are elsewhere for a moment.
    pub visitors: Visitors,
    /// How much room there is.
    pub rooms: Rooms,
    /// Pages that stay free on each node beyond its high watermark.
    headroom: u64,
    spans: Vec<Sought>,
    /// Pages of this process were found for which there is no section any more: they stay where they
    /// are. Anybody can make memory of which each page takes one.
    full: Option<(u32, SpaceFull)>,
}

impl Ledger {
    /// A ledger of `world`'s nodes in which nothing else is known yet.
    /// `headroom` pages are to stay free on each node beyond its high watermark.
    pub fn new(world: &dyn World, headroom: u64) -> Ledger {
        Ledger {
            topology: world.topology().clone(),
            page: world.page(),
            processes: Processes::default(),
            space: Space::new(SECTIONS),
            placement: Placement::new(),
            visitors: Visitors::default(),
            rooms: Rooms::default(),
            headroom,
            spans: Vec::new(),
            full: None,
        }
    }

    /// So many pages are to stay free on each node from the next reading of rooms on.
    pub fn set_headroom(&mut self, headroom: u64) {
        self.headroom = headroom;
    }

    /// Reads anew how much room there is.
    pub fn read_rooms(&mut self, world: &mut dyn World) -> Result<(), WorldError> {
        self.rooms.read(world, self.headroom)
    }

    /// Finds out anew where a process's pages are, all but those that are stuck
    /// where they were. A process that has ended has none; the next refresh
    /// notices.
    pub fn survey(&mut self, world: &mut dyn World, owner: OwnerId) -> Result<(), WorldError> {
        for section in self.space.sections_of(owner).collect::<Vec<_>>() {
            self.placement.clear_unstuck(section);
        }
        let Some(watched) = self.processes.get(owner) else {
            return Ok(());
        };
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        spans.extend(watched.memory.areas.iter().map(|area| Sought {
            span: Span {
                first: area.first,
                pages: area.pages,
            },
            counted: area.counted,
        }));
        let surveyed = self.survey_spans(world, owner, &spans, |found| (found.first, found.pages));
        self.spans = spans;
        if surveyed.is_ok() {
            self.keep_visitors(owner);
        }
        surveyed
    }

    /// What the survey found to be away for a moment belongs home nevertheless. What it
    /// found elsewhere, or not at all, was moved by others or is gone.
    fn keep_visitors(&mut self, owner: OwnerId) {
        for section in self.space.sections_of(owner) {
            for (page, visit) in self.visitors.of_section(section).collect::<Vec<_>>() {
                let place = self.placement.get(page);
                if place.is_some_and(|place| place.node() == visit.away && !place.huge()) {
                    self.placement.set_run(page, 1, visit.home, false);
                } else {
                    self.visitors.end(page);
                }
            }
        }
    }

    /// In whose survey the space was full, for people; once for each time.
    pub fn was_full(&mut self) -> Option<String> {
        let (pid, full) = self.full.take()?;
        Some(format!(
            "{full}: pages of process {pid} that are beyond stay where they are"
        ))
    }

    /// Finds out where the pages of `spans` are; `whole` may enlarge what is
    /// noted of each run.
    pub fn survey_spans(
        &mut self,
        world: &mut dyn World,
        owner: OwnerId,
        spans: &[Sought],
        whole: impl Fn(&Found) -> (VirtualPage, u64),
    ) -> Result<(), WorldError> {
        let Some(watched) = self.processes.get(owner) else {
            return Ok(());
        };
        let process = watched.process;
        let (space, placement) = (&mut self.space, &mut self.placement);
        let mut full: Option<SpaceFull> = None;
        let presence = world.survey(process, spans, &mut |found| {
            let (first, pages) = whole(&found);
            let placed = space.place_runs(owner, first, pages, |_, dense, pages| {
                placement.set_run(dense, pages, found.node, found.huge);
            });
            full = full.or(placed.err());
        })?;
        match (presence, full) {
            (Presence::Here, Some(full)) => self.full = Some((process.pid, full)),
            (Presence::Here | Presence::Gone, _) => {}
        }
        Ok(())
    }

    /// Brings home what is away of a process that is to be left alone.
    pub fn send_home(
        &mut self,
        world: &mut dyn World,
        owner: OwnerId,
        process: ProcessId,
        how: MoveHow,
    ) {
        let mut settled = Vec::new();
        for section in self.space.sections_of(owner) {
            for (page, visit) in self.visitors.of_section(section) {
                if let Some((_, first)) = self.space.locate(page) {
                    let one = PageRun {
                        first,
                        pages: 1,
                        huge: false,
                    };
                    world.move_pages(process, visit.home, &[one], how, &mut settled);
                }
            }
        }
    }

    /// Forgets the pages of a slot whose process is gone, and gives the sections
    /// that they had to `forget`, so that nothing else remembers them either.
    pub fn forget(&mut self, owner: OwnerId, mut forget: impl FnMut(u32)) {
        for section in self.space.release(owner) {
            self.placement.clear_section(section);
            self.visitors.clear_section(section);
            forget(section);
        }
    }

    /// Managed pages on the lower tiers.
    pub fn lower_pages(&self) -> u64 {
        self.resident(false)
    }

    /// Managed pages on the top tier, or on all others.
    pub fn resident(&self, top: bool) -> u64 {
        let nodes = self.topology.nodes().iter();
        let nodes = nodes.filter(|node| node.top_tier == top);
        nodes.map(|node| self.placement.resident(node.id)).sum()
    }

    /// Pages of one process on the top tier, and on all others.
    pub fn resident_of(&self, owner: OwnerId) -> (u64, u64) {
        let (mut top, mut lower) = (0, 0);
        for section in self.space.sections_of(owner) {
            let by_node = self.placement.residents_of(section);
            for (node, pages) in (0..).map(NodeId).zip(by_node) {
                match self.topology.is_top_tier(node) {
                    true => top += u64::from(*pages),
                    false => lower += u64::from(*pages),
                }
            }
        }
        (top, lower)
    }

    /// The nodes of the top tier that have memory.
    pub fn top_nodes(&self) -> Vec<NodeId> {
        let nodes = self.topology.nodes().iter();
        let top = nodes.filter(|node| node.top_tier && node.has_memory());
        top.map(|node| node.id).collect()
    }

    /// Pages that the top tier can take in.
    pub fn top_room(&self) -> u64 {
        let top = self.topology.nodes().iter().filter(|node| node.top_tier);
        top.map(|node| self.rooms.takes(node.id)).sum()
    }

    /// For each lower node the top-tier node to which its hot pages should go:
    /// the nearest with room, or the nearest of all if none has any.
    pub fn preferred_targets(&self) -> Vec<(NodeId, NodeId)> {
        let mut targets = Vec::new();
        let nodes = self.topology.nodes();
        for lower in nodes.iter().filter(|node| !node.top_tier) {
            let Some(nearest) = self.topology.promotion_target(lower.id) else {
                continue;
            };
            let distance = |node: NodeId| self.topology.distance(lower.id, node);
            let roomy = nodes
                .iter()
                .filter(|node| node.top_tier && self.rooms.takes(node.id) > 0)
                .min_by_key(|node| (node.id != nearest, distance(node.id), node.id));
            targets.push((lower.id, roomy.map_or(nearest, |node| node.id)));
        }
        targets
    }

    /// The class that `page`'s process belongs to.
    pub fn class(&self, page: PageNumber) -> Option<ClassId> {
        let (owner, _) = self.space.locate(page)?;
        self.processes.get(owner)?.class
    }

    /// The address of a process's page.
    pub fn address(&self, page: VirtualPage) -> u64 {
        page.0 << self.page.shift()
    }
}

impl Pages for Ledger {
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
        let place = self.placement.get(page);
        if place.is_some_and(|place| place.stuck()) {
            return Err(Immovable::Other("it was tried lately and did not move"));
        }
        let gone = Err(Immovable::Other("its process is gone"));
        let Some((owner, page)) = self.space.locate(page) else {
            return gone;
        };
        let Some(watched) = self.processes.get(owner) else {
            return gone;
        };
        if self.processes.is_paused(watched.class) {
            return Err(PAUSED);
        }
        // A mapping that was cut since may hold only a part of what moves.
        if place.is_some_and(|place| place.huge()) && !watched.memory.holds_huge(page) {
            return Err(Immovable::Other("its huge page was cut"));
        }
        watched.memory.may_move(page, target)
    }

    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        self.rooms.get(node)
    }
}
