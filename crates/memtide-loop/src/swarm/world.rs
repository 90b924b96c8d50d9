//! The fake world with faults drawn from a seed, watched while the loop acts.

use super::{Coverage, Mistake};
use crate::random::Random;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{
    AddressSpace, Allowed, Came, Found, MoveHow, Outcome, PageRun, Presence, ProcessId,
    ProcessSeen, Report, Settled, SourceId, SourceInfo, SourceStatus, Span, Subject, World,
    WorldError,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::Topology;
use memtide_core::units::{NodeId, PageSize};
use std::collections::BTreeMap;

/// Until when moves of a process that is gone are no mistake, in ms: a refresh
/// comes every second, and turns take up to one.
const NOTICE_MS: u64 = 3000;

/// The outcomes with which a move may fail by chance.
const FAILURES: [Outcome; 10] = [
    Outcome::NotPresent,
    Outcome::ZeroOrUnmapped,
    Outcome::Shared,
    Outcome::Busy,
    Outcome::NoMemory,
    Outcome::NotAllowed,
    Outcome::NoSuchNode,
    Outcome::NotPermitted,
    Outcome::ProcessGone,
    Outcome::Failed(5),
];

/// The world of one seed.
pub(super) struct SwarmWorld {
    pub inner: FakeWorld,
    random: Random,
    /// Whether faults happen.
    pub faulty: bool,
    /// One move in so many fails while they do.
    failing: u64,
    pub headroom: u64,
    pub dry_run: bool,
    pub mistake: Option<Mistake>,
    /// What was seen that must not be.
    pub violations: Vec<String>,
    pub coverage: Coverage,
    /// Pages that are swapped out.
    swapped: Vec<(ProcessId, VirtualPage)>,
    /// Capacity that somebody else takes at present.
    pub taken: u64,
    /// Processes that are gone, and when they went.
    gone: BTreeMap<ProcessId, u64>,
    ghosts: Vec<ProcessSeen>,
    /// Turns in which the clock goes on standing still.
    still: u64,
    /// The least room that a node had while it took pages in this turn.
    pressed: BTreeMap<NodeId, u64>,
    broke: bool,
    next_start: u64,
}

impl SwarmWorld {
    pub fn new(inner: FakeWorld, seed: u64, failing: u64) -> SwarmWorld {
        SwarmWorld {
            inner,
            random: Random::new(seed ^ 0x5377_6172_6d21),
            faulty: true,
            failing,
            headroom: 0,
            dry_run: false,
            mistake: None,
            violations: Vec::new(),
            coverage: Coverage::default(),
            swapped: Vec::new(),
            taken: 0,
            gone: BTreeMap::new(),
            ghosts: Vec::new(),
            still: 0,
            pressed: BTreeMap::new(),
            broke: false,
            next_start: 1_000_000,
        }
    }

    fn hit(&mut self, what: &'static str) {
        *self.coverage.0.entry(what).or_default() += 1;
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.faulty && self.random.below(one_in) == 0
    }

    fn kill(&mut self, process: ProcessId) {
        let now_ns = self.inner.now_ns;
        let mut all = self.inner.processes.iter();
        let Some(at) = all.position(|known| known.process == process) else {
            return;
        };
        let dead = self.inner.processes.remove(at);
        self.ghosts.push(ProcessSeen {
            process,
            parent: 1,
            born: memtide_core::units::Millis(process.start_ticks * 10),
            ticks: dead.ticks,
            faults: dead.faults,
        });
        self.swapped.retain(|(owner, _)| *owner != process);
        self.gone.insert(process, now_ns);
        self.hit("a process died");
        if self.random.below(2) == 0 {
            self.next_start += 1;
            let (first, pages) = match dead.memory.areas.first() {
                Some(area) => (area.first.0, area.pages),
                None => return,
            };
            let room = self.inner.capacity[&SLOW].saturating_sub(self.inner.used(SLOW));
            if room < pages {
                return;
            }
            let mut next = FakeProcess::new(process.pid, first, pages, SLOW);
            next.process.start_ticks = self.next_start;
            next.hot = (first..first + pages / 2).map(VirtualPage).collect();
            self.inner.processes.push(next);
            self.hit("a pid was used again");
        }
    }

    fn victim(&mut self) -> Option<ProcessId> {
        // The last one lives, or there is nothing to manage.
        let count = self.inner.processes.len() as u64;
        (count > 1).then(|| {
            let at = self.random.below(count) as usize;
            self.inner.processes[at].process
        })
    }

    fn swap_in(&mut self) {
        for (owner, page) in std::mem::take(&mut self.swapped) {
            let mut all = self.inner.processes.iter_mut();
            if let Some(process) = all.find(|known| known.process == owner) {
                process.pages.entry(page).or_insert(SLOW);
                process.faults += 1;
            }
        }
    }

    /// From now on nothing fails.
    pub fn end_faults(&mut self) {
        self.faulty = false;
        self.still = 0;
        self.inner.slowness = 1;
        self.inner.breaks = None;
        *self.inner.capacity.get_mut(&FAST).expect("it exists") += self.taken;
        self.taken = 0;
        self.swap_in();
    }

    fn fault(&mut self) {
        for process in &mut self.inner.processes {
            process.ticks += 1;
        }
        if self.chance(400)
            && let Some(process) = self.victim()
        {
            self.kill(process);
        }
        if self.chance(60) {
            self.swap_in();
        }
        if self.chance(100) {
            let fast = self.inner.capacity.get_mut(&FAST).expect("it exists");
            *fast += std::mem::take(&mut self.taken);
            if self.random.below(2) == 0 {
                self.taken = self.random.below(*fast + 1);
                *fast -= self.taken;
                self.hit("a node was full");
            }
        }
        if self.chance(100) {
            self.inner.slowness = if self.random.below(2) == 0 { 50 } else { 1 };
            self.hit("passes took fifty times as long");
        }
        if self.chance(200) {
            self.still = self.random.below(50);
            self.hit("the clock stood still");
        }
        if self.chance(400) {
            self.inner.now_ns += self.random.below(100_000) * 1_000_000;
            self.hit("the clock leapt");
        }
        if self.chance(100) && !self.inner.processes.is_empty() {
            let at = self.random.below(self.inner.processes.len() as u64) as usize;
            let process = &mut self.inner.processes[at];
            let skip = self.random.below(7) as usize;
            process.hot = process
                .pages
                .keys()
                .skip(skip)
                .step_by(3)
                .copied()
                .collect();
            self.hit("other pages were hot");
        }
        if !self.broke && self.chance(800) {
            self.broke = true;
            self.inner.breaks = Some(SourceId(0));
            self.hit("a source broke");
        }
    }

    fn fail(&mut self, process: ProcessId, page: VirtualPage) -> Option<Outcome> {
        if !self.chance(self.failing) {
            return None;
        }
        let outcome = FAILURES[self.random.below(FAILURES.len() as u64) as usize];
        match outcome {
            Outcome::NotPresent | Outcome::ZeroOrUnmapped => {
                let mut all = self.inner.processes.iter_mut();
                let known = all.find(|known| known.process == process)?;
                known.pages.remove(&page)?;
                self.swapped.push((process, page));
            }
            Outcome::ProcessGone => {
                if self.inner.processes.len() < 2 || self.random.below(50) > 0 {
                    return None;
                }
                self.kill(process);
            }
            _ => {}
        }
        self.hit(match outcome {
            Outcome::NotPresent => "moving: not present",
            Outcome::ZeroOrUnmapped => "moving: unmapped",
            Outcome::Shared => "moving: shared",
            Outcome::Busy => "moving: busy",
            Outcome::NoMemory => "moving: no memory",
            Outcome::NotAllowed => "moving: not allowed",
            Outcome::NoSuchNode => "moving: no such node",
            Outcome::NotPermitted => "moving: not permitted",
            Outcome::ProcessGone => "moving: its process died in the middle",
            _ => "moving: another error",
        });
        Some(outcome)
    }

    fn may_move(&self, process: ProcessId, page: VirtualPage, target: NodeId) -> bool {
        let mut all = self.inner.processes.iter();
        let known = all.find(|known| known.process == process);
        known.is_none_or(|known| {
            !known.pages.contains_key(&page) || known.memory.may_move(page, target).is_ok()
        })
    }

    fn move_one(&mut self, process: ProcessId, page: VirtualPage, target: NodeId) -> Outcome {
        let now_ns = self.inner.now_ns;
        if self.dry_run {
            self.violations.push(format!("a dry run moves {page:?}"));
        }
        if let Some(went) = self.gone.get(&process)
            && now_ns - went > NOTICE_MS * 1_000_000
        {
            let text = format!("{process:?} is gone since {went} ns and is moved at {now_ns} ns");
            self.violations.push(text);
        }
        if !self.may_move(process, page, target) {
            let text = format!("{page:?} of {process:?} may not go to {target}");
            self.violations.push(text);
            return Outcome::NotAllowed;
        }
        if let Some(outcome) = self.fail(process, page) {
            return outcome;
        }
        let one = PageRun {
            first: page,
            pages: 1,
            huge: false,
        };
        let mut settled = Vec::new();
        let how = MoveHow {
            batch: 1,
            shared: crate::world::SharedPages::Move,
        };
        self.inner
            .move_pages(process, target, &[one], how, &mut settled);
        let outcome = settled[0].outcome;
        if matches!(outcome, Outcome::Moved { .. }) {
            self.hit("moving: moved");
            let room = self.inner.capacity[&target].saturating_sub(self.inner.used(target));
            // One page of each process commutes, whatever the room is.
            if room < self.headroom {
                let pressed = self.pressed.entry(target).or_default();
                *pressed += 1;
                let most = 2 * self.inner.processes.len() as u64;
                if *pressed == most + 1 {
                    let text = format!("node {target} was pressed to {room} pages at {now_ns} ns");
                    self.violations.push(text);
                }
            }
        }
        outcome
    }
}

impl World for SwarmWorld {
    fn now_ns(&mut self) -> u64 {
        self.inner.now_ns
    }

    fn boot_ms(&self) -> u64 {
        self.inner.boot_ms()
    }

    fn own_cpu_ns(&mut self) -> u64 {
        self.inner.cpu_ns
    }

    fn rest(&mut self, ms: u64) {
        self.inner.rest(ms);
    }

    fn page(&self) -> PageSize {
        self.inner.page()
    }

    fn topology(&self) -> &Topology {
        self.inner.topology()
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        self.inner.rooms(rooms)?;
        if self.mistake == Some(Mistake::IgnoreRoom) {
            rooms.iter_mut().for_each(|(_, space)| space.free += 10_000);
        }
        Ok(())
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        self.inner.processes(seen)?;
        if self.mistake == Some(Mistake::KeepGone) {
            seen.extend(&self.ghosts);
            seen.sort_by_key(|seen| seen.process.pid);
        }
        Ok(())
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        if self.chance(200) && self.inner.processes.len() > 1 {
            self.kill(process);
            self.hit("a process died while its mappings were read");
        }
        let presence = self.inner.address_space(process, into);
        if self.mistake == Some(Mistake::IgnorePolicy) {
            into.areas
                .iter_mut()
                .for_each(|area| area.allowed = Allowed::Anywhere);
        }
        if self.mistake == Some(Mistake::IgnoreCpuset) {
            into.cpuset = NodeMask::ALL;
        }
        presence
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Span],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        if self.chance(200) && self.inner.processes.len() > 1 {
            self.kill(process);
            self.hit("a process died before it was surveyed");
        }
        self.inner.survey(process, spans, found)
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
        self.inner.sources()
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        self.inner.source_status(source)
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        self.inner.look(source, subjects, interval_ms)
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.inner.glance(source, subjects, interval_ms)
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        self.pressed.clear();
        let began_ns = self.inner.now_ns;
        self.fault();
        if self.still > 0 {
            self.still -= 1;
            self.inner.wait(at_most_ms, came)?;
            self.inner.now_ns = began_ns;
        } else {
            self.inner.wait(at_most_ms, came)?;
        }
        if self.chance(20) && !came.reports.is_empty() {
            let mut n = 0;
            let skip = self.random.below(3);
            came.reports.retain(|report| {
                n += 1;
                matches!(report, Report::Touched { .. }) && n % 3 != skip
            });
            self.hit("reports were lost");
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), WorldError> {
        self.inner.close()
    }
}
