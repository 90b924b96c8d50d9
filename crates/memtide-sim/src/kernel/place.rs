//! Where new pages go: the policy's node, else the next that has room.
//!
//! A region's policy gives each page a preferred node ([`Landing`]): by the page's index for memory that
//! a process maps, by the task's counter for page cache and page tables. The machine's fallback order of
//! that node, cut to the nodes that the policy allows, is tried three times:
//!
//! 1. above the *low* watermark; nobody is woken, so memory spills to slower nodes in silence;
//! 2. above *min*, after waking kswapd of every node in the order;
//! 3. above *min* again, each time after the thread reclaimed some pages itself.
//!
//! Huge folios take the first two steps only: without a whole block the fault maps base pages.
//! After that the workload is out of memory.

use super::error::KernelError;
use super::spaces::Regions;
use super::{Kernel, Who};
use crate::config::Configuration;
use crate::hardware::Hardware;
use crate::page::{Frame, HUGE_PAGES, MAX_NODES, Slot};
use crate::spec::{MachineSpec, NodeSpec};
use crate::workload::Kind;
use memtide_core::lazy_flush::Cause;
use memtide_core::mempolicy::{
    Counter as Turn, Kernel as PolicyKernel, Landing, Machine, MachineInput, Mode, Weights,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

/// How often a thread reclaims for itself, without progress, before it gives up.
const RECLAIM_RETRIES: u32 = 16;
/// Pages that it asks for each time.
const RECLAIM_BATCH: u64 = 32;

/// Policies made ready.
pub struct Placing {
    regions: Vec<RegionPlacing>,
    /// Each space's place in its interleave.
    turns: Vec<Turn>,
}

struct RegionPlacing {
    /// By the node of the CPU; one entry if it does not matter.
    landings: Vec<Landing>,
    /// Nodes that may be used, by bit.
    allowed: u16,
    /// Nodes to try first (preferred-many), by bit.
    first: Option<u16>,
    mode: Mode,
}

/// What an allocation asks for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub region: usize,
    pub preferred: NodeId,
    pub huge: bool,
}

impl Placing {
    pub(super) fn new(regions: &Regions, machine: &Machine, weights: &Weights) -> Placing {
        let cpuset = machine.memory_nodes();
        let nodes = machine.input().possible_nodes;
        let ready = |region: &super::Region| {
            let policy = &region.plan.policy;
            let mode = policy.mode;
            let land = |here| Landing::new(policy, machine, cpuset, NodeId(here), weights);
            let bits = |mask: &NodeMask| mask.iter().fold(0u16, |bits, n| bits | 1 << n.0);
            let own = bits(&policy.nodes.intersection(cpuset));
            RegionPlacing {
                landings: (0..if mode.interleaves() { 1 } else { nodes })
                    .map(land)
                    .collect(),
                allowed: match mode {
                    Mode::Bind if own != 0 => own,
                    _ => bits(cpuset),
                },
                first: (mode == Mode::PreferredMany && own != 0).then_some(own),
                mode,
            }
        };
        let spaces = regions.iter().map(|r| r.plan.space + 1).max().unwrap_or(0);
        Placing {
            regions: regions.iter().map(ready).collect(),
            turns: vec![Turn::START; usize::from(spaces)],
        }
    }

    fn landing(&self, region: usize, here: NodeId) -> &Landing {
        let landings = &self.regions[region].landings;
        landings.get(here.index()).unwrap_or(&landings[0])
    }

    /// The preferred node of the page with this index.
    #[inline]
    fn by_index(&self, region: usize, here: NodeId, index: u64) -> NodeId {
        self.landing(region, here).node_at(index)
    }

    /// The preferred node of the next page that the kernel takes on the task's behalf.
    fn by_turn(&mut self, region: usize, here: NodeId, space: u16) -> NodeId {
        let landings = &self.regions[region].landings;
        let landing = landings.get(here.index()).unwrap_or(&landings[0]);
        match landing.spread() {
            Some(spread) => self.turns[usize::from(space)].next_node(spread),
            None => landing.node_at(0),
        }
    }

    /// Bytes on the heap, tables of interleaves not counted.
    pub(super) fn heap_bytes(&self) -> usize {
        let landings: usize = self.regions.iter().map(|r| r.landings.capacity()).sum();
        self.regions.capacity() * size_of::<RegionPlacing>() + landings * size_of::<Landing>()
    }
}

