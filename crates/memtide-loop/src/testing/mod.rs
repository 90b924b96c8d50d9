//! A small world for tests: time is a number, memory a map, and everything can
//! be made to fail.
//!
//! It has one source that sees everything: at the end of each pass it reports
//! which of the pages that it was told of were touched. A page is touched in
//! every pass if it is [`FakeProcess::hot`]. Nothing takes time but
//! [`World::wait`], and passes of a look cost the kernel
//! [`FakeWorld::page_ns`] a page.

mod process;

pub use process::FakeProcess;

use crate::random::Random;
use crate::world::{
    Abilities, AddressSpace, Affinity, Came, ClassId, ClassUse, Counted, Found, Invalid, Kept,
    Lend, MoveHow, Outcome, PageRun, Presence, ProcessId, ProcessSeen, Report, Sample, Settled,
    Sought, SourceId, SourceInfo, SourceStatus, Stalls, Subject, ThreadId, ThreadSeen, View, World,
    WorldError,
};
use memtide_core::access;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::{Millis, NodeId, PageSize};
use std::collections::{BTreeMap, BTreeSet};

/// Hardware that samples: each wait brings the samples of the time that it took.
#[derive(Clone, Debug)]
pub struct FakeSampler {
    /// Its place among the sources.
    pub source: SourceId,
    /// Samples a second at the full rate.
    pub per_second: u64,
    /// What one costs the kernel, in ns.
    pub price_ns: u64,
    /// What it sees, in turns, of those whom it samples.
    pub pages: Vec<(u32, VirtualPage)>,
    /// The part of the full rate that was asked for last, in percent.
    pub percent: u32,
    /// Whose accesses it samples.
    pub pids: BTreeSet<u32>,
    /// Whether what it samples is lost.
    pub loses: bool,
    records: u64,
    lost: u64,
    turn: usize,
}

/// A view of the source that sees everything.
#[derive(Clone, Debug)]
struct Watching {
    subjects: Vec<Subject>,
    interval_ns: u64,
    due_ns: u64,
    /// With the pass that is under way.
    ends: bool,
}

/// The world. Its fields are what it is made of; tests change them as they like.
#[derive(Clone, Debug)]
pub struct FakeWorld {
    /// Time.
    pub now_ns: u64,
    /// Processor time that we have used.
    pub cpu_ns: u64,
    /// What a present page costs in a survey.
    pub survey_page_ns: u64,
    /// What reading the mappings of a process costs.
    pub read_ns: u64,
    topology: Topology,
    /// Pages that each node has, beyond its watermark.
    pub capacity: BTreeMap<NodeId, u64>,
    /// Processes.
    pub processes: Vec<FakeProcess>,
    /// Threads.
    pub threads: Vec<ThreadSeen>,
    /// Hardware that samples, if there is any.
    pub sampler: Option<FakeSampler>,
    /// Samples that the next wait brings.
    pub samples: Vec<Sample>,
    pub(crate) sources: Vec<SourceInfo>,
    views: BTreeMap<(SourceId, bool), Watching>,
    /// Processor time of ours that each wait takes.
    pub wait_cpu_ns: u64,
    /// And making pages fault.
    pub provoke_cpu_ns: u64,
    /// The same, a page that moves.
    pub move_cpu_ns: u64,
    /// Time that a page that moves takes.
    pub move_ns: u64,
    /// Whether sources cut spans into pieces, and how large these were at the last glance.
    pub cuts: bool,
    /// Whether looks name the pages that they find untouched, too.
    pub(crate) names_untouched: bool,
    /// Whether passes cost this process's time, and not the kernel's.
    pub(crate) observes_itself: bool,
    /// See [`FakeWorld::cuts`].
    pub piece: Option<u64>,
    /// Which page of a piece each pass of a glance samples; if absent, it sees them all.
    pub sampled: Option<Random>,
    /// What a page costs the kernel in a pass of a look, in ns.
    pub page_ns: u64,
    /// How many times as long as planned passes take.
    pub slowness: u64,
    kernel_cpu_ns: BTreeMap<SourceId, u64>,
    own_cpu_ns: BTreeMap<SourceId, u64>,
    /// What becomes of pages, by process, that will not move.
    pub refuse: BTreeMap<(u32, VirtualPage), Outcome>,
    /// The source that breaks at the next wait.
    pub breaks: Option<SourceId>,
    /// Every page that was tried to move, by process, and whereto.
    pub tried: Vec<(ProcessId, VirtualPage, NodeId)>,
    /// Affinities that are lent.
    pub lent: BTreeMap<ThreadId, NodeId>,
    /// Whether it is known what classes use.
    pub class_use_known: bool,
    /// Each time what classes used the last time is told.
    pub class_use_lags: bool,
    /// What classes used when that was asked last.
    pub class_use_last: Vec<ClassUse>,
    /// Classes that lie within others.
    pub within: BTreeMap<ClassId, ClassId>,
    /// How often that was asked.
    pub class_use_asked: u64,
    /// What it costs of our processor time to ask, in ns.
    pub class_use_cost_ns: u64,
    /// For how long programs have waited for memory. With none from the beginning, nobody
    /// can tell.
    pub stalls: Option<Stalls>,
    /// How often that was asked.
    pub stalls_asked: u64,
    /// How late nodes answer. With none from the beginning, nobody can tell.
    pub latencies: BTreeMap<NodeId, u32>,
    /// Whether [`World::close`] was called.
    pub closed: bool,
}

