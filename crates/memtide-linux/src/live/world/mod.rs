//! [`World`] over the running kernel.

use super::affinity::Affinities;
use super::canary::Canaries;
use super::kernel::RunningKernel;
use super::processes::{Selected, Selection};
use super::sampling::{Sampling, SamplingError};
use super::survey::{SurveyError, Surveyor};
use crate::fs::kept::Kept;
use crate::fs::proc::Process;
use crate::fs::{FsError, Root, pressure, zoneinfo};
use crate::mover::{self, Mover};
use crate::source::observe::{Sink, Source, SourceError};
use crate::source::samples::{Kind, Window};
use crate::sys::mempolicy;
use memtide_core::access;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId, PageSize};
use memtide_loop::options::Rules;
use memtide_loop::world::{
    Abilities, AddressSpace, Affinity, Came, ClassId, ClassUse, Found, Invalid, Lend, MoveHow,
    Notice, PageRun, Presence, ProcessId, ProcessSeen, Report, Settled, Sought, SourceId,
    SourceInfo, SourceStatus, Stalls, Subject, ThreadId, ThreadSeen, View, World, WorldError,
};
use memtide_loop::write_rounds::too_large;
use rustix::time::ClockId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A source of accesses that has been opened.
pub enum LiveSource {
    /// It offers looks, and perhaps glances.
    Views(Box<dyn Source>),
    /// It samples.
    Samples(Box<Sampling>),
}

impl LiveSource {
    fn close(&mut self, id: SourceId) -> Result<(), WorldError> {
        match self {
            LiveSource::Views(source) => source.close().map_err(broken(id)),
            LiveSource::Samples(sampling) => sampling.listen_to(&[]).map_err(silent(id)),
        }
    }

    fn info(&self) -> SourceInfo {
        match self {
            LiveSource::Views(source) => SourceInfo {
                name: source.kind().to_string(),
                kind: source.kind(),
                abilities: source.abilities(),
            },
            LiveSource::Samples(sampling) => SourceInfo {
                name: sampling.name().to_owned(),
                kind: match sampling.kind() {
                    Kind::Faults => access::Source::HintFault,
                    Kind::Ibs | Kind::Pebs => access::Source::Hardware,
                },
                abilities: Abilities {
                    samples: true,
                    ..Abilities::default()
                },
            },
        }
    }
}

/// The running machine.
pub struct LiveWorld {
    root: Root,
    topology: Topology,
    page: PageSize,
    start: Instant,
    /// Whose processor time is ours, and what it was then.
    cpu_clock: ClockId,
    start_cpu_ns: u64,
    boot_ms: u64,
    selected: Selected,
    zoneinfo: Kept,
    pressure: Kept,
    /// Of processes and their cgroup, since the last wait.
    notices: Vec<Notice>,
    /// Whether it was told that nobody says for how long programs wait for memory.
    told_no_pressure: bool,
    surveyor: Surveyor<RunningKernel>,
    mover: Mover<RunningKernel>,
    sources: Vec<LiveSource>,
    infos: Vec<SourceInfo>,
    affinities: Affinities,
    canaries: Canaries,
    /// Samples that were lost, by source.
    lost: Vec<u64>,
    /// Processor time of ours that reading samples took, by source, in ns.
    read_ns: Vec<u64>,
    /// Sources that broke, and how closing them ended. They are left alone.
    broken: Vec<Option<Result<(), WorldError>>>,
    /// How sources broke while they were waited for.
    untold: VecDeque<WorldError>,
}

impl LiveWorld {
    /// The machine under `root` with these nodes; only processes of `selection`
    /// are managed. Time begins now, and so does the time on CPUs.
    pub fn new(
        root: Root,
        topology: Topology,
        page: PageSize,
        selection: Selection,
        sources: Vec<LiveSource>,
    ) -> LiveWorld {
        let kernel = RunningKernel::new(root.clone());
        let boot = rustix::time::clock_gettime(ClockId::Boottime);
        let mover = mover::Config {
            base: page,
            ..Default::default()
        };
        LiveWorld {
            topology,
            page,
            start: Instant::now(),
            cpu_clock: ClockId::ProcessCPUTime,
            start_cpu_ns: cpu_ns(ClockId::ProcessCPUTime),
            boot_ms: boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000,
            selected: Selected::new(root.clone(), page, selection),
            zoneinfo: zoneinfo::kept(&root),
            pressure: pressure::kept(&root),
            notices: Vec::new(),
            told_no_pressure: false,
            surveyor: Surveyor::new(kernel.clone(), page),
            mover: Mover::new(kernel, mover),
            infos: sources.iter().map(LiveSource::info).collect(),
            lost: vec![0; sources.len()],
            read_ns: vec![0; sources.len()],
            broken: vec![None; sources.len()],
            untold: VecDeque::new(),
            sources,
            affinities: Affinities::new(root.clone()),
            canaries: Canaries::default(),
            root,
        }
    }

