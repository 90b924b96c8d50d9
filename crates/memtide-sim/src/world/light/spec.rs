//! A machine of rates and its programs, as whoever makes one describes them.

use super::heat::Heat;
use memtide_core::pages::NodeSpace;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_loop::world::{Allowed, Backing, MemoryKind};

/// A machine and what runs on it.
#[derive(Clone, Debug)]
pub struct LightSpec {
    /// Nodes and tiers.
    pub topology: Topology,
    /// The nodes that have memory.
    pub nodes: Vec<LightNode>,
    /// Programs, in any order.
    pub processes: Vec<LightProcess>,
    /// What moving a page takes, copy included, and what a batch takes beside its pages.
    pub move_page_ns: u64,
    /// See `move_page_ns`.
    pub move_batch_ns: u64,
    /// Decides all chance.
    pub seed: u64,
}

/// A node's memory.
#[derive(Clone, Copy, Debug)]
pub struct LightNode {
    /// Which.
    pub id: NodeId,
    /// Its room with nothing on it.
    pub space: NodeSpace,
    /// The lowest watermark: nobody's page is let in below it.
    pub min: u64,
    /// A dependent load.
    pub latency_ns: u32,
}

/// A program.
#[derive(Clone, Debug)]
pub struct LightProcess {
    /// Its number, which others may have had before.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When it starts, in milliseconds of the world; 0: it is there from the beginning.
    pub born_ms: u64,
    /// When it ends, if it does.
    pub ends_ms: Option<u64>,
    /// The share of a CPU that it uses.
    pub busy: f64,
    /// Its cgroup; none in the root.
    pub cgroup: Option<String>,
    /// Its mappings, in order of address.
    pub areas: Vec<LightArea>,
    /// It is a copy of this one, by its place in the list, and shares all its memory.
    pub fork_of: Option<usize>,
}

/// A mapping, all of it present from its program's start if there is room.
#[derive(Clone, Debug)]
pub struct LightArea {
    /// Its first page; a multiple of 512 if it has huge pages.
    pub first: u64,
    /// Its length in base pages.
    pub pages: u64,
    /// Where its pages are at first.
    pub node: NodeId,
    /// Whether it has huge pages.
    pub huge: bool,
    /// Where its owner lets them be.
    pub allowed: Allowed,
    /// What it maps.
    pub kind: MemoryKind,
    /// What it shares with others.
    pub backing: Option<Backing>,
    /// How it is used.
    pub heat: Vec<Heat>,
}
