//! The engine's machine: every access is made, and sets its bit where a real one
//! would, on a walk of the page table.
//!
//! Each address space is a process, under pid 1000 and up, for as long as one of
//! its threads runs; a space without threads, for as long as memory of it is
//! there. A page of a process is its slot behind [`FIRST_PAGE`]: so addresses are
//! unique, and mappings lie as they lie in the page table.

use super::machine::{Machine, Missing};
use crate::engine::{QUANTUM_NS, Run, Source};
use crate::hardware::sampler::SamplerSettings;
use crate::hardware::{SAMPLER_RING, ServedBy};
use crate::kernel::Kernel;
use crate::kernel::migrate::{Initiator, MoveReason};
use crate::page::{Flags, HUGE_PAGES, Pte, Slot};
use crate::workload::Kind;
use memtide_core::mempolicy::Mode;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId};
use memtide_core::vmstat::Counter;
use memtide_loop::world::{
    AddressSpace, Affinity, Allowed, Area, Backing, Fixed, Found, Kept, Lend, MemoryKind, MoveHow,
    Outcome, PageRun, Presence, ProcessId, ProcessSeen, Sample, Settled, SharedPages, Span,
    ThreadId, ThreadSeen, WorldError,
};

/// The page of slot 0.
const FIRST_PAGE: u64 = 1 << 30;
/// The pid of space 0.
const FIRST_PID: u32 = 1000;
/// The number of thread 0, above all pids.
const FIRST_TID: u32 = 1 << 20;
/// A clock tick.
const TICK_NS: u64 = 10_000_000;
/// Samples of a CPU in a tick of 4 ms after which Linux stops sampling until the next:
/// `kernel.perf_event_max_sample_rate` is 100,000 a second.
const MOST_A_TICK: u32 = 400;
/// Where a coarse machine would have fewer in a tick, chance alone would stop its samplers: there they
/// never stop.
const FEWEST_A_TICK: u32 = 16;
/// The device of all files.
const DEVICE: u64 = 1;

/// A run of the engine as a machine.
pub struct Simulated<W> {
    run: Run<W>,
    over: bool,
    /// Time after the last thread is done, which the engine does not count.
    after_ns: u64,
    /// Where the engine's time leapt over what was idle: its time then, and all that it has leapt over. The
    /// loop sleeps meanwhile, as in a suspended machine.
    leaps: Vec<(u64, u64)>,
    /// For how long the loop is awake of a time in which nobody does anything.
    attends_ns: u64,
    /// For how long it was awake of the present one.
    attended_ns: u64,
    /// The CPU that a kernel thread takes next if none is idle.
    turn: u32,
    /// How often programs lose their translations by themselves; 0: never.
    flush_every_ns: u64,
    /// What was missing of the samples before the last look.
    missing: Missing,
}

impl<W: Source> Simulated<W> {
    /// The machine that `run` is.
    pub fn new(run: Run<W>) -> Simulated<W> {
        Simulated {
            run,
            over: false,
            after_ns: 0,
            leaps: Vec::new(),
            attends_ns: 0,
            attended_ns: 0,
            turn: 0,
            flush_every_ns: 0,
            missing: Missing::default(),
        }
    }

    /// Of a time in which nobody does anything, the loop is awake for the first `ns`. It has something to
    /// do then if it is to find out what is idle.
    pub(super) fn attend_idle_time(&mut self, ns: u64) {
        self.attends_ns = ns;
    }

    /// How far the engine's time may jump in a step to the loop's time `until_ns`; `None` if the loop
    /// sleeps through what is idle.
    fn attended_to_ns(&self, until_ns: u64) -> Option<u64> {
        let left_ns = self.attends_ns.saturating_sub(self.attended_ns);
        let step_ns = until_ns.saturating_sub(self.now_ns()).min(left_ns);
        (left_ns >= QUANTUM_NS).then(|| self.run.now_ns() + step_ns)
    }

    /// The engine's time `at_ns` without what it had leapt over until then.
    fn awake_ns(&self, at_ns: u64) -> u64 {
        let leaps = self.leaps.partition_point(|&(at, _)| at <= at_ns);
        let leapt = leaps.checked_sub(1).map_or(0, |last| self.leaps[last].1);
        at_ns.saturating_sub(leapt)
    }

