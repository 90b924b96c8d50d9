//! What a world said and what the loop did, to be written down and run again.
//!
//! # Problem
//!
//! A live run cannot be repeated: processes came and went, a source was late, a
//! page was pinned just then. Whoever wants to know why the loop did what it did,
//! or reports a fault of it, needs that very run.
//!
//! # Approach
//!
//! The loop has no clock, no randomness but its seed, and knows the machine
//! through [`World`] alone. So its run is the list of its calls and their
//! answers. [`Recording`] stands between the loop and a world and hands each
//! [`Line`] on; [`Replaying`] is a world that answers from such a list. What
//! the loop tells people is in the list, too.
//!
//! # Terms
//!
//! A *difference* is the first call that the loop makes and the journal has not,
//! or not there. From then on nothing is comparable: [`Replaying`] answers every
//! call with an error and names the difference.
//!
//! # Properties
//!
//! - Recording changes nothing: every call and every answer go through as they
//!   are.
//! - A journal may come from anybody. An answer that no world gives is a
//!   difference, and the loop never hears of it.
//! - Recorded again while it is replayed, a journal comes out byte for byte, as
//!   long as the loop decides as it did.

mod believable;
mod recording;
mod replaying;

pub use recording::{Recording, Telling};
pub use replaying::{NoMachine, Replaying};

use crate::report::{Event, Reporter};
use crate::world::{
    AddressSpace, Affinity, Came, Found, Kept, Lend, MoveHow, PageRun, Presence, ProcessId,
    ProcessSeen, Settled, Sought, SourceId, SourceInfo, SourceStatus, Stalls, Subject, ThreadId,
    ThreadSeen, View, World, WorldError,
};
use memtide_core::pages::NodeSpace;
use memtide_core::topology::{Node, NodeInput, TierOrigin, Topology, TopologyError, TopologyInput};
use memtide_core::units::{Millis, NodeId, PageSize};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

/// What a world is at the beginning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The base page.
    pub page: PageSize,
    /// Milliseconds from boot to the world's beginning.
    pub boot_ms: u64,
    /// Its nodes, with the tiers that they are in.
    pub topology: TopologyInput,
    /// Its sources.
    pub sources: Vec<SourceInfo>,
    /// Whether it tells how late its nodes answer; absent in journals from before
    /// worlds did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canary: bool,
    /// Whether it tells for how long programs wait for memory; likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pressure: bool,
}

impl Facts {
    /// Those of `world`.
    pub fn of(world: &dyn World) -> Facts {
        Facts {
            page: world.page(),
            boot_ms: world.boot_ms(),
            topology: input(world.topology()),
            sources: world.sources().to_vec(),
            canary: world.has_canary(),
            pressure: world.has_pressure(),
        }
    }
}

/// What made this topology, with the tiers that it came to.
fn input(topology: &Topology) -> TopologyInput {
    let node = |node: &Node| NodeInput {
        id: node.id,
        online: node.online,
        memory_bytes: node.memory_bytes,
        cpus: node.cpus.clone(),
        distances: node.distances.clone(),
        figures: node.figures,
        tier: node.tier,
    };
    TopologyInput {
        nodes: topology.nodes().iter().map(node).collect(),
        by_hand: topology.tier_origin() == TierOrigin::ByHand,
    }
}

/// A call of the loop's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "each is the method of its name with its arguments"
)]
pub enum Call {
    NowNs,
    OwnCpuNs,
    Rest {
        ms: u64,
    },
    Rooms,
    Canary {
        node: NodeId,
    },
    Pressure,
    Processes,
    ClassUse,
    AddressSpace {
        process: ProcessId,
    },
    Survey {
        process: ProcessId,
        spans: Vec<Sought>,
    },
    MovePages {
        process: ProcessId,
        target: NodeId,
        runs: Vec<PageRun>,
        how: MoveHow,
    },
    SourceStatus {
        source: SourceId,
    },
    Look {
        source: SourceId,
        subjects: Vec<Subject>,
        interval_ms: u64,
    },
    Glance {
        source: SourceId,
        subjects: Vec<Subject>,
        interval_ms: u64,
    },
    FinishView {
        source: SourceId,
        view: View,
    },
    Cuts {
        source: SourceId,
    },
    GlanceInPieces {
        source: SourceId,
        subjects: Vec<Subject>,
        piece: u64,
        interval_ms: u64,
    },
    Sample {
        source: SourceId,
        processes: Vec<ProcessId>,
    },
    Attend {
        source: SourceId,
    },
    Adapt {
        source: SourceId,
        elapsed_ms: u64,
        percent: u32,
    },
    Provoke {
        source: SourceId,
    },
    Wait {
        at_most_ms: u64,
    },
    Close,
    Thread {
        pid: u32,
        tid: u32,
    },
    LendAffinity {
        thread: ThreadId,
        node: NodeId,
        how: Lend,
    },
    PutBackOf {
        process: ProcessId,
    },
    PutBack,
}

/// What a world answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the answer to the call of its name")]
pub enum Answer {
    Nothing,
    Number(u64),
    Rooms(Vec<(NodeId, NodeSpace)>),
    Latency(Option<u32>),
    Stalls(Stalls),
    Processes(Vec<ProcessSeen>),
    ClassUse(Vec<crate::world::ClassUse>),
    /// What was read; the process is gone if nothing was.
    AddressSpace(Option<AddressSpace>),
    Survey {
        presence: Presence,
        found: Vec<Found>,
    },
    Settled(Vec<Settled>),
    SourceStatus(SourceStatus),
    Yes(bool),
    Came(Came),
    Thread(Option<ThreadSeen>),
    Affinity(Affinity),
    Failed(WorldError),
}

/// A line of a journal, to be written.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line<'a> {
    /// A turn begins.
    Step,
    /// The run ends, and what was changed is put back.
    Finish,
    /// A call, and what came of it.
    Call {
        /// What the loop asked or did.
        call: &'a Call,
        /// The world's answer.
        answer: &'a Answer,
    },
    /// The loop told something.
    Event {
        /// When.
        at: Millis,
        /// What.
        event: &'a Event,
    },
}

/// A line of a journal, as it was read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "nearly all entries are calls")]
pub enum Entry {
    /// A turn begins.
    Step,
    /// The run ends.
    Finish,
    /// A call, and what came of it.
    Call {
        /// What the loop asked or did.
        call: Call,
        /// The world's answer.
        answer: Answer,
    },
    /// The loop told something: of interest only to who compares.
    Event(serde::de::IgnoredAny),
}

/// Takes the lines, in their order.
pub trait Journal {
    /// The next line.
    fn line(&mut self, line: Line<'_>);
}

#[cfg(test)]
mod tests;
