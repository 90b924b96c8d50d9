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
//! - Recorded again while it is replayed, a journal comes out byte for byte, as
//!   long as the loop decides as it did.

use crate::report::{Event, Reporter};
use crate::world::{
    AddressSpace, Affinity, Came, Found, Kept, Lend, MoveHow, PageRun, Presence, ProcessId,
    ProcessSeen, Settled, SourceId, SourceInfo, SourceStatus, Span, Subject, ThreadId, ThreadSeen,
    World, WorldError,
};
use memtide_core::pages::NodeSpace;
use memtide_core::topology::{Node, NodeInput, Topology, TopologyError, TopologyInput};
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
}

impl Facts {
    /// Those of `world`.
    pub fn of(world: &dyn World) -> Facts {
        Facts {
            page: world.page(),
            boot_ms: world.boot_ms(),
            topology: input(world.topology()),
            sources: world.sources().to_vec(),
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
    RefreshTopology,
    Rooms,
    Canary {
        node: NodeId,
    },
    Processes,
    AddressSpace {
        process: ProcessId,
    },
    Survey {
        process: ProcessId,
        spans: Vec<Span>,
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
    PutBack,
}

/// What a world answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the answer to the call of its name")]
pub enum Answer {
    Nothing,
    Number(u64),
    Topology(Option<TopologyInput>),
    Rooms(Vec<(NodeId, NodeSpace)>),
    Latency(Option<u32>),
    Processes(Vec<ProcessSeen>),
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

/// A world whose every answer is written down.
pub struct Recording<'a, J> {
    world: &'a mut dyn World,
    journal: &'a RefCell<J>,
}

/// A reporter of which everything is written down.
pub struct Telling<'a, J> {
    reporter: &'a mut dyn Reporter,
    journal: &'a RefCell<J>,
}

impl<'a, J: Journal> Recording<'a, J> {
    /// Writes what goes between the loop and `world` to `journal`.
    pub fn new(world: &'a mut dyn World, journal: &'a RefCell<J>) -> Recording<'a, J> {
        Recording { world, journal }
    }

    fn wrote<T>(&mut self, call: Call, answer: Answer, result: T) -> T {
        let line = Line::Call {
            call: &call,
            answer: &answer,
        };
        self.journal.borrow_mut().line(line);
        result
    }

    /// Writes a call that may fail; `answer` makes the line of what came.
    fn tried<T>(
        &mut self,
        call: Call,
        result: Result<T, WorldError>,
        answer: impl FnOnce(&T) -> Answer,
    ) -> Result<T, WorldError> {
        let answer = match &result {
            Ok(value) => answer(value),
            Err(error) => Answer::Failed(error.clone()),
        };
        self.wrote(call, answer, result)
    }
}

impl<'a, J: Journal> Telling<'a, J> {
    /// Writes what `reporter` is told to `journal`.
    pub fn new(reporter: &'a mut dyn Reporter, journal: &'a RefCell<J>) -> Telling<'a, J> {
        Telling { reporter, journal }
    }
}

impl<J: Journal> Reporter for Telling<'_, J> {
    fn event(&mut self, at: Millis, event: Event) {
        let line = Line::Event { at, event: &event };
        self.journal.borrow_mut().line(line);
        self.reporter.event(at, event);
    }
}