    /// The same with programs that drop all their translations every `ns`, as those do that map and
    /// unmap, or share their CPUs with others.
    pub fn flushing_every(mut self, ns: u64) -> Simulated<W> {
        self.flush_every_ns = ns;
        self
    }

    /// The run.
    pub fn run(&self) -> &Run<W> {
        &self.run
    }

    /// The run, to be asked for its result.
    pub fn into_run(self) -> Run<W> {
        self.run
    }

    /// Adds to a counter of the machine's.
    pub(super) fn count(&mut self, counter: Counter, amount: u64) {
        self.run.kernel.count(counter, amount);
    }

    fn kernel(&self) -> &Kernel {
        &self.run.kernel
    }

    /// The space of a process that is there.
    fn space_of(&self, process: ProcessId) -> Option<u16> {
        let space = u16::try_from(process.pid.checked_sub(FIRST_PID)?).ok()?;
        let same = process.start_ticks == self.start_ticks(space);
        (same && self.is_alive(space)).then_some(space)
    }

    /// Space 0 started first, and those of a program that starts late when it does.
    fn start_ticks(&self, space: u16) -> u64 {
        u64::from(space) + 1 + self.run.space_starts_ns(space) / TICK_NS
    }

    fn process_of(&self, space: u16) -> ProcessId {
        ProcessId {
            pid: FIRST_PID + u32::from(space),
            start_ticks: self.start_ticks(space),
        }
    }

    fn is_alive(&self, space: u16) -> bool {
        self.run.space_runs(space).unwrap_or_else(|| {
            let mut regions = self.kernel().regions.iter();
            regions.any(|region| region.plan.space == space && !region.freed)
        })
    }

    /// The slots of a span that belong to `space`, region by region.
    fn slots(&self, space: u16, span: Span) -> Vec<std::ops::Range<Slot>> {
        let from = span.first.0.saturating_sub(FIRST_PAGE);
        let to = (span.first.0 + span.pages).saturating_sub(FIRST_PAGE);
        let regions = self.kernel().regions.iter();
        let own = regions.filter(|region| region.plan.space == space && !region.freed);
        let cut = own.map(|region| {
            let slots = region.slots();
            let clamp = |slot: u64| slot.clamp(slots.start.into(), slots.end.into()) as Slot;
            clamp(from)..clamp(to)
        });
        cut.filter(|slots| !slots.is_empty()).collect()
    }

    /// What stands before a page's move, or the owner of its folio.
    fn movable(
        &self,
        space: u16,
        page: VirtualPage,
        target: NodeId,
        how: MoveHow,
    ) -> Result<Slot, Outcome> {
        let span = Span {
            first: page,
            pages: 1,
        };
        let Some(slots) = self.slots(space, span).pop() else {
            return Err(Outcome::ZeroOrUnmapped);
        };
        let kernel = self.kernel();
        let pte = kernel.ptes[kernel.head(slots.start) as usize];
        if pte.has(Flags::MIGRATING) {
            return Err(Outcome::Busy);
        }
        let Some(owner) = kernel.owner(slots.start) else {
            return Err(Outcome::NotPresent);
        };
        if pte.node() == target {
            return Err(Outcome::AlreadyThere);
        }
        let shared = kernel.mappers(owner).any(|slot| {
            let region = kernel.regions.index_of(slot);
            kernel.regions.get(region).plan.space != space
        });
        match shared && how.shared == SharedPages::Leave {
            true => Err(Outcome::Shared),
            false => Ok(owner),
        }
    }
}

fn page_of(slot: Slot) -> VirtualPage {
    VirtualPage(FIRST_PAGE + u64::from(slot))
}

/// Whether a frame stands behind an entry.
fn is_there(pte: Pte) -> bool {
    pte.has_any(Flags::PRESENT.with(Flags::MIGRATING))
}

impl<W: Source> Machine for Simulated<W> {
    fn now_ns(&self) -> u64 {
        self.awake_ns(self.run.now_ns()) + self.after_ns
    }