/// The fast node.
pub const FAST: NodeId = NodeId(0);
/// The slow node.
pub const SLOW: NodeId = NodeId(1);
/// Of each node, pages below the high watermark.
const HIGH: u64 = 10;

impl FakeWorld {
    /// A fast node with CPUs and a slow one without, with room for so many pages.
    pub fn two_tiers(fast: u64, slow: u64) -> FakeWorld {
        FakeWorld::new(fast, slow, false)
    }

    /// Two nodes with CPUs, with room for so many pages.
    pub fn two_nodes(first: u64, second: u64) -> FakeWorld {
        FakeWorld::new(first, second, true)
    }

    /// The same with a slow node behind them, each with room for so many pages.
    pub fn two_nodes_and_slow(pages: u64) -> FakeWorld {
        let node = |id: u16, cpus: &[u32], tier| NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: pages << 12,
            cpus: cpus.to_vec(),
            distances: Some(
                (0..3)
                    .map(|other| if other == id { 10 } else { 20 })
                    .collect(),
            ),
            figures: Default::default(),
            tier: Some(memtide_core::topology::TierId(tier)),
        };
        let nodes = vec![node(0, &[0, 1], 4), node(1, &[2, 3], 4), node(2, &[], 22)];
        let mut world = FakeWorld::two_nodes(pages, pages);
        world.topology = (TopologyInput::new(nodes).try_into()).expect("three good nodes");
        world.capacity.insert(NodeId(2), pages);
        world
    }

    fn new(first: u64, second: u64, both: bool) -> FakeWorld {
        let node = |id, pages: u64, cpus: &[u32], tier| NodeInput {
            id,
            online: true,
            memory_bytes: pages << 12,
            cpus: cpus.to_vec(),
            distances: Some(if id == FAST {
                vec![10, 20]
            } else {
                vec![20, 10]
            }),
            figures: Default::default(),
            tier: Some(memtide_core::topology::TierId(tier)),
        };
        let nodes = match both {
            true => vec![
                node(FAST, first, &[0, 1], 4),
                node(SLOW, second, &[2, 3], 4),
            ],
            false => vec![node(FAST, first, &[0, 1], 4), node(SLOW, second, &[], 22)],
        };
        let topology = TopologyInput::new(nodes);
        let abilities = Abilities {
            passes: !both,
            glances: !both,
            samples: both,
            keeps: None,
        };
        let source = |name: &str, kind| SourceInfo {
            name: name.to_owned(),
            kind,
            abilities,
        };
        FakeWorld {
            now_ns: 0,
            cpu_ns: 0,
            survey_page_ns: 0,
            read_ns: 0,
            topology: topology.try_into().expect("two good nodes"),
            capacity: [(FAST, first), (SLOW, second)].into(),
            processes: Vec::new(),
            threads: Vec::new(),
            sampler: None,
            samples: Vec::new(),
            sources: vec![
                source("DAMON", access::Source::Damon),
                source("the other", access::Source::Damon),
            ],
            views: BTreeMap::new(),
            wait_cpu_ns: 0,
            provoke_cpu_ns: 0,
            move_cpu_ns: 0,
            move_ns: 0,
            cuts: false,
            names_untouched: false,
            observes_itself: false,
            piece: None,
            sampled: None,
            page_ns: 1000,
            slowness: 1,
            kernel_cpu_ns: BTreeMap::new(),
            own_cpu_ns: BTreeMap::new(),
            refuse: BTreeMap::new(),
            breaks: None,
            tried: Vec::new(),
            lent: BTreeMap::new(),
            class_use_known: true,
            class_use_lags: false,
            class_use_last: Vec::new(),
            within: BTreeMap::new(),
            class_use_asked: 0,
            class_use_cost_ns: 0,
            stalls: None,
            stalls_asked: 0,
            latencies: BTreeMap::new(),
            closed: false,
        }
    }

    /// Adds hardware to the sources that takes so many samples a second of `pages`.
    pub fn add_sampler(&mut self, per_second: u64, pages: Vec<(u32, VirtualPage)>) -> SourceId {
        let source = SourceId(self.sources.len() as u8);
        self.sources.push(SourceInfo {
            name: "ibs".to_owned(),
            kind: access::Source::Hardware,
            abilities: Abilities {
                samples: true,
                ..Abilities::default()
            },
        });
        self.sampler = Some(FakeSampler {
            source,
            per_second,
            price_ns: 1_000,
            pages,
            percent: 100,
            pids: BTreeSet::new(),
            loses: false,
            records: 0,
            lost: 0,
            turn: 0,
        });
        source
    }

    /// What hardware sampled since `from_ns`.
    fn sampled_since(&mut self, from_ns: u64, came: &mut Came) {
        let Some(sampler) = self.sampler.as_mut().filter(|one| !one.pids.is_empty()) else {
            return;
        };
        let a_second = sampler.per_second * u64::from(sampler.percent) / 100;
        // Fractions add up from wait to wait.
        let until = |ns: u64| ns * a_second / 1_000_000_000;
        let count = until(self.now_ns) - until(from_ns);
        sampler.records += count;
        *self.kernel_cpu_ns.entry(sampler.source).or_default() += count * sampler.price_ns;
        if sampler.loses && count > 0 {
            sampler.lost += count;
            came.invalid.push(Invalid {
                source: sampler.source,
                lost: count,
                throttled: 0,
            });
            return;
        }
        let count = if sampler.pages.is_empty() { 0 } else { count };
        for _ in 0..count {
            sampler.turn = (sampler.turn + 1) % sampler.pages.len();
            let (pid, page) = sampler.pages[sampler.turn];
            if sampler.pids.contains(&pid) {
                came.samples.push(Sample {
                    source: sampler.source,
                    pid,
                    tid: pid,
                    cpu: 0,
                    address: page.0 << 12,
                });
            }
        }
    }

    /// The process with `pid`.
    pub fn process(&mut self, pid: u32) -> &mut FakeProcess {
        let mut all = self.processes.iter_mut();
        all.find(|known| known.process.pid == pid)
            .expect("a process of the test")
    }

    fn find(&self, process: ProcessId) -> Option<&FakeProcess> {
        let mut all = self.processes.iter();
        all.find(|known| known.process == process)
    }

    /// `source` has cost the kernel so much until now.
    #[cfg(test)]
    pub(crate) fn set_kernel_cpu_ns(&mut self, source: SourceId, ns: u64) {
        self.kernel_cpu_ns.insert(source, ns);
    }

    /// Pages on `node`.
    pub fn used(&self, node: NodeId) -> u64 {
        self.processes.iter().map(|process| process.on(node)).sum()
    }

    /// Ends one pass of a view.
    fn pass(&mut self, (source, glance): (SourceId, bool), came: &mut Came) {
        let mut sampled = self.sampled.take();
        let watching = &self.views[&(source, glance)];
        let view = if glance { View::Glance } else { View::Look };
        let names = self.names_untouched;
        for subject in &watching.subjects {
            let Some(process) = self.find(subject.process) else {
                continue;
            };
            let owner = subject.owner;
            for span in &subject.spans {
                let end = VirtualPage(span.first.0 + span.pages);
                let mut touched = process.hot.range(span.first..end);
                let mut report = |first, pages| {
                    came.reports.push(Report::Touched {
                        source,
                        view,
                        owner,
                        first,
                        pages,
                    });
                };
                if let (true, Some(random)) = (glance, &mut sampled) {
                    let piece = self.piece.unwrap_or(span.pages).max(1);
                    let firsts = (span.first.0..end.0).step_by(piece as usize);
                    for first in firsts {
                        let pages = piece.min(end.0 - first);
                        let page = VirtualPage(first + random.below(pages));
                        if process.hot.contains(&page) {
                            report(VirtualPage(first), pages);
                        }
                    }
                } else if glance {
                    if touched.next().is_some() {
                        report(span.first, span.pages);
                    }
                } else {
                    touched.for_each(|page| report(*page, 1));
                    let all = (span.first.0..end.0).map(VirtualPage);
                    let idle = all.filter(|page| names && !process.hot.contains(page));
                    came.reports.extend(idle.map(|first| Report::Untouched {
                        source,
                        owner,
                        first,
                        pages: 1,
                    }));
                }
            }
        }
        let subjects = watching.subjects.iter();
        let cost_ns = match view {
            View::Look => subjects.map(Subject::pages).sum::<u64>() * self.page_ns,
            // A span costs what a page of it does.
            View::Glance => subjects.map(|s| s.spans.len() as u64).sum::<u64>() * 1000,
        };
        let costs = match self.observes_itself {
            true => &mut self.own_cpu_ns,
            false => &mut self.kernel_cpu_ns,
        };
        *costs.entry(source).or_default() += cost_ns * self.slowness;
        came.reports.push(Report::Pass { source, view });
        self.sampled = sampled;
    }

    fn watch(&mut self, key: (SourceId, bool), subjects: &[Subject], interval_ms: u64) {
        self.views.remove(&key);
        let wrong = subjects.iter().find(|subject| !subject.is_in_order());
        assert!(wrong.is_none(), "spans overlap: {wrong:?}");
        if !subjects.is_empty() {
            let interval_ns = interval_ms.max(1) * 1_000_000;
            let watching = Watching {
                subjects: subjects.to_vec(),
                interval_ns,
                due_ns: self.now_ns + interval_ns * self.slowness,
                ends: false,
            };
            self.views.insert(key, watching);
        }
    }

    fn move_one(&mut self, id: ProcessId, page: VirtualPage, target: NodeId) -> Outcome {
        self.tried.push((id, page, target));
        let room = self.capacity[&target].saturating_sub(self.used(target));
        if let Some(outcome) = self.refuse.get(&(id.pid, page)) {
            return *outcome;
        }
        let mut all = self.processes.iter_mut();
        let Some(process) = all.find(|known| known.process == id) else {
            return Outcome::ProcessGone;
        };
        let allowed = process.memory.may_move(page, target);
        match process.pages.get_mut(&page) {
            None => Outcome::NotPresent,
            Some(at) if *at == target => Outcome::AlreadyThere,
            Some(_) if room == 0 => Outcome::NoMemory,
            Some(at) => {
                assert_eq!(allowed, Ok(()), "page {page:?} of {id:?} to {target}");
                Outcome::Moved {
                    from: std::mem::replace(at, target),
                }
            }
        }
    }
}