    /// Says of each process which of these classes it is in from now on.
    pub fn set_classes(&mut self, rules: Rules) {
        self.selected.set_classes(rules);
    }

    /// The same with classes of processes, by what these ask for.
    #[must_use]
    pub fn with_classes(mut self, rules: Rules) -> LiveWorld {
        self.set_classes(rules);
        self
    }

    /// Calls `alive` at the beginning of each survey and while one goes on; see [`Surveyor::tell`].
    pub fn tell_while_surveying(&mut self, alive: fn()) {
        self.surveyor.tell(alive);
    }

    /// The same for one of several loops of this process: our processor time is that of the
    /// calling thread, on which the loop runs.
    #[must_use]
    pub fn of_this_thread(mut self) -> LiveWorld {
        self.cpu_clock = ClockId::ThreadCPUTime;
        self.start_cpu_ns = cpu_ns(self.cpu_clock);
        self
    }

    /// Keeps this process's own memory off fast nodes where there is a choice:
    /// the keeper of fast memory should be the last to use it. Best done first,
    /// as it holds for memory that is taken later.
    pub fn stay_off_fast_memory(topology: &Topology) {
        static IS_OFF: AtomicBool = AtomicBool::new(false);
        let lower = topology
            .nodes()
            .iter()
            .filter(|node| !node.top_tier && node.has_memory());
        let mut mask = vec![0u64; usize::from(NodeId::LIMIT) / 64];
        for node in lower {
            mask[node.id.index() / 64] |= 1 << (node.id.index() % 64);
        }
        // A wish, not a need: a kernel or a sandbox that refuses is no reason
        // to stop.
        match mask.iter().any(|word| *word > 0) {
            true => {
                let set = mempolicy::set_policy(mempolicy::PREFERRED_MANY, &mask);
                IS_OFF.store(set.is_ok(), Ordering::Relaxed);
            }
            // The nodes of before are gone. A policy of somebody else's stays.
            false if IS_OFF.swap(false, Ordering::Relaxed) => {
                let _ = mempolicy::set_policy(mempolicy::DEFAULT, &[]);
            }
            false => {}
        }
    }

    /// Whom it manages, for another world: who was named is known.
    pub fn selection(&self) -> Selection {
        self.selected.selection()
    }

    fn views(&mut self, id: SourceId) -> Option<&mut Box<dyn Source>> {
        match self.sources.get_mut(usize::from(id.0)) {
            Some(LiveSource::Views(source)) => Some(source),
            _ => None,
        }
    }

    fn sampling(&mut self, id: SourceId) -> Option<&mut Sampling> {
        match self.sources.get_mut(usize::from(id.0)) {
            Some(LiveSource::Samples(sampling)) => Some(sampling),
            _ => None,
        }
    }

    /// A source that broke is closed at once: it would cost and be heard by nobody.
    /// The others go on.
    fn note<T>(&mut self, result: Result<T, WorldError>) -> Result<T, WorldError> {
        if let Err(WorldError::Source { source_id, .. }) = result {
            let n = usize::from(source_id.0);
            if self.broken[n].is_none() {
                self.broken[n] = Some(self.sources[n].close(source_id));
            }
        }
        result
    }

