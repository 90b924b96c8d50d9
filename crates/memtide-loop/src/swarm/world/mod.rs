//! The machine as a world: it answers the loop, lets things go wrong at their
//! times, and watches what the loop does.

mod faults;
mod idle;
mod passes;
mod pressure;
mod shares;

use super::coverage::{Coverage, Kind, Part};
use super::machine::{HIGH, Machine, Process, within};
use super::mistake::Mistake;
use super::plan::{FAILURES, Fault, Plan, Program};
use super::watch::{Allowance, Pressed, Violations};
use crate::random::Random;
use crate::world::{
    Abilities, AddressSpace, Affinity, Allowed, Came, ClassId, ClassUse, Counted, Found, Invalid,
    Kept, Lend, MoveHow, Outcome, PageRun, Presence, ProcessId, ProcessSeen, Report, Sample,
    Settled, Sought, SourceId, SourceInfo, SourceStatus, Span, Stalls, Subject, ThreadId,
    ThreadSeen, View, World, WorldError,
};
use memtide_core::access;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId, PageSize};
use std::collections::{BTreeMap, BTreeSet};

/// Until when moves of a process that is gone are no mistake, in ms: a refresh
/// comes every four seconds at most, and turns take up to one.
const NOTICE_MS: u64 = 6_000;
/// How long a fault of one moment counts as met, in ms.
const MOMENT_MS: u64 = 1_500;
/// What observing has in hand at the beginning, in ns.
const BURST_NS: u64 = 3_000_000_000;
/// What balancing has in hand: so many ms' worth.
const SAVED_MS: u64 = 20_000;

/// What the source is at work on.
#[derive(Clone, Debug)]
struct Watching {
    subjects: Vec<Subject>,
    interval_ns: u64,
    due_ns: u64,
    /// With the pass that is under way.
    ends: bool,
}

/// The world of one seed.
pub(super) struct SwarmWorld {
    pub machine: Machine,
    pub now_ns: u64,
    cpu_ns: u64,
    random: Random,
    /// Chooses the pages that answer for what is glanced at.
    glanced: Random,
    plan: Plan,
    /// The next of the plan's faults.
    next_fault: usize,
    pub mistake: Option<Mistake>,
    pub violations: Violations,
    pub coverage: Coverage,
    /// Until when each kind of fault goes on, in ms.
    until_ms: BTreeMap<usize, u64>,
    /// Of moves that fail: outcome, one in so many, and until when.
    failing: Vec<(usize, u64, u64)>,
    /// When what others took comes back, and when offline nodes do.
    restores: Vec<(u64, Fault)>,
    lost: Option<(u64, u64)>,
    /// Whether reports were lost at any time.
    lossy: bool,
    dies_within: Option<(u64, bool)>,
    still: u64,
    slow_until_ms: u64,
    breaks: bool,
    broken: BTreeSet<u8>,
    /// When processes went.
    gone: BTreeMap<ProcessId, u64>,
    ghosts: Vec<ProcessSeen>,
    sources: Vec<SourceInfo>,
    views: BTreeMap<(SourceId, bool), Watching>,
    kernel_ns: BTreeMap<SourceId, u64>,
    /// The dearest pass so far, in ns.
    dearest_ns: u64,
    /// Own processor time that is judged.
    judged_ns: u64,
    observing: Allowance,
    own: Allowance,
    pressed: Pressed,
    /// Pages of nodes that programs took since the loop asked for room.
    untold: BTreeMap<NodeId, u64>,
    pub lent: BTreeMap<ThreadId, NodeId>,
    pub closed: bool,
    first_rooms: Option<Vec<(NodeId, NodeSpace)>>,
    first_pids: Option<BTreeSet<ProcessId>>,
    refused: BTreeSet<(ProcessId, VirtualPage)>,
    /// The number that the loop has for the first class of the plan.
    pub first_class: u32,
    /// From when on classes are judged, in ms.
    shares_from_ms: u64,
    /// What the loop knows of what classes use: what it was told, and its moves since.
    told: BTreeMap<ClassId, u64>,
    /// Pages that left protected classes in this turn.
    taken: BTreeMap<ClassId, u64>,
    /// The fewest pages that each class had since.
    fewest: BTreeMap<ClassId, u64>,
    /// Of pages that leave for idleness.
    told_idle: idle::Told,
    /// Of programs that wait for memory.
    short: pressure::Short,
}