    fn step(&mut self, until_ns: u64) -> Result<(), WorldError> {
        if !self.over {
            let (before_ns, attended) = (self.run.now_ns(), self.attended_to_ns(until_ns));
            let more = self.run.quantum_within(attended.unwrap_or(u64::MAX));
            let more = more.map_err(|error| WorldError::Failed {
                what: error.to_string(),
            })?;
            self.over = !more;
            let period = |ns: u64| ns.checked_div(self.flush_every_ns);
            let now_ns = self.run.now_ns();
            let leapt = (now_ns - before_ns).saturating_sub(QUANTUM_NS);
            if !self.run.is_idle() {
                self.attended_ns = 0;
            } else if attended.is_some() {
                self.attended_ns += now_ns - before_ns;
            }
            if leapt > 0 && attended.is_none() {
                let all = self.leaps.last().map_or(0, |leap| leap.1) + leapt;
                self.leaps.push((now_ns, all));
            }
            if period(now_ns) != period(before_ns) {
                for space in self.run.spaces() {
                    self.run.hw.forget_space(space);
                }
            }
        }
        if self.over {
            self.after_ns = until_ns
                .saturating_sub(self.awake_ns(self.run.now_ns()))
                .max(self.after_ns);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn scale(&self) -> u64 {
        u64::from(self.kernel().scale)
    }

    fn topology(&self) -> &Topology {
        &self.kernel().topology
    }

    fn room(&self, node: NodeId) -> Option<NodeSpace> {
        let frames = &self.kernel().frames;
        (frames.present(node) > 0).then(|| frames.space(node))
    }

    fn latency_ns(&self, node: NodeId) -> Option<u32> {
        self.room(node)?;
        Some(self.run.hw.memory.nearest_ns(node, false) as u32)
    }

    fn processes(&self, seen: &mut Vec<ProcessSeen>) {
        let counters = &self.kernel().counters;
        let faults = counters.get(Counter::Pgfault);
        let mut spaces: Vec<u16> = self.run.spaces();
        spaces.sort_unstable();
        spaces.dedup();
        spaces.retain(|&space| self.is_alive(space));
        seen.extend(spaces.into_iter().map(|space| ProcessSeen {
            process: self.process_of(space),
            parent: 1,
            born: Millis(self.awake_ns(self.start_ticks(space) * TICK_NS) / 1_000_000),
            ticks: self.run.space_ran_ns(space) / TICK_NS,
            // The machine counts them in one sum: who took none may still be looked at.
            faults,
            class: None,
        }));
    }

    fn cgroup(&self, process: ProcessId) -> Option<&str> {
        let space = self.space_of(process)?;
        self.run.program_of(space)?.cgroup.as_deref()
    }

    fn charged(&self, charged: &mut dyn FnMut(&str, NodeId, u64)) {
        for program in self.run.programs() {
            let Some(cgroup) = &program.cgroup else {
                continue;
            };
            let pages = self.kernel().charged(program.regions.clone());
            for (node, pages) in (0..).map(NodeId).zip(pages) {
                if pages > 0 {
                    charged(cgroup, node, pages);
                }
            }
        }
    }

    fn address_space(&self, process: ProcessId, into: &mut AddressSpace) -> Presence {
        let Some(space) = self.space_of(process) else {
            return Presence::Gone;
        };
        into.name = match self.run.program_of(space) {
            Some(program) => program.name.clone(),
            None => format!("space-{space}"),
        };
        into.cpuset = NodeMask::ALL;
        into.areas.clear();
        let regions = self.kernel().regions.iter();
        for region in regions.filter(|region| region.plan.space == space && !region.freed) {
            let policy = region.policy();
            into.areas.push(Area {
                first: page_of(region.base),
                pages: u64::from(region.plan.pages),
                allowed: match policy.mode {
                    Mode::Bind => Allowed::Nodes(Box::new(policy.nodes)),
                    Mode::Interleave | Mode::WeightedInterleave => {
                        Allowed::Never(Fixed::Interleaved)
                    }
                    _ => Allowed::Anywhere,
                },
                kind: match region.plan.kind {
                    Kind::Anonymous => MemoryKind::Anonymous,
                    Kind::PrivateFile | Kind::SharedFile => MemoryKind::File,
                },
                backing: region.file.map(|file| Backing {
                    object: (DEVICE, file as u64),
                    first: 0,
                }),
                // The world counts.
                counted: None,
            });
        }
        Presence::Here
    }

    fn present(&self, process: ProcessId, span: Span, found: &mut dyn FnMut(Found)) -> u64 {
        let Some(space) = self.space_of(process) else {
            return 0;
        };
        let ptes = &self.kernel().ptes;
        let mut present = 0;
        for slots in self.slots(space, span) {
            let mut run: Option<Found> = None;
            for slot in slots {
                let pte = ptes[slot as usize];
                let (node, huge) = (pte.node(), pte.has(Flags::HUGE));
                if let Some(run) = &mut run
                    && is_there(pte)
                    && run.first.0 + run.pages == page_of(slot).0
                    && (run.node, run.huge) == (node, huge)
                {
                    run.pages += 1;
                    continue;
                }
                if let Some(run) = run.take() {
                    present += run.pages;
                    found(run);
                }
                run = is_there(pte).then_some(Found {
                    first: page_of(slot),
                    pages: 1,
                    node,
                    huge,
                });
            }
            if let Some(run) = run {
                present += run.pages;
                found(run);
            }
        }
        present
    }

    fn clear_accessed(&mut self, process: ProcessId, span: Span) {
        let Some(space) = self.space_of(process) else {
            return;
        };
        for slots in self.slots(space, span) {
            for slot in slots {
                let head = self.kernel().head(slot);
                self.run.kernel.ptes[head as usize].clear(Flags::ACCESSED);
            }
        }
    }

    fn accessed(
        &mut self,
        process: ProcessId,
        span: Span,
        _exposed_ns: u64,
        touched: &mut dyn FnMut(Span),
    ) {
        let Some(space) = self.space_of(process) else {
            return;
        };
        let kernel = self.kernel();
        for slots in self.slots(space, span) {
            let mut from = None;
            for slot in slots.start..=slots.end {
                let seen = slot < slots.end && {
                    let pte = kernel.ptes[kernel.head(slot) as usize];
                    is_there(pte) && pte.has(Flags::ACCESSED)
                };
                match (seen, from) {
                    (true, None) => from = Some(slot),
                    (false, Some(first)) => {
                        from = None;
                        touched(Span {
                            first: page_of(first),
                            pages: u64::from(slot - first),
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    fn migrate(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) -> u64 {
        let space = self.space_of(process);
        let memory = self.room(target).is_some();
        let (mut folios, mut asked) = (Vec::new(), Vec::new());
        for run in runs {
            let step = if run.huge { u64::from(HUGE_PAGES) } else { 1 };
            for page in (run.first.0..run.first.0 + run.pages).step_by(step as usize) {
                let page = VirtualPage(page);
                let fate = match (space, memory) {
                    (None, _) => Err(Outcome::ProcessGone),
                    (_, false) => Err(Outcome::NoSuchNode),
                    (Some(space), true) => self.movable(space, page, target, how),
                };
                let fate = fate.map(|owner| {
                    // A second page of a huge one finds it in our own hands.
                    if folios.last() != Some(&owner) {
                        folios.push(owner);
                    }
                    (owner, self.kernel().ptes[owner as usize].node())
                });
                asked.push((page, step, run.huge, fate));
            }
        }
        let by = Initiator {
            cpu: None,
            now_ns: self.run.now_ns(),
        };
        let (kernel, hw) = (&mut self.run.kernel, &mut self.run.hw);
        let mut ns = 0;
        if !folios.is_empty() {
            let report = kernel.migrate(hw, &folios, target, MoveReason::Syscall, by);
            ns = report.ns;
            if let (Some(space), true) = (space, report.moved > 0) {
                hw.forget_space(space);
            }
        }
        for (first, pages, huge, fate) in asked {
            let outcome = match fate {
                Err(outcome) => outcome,
                Ok((owner, from)) => match kernel.ptes[owner as usize] {
                    pte if is_there(pte) && pte.node() == target => Outcome::Moved { from },
                    pte if !is_there(pte) || pte.has(Flags::ISOLATED) => Outcome::Busy,
                    _ => Outcome::NoMemory,
                },
            };
            let settle = Settled {
                first,
                pages,
                huge,
                outcome,
            };
            Settled::push(settled, settle);
        }
        ns * self.scale()
    }

    /// On an idle CPU it disturbs nobody; where all are busy they take turns.
    fn charge(&mut self, ns: u64) {
        let scale = self.scale();
        let hw = &mut self.run.hw;
        let mut busy = vec![false; hw.cpus.len()];
        for (_, cpu) in hw.running_threads() {
            busy[cpu as usize] = true;
        }
        if busy.iter().all(|&busy| busy) {
            self.turn = (self.turn + 1) % busy.len() as u32;
            hw.cpus[self.turn as usize].stolen_ns += ns / scale;
        }
    }

    fn sample_ns(&self) -> u64 {
        self.run.hw.costs.sample_interrupt_ns as u64
    }

    fn set_sampling(&mut self, period: u32) {
        let a_tick = MOST_A_TICK / self.scale() as u32;
        let per_tick = if a_tick < FEWEST_A_TICK { 0 } else { a_tick };
        for cpu in &mut self.run.hw.cpus {
            if cpu.sampler.settings().ring > 0 {
                // Off and on, so that each begins somewhere in its period. All in step they would be
                // silent together, on a coarse machine for longer than the loop is patient.
                cpu.sampler.set_period(0);
                cpu.sampler.set_period(period);
                continue;
            }
            cpu.sampler.set(SamplerSettings {
                period,
                misses_only: true,
                loads: true,
                stores: true,
                // A coarse page's samples stand for those of S pages, over as much time.
                ring: SAMPLER_RING,
                per_tick,
            });
        }
    }

    fn take_samples(&mut self, sampled: &mut dyn FnMut(Sample)) -> Missing {
        // The samples of the last quantum stay where they are.
        if self.over {
            return Missing::default();
        }
        for sample in self.run.last_samples() {
            if sample.served == ServedBy::Cache {
                continue;
            }
            let regions = &self.run.kernel.regions;
            let space = regions.get(regions.index_of(sample.slot)).plan.space;
            let pid = FIRST_PID + u32::from(space);
            sampled(Sample {
                source: Default::default(),
                pid,
                tid: FIRST_TID + sample.thread,
                cpu: sample.cpu,
                address: page_of(sample.slot).0 * 4096,
            });
        }
        let counters = self.run.hw.cpus.iter().map(|cpu| &cpu.sampler.counters);
        let now = counters.fold(Missing::default(), |sum, one| Missing {
            lost: sum.lost + one.lost,
            throttled: sum.throttled + one.throttled,
        });
        let before = std::mem::replace(&mut self.missing, now);
        Missing {
            lost: now.lost - before.lost,
            throttled: now.throttled - before.throttled,
        }
    }

    fn hear_faults(&mut self, pids: &[u32]) -> bool {
        let space = |pid: &u32| u16::try_from(pid.checked_sub(FIRST_PID)?).ok();
        let spaces = pids.iter().filter_map(space).collect();
        self.run.kernel.heard.listen_to(spaces);
        true
    }

    fn take_faults(&mut self, heard: &mut dyn FnMut(Sample)) {
        let kernel = &mut self.run.kernel;
        let regions = &kernel.regions;
        for fault in kernel.heard.take() {
            let space = regions.get(regions.index_of(fault.slot)).plan.space;
            heard(Sample {
                source: Default::default(),
                pid: FIRST_PID + u32::from(space),
                tid: FIRST_TID + fault.thread,
                cpu: fault.cpu,
                address: page_of(fault.slot).0 * 4096,
            });
        }
    }

    fn protect(&mut self, process: ProcessId) -> u64 {
        let Some(space) = self.space_of(process) else {
            return 0;
        };
        let (kernel, hw) = (&mut self.run.kernel, &mut self.run.hw);
        let (entries, flush_ns) = kernel.protect_written(hw, space);
        (entries * self.scale()) * self.run.hw.costs.scan_pte_ns as u64 + flush_ns * self.scale()
    }

    fn thread(&self, pid: u32, tid: u32) -> Option<ThreadSeen> {
        let (space, runtime_ns) = self.run.thread_runs(tid.checked_sub(FIRST_TID)?)?;
        let process = self.process_of(space);
        (process.pid == pid).then_some(ThreadSeen {
            thread: ThreadId {
                pid,
                tid,
                start_ticks: process.start_ticks,
            },
            runtime_ns,
        })
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        let seen = self.thread(thread.pid, thread.tid);
        if seen.is_none_or(|seen| seen.thread != thread) {
            return Affinity::Kept(Kept::Gone);
        }
        let hw = &mut self.run.hw;
        let number = thread.tid - FIRST_TID;
        let cpus: Vec<u32> = hw.cpus_of_node(node).collect();
        if !hw.is_free(number) {
            return Affinity::Kept(Kept::Own);
        }
        if cpus.is_empty() {
            return Affinity::Kept(Kept::Cpuset);
        }
        if how == Lend::Set {
            hw.lend_node(number, node);
        }
        Affinity::Given(cpus)
    }

    fn lent(&self) -> usize {
        self.run.hw.lent()
    }

    fn put_back(&mut self) -> usize {
        self.run.hw.free_lent()
    }
}