    fn cpus_of(&self, node: NodeId) -> BTreeSet<u32> {
        let node = self.topology.node(node);
        node.map_or_else(BTreeSet::new, |node| node.cpus.iter().copied().collect())
    }
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn failed(error: FsError) -> WorldError {
    WorldError::Failed {
        what: error.to_string(),
    }
}

fn broken(source_id: SourceId) -> impl Fn(SourceError) -> WorldError {
    move |error| WorldError::Source {
        source_id,
        what: error.to_string(),
    }
}

fn silent(source_id: SourceId) -> impl Fn(SamplingError) -> WorldError {
    move |error| WorldError::Source {
        source_id,
        what: error.to_string(),
    }
}

fn process(id: ProcessId) -> Process {
    Process {
        pid: id.pid,
        start_ticks: id.start_ticks,
    }
}

impl World for LiveWorld {
    fn now_ns(&mut self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn boot_ms(&self) -> u64 {
        self.boot_ms
    }

    fn own_cpu_ns(&mut self) -> u64 {
        cpu_ns(self.cpu_clock).saturating_sub(self.start_cpu_ns)
    }

    fn rest(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn page(&self) -> PageSize {
        self.page
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn has_canary(&self) -> bool {
        // A copy of a machine has no memory of its own.
        Canaries::POSSIBLE && self.root.is_live()
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        if !self.has_canary() {
            return Ok(None);
        }
        let mut canaries = std::mem::take(&mut self.canaries);
        let (topology, page) = (self.topology.clone(), self.page);
        // Where rooms cannot be read, the loop hears of it when it asks for them.
        let space = || {
            let mut rooms = Vec::new();
            self.rooms(&mut rooms).ok()?;
            let (_, space) = rooms.into_iter().find(|(known, _)| *known == node)?;
            Some(space)
        };
        let ns = canaries.read(node, &topology, space, page);
        self.canaries = canaries;
        Ok(ns)
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        let zones = zoneinfo::read_kept(&mut self.zoneinfo).map_err(failed)?;
        let room = |node: NodeId| {
            let present: u64 = zones.of(node).filter_map(|zone| zone.present).sum();
            let populated: Vec<(u64, u64, u64)> = zones
                .of(node)
                // A zone for old devices is small, and kept from ordinary pages.
                .filter(|zone| zone.present.is_some_and(|pages| pages >= present / 16))
                .filter_map(|zone| {
                    let (free, high, low) = (zone.free?, zone.high?, zone.low?);
                    let promo = zone.promo.unwrap_or(high + high.saturating_sub(low));
                    (zone.managed? > 0).then_some((free, high, promo))
                })
                .collect();
            Some((node, NodeSpace::of_zones(populated, present)?))
        };
        rooms.clear();
        rooms.extend(self.topology.memory_nodes().iter().filter_map(room));
        Ok(())
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        let notices = &mut self.notices;
        self.selected.list(seen, notices).map_err(failed)
    }

    fn has_pressure(&self) -> bool {
        // Whether the kernel does is found out when it is asked, and told then.
        true
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        *stalls = Stalls::default();
        let why = match self.pressure.parse(pressure::parse) {
            Ok(Some(total)) => {
                stalls.machine = Some(total);
                stalls.classes = self.selected.stalls().map_err(failed)?;
                return Ok(());
            }
            Ok(None) => format!(
                "there is no /{}; the kernel has it with CONFIG_PSI=y and psi=1",
                pressure::MACHINE
            ),
            Err(error) => error.to_string(),
        };
        if !std::mem::replace(&mut self.told_no_pressure, true) {
            self.notices.push(Notice::NoPressure { why });
        }
        Ok(())
    }

    fn class_use(&mut self, used: &mut Vec<ClassUse>) -> Result<(), WorldError> {
        let top = self.topology.nodes().iter().filter(|node| node.top_tier);
        let top: Vec<NodeId> = top.map(|node| node.id).collect();
        let mut bytes = Vec::new();
        self.selected.class_use(&top, &mut bytes).map_err(failed)?;
        let nesting = self.selected.nesting();
        let ids = (0..).map(ClassId);
        let uses = ids.zip(bytes).map(|(class, bytes)| ClassUse {
            pages: bytes.map(|bytes| bytes >> self.page.shift()),
            within: nesting.within(class),
        });
        used.clear();
        used.extend(uses);
        Ok(())
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        match self.selected.read(process, into) {
            Ok(()) => Ok(Presence::Here),
            Err(FsError::Gone { .. }) => Ok(Presence::Gone),
            Err(error) => {
                let left_out = self.selected.leave_out(process, error, Instant::now());
                let pid = process.pid;
                let why = left_out.map_err(failed)?.map(|error| error.to_string());
                self.notices
                    .extend(why.map(|why| Notice::LeftOut { pid, why }));
                Ok(Presence::Gone)
            }
        }
    }

    fn survey(
        &mut self,
        id: ProcessId,
        spans: &[Sought],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        let proc_root = self.root.path("proc");
        match self
            .surveyor
            .survey_spans(&proc_root, process(id), spans, found)
        {
            Ok(()) => Ok(Presence::Here),
            Err(SurveyError::Gone(_)) => Ok(Presence::Gone),
            Err(SurveyError::NotPermitted(pid)) => Err(WorldError::NotPermitted { pid }),
            Err(SurveyError::Failed { pid, what }) => Err(WorldError::Survey { pid, what }),
        }
    }

    fn move_pages(
        &mut self,
        id: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) {
        let shift = self.page.shift();
        let moves: Vec<mover::Move> = runs
            .iter()
            .map(|run| mover::Move {
                address: (run.first.0 << shift) as usize,
                pages: run.pages as usize,
                huge: run.huge,
                target,
            })
            .collect();
        self.mover.set_how(how.batch as usize, how.shared);
        self.mover.run(process(id), &moves, |one| {
            let next = Settled {
                first: VirtualPage(one.address as u64 >> shift),
                pages: one.pages as u64,
                huge: one.pages > 1,
                outcome: one.outcome,
            };
            Settled::push(settled, next);
        });
    }

    fn sources(&self) -> &[SourceInfo] {
        &self.infos
    }

    fn source_status(&mut self, id: SourceId) -> SourceStatus {
        let lost = self.lost.get(usize::from(id.0)).copied().unwrap_or(0);
        match self.sources.get_mut(usize::from(id.0)) {
            Some(LiveSource::Views(source)) => SourceStatus {
                kernel_cpu_ns: source.kernel_time().as_nanos() as u64,
                own_cpu_ns: source.own_time().as_nanos() as u64,
                lost: source.lost(),
                ..SourceStatus::default()
            },
            Some(LiveSource::Samples(sampling)) => SourceStatus {
                kernel_cpu_ns: sampling.kernel_cpu_ns(),
                lost,
                period: sampling.period(),
                records: sampling.records(),
                own_cpu_ns: self.read_ns.get(usize::from(id.0)).copied().unwrap_or(0),
            },
            None => SourceStatus::default(),
        }
    }

    fn look(
        &mut self,
        id: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        let interval = Duration::from_millis(interval_ms);
        let looked = match self.views(id) {
            Some(source) => source.look(subjects, interval).map_err(broken(id)),
            None => Ok(0),
        };
        self.note(looked)
    }

    fn glance(
        &mut self,
        id: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let interval = Duration::from_millis(interval_ms);
        let glanced = match self.views(id) {
            Some(source) => source.glance(subjects, interval).map_err(broken(id)),
            None => Ok(()),
        };
        self.note(glanced)
    }

    fn finish_view(&mut self, id: SourceId, view: View) -> Result<(), WorldError> {
        let finished = match self.views(id) {
            Some(source) => source.finish(view).map_err(broken(id)),
            None => Ok(()),
        };
        self.note(finished)
    }

    fn cuts(&mut self, id: SourceId) -> bool {
        self.views(id).is_some_and(|source| source.cuts())
    }

    fn glance_in_pieces(
        &mut self,
        id: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let interval = Duration::from_millis(interval_ms);
        let glanced = match self.views(id) {
            Some(source) => source
                .glance_in_pieces(subjects, piece, interval)
                .map_err(broken(id)),
            None => Ok(()),
        };
        self.note(glanced)
    }

    fn sample(&mut self, id: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        let processes: Vec<Process> = processes.iter().copied().map(process).collect();
        let told = match self.sampling(id) {
            Some(sampling) => sampling.listen_to(&processes).map_err(silent(id)),
            None => Ok(()),
        };
        self.note(told)
    }

    fn attend(&mut self, id: SourceId) -> Result<bool, WorldError> {
        let starved = match self.sampling(id) {
            Some(sampling) => sampling.refresh().map_err(silent(id)),
            None => Ok(false),
        };
        self.note(starved)
    }

    fn adapt(&mut self, id: SourceId, elapsed_ms: u64, percent: u32) {
        if let Some(sampling) = self.sampling(id) {
            sampling.adapt(Duration::from_millis(elapsed_ms), percent);
        }
    }

    fn provoke(&mut self, id: SourceId) -> Result<(), WorldError> {
        let now = Millis(self.start.elapsed().as_millis() as u64);
        let provoked = match self.sampling(id) {
            Some(sampling) => sampling.provoke(now).map_err(silent(id)),
            None => Ok(()),
        };
        self.note(provoked)
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        if let Some(first) = self.untold.pop_front() {
            return Err(first);
        }
        came.notices.append(&mut self.notices);
        if self.broken.iter().all(Option::is_some) {
            self.rest(at_most_ms);
        }
        let mut patience = Duration::from_millis(at_most_ms);
        // One that breaks now is told of next time: what the others had to tell counts.
        for n in 0..self.sources.len() {
            if self.broken[n].is_none() {
                let timeout = std::mem::take(&mut patience);
                let heard = self.hear(SourceId(n as u8), timeout, came);
                let failed = self.note(heard).err();
                self.untold.extend(failed);
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), WorldError> {
        let mut first = Ok(());
        for (n, source) in self.sources.iter_mut().enumerate() {
            let closed = match self.broken[n].take() {
                Some(closed) => closed,
                None => source.close(SourceId(n as u8)),
            };
            first = first.and(closed);
        }
        first
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        let found = super::affinity::look(&self.root, pid, tid).map_err(failed)?;
        Ok(found.map(|(thread, runtime_ns)| ThreadSeen { thread, runtime_ns }))
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        let cpus = self.cpus_of(node);
        let done = match how {
            Lend::Propose => self.affinities.propose(thread, &cpus),
            Lend::Set => self.affinities.lend(thread, &cpus),
        };
        match done {
            Ok(cpus) => Affinity::Given(cpus.into_iter().collect()),
            Err(why) => Affinity::Kept(why),
        }
    }

    fn lent(&self) -> usize {
        self.affinities.lent()
    }

    fn put_back_of(&mut self, process: ProcessId) -> Result<usize, WorldError> {
        let freed = self.affinities.put_back_of(process.pid);
        freed.map_err(|error| WorldError::Failed {
            what: error.to_string(),
        })
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        self.affinities
            .put_back()
            .map_err(|error| WorldError::Failed {
                what: error.to_string(),
            })
    }
}

impl LiveWorld {
    /// Waits for what `id` has to tell, `timeout` at most, and takes it.
    fn hear(&mut self, id: SourceId, timeout: Duration, came: &mut Came) -> Result<(), WorldError> {
        let n = usize::from(id.0);
        match &mut self.sources[n] {
            LiveSource::Views(source) => {
                let mut sink = Collector { id, came };
                source.poll(timeout, &mut sink).map_err(broken(id))
            }
            LiveSource::Samples(sampling) => {
                sampling.wait(timeout).map_err(silent(id))?;
                let before_ns = cpu_ns(self.cpu_clock);
                let window = sampling.drain(id, &mut came.samples);
                self.read_ns[n] += cpu_ns(self.cpu_clock).saturating_sub(before_ns);
                if let Window::Invalid {
                    lost, throttled, ..
                } = window
                {
                    self.lost[n] += lost;
                    came.invalid.push(Invalid {
                        source: id,
                        lost,
                        throttled,
                    });
                }
                for (pid, bytes) in sampling.left_out() {
                    let why = too_large(bytes);
                    came.notices.push(Notice::LeftOut { pid, why });
                }
                Ok(())
            }
        }
    }
}

/// Writes down what a source with views reports.
struct Collector<'a> {
    id: SourceId,
    came: &'a mut Came,
}

impl Sink for Collector<'_> {
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64) {
        self.came.reports.push(Report::Touched {
            source: self.id,
            view,
            owner,
            first,
            pages,
        });
    }

    fn untouched(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        self.came.reports.push(Report::Untouched {
            source: self.id,
            owner,
            first,
            pages,
        });
    }

    fn pass_complete(&mut self, view: View) {
        let source = self.id;
        self.came.reports.push(Report::Pass { source, view });
    }
}

#[cfg(test)]
mod tests;