impl SwarmWorld {
    pub fn new(plan: &Plan, mistake: Option<Mistake>) -> SwarmWorld {
        let source = |name: &str, glances: bool| SourceInfo {
            name: name.to_owned(),
            kind: access::Source::Damon,
            abilities: Abilities {
                passes: !plan.balance,
                glances: !plan.balance && glances,
                samples: plan.balance,
                keeps: None,
            },
        };
        let names = ["the first", "the second", "the third"];
        let sources = names.iter().zip(plan.glances);
        let sources: Vec<_> = sources.map(|(name, of)| source(name, of)).collect();
        let share = match mistake {
            _ if plan.balance => 0,
            _ => u64::from(plan.tier.observe_cpu.permille()) * 1000,
        };
        let own = u64::from(plan.balancing.cpu_limit.permille()) * 1000;
        let mut world = SwarmWorld {
            machine: Machine::new(plan),
            now_ns: 0,
            cpu_ns: 0,
            random: Random::new(plan.seed ^ 0x5377_6172_6d21),
            glanced: Random::new(plan.seed ^ 0x676c_616e_6365),
            next_fault: 0,
            mistake,
            violations: Violations::default(),
            coverage: Coverage::default(),
            until_ms: BTreeMap::new(),
            failing: Vec::new(),
            restores: Vec::new(),
            lost: None,
            lossy: false,
            dies_within: None,
            still: 0,
            slow_until_ms: 0,
            breaks: false,
            broken: BTreeSet::new(),
            gone: BTreeMap::new(),
            ghosts: Vec::new(),
            sources,
            views: BTreeMap::new(),
            kernel_ns: BTreeMap::new(),
            dearest_ns: 0,
            judged_ns: 0,
            first_class: 0,
            observing: Allowance::new(share, BURST_NS),
            own: Allowance::new(own, SAVED_MS * own),
            pressed: Pressed::new(),
            untold: BTreeMap::new(),
            lent: BTreeMap::new(),
            closed: false,
            first_rooms: None,
            first_pids: None,
            refused: BTreeSet::new(),
            shares_from_ms: u64::MAX,
            told: BTreeMap::new(),
            taken: BTreeMap::new(),
            fewest: BTreeMap::new(),
            told_idle: idle::Told::default(),
            short: pressure::Short::default(),
            plan: plan.clone(),
        };
        if plan.many_mappings {
            world.goes_on(Kind::ManyMappings, u64::MAX);
        }
        world.births(0);
        world
    }

    fn now_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn headroom(&self) -> u64 {
        match self.plan.balance {
            true => self.plan.balancing.headroom.0 >> 12,
            false => self.plan.tier.headroom.0 >> 12,
        }
    }

    fn dry_run(&self) -> bool {
        match self.plan.balance {
            true => self.plan.balancing.dry_run,
            false => self.plan.tier.dry_run,
        }
    }

    fn goes_on(&mut self, kind: Kind, until_ms: u64) {
        let until = self.until_ms.entry(kind as usize).or_default();
        *until = (*until).max(until_ms);
    }

    fn moment(&mut self, kind: Kind) {
        self.goes_on(kind, self.now_ms() + MOMENT_MS);
    }

    /// A part of the loop has asked something: it meets all that goes on.
    fn asked(&mut self, part: Part) {
        let now_ms = self.now_ms();
        for (kind, until) in &self.until_ms {
            if now_ms <= *until {
                self.coverage.met_index(*kind, part);
            }
        }
    }