impl<J: Journal> World for Recording<'_, J> {
    fn now_ns(&mut self) -> u64 {
        let ns = self.world.now_ns();
        self.wrote(Call::NowNs, Answer::Number(ns), ns)
    }

    fn boot_ms(&self) -> u64 {
        self.world.boot_ms()
    }

    fn own_cpu_ns(&mut self) -> u64 {
        let ns = self.world.own_cpu_ns();
        self.wrote(Call::OwnCpuNs, Answer::Number(ns), ns)
    }

    fn rest(&mut self, ms: u64) {
        self.world.rest(ms);
        self.wrote(Call::Rest { ms }, Answer::Nothing, ());
    }

    fn page(&self) -> PageSize {
        self.world.page()
    }

    fn topology(&self) -> &Topology {
        self.world.topology()
    }

    fn refresh_topology(&mut self) -> Result<bool, WorldError> {
        let result = self.world.refresh_topology();
        let topology = match &result {
            Ok(true) => Some(input(self.world.topology())),
            _ => None,
        };
        self.tried(Call::RefreshTopology, result, |_| {
            Answer::Topology(topology)
        })
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        let result = self.world.rooms(rooms);
        self.tried(Call::Rooms, result, |()| Answer::Rooms(rooms.clone()))
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        let result = self.world.canary(node);
        self.tried(Call::Canary { node }, result, |ns| Answer::Latency(*ns))
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        let result = self.world.processes(seen);
        self.tried(Call::Processes, result, |()| {
            Answer::Processes(seen.clone())
        })
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        let result = self.world.address_space(process, into);
        let call = Call::AddressSpace { process };
        self.tried(call, result, |presence| {
            let here = *presence == Presence::Here;
            Answer::AddressSpace(here.then(|| into.clone()))
        })
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Span],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        let mut all = Vec::new();
        let result = self.world.survey(process, spans, &mut |one| {
            all.push(one);
            found(one);
        });
        let spans = spans.to_vec();
        self.tried(Call::Survey { process, spans }, result, |presence| {
            Answer::Survey {
                presence: *presence,
                found: all,
            }
        })
    }

    fn move_pages(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) {
        let before = settled.len();
        self.world.move_pages(process, target, runs, how, settled);
        let call = Call::MovePages {
            process,
            target,
            runs: runs.to_vec(),
            how,
        };
        let answer = Answer::Settled(settled[before..].to_vec());
        self.wrote(call, answer, ());
    }

    fn sources(&self) -> &[SourceInfo] {
        self.world.sources()
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        let status = self.world.source_status(source);
        let answer = Answer::SourceStatus(status);
        self.wrote(Call::SourceStatus { source }, answer, status)
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        let result = self.world.look(source, subjects, interval_ms);
        let call = Call::Look {
            source,
            subjects: subjects.to_vec(),
            interval_ms,
        };
        self.tried(call, result, |pages| Answer::Number(*pages))
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let result = self.world.glance(source, subjects, interval_ms);
        let call = Call::Glance {
            source,
            subjects: subjects.to_vec(),
            interval_ms,
        };
        self.tried(call, result, |()| Answer::Nothing)
    }

    fn cuts(&mut self, source: SourceId) -> bool {
        let cuts = self.world.cuts(source);
        self.wrote(Call::Cuts { source }, Answer::Yes(cuts), cuts)
    }

    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let world = &mut self.world;
        let result = world.glance_in_pieces(source, subjects, piece, interval_ms);
        let call = Call::GlanceInPieces {
            source,
            subjects: subjects.to_vec(),
            piece,
            interval_ms,
        };
        self.tried(call, result, |()| Answer::Nothing)
    }

    fn sample(&mut self, source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        let result = self.world.sample(source, processes);
        let processes = processes.to_vec();
        self.tried(Call::Sample { source, processes }, result, |()| {
            Answer::Nothing
        })
    }

    fn attend(&mut self, source: SourceId) -> Result<bool, WorldError> {
        let result = self.world.attend(source);
        self.tried(Call::Attend { source }, result, |starved| {
            Answer::Yes(*starved)
        })
    }

    fn adapt(&mut self, source: SourceId, elapsed_ms: u64, percent: u32) {
        self.world.adapt(source, elapsed_ms, percent);
        let call = Call::Adapt {
            source,
            elapsed_ms,
            percent,
        };
        self.wrote(call, Answer::Nothing, ());
    }

    fn provoke(&mut self, source: SourceId) -> Result<(), WorldError> {
        let result = self.world.provoke(source);
        self.tried(Call::Provoke { source }, result, |()| Answer::Nothing)
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        // What was there before is the loop's; a loop begins with an empty one.
        let result = self.world.wait(at_most_ms, came);
        self.tried(Call::Wait { at_most_ms }, result, |()| {
            Answer::Came(came.clone())
        })
    }

    fn close(&mut self) -> Result<(), WorldError> {
        let result = self.world.close();
        self.tried(Call::Close, result, |()| Answer::Nothing)
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        let result = self.world.thread(pid, tid);
        self.tried(Call::Thread { pid, tid }, result, |seen| {
            Answer::Thread(*seen)
        })
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        let done = self.world.lend_affinity(thread, node, how);
        let answer = Answer::Affinity(done.clone());
        self.wrote(Call::LendAffinity { thread, node, how }, answer, done)
    }

    fn lent(&self) -> usize {
        self.world.lent()
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        let result = self.world.put_back();
        self.tried(Call::PutBack, result, |freed| Answer::Number(*freed as u64))
    }
}

/// A world that answers from a journal.
pub struct Replaying<I> {
    facts: Facts,
    topology: Topology,
    /// The calls and their answers that are left.
    entries: I,
    now_ns: u64,
    difference: Option<String>,
}

impl<I: Iterator<Item = (Call, Answer)>> Replaying<I> {
    /// A world of these facts that answers what `entries` say.
    ///
    /// # Errors
    ///
    /// Nodes that contradict each other.
    pub fn new(facts: Facts, entries: I) -> Result<Replaying<I>, TopologyError> {
        Ok(Replaying {
            topology: facts.topology.clone().try_into()?,
            facts,
            entries,
            now_ns: 0,
            difference: None,
        })
    }

    /// The first call of the loop's that the journal does not have there.
    pub fn difference(&self) -> Option<&str> {
        self.difference.as_deref()
    }

    /// The answer to `call`, which must be the next one in the journal.
    fn answer(&mut self, call: Call) -> Result<Answer, WorldError> {
        if self.difference.is_none() {
            match self.entries.next() {
                Some((noted, Answer::Failed(error))) if noted == call => return Err(error),
                Some((noted, answer)) if noted == call => return Ok(answer),
                Some((noted, _)) => {
                    self.difference = Some(format!("the loop does {call:?}, it did {noted:?}"));
                }
                None => self.difference = Some(format!("the loop does {call:?}, it had ended")),
            }
        }
        Err(self.lost())
    }

