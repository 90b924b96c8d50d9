//! The machine of a seed: nodes, processes and their pages, in tables.

use super::plan::{Plan, Program};
use crate::random::Random;
use crate::world::{AddressSpace, Outcome, ProcessId, ThreadId};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::{NodeInput, TierId, Topology, TopologyInput};
use memtide_core::units::NodeId;

/// Of each node, pages below the high watermark.
pub(super) const HIGH: u64 = 10;
/// A page that is not there.
const ABSENT: u8 = u8::MAX;
/// A page that is swapped out.
const SWAPPED: u8 = u8::MAX - 1;

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub id: NodeId,
    pub top: bool,
    /// Pages beyond the high watermark.
    pub capacity: u64,
    /// Pages of the processes.
    pub used: u64,
    /// Pages of others.
    pub taken: u64,
    pub offline: bool,
}

impl Node {
    /// Free pages beyond the high watermark.
    pub fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.used + self.taken)
    }

    /// Whether the kernel gives a page to whoever asks.
    pub fn has_free(&self) -> bool {
        !self.offline && self.used + self.taken < self.capacity + HIGH
    }
}

/// A thread, and where it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub id: ThreadId,
    pub node: NodeId,
    pub runtime_ns: u64,
}

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub id: ProcessId,
    pub memory: AddressSpace,
    /// Of each area, its first page's place in `places`.
    starts: Vec<u64>,
    places: Vec<u8>,
    /// Pages that it uses all the time, ascending.
    pub hot: Vec<u64>,
    /// Pages that it uses now and then, ascending.
    pub warm: Vec<u64>,
    pub threads: Vec<Thread>,
    pub ticks: u64,
    pub faults: u64,
}

impl Process {
    fn slot(&self, page: VirtualPage) -> Option<usize> {
        let areas = &self.memory.areas;
        let at = areas
            .partition_point(|area| area.first <= page)
            .checked_sub(1)?;
        let within = page.0 - areas[at].first.0;
        (within < areas[at].pages).then_some((self.starts[at] + within) as usize)
    }

    /// Where `page` is.
    pub fn node(&self, page: VirtualPage) -> Option<NodeId> {
        let place = self.places[self.slot(page)?];
        (place < SWAPPED).then_some(NodeId(u16::from(place)))
    }

    fn pages(&self) -> impl Iterator<Item = (VirtualPage, u8)> + '_ {
        let areas = self.memory.areas.iter();
        let all = areas.flat_map(|area| (0..area.pages).map(|n| VirtualPage(area.first.0 + n)));
        all.zip(self.places.iter().copied())
    }

    /// Its present pages and where they are, ascending.
    pub fn present(&self) -> impl Iterator<Item = (VirtualPage, NodeId)> + '_ {
        let present = self.pages().filter(|(_, place)| *place < SWAPPED);
        present.map(|(page, place)| (page, NodeId(u16::from(place))))
    }

    /// Sets which pages it uses, of those that it has: see [`Program::hot`].
    pub fn heat(&mut self, (each, offset, pages): (u64, u64, u64)) {
        let all = self.pages().map(|(page, _)| page.0);
        let all: Vec<u64> = all.collect();
        let hot = all
            .iter()
            .skip(offset as usize)
            .step_by(each.max(1) as usize);
        self.hot = hot.take((pages / each.max(1)) as usize).copied().collect();
        let hot = &self.hot;
        self.warm.retain(|page| hot.binary_search(page).is_err());
    }
}

/// The pages of `list`, which is ascending, from `first` on, so many.
pub(super) fn within(list: &[u64], first: VirtualPage, pages: u64) -> &[u64] {
    let from = list.partition_point(|page| *page < first.0);
    let to = list.partition_point(|page| *page < first.0 + pages);
    &list[from..to]
}

/// The machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub nodes: Vec<Node>,
    pub processes: Vec<Process>,
    pub topology: Topology,
    next_start: u64,
}

impl Machine {
    pub fn new(plan: &Plan) -> Machine {
        let all = plan.nodes.len();
        let input = plan.nodes.iter().enumerate().map(|(n, node)| NodeInput {
            id: node.id,
            online: true,
            memory_bytes: node.pages << 12,
            cpus: match node.cpus {
                true => vec![2 * n as u32, 2 * n as u32 + 1],
                false => Vec::new(),
            },
            distances: Some((0..all).map(|to| if to == n { 10 } else { 20 }).collect()),
            figures: Default::default(),
            tier: Some(TierId(if node.cpus { 4 } else { 22 })),
        });
        let topology = TopologyInput::new(input.collect());
        let nodes = plan.nodes.iter().map(|node| Node {
            id: node.id,
            top: node.cpus,
            capacity: node.pages,
            used: 0,
            taken: 0,
            offline: false,
        });
        Machine {
            nodes: nodes.collect(),
            processes: Vec::new(),
            topology: topology.try_into().expect("good nodes"),
            next_start: 100,
        }
    }

    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    pub fn find(&self, process: ProcessId) -> Option<usize> {
        let mut all = self.processes.iter();
        all.position(|known| known.id == process)
    }

