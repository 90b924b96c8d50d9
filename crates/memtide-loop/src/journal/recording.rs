//! A world that writes down what it said, and a reporter what it was told.

use super::*;

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

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        let result = self.world.rooms(rooms);
        self.tried(Call::Rooms, result, |()| Answer::Rooms(rooms.clone()))
    }

    fn has_canary(&self) -> bool {
        self.world.has_canary()
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        let result = self.world.canary(node);
        self.tried(Call::Canary { node }, result, |ns| Answer::Latency(*ns))
    }

    fn has_pressure(&self) -> bool {
        self.world.has_pressure()
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        let result = self.world.pressure(stalls);
        self.tried(Call::Pressure, result, |()| Answer::Stalls(stalls.clone()))
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        let result = self.world.processes(seen);
        self.tried(Call::Processes, result, |()| {
            Answer::Processes(seen.clone())
        })
    }

    fn class_use(&mut self, used: &mut Vec<crate::world::ClassUse>) -> Result<(), WorldError> {
        let result = self.world.class_use(used);
        self.tried(Call::ClassUse, result, |()| Answer::ClassUse(used.clone()))
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
        spans: &[Sought],
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

    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        let result = self.world.finish_view(source, view);
        self.tried(Call::FinishView { source, view }, result, |()| {
            Answer::Nothing
        })
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

    fn put_back_of(&mut self, process: ProcessId) -> Result<usize, WorldError> {
        let result = self.world.put_back_of(process);
        let answer = |freed: &usize| Answer::Number(*freed as u64);
        self.tried(Call::PutBackOf { process }, result, answer)
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        let result = self.world.put_back();
        self.tried(Call::PutBack, result, |freed| Answer::Number(*freed as u64))
    }
}