    fn lost(&mut self) -> WorldError {
        let what = self
            .difference
            .get_or_insert_with(|| "an answer is not one to its call".to_owned());
        WorldError::Failed { what: what.clone() }
    }
}

/// Takes an answer of the kind that belongs to the call.
macro_rules! expect {
    ($self:ident, $call:expr, $kind:pat => $value:expr) => {
        match $self.answer($call)? {
            $kind => Ok($value),
            _ => Err($self.lost()),
        }
    };
}

impl<I: Iterator<Item = (Call, Answer)>> World for Replaying<I> {
    fn now_ns(&mut self) -> u64 {
        if let Ok(Answer::Number(ns)) = self.answer(Call::NowNs) {
            self.now_ns = ns;
        }
        self.now_ns
    }

    fn boot_ms(&self) -> u64 {
        self.facts.boot_ms
    }

    fn own_cpu_ns(&mut self) -> u64 {
        match self.answer(Call::OwnCpuNs) {
            Ok(Answer::Number(ns)) => ns,
            _ => 0,
        }
    }

    fn rest(&mut self, ms: u64) {
        // A difference is remembered.
        let _ = self.answer(Call::Rest { ms });
    }

    fn page(&self) -> PageSize {
        self.facts.page
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn refresh_topology(&mut self) -> Result<bool, WorldError> {
        let fresh = expect!(self, Call::RefreshTopology, Answer::Topology(fresh) => fresh)?;
        let Some(fresh) = fresh else {
            return Ok(false);
        };
        self.topology = fresh.try_into().map_err(|_| self.lost())?;
        Ok(true)
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        expect!(self, Call::Rooms, Answer::Rooms(found) => *rooms = found)
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        expect!(self, Call::Canary { node }, Answer::Latency(ns) => ns)
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        expect!(self, Call::Processes, Answer::Processes(found) => *seen = found)
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        let call = Call::AddressSpace { process };
        expect!(self, call, Answer::AddressSpace(read) => match read {
            Some(read) => {
                *into = read;
                Presence::Here
            }
            None => Presence::Gone,
        })
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Span],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        let spans = spans.to_vec();
        let call = Call::Survey { process, spans };
        expect!(self, call, Answer::Survey { presence, found: all } => {
            all.into_iter().for_each(found);
            presence
        })
    }

    fn move_pages(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) {
        let call = Call::MovePages {
            process,
            target,
            runs: runs.to_vec(),
            how,
        };
        if let Ok(Answer::Settled(all)) = self.answer(call) {
            settled.extend(all);
        }
    }

    fn sources(&self) -> &[SourceInfo] {
        &self.facts.sources
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        match self.answer(Call::SourceStatus { source }) {
            Ok(Answer::SourceStatus(status)) => status,
            _ => SourceStatus::default(),
        }
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        let call = Call::Look {
            source,
            subjects: subjects.to_vec(),
            interval_ms,
        };
        expect!(self, call, Answer::Number(pages) => pages)
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let call = Call::Glance {
            source,
            subjects: subjects.to_vec(),
            interval_ms,
        };
        expect!(self, call, Answer::Nothing => ())
    }

    fn cuts(&mut self, source: SourceId) -> bool {
        matches!(self.answer(Call::Cuts { source }), Ok(Answer::Yes(true)))
    }

    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let call = Call::GlanceInPieces {
            source,
            subjects: subjects.to_vec(),
            piece,
            interval_ms,
        };
        expect!(self, call, Answer::Nothing => ())
    }

    fn sample(&mut self, source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        let processes = processes.to_vec();
        expect!(self, Call::Sample { source, processes }, Answer::Nothing => ())
    }

    fn attend(&mut self, source: SourceId) -> Result<bool, WorldError> {
        expect!(self, Call::Attend { source }, Answer::Yes(starved) => starved)
    }

    fn adapt(&mut self, source: SourceId, elapsed_ms: u64, percent: u32) {
        // A difference is remembered.
        let _ = self.answer(Call::Adapt {
            source,
            elapsed_ms,
            percent,
        });
    }

    fn provoke(&mut self, source: SourceId) -> Result<(), WorldError> {
        expect!(self, Call::Provoke { source }, Answer::Nothing => ())
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        expect!(self, Call::Wait { at_most_ms }, Answer::Came(all) => *came = all)
    }

    fn close(&mut self) -> Result<(), WorldError> {
        expect!(self, Call::Close, Answer::Nothing => ())
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        expect!(self, Call::Thread { pid, tid }, Answer::Thread(seen) => seen)
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        match self.answer(Call::LendAffinity { thread, node, how }) {
            Ok(Answer::Affinity(done)) => done,
            _ => Affinity::Kept(Kept::Unsupported),
        }
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        expect!(self, Call::PutBack, Answer::Number(freed) => freed as usize)
    }
}

#[cfg(test)]
mod tests;