impl World for FakeWorld {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn boot_ms(&self) -> u64 {
        1_000_000
    }

    fn own_cpu_ns(&mut self) -> u64 {
        self.cpu_ns
    }

    fn rest(&mut self, ms: u64) {
        self.now_ns += ms * 1_000_000;
    }

    fn page(&self) -> PageSize {
        PageSize::KIB_4
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        rooms.clear();
        for (&node, &capacity) in &self.capacity {
            let space = NodeSpace {
                free: capacity.saturating_sub(self.used(node)) + HIGH,
                high: HIGH,
                promo: 2 * HIGH,
                present: capacity + HIGH,
            };
            rooms.push((node, space));
        }
        Ok(())
    }

    fn has_canary(&self) -> bool {
        !self.latencies.is_empty()
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        Ok(self.latencies.get(&node).copied())
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        seen.clear();
        seen.extend(self.processes.iter().map(|known| ProcessSeen {
            process: known.process,
            parent: 1,
            born: Millis(known.process.start_ticks * 10),
            ticks: known.ticks,
            faults: known.faults,
            class: known.class,
        }));
        seen.sort_by_key(|seen| seen.process.pid);
        Ok(())
    }

    fn has_pressure(&self) -> bool {
        self.stalls.is_some()
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        self.stalls_asked += 1;
        *stalls = self.stalls.clone().unwrap_or_default();
        Ok(())
    }

