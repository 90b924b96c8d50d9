//! A world that says again what was written down.

use super::*;

/// A world that answers from a journal.
pub struct Replaying<I> {
    facts: Facts,
    topology: Topology,
    /// The calls and their answers that are left.
    entries: I,
    now_ns: u64,
    difference: Option<String>,
}

/// Why there is no world of some facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMachine {
    /// Its nodes contradict each other.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// No machine has these.
    #[error("no machine has {0}")]
    Facts(&'static str),
}

impl<I: Iterator<Item = (Call, Answer)>> Replaying<I> {
    /// A world of these facts that answers what `entries` say.
    ///
    /// # Errors
    ///
    /// Nodes that contradict each other, or facts that no machine has.
    pub fn new(facts: Facts, entries: I) -> Result<Replaying<I>, NoMachine> {
        believable::facts(&facts).map_err(NoMachine::Facts)?;
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
                Some((noted, answer)) if noted == call => {
                    match believable::answer(&call, &answer, self.now_ns) {
                        Ok(()) => return Ok(answer),
                        Err(what) => {
                            self.difference = Some(format!("no world answers with {what}"));
                        }
                    }
                }
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

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        expect!(self, Call::Rooms, Answer::Rooms(found) => *rooms = found)
    }

    fn has_canary(&self) -> bool {
        self.facts.canary
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        expect!(self, Call::Canary { node }, Answer::Latency(ns) => ns)
    }

    fn has_pressure(&self) -> bool {
        self.facts.pressure
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        expect!(self, Call::Pressure, Answer::Stalls(found) => *stalls = found)
    }

    fn class_use(&mut self, used: &mut Vec<crate::world::ClassUse>) -> Result<(), WorldError> {
        expect!(self, Call::ClassUse, Answer::ClassUse(found) => *used = found)
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
        spans: &[Sought],
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

    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        expect!(self, Call::FinishView { source, view }, Answer::Nothing => ())
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

    fn put_back_of(&mut self, process: ProcessId) -> Result<usize, WorldError> {
        let call = Call::PutBackOf { process };
        expect!(self, call, Answer::Number(freed) => freed as usize)
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        expect!(self, Call::PutBack, Answer::Number(freed) => freed as usize)
    }
}