    /// `program` begins, with as much memory as there is.
    pub fn begin(&mut self, program: &Program, random: &mut Random) {
        self.next_start += 1;
        let start_ticks = self.next_start;
        let pid = program.pid;
        let mut starts = Vec::with_capacity(program.areas.len());
        let mut pages = 0;
        for area in &program.areas {
            starts.push(pages);
            pages += area.pages;
        }
        let threads = program.threads.iter().zip(1..).map(|(node, n)| Thread {
            id: ThreadId {
                pid,
                tid: pid * 100 + n,
                start_ticks,
            },
            node: *node,
            runtime_ns: 1_000_000_000,
        });
        let mut process = Process {
            id: ProcessId { pid, start_ticks },
            memory: AddressSpace {
                name: format!("program{pid}"),
                cpuset: program.cpuset,
                areas: program.areas.clone(),
            },
            starts,
            places: vec![ABSENT; pages as usize],
            hot: Vec::new(),
            warm: Vec::new(),
            threads: threads.collect(),
            ticks: 0,
            faults: 0,
        };
        let all: Vec<VirtualPage> = process.pages().map(|(page, _)| page).collect();
        for page in &all {
            let fast = random.below(program.fast_one_in) == 0;
            let slot = process.slot(*page).expect("of an area");
            if let Some(node) = self.wanted(&process.memory, *page, fast) {
                process.places[slot] = node as u8;
                self.nodes[node].used += 1;
            }
        }
        if program.warm_one_in > 0 {
            let warm = all
                .iter()
                .filter(|_| random.below(program.warm_one_in) == 0);
            process.warm = warm.map(|page| page.0).collect();
        }
        process.heat(program.hot);
        self.processes.push(process);
        self.processes.sort_by_key(|process| process.id.pid);
    }

    /// A node that may hold a new page: of the tier that is wanted, or another.
    /// Memory that may not move is taken to be where it may be.
    fn wanted(&self, memory: &AddressSpace, page: VirtualPage, fast: bool) -> Option<usize> {
        let roomy = |node: &Node| !node.offline && node.room() > node.capacity / 8;
        let free = || {
            self.nodes
                .iter()
                .enumerate()
                .filter(|(_, node)| roomy(node))
        };
        let may = |node: &Node| memory.may_move(page, node.id).is_ok();
        let best = free().filter(|(_, node)| may(node));
        let best = best.min_by_key(|(_, node)| (node.top != fast, node.used));
        let any = || free().min_by_key(|(_, node)| (node.top != fast, node.used));
        best.or_else(any).map(|(n, _)| n)
    }

    /// A process ends; its memory is free.
    pub fn end(&mut self, process: ProcessId) -> Option<Process> {
        let at = self.find(process)?;
        let ended = self.processes.remove(at);
        for (_, node) in ended.present() {
            self.nodes[node.index()].used -= 1;
        }
        Some(ended)
    }

    /// What becomes of a page that is to move, by what there is.
    pub fn move_one(&mut self, process: ProcessId, page: VirtualPage, to: NodeId) -> Outcome {
        let Some(at) = self.find(process) else {
            return Outcome::ProcessGone;
        };
        let known = &mut self.processes[at];
        let Some(slot) = known.slot(page) else {
            return Outcome::ZeroOrUnmapped;
        };
        let place = known.places[slot];
        if place >= SWAPPED {
            return Outcome::NotPresent;
        }
        let from = NodeId(u16::from(place));
        if from == to {
            return Outcome::AlreadyThere;
        }
        if self.nodes[to.index()].offline {
            return Outcome::NoSuchNode;
        }
        if !known.memory.cpuset.contains(to) {
            return Outcome::NotAllowed;
        }
        if !self.nodes[to.index()].has_free() {
            return Outcome::NoMemory;
        }
        known.places[slot] = to.0 as u8;
        self.nodes[from.index()].used -= 1;
        self.nodes[to.index()].used += 1;
        Outcome::Moved { from }
    }

    /// A page is swapped out; whether it was there.
    pub fn swap_out(&mut self, process: ProcessId, page: VirtualPage) -> bool {
        let Some(at) = self.find(process) else {
            return false;
        };
        let known = &mut self.processes[at];
        let Some(slot) = known.slot(page) else {
            return false;
        };
        let place = known.places[slot];
        if place < SWAPPED {
            self.nodes[usize::from(place)].used -= 1;
            known.places[slot] = SWAPPED;
        }
        place < SWAPPED
    }

    /// What is swapped out comes back, to a lower node if there is room.
    pub fn swap_in(&mut self) {
        for at in 0..self.processes.len() {
            let known = &self.processes[at];
            let out = known.pages().filter(|(_, place)| *place == SWAPPED);
            let out: Vec<VirtualPage> = out.map(|(page, _)| page).collect();
            for page in out {
                let known = &self.processes[at];
                let slot = known.slot(page).expect("it was there");
                let node = self.wanted(&known.memory, page, false);
                let known = &mut self.processes[at];
                known.faults += 1;
                known.places[slot] = match node {
                    Some(node) => {
                        self.nodes[node].used += 1;
                        node as u8
                    }
                    None => ABSENT,
                };
            }
        }
    }

    /// A node goes offline, after its pages went elsewhere; whether it could.
    pub fn offline(&mut self, gone: usize) -> bool {
        let elsewhere = self.nodes.iter().enumerate().filter(|(n, _)| *n != gone);
        let room: u64 = elsewhere
            .filter(|(_, node)| !node.offline)
            .map(|(_, node)| node.room())
            .sum();
        if self.nodes[gone].offline || room < self.nodes[gone].used + 50 {
            return false;
        }
        self.nodes[gone].offline = true;
        for process in &mut self.processes {
            for place in &mut process.places {
                if usize::from(*place) != gone {
                    continue;
                }
                let roomy = |node: &&mut Node| !node.offline && node.room() > 0;
                let mut all = self.nodes.iter_mut().enumerate();
                let (n, node) = all.find(|(_, node)| roomy(node)).expect("there is room");
                *place = n as u8;
                node.used += 1;
                process.faults += 1;
            }
        }
        self.nodes[gone].used = 0;
        true
    }
}