    fn class_use(&mut self, used: &mut Vec<ClassUse>) -> Result<(), WorldError> {
        self.class_use_asked += 1;
        self.cpu_ns += self.class_use_cost_ns;
        used.clear();
        let classes = self.processes.iter().filter_map(|known| known.class);
        let classes = classes.chain(self.within.values().copied());
        let classes = classes.max().map_or(0, |last| last.0 + 1);
        let use_of = |class| {
            let members = self.processes.iter();
            let members = members.filter(|known| known.class == Some(class));
            let pages = members.map(|known| known.on(FAST)).sum();
            ClassUse {
                pages: self.class_use_known.then_some(pages),
                within: self.within.get(&class).copied(),
            }
        };
        used.extend((0..classes).map(ClassId).map(use_of));
        let last = std::mem::replace(&mut self.class_use_last, used.clone());
        if self.class_use_lags && last.len() == used.len() {
            used.clone_from(&last);
        }
        Ok(())
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        self.cpu_ns += self.read_ns;
        self.now_ns += self.read_ns;
        match self.find(process) {
            Some(known) => {
                into.clone_from(&known.memory);
                for area in &mut into.areas {
                    let end = VirtualPage(area.first.0 + area.pages);
                    let on = known.pages.range(area.first..end);
                    area.counted = Counted::of(on.map(|(_, node)| (*node, 1)));
                }
                Ok(Presence::Here)
            }
            None => Ok(Presence::Gone),
        }
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Sought],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        let Some(known) = self.find(process) else {
            return Ok(Presence::Gone);
        };
        let mut cost_ns = 0;
        for sought in spans {
            let end = VirtualPage(sought.span.first.0 + sought.span.pages);
            for (&first, &node) in known.pages.range(sought.span.first..end) {
                cost_ns += self.survey_page_ns;
                found(Found {
                    first,
                    pages: 1,
                    node,
                    huge: known.huge,
                });
            }
        }
        self.cpu_ns += cost_ns;
        self.now_ns += cost_ns;
        Ok(Presence::Here)
    }

    fn move_pages(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        _how: MoveHow,
        settled: &mut Vec<Settled>,
    ) {
        for run in runs {
            for page in (run.first.0..run.first.0 + run.pages).map(VirtualPage) {
                let outcome = self.move_one(process, page, target);
                self.cpu_ns += self.move_cpu_ns;
                self.now_ns += self.move_ns;
                let next = Settled {
                    first: page,
                    pages: 1,
                    huge: run.huge,
                    outcome,
                };
                Settled::push(settled, next);
            }
        }
    }

    fn sources(&self) -> &[SourceInfo] {
        &self.sources
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        let sampler = self.sampler.as_ref().filter(|one| one.source == source);
        SourceStatus {
            kernel_cpu_ns: self.kernel_cpu_ns.get(&source).copied().unwrap_or(0),
            lost: sampler.map_or(0, |one| one.lost),
            records: sampler.map_or(0, |one| one.records),
            own_cpu_ns: self.own_cpu_ns.get(&source).copied().unwrap_or(0),
            ..SourceStatus::default()
        }
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        self.watch((source, false), subjects, interval_ms);
        Ok(subjects.iter().map(Subject::pages).sum())
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.watch((source, true), subjects, interval_ms);
        Ok(())
    }

    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        if let Some(watching) = self.views.get_mut(&(source, view == View::Glance)) {
            watching.ends = true;
        }
        Ok(())
    }

    fn cuts(&mut self, _source: SourceId) -> bool {
        self.cuts
    }

    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.piece = Some(piece);
        self.glance(source, subjects, interval_ms)
    }

    fn sample(&mut self, source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        if let Some(sampler) = self.sampler.as_mut().filter(|one| one.source == source) {
            sampler.pids = processes.iter().map(|process| process.pid).collect();
        }
        Ok(())
    }

    fn adapt(&mut self, source: SourceId, _elapsed_ms: u64, percent: u32) {
        if let Some(sampler) = self.sampler.as_mut().filter(|one| one.source == source) {
            sampler.percent = percent;
        }
    }

    fn provoke(&mut self, _: SourceId) -> Result<(), WorldError> {
        self.cpu_ns += self.provoke_cpu_ns;
        Ok(())
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        self.cpu_ns += self.wait_cpu_ns;
        if let Some(source_id) = self.breaks.take() {
            self.views.retain(|(source, _), _| *source != source_id);
            if let Some(one) = self.sampler.as_mut().filter(|one| one.source == source_id) {
                one.pids.clear();
            }
            return Err(WorldError::Source {
                source_id,
                what: "DAMON: another program keeps turning it off".into(),
            });
        }
        came.samples.append(&mut self.samples);
        let from_ns = self.now_ns;
        let end_ns = self.now_ns + at_most_ms * 1_000_000;
        let due = self.views.iter().map(|(key, view)| (view.due_ns, *key));
        match due.min().filter(|(due_ns, _)| *due_ns <= end_ns) {
            Some((due_ns, key)) => {
                self.now_ns = self.now_ns.max(due_ns);
                self.pass(key, came);
                let view = self.views.get_mut(&key).expect("it was due");
                // What a leap of the clock left out is not made up for.
                let next_ns = view.due_ns + view.interval_ns * self.slowness;
                view.due_ns = next_ns.max(self.now_ns);
                if view.ends {
                    self.views.remove(&key);
                }
            }
            None => self.now_ns = end_ns,
        }
        self.sampled_since(from_ns, came);
        Ok(())
    }

    fn close(&mut self) -> Result<(), WorldError> {
        self.views.clear();
        self.closed = true;
        Ok(())
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        let mut all = self.threads.iter();
        let same = |seen: &&ThreadSeen| (seen.thread.pid, seen.thread.tid) == (pid, tid);
        Ok(all.find(same).copied())
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        if !self.threads.iter().any(|seen| seen.thread == thread) {
            return Affinity::Kept(Kept::Gone);
        }
        if how == Lend::Set {
            self.lent.insert(thread, node);
        }
        let cpus = self.topology.node(node).map(|node| node.cpus.clone());
        Affinity::Given(cpus.unwrap_or_default())
    }

    fn lent(&self) -> usize {
        self.lent.len()
    }

    fn put_back_of(&mut self, process: ProcessId) -> Result<usize, WorldError> {
        let before = self.lent.len();
        self.lent.retain(|thread, _| thread.pid != process.pid);
        Ok(before - self.lent.len())
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        Ok(std::mem::take(&mut self.lent).len())
    }
}