impl Kernel {
    /// The index of a page in its policy's interleave, for [`memtide_core::mempolicy::HintFault`]: the
    /// virtual page number of anonymous memory (in units of the folio), the page's number in its file.
    #[must_use]
    pub fn interleave_index(&self, slot: Slot) -> u64 {
        let region = self.regions.get(self.regions.index_of(slot));
        match region.plan.kind {
            Kind::Anonymous if self.folio_pages(slot) > 1 => {
                region.vpn(slot) / u64::from(HUGE_PAGES)
            }
            Kind::Anonymous => region.vpn(slot),
            _ => u64::from(slot - region.base),
        }
    }

    /// A frame for page `index` of a region's interleave. `None`: no room for a huge folio.
    pub(super) fn place_by_index(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        index: u64,
        huge: bool,
    ) -> Result<(Option<Frame>, u64), KernelError> {
        let preferred = self.placing.by_index(region, who.node, index);
        self.settle_page_tables(region, who);
        self.allocate(
            hw,
            who,
            Wanted {
                region,
                preferred,
                huge,
            },
        )
    }

    /// A frame for a page of the file behind a region.
    pub(super) fn place_by_turn(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
    ) -> Result<(Option<Frame>, u64), KernelError> {
        let preferred = self.placing.by_turn(region, who.node, who.space);
        self.settle_page_tables(region, who);
        self.allocate(
            hw,
            who,
            Wanted {
                region,
                preferred,
                huge: false,
            },
        )
    }

    /// Page tables come with the region's first page, by its policy.
    fn settle_page_tables(&mut self, region: usize, who: &Who) {
        if self.regions.get(region).page_table_node.is_none() {
            let node = self.placing.by_turn(region, who.node, who.space);
            self.regions.get_mut(region).page_table_node = Some(node);
        }
    }

    /// A frame for one more page of the file behind a region, if that needs no reclaim.
    pub(super) fn place_if_room(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
    ) -> Option<(Frame, u64)> {
        let wanted = Wanted {
            region,
            preferred: self.placing.by_turn(region, who.node, who.space),
            huge: false,
        };
        let allowed = self.placing.regions[region].allowed;
        let frame = self.try_nodes(who, wanted, allowed, Watermark::Low)?;
        Some((frame, self.leave_free_lists(hw, frame, Some(who.cpu))))
    }

    /// A frame that nobody has a translation to, and the time that direct reclaim and the flush took.
    fn allocate(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        wanted: Wanted,
    ) -> Result<(Option<Frame>, u64), KernelError> {
        let (frame, mut ns) = self.find_frame(hw, who, wanted)?;
        if let Some(frame) = frame {
            ns += self.leave_free_lists(hw, frame, Some(who.cpu));
        }
        Ok((frame, ns))
    }

    fn find_frame(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        wanted: Wanted,
    ) -> Result<(Option<Frame>, u64), KernelError> {
        let placing = &self.placing.regions[wanted.region];
        let (allowed, first) = (placing.allowed, placing.first);
        if let Some(first) = first
            && let Some(frame) = self.try_nodes(who, wanted, first, Watermark::Low)
        {
            return Ok((Some(frame), 0));
        }
        if let Some(frame) = self.try_nodes(who, wanted, allowed, Watermark::Low) {
            return Ok((Some(frame), 0));
        }
        self.wake_all(wanted.preferred, allowed);
        if let Some(frame) = self.try_nodes(who, wanted, allowed, Watermark::Min) {
            return Ok((Some(frame), 0));
        }
        match wanted.huge {
            true => Ok((self.huge_of_waiting(hw, who, wanted, allowed), 0)),
            false => self.allocate_by_reclaim(hw, who, wanted, allowed),
        }
    }

    /// A huge page of a node some of whose free frames wait for a flush: after it they are whole blocks,
    /// perhaps.
    fn huge_of_waiting(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        wanted: Wanted,
        allowed: u16,
    ) -> Option<Frame> {
        let all = (0..MAX_NODES as u16).map(NodeId);
        let worth = |node: &NodeId| self.frames.waiting(*node) >= u64::from(HUGE_PAGES);
        let nodes: Vec<NodeId> = all.filter(worth).collect();
        if nodes.is_empty() {
            return None;
        }
        self.force_flush(hw, Cause::HugePage, Some(who.cpu));
        nodes.into_iter().for_each(|node| self.frames.settle(node));
        self.try_nodes(who, wanted, allowed, Watermark::Min)
    }