    /// Charges processor time of our own.
    fn work(&mut self, ns: u64) {
        self.cpu_ns += ns;
        self.now_ns += ns;
    }

    /// Judges a move before it is made, and makes it.
    fn move_one(&mut self, process: ProcessId, page: VirtualPage, target: NodeId) -> Outcome {
        let now_ms = self.now_ms();
        if self.dry_run() {
            self.violations.add(|| format!("a dry run moves {page:?}"));
        }
        let went = self.gone.get(&process);
        if let Some(went) = went.filter(|went| now_ms - **went > NOTICE_MS) {
            self.violations
                .add(|| format!("{process:?} went at {went} ms and is moved at {now_ms} ms"));
        }
        let mut of = process;
        if self.is(Mistake::PidIsEnough) {
            of = self.of_pid(process.pid).unwrap_or(process);
            if of != process {
                self.violations
                    .add(|| format!("{page:?} of {of:?} is moved as that of {process:?}"));
            }
        }
        if let Some(at) = self.machine.find(of) {
            let known = &self.machine.processes[at];
            if known.node(page).is_some() && known.memory.may_move(page, target).is_err() {
                let text = || format!("{page:?} of {of:?} may not go to node {target}");
                self.violations.add(text);
            }
        }
        if let Some(outcome) = self.fails(of, page) {
            return outcome;
        }
        let before = self.class_pages(of);
        let outcome = self.machine.move_one(of, page, target);
        if outcome.is_there() {
            // What was there for a moment may stay from now on.
            self.note_down(of, page, target);
        }
        if let Outcome::Moved { .. } = outcome {
            self.coverage.moved += 1;
            self.judge_share(of, target, &before);
            self.judge_protected(of, target);
            self.judge_waits(of, target);
            let node = self.machine.node(target);
            let free = node.capacity as i64 - (node.used + node.taken) as i64;
            let untold = self.untold.get(&target).copied().unwrap_or(0);
            if free + (untold as i64) < self.headroom() as i64 {
                // One page of each process commutes, whatever the room is.
                let pressed = self.pressed.entry(target).or_default();
                *pressed += 1;
                let most = match self.plan.balance {
                    true => 0,
                    false => 2 * self.machine.processes.len() as u64,
                };
                if *pressed > most {
                    let text =
                        || format!("node {target} was pressed to {free} pages at {now_ms} ms");
                    self.violations.add(text);
                }
            }
        }
        outcome
    }

    /// How long it takes until the dearest look is paid for, in ms: until then there is no
    /// other.
    pub fn pays_back_ms(&self) -> u64 {
        let permille = u64::from(self.plan.tier.observe_cpu.permille());
        self.passes_of_a_look() * self.dearest_ns / 1_000 / permille
    }

    /// What is not given back at the end.
    pub fn check_given_back(&mut self) {
        if !self.closed || !self.views.is_empty() {
            self.violations.add(|| "sources were not closed".into());
        }
        let lent = self.lent.len();
        if lent > 0 {
            self.violations
                .add(|| format!("{lent} affinities were not given back"));
        }
    }

    /// At the end nothing is away that has room at home.
    pub fn check_came_home(&mut self, pid: u32, page: VirtualPage, home: NodeId) {
        let node = self.machine.node(home);
        let room = node.capacity > node.used + node.taken;
        let process = self
            .machine
            .processes
            .iter()
            .find(|process| process.id.pid == pid);
        let at = process.and_then(|process| process.node(page));
        if room && let Some(at) = at.filter(|at| *at != home) {
            self.violations
                .add(|| format!("{page:?} of {pid} belongs on node {home} and stays on {at}"));
        }
    }