    fn allocate_by_reclaim(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        wanted: Wanted,
        allowed: u16,
    ) -> Result<(Option<Frame>, u64), KernelError> {
        let order = self.order(wanted.preferred, allowed);
        let (mut ns, mut idle) = (0, 0);
        for &node in order.iter().flatten() {
            ns += self.pause_lazy_flushes(hw, node, Some(who.cpu));
        }
        self.count(Counter::Allocstall, 1);
        while idle < RECLAIM_RETRIES {
            let mut freed = 0;
            for &node in order.iter().flatten() {
                let (pages, spent) = self.reclaim_directly(hw, who, node, RECLAIM_BATCH);
                freed += pages;
                ns += spent;
                if pages >= RECLAIM_BATCH {
                    break;
                }
            }
            if let Some(frame) = self.try_nodes(who, wanted, allowed, Watermark::Min) {
                self.overhead.direct_reclaim_ns += ns;
                return Ok((Some(frame), ns));
            }
            match freed {
                0 => idle += 1,
                _ => idle = 0,
            }
            for &node in order.iter().flatten() {
                self.frames.drain(node);
            }
        }
        let region = &self.regions.get(wanted.region).plan;
        let node = order[0].unwrap_or(wanted.preferred);
        Err(KernelError::OutOfMemory {
            region: region.name.clone(),
            region_pages: region.pages,
            node,
            free: self.frames.free(node),
            present: self.frames.present(node),
        })
    }

    /// The nodes that an allocation tries.
    fn order(&self, preferred: NodeId, allowed: u16) -> [Option<NodeId>; MAX_NODES] {
        let mut order = [None; MAX_NODES];
        let nodes = self.machine.fallback(preferred).iter();
        let nodes = nodes.filter(|n| allowed >> n.0 & 1 == 1);
        for (place, &node) in order.iter_mut().zip(nodes) {
            *place = Some(node);
        }
        order
    }

    fn wake_all(&mut self, preferred: NodeId, allowed: u16) {
        for node in self.order(preferred, allowed).into_iter().flatten() {
            self.wake_kswapd(node);
        }
    }

    /// A frame of the first node in the order that stays above its mark.
    #[inline]
    fn try_nodes(
        &mut self,
        who: &Who,
        wanted: Wanted,
        among: u16,
        mark: Watermark,
    ) -> Option<Frame> {
        let pages = if wanted.huge {
            u64::from(HUGE_PAGES)
        } else {
            1
        };
        let mut first = None;
        for &node in self.machine.fallback(wanted.preferred) {
            if among >> node.0 & 1 == 0 {
                continue;
            }
            let first = *first.get_or_insert(node);
            let marks = self.frames.marks(node);
            let floor = match mark {
                Watermark::Low => marks.low(),
                Watermark::Min => marks.min(),
            };
            if self.frames.free(node) < floor + pages {
                continue;
            }
            let frame = match wanted.huge {
                true => self.frames.take(node, true),
                false => self.frames.take_on_cpu(node, who.cpu),
            };
            if frame.is_some() {
                self.count_placing(who, wanted, first, node);
                return frame;
            }
        }
        None
    }

    fn count_placing(&mut self, who: &Who, wanted: Wanted, first: NodeId, node: NodeId) {
        if node == first {
            self.count(Counter::NumaHit, 1);
            if self.placing.regions[wanted.region].mode == Mode::Interleave {
                self.count(Counter::NumaInterleave, 1);
            }
        } else {
            self.count(Counter::NumaMiss, 1);
            self.count(Counter::NumaForeign, 1);
        }
        match node == who.node {
            true => self.count(Counter::NumaLocal, 1),
            false => self.count(Counter::NumaOther, 1),
        }
    }
}

#[derive(Clone, Copy)]
enum Watermark {
    Low,
    Min,
}

/// The machine as the mempolicy model sees it.
pub(super) fn machine(spec: &MachineSpec) -> Result<Machine, KernelError> {
    let with = |has: fn(&NodeSpec) -> bool| -> NodeMask {
        let nodes = spec.nodes.iter().filter(|n| has(n));
        nodes.map(|n| NodeId(n.id)).collect()
    };
    let (memory, cpus) = (with(|n| n.capacity_bytes > 0), with(|n| n.cpus > 0));
    let mut input = MachineInput::new(memory, cpus, PolicyKernel::of_version(6, 12));
    let ids = || (0..input.possible_nodes).map(NodeId);
    let distance = |from, to| {
        let assumed = if from == to { 10 } else { 20 };
        spec.topology.distance(from, to).unwrap_or(assumed)
    };
    let row = |from| ids().map(|to| distance(from, to)).collect();
    input.distances = Some(ids().map(row).collect());
    Machine::new(input).map_err(|error| KernelError::Machine(error.to_string()))
}

/// The weight table of a configuration.
pub(super) fn weights(configuration: &Configuration) -> Weights {
    let mut weights = Weights::ONES;
    for &(node, weight) in configuration.interleave.iter().flat_map(|i| &i.weights) {
        weights.set(NodeId(node), weight);
    }
    weights
}