    /// Judges what a turn of balancing took.
    fn judge_own_time(&mut self) {
        let used = self.cpu_ns - std::mem::replace(&mut self.judged_ns, self.cpu_ns);
        self.dearest_ns = self.dearest_ns.max(used);
        // The turn that uses up what is in hand ends before that is known.
        let (now_ms, slack_ns) = (self.now_ms(), self.dearest_ns + 1_000_000);
        if let Some(over) = self.own.used(now_ms, used, slack_ns)
            && self.plan.balance
        {
            let text = || format!("at {now_ms} ms balancing took {over} ns too much");
            self.violations.add(text);
        }
    }
}

fn seen(process: &Process) -> ProcessSeen {
    ProcessSeen {
        process: process.id,
        parent: 1,
        born: Millis(process.id.start_ticks * 10),
        ticks: process.ticks,
        faults: process.faults,
        class: None,
    }
}

impl World for SwarmWorld {
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
        &self.machine.topology
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        self.asked(Part::Rooms);
        self.work(5_000);
        rooms.clear();
        self.untold.clear();
        for node in self.machine.nodes.iter().filter(|node| !node.offline) {
            let free = (node.capacity + HIGH).saturating_sub(node.used + node.taken);
            let high = if self.is(Mistake::IgnoreWatermark) {
                0
            } else {
                HIGH
            };
            let space = NodeSpace {
                free,
                high,
                promo: 2 * HIGH,
                present: node.capacity + HIGH,
            };
            rooms.push((node.id, space));
        }
        if self.is(Mistake::StaleRoom) {
            rooms.clone_from(self.first_rooms.get_or_insert_with(|| rooms.clone()));
        }
        Ok(())
    }

    fn processes(&mut self, list: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        self.asked(Part::Refresh);
        self.work(20_000 * (1 + self.machine.processes.len() as u64));
        list.clear();
        for process in &mut self.machine.processes {
            process.ticks += 1;
            let class = self.plan.class(process.id.pid);
            let class = class.map(|class| ClassId(class.0 + self.first_class));
            list.push(ProcessSeen {
                class,
                ..seen(process)
            });
        }
        if self.is(Mistake::KeepGone) {
            list.extend(&self.ghosts);
        }
        if self.is(Mistake::ForgetNewcomers) {
            let all = || list.iter().map(|seen| seen.process).collect();
            let first = self.first_pids.get_or_insert_with(all);
            list.retain(|seen| first.contains(&seen.process));
        }
        list.sort_by_key(|seen| seen.process);
        Ok(())
    }

    fn has_pressure(&self) -> bool {
        !self.plan.waits.is_empty()
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        self.asked(Part::Rooms);
        self.work(20_000);
        self.tell_pressure(stalls);
        Ok(())
    }

    fn class_use(&mut self, used: &mut Vec<ClassUse>) -> Result<(), WorldError> {
        self.asked(Part::Rooms);
        self.work(20_000);
        used.clear();
        let none = ClassUse {
            pages: Some(0),
            within: None,
        };
        used.resize(self.first_class as usize, none);
        for class in (0..self.plan.classes.len() as u32).map(ClassId) {
            let uses = self.used_by(|of| of == class);
            let total = self.used_within(class);
            self.told.insert(class, total);
            used.push(ClassUse {
                pages: Some(match self.is(Mistake::ClassUseUncounted) {
                    true => 0,
                    false => uses,
                }),
                within: (self.plan.within(class))
                    .filter(|_| !self.is(Mistake::NestingUnread))
                    .map(|of| ClassId(of.0 + self.first_class)),
            });
        }
        Ok(())
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        self.names(process);
        self.asked(Part::Refresh);
        let Some(at) = self.machine.find(process) else {
            return Ok(Presence::Gone);
        };
        into.clone_from(&self.machine.processes[at].memory);
        self.work(20_000 + 200 * into.areas.len() as u64);
        let known = &self.machine.processes[at];
        for area in &mut into.areas {
            let pages = (area.first.0..area.first.0 + area.pages).map(VirtualPage);
            area.counted = Counted::of(pages.filter_map(|page| Some((known.node(page)?, 1))));
            let bound = matches!(area.allowed, Allowed::Nodes(_));
            if bound && self.mistake == Some(Mistake::IgnorePolicy) {
                area.allowed = Allowed::Anywhere;
            }
        }
        if self.is(Mistake::IgnoreCpuset) {
            into.cpuset = NodeMask::ALL;
        }
        Ok(Presence::Here)
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Sought],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        self.names(process);
        let part = if self.plan.balance {
            Part::Locate
        } else {
            Part::Survey
        };
        self.asked(part);
        let Some(at) = self.machine.find(process) else {
            return Ok(Presence::Gone);
        };
        let known = &self.machine.processes[at];
        let mut cost = 0;
        for Sought { span, counted } in spans {
            let pages = (span.first.0..span.first.0 + span.pages).map(VirtualPage);
            let present = pages.filter(|page| known.node(*page).is_some()).count() as u64;
            let on = counted.and_then(|counted| counted.holds(present));
            let mut run: Option<Found> = None;
            for page in (span.first.0..span.first.0 + span.pages).map(VirtualPage) {
                let Some(node) = known.node(page) else {
                    continue;
                };
                cost += if on.is_some() { 10 } else { 100 };
                let node = on.unwrap_or(node);
                match &mut run {
                    Some(run) if run.node == node && run.first.0 + run.pages == page.0 => {
                        run.pages += 1;
                    }
                    _ => {
                        run.into_iter().for_each(&mut *found);
                        run = Some(Found {
                            first: page,
                            pages: 1,
                            node,
                            huge: false,
                        });
                    }
                }
            }
            run.into_iter().for_each(&mut *found);
        }
        self.work(1_000 * spans.len() as u64 + cost);
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
        self.names(process);
        let part = match self.plan.balance {
            true => Part::Move,
            false if self.machine.node(target).top => Part::Promote,
            false => Part::Demote,
        };
        self.asked(part);
        for run in runs {
            for page in (run.first.0..run.first.0 + run.pages).map(VirtualPage) {
                let outcome = self.move_one(process, page, target);
                self.work(3_000);
                if let Some(kind) = kind(outcome) {
                    self.coverage.met(kind, part);
                }
                let next = Settled {
                    first: page,
                    pages: 1,
                    huge: false,
                    outcome,
                };
                Settled::push(settled, next);
            }
        }
    }

    fn sources(&self) -> &[SourceInfo] {
        match self.mistake {
            Some(Mistake::NoTakeOver) => &self.sources[..1],
            _ => &self.sources,
        }
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        let kernel_cpu_ns = match self.mistake {
            Some(Mistake::CostUncounted) => 0,
            _ => self.kernel_ns.get(&source).copied().unwrap_or(0),
        };
        SourceStatus {
            kernel_cpu_ns,
            own_cpu_ns: 0,
            lost: 0,
            period: None,
            ..SourceStatus::default()
        }
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        self.asked(Part::Look);
        self.usable(source)?;
        self.watch((source, false), subjects.to_vec(), interval_ms);
        Ok(subjects.iter().map(Subject::pages).sum())
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.asked(Part::Glance);
        self.usable(source)?;
        self.watch((source, true), subjects.to_vec(), interval_ms);
        Ok(())
    }

    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        self.usable(source)?;
        if let Some(watching) = self.views.get_mut(&(source, view == View::Glance)) {
            watching.ends = true;
        }
        Ok(())
    }

    fn cuts(&mut self, _source: SourceId) -> bool {
        self.plan.cuts
    }

    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.asked(Part::Glance);
        self.usable(source)?;
        let cut = |span: &Span| {
            let end = span.first.0 + span.pages;
            let starts = (span.first.0..end).step_by(piece.max(1) as usize);
            let cut = starts.map(move |first| Span {
                first: VirtualPage(first),
                pages: piece.max(1).min(end - first),
            });
            cut.collect::<Vec<_>>()
        };
        let mut subjects = subjects.to_vec();
        for subject in &mut subjects {
            subject.spans = subject.spans.iter().flat_map(cut).collect();
        }
        self.watch((source, true), subjects, interval_ms);
        Ok(())
    }

    fn sample(&mut self, _source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        for process in processes {
            self.names(*process);
        }
        self.asked(Part::Sample);
        Ok(())
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        self.pressed.clear();
        self.taken.clear();
        self.note_waits();
        self.judge_own_time();
        self.faults();
        self.asked(Part::Listen);
        self.work(20_000);
        if std::mem::take(&mut self.breaks) {
            let next = self.sources.len() - 1;
            let listened = (0..next as u8).find(|n| !self.broken.contains(n));
            // The last one holds.
            if let Some(n) = listened {
                self.broken.insert(n);
                self.moment(Kind::Broke);
                self.views.retain(|(source, _), _| source.0 != n);
                self.usable(SourceId(n))?;
            }
        }
        if self.still > 0 {
            self.still -= 1;
            self.moment(Kind::Still);
            return Ok(());
        }
        if self.plan.balance {
            self.sampled(at_most_ms, came);
            self.work(2_000 * came.samples.len() as u64);
            return Ok(());
        }
        self.passes(at_most_ms, came);
        if let Some((one_in, _)) = self.lost
            && self.random.below(one_in) == 0
        {
            let skip = self.random.below(3);
            let mut n = 0;
            came.reports.retain(|report| {
                n += 1;
                matches!(report, Report::Touched { .. }) && n % 3 != skip
            });
        }
        self.note_told(came);
        Ok(())
    }

    fn close(&mut self) -> Result<(), WorldError> {
        if !self.is(Mistake::LeaveSourcesOn) {
            self.views.clear();
            self.closed = true;
        }
        Ok(())
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        if let Some(process) = self.of_pid(pid) {
            self.names(process);
        }
        self.asked(Part::Threads);
        self.work(5_000);
        let all = self.machine.processes.iter();
        let mut all = all.flat_map(|process| &process.threads);
        let found = all.find(|thread| (thread.id.pid, thread.id.tid) == (pid, tid));
        Ok(found.map(|thread| ThreadSeen {
            thread: thread.id,
            runtime_ns: thread.runtime_ns,
        }))
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        self.asked(Part::Threads);
        let all = self.machine.processes.iter();
        if !all
            .flat_map(|process| &process.threads)
            .any(|of| of.id == thread)
        {
            return Affinity::Kept(Kept::Gone);
        }
        if how == Lend::Set {
            if self.dry_run() {
                self.violations
                    .add(|| format!("a dry run gives {thread:?} another affinity"));
            }
            self.lent.insert(thread, node);
        }
        let cpus = self.machine.topology.node(node);
        Affinity::Given(cpus.map(|node| node.cpus.clone()).unwrap_or_default())
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

impl SwarmWorld {
    /// A source that broke stays broken.
    fn usable(&self, source_id: SourceId) -> Result<(), WorldError> {
        if !self.broken.contains(&source_id.0) {
            return Ok(());
        }
        Err(WorldError::Source {
            source_id,
            what: "the source is gone".into(),
        })
    }
}

/// The fault that an outcome is, if it is one.
fn kind(outcome: Outcome) -> Option<Kind> {
    Some(match outcome {
        Outcome::Moved { .. } | Outcome::AlreadyThere => return None,
        Outcome::NotPresent => Kind::NotPresent,
        Outcome::ZeroOrUnmapped => Kind::Unmapped,
        Outcome::Shared => Kind::Shared,
        Outcome::Busy => Kind::Busy,
        Outcome::NoMemory => Kind::NoMemory,
        Outcome::NotAllowed => Kind::NotAllowed,
        Outcome::NoSuchNode => Kind::NoSuchNode,
        Outcome::NotPermitted => Kind::NotPermitted,
        Outcome::ProcessGone => Kind::Gone,
        Outcome::Failed(_) => Kind::Failed,
    })
}
