//! A simulated machine as the loop sees it.
//!
//! # Problem
//!
//! What `memtide tier` does is decided by the loop around the core: what it looks
//! at, when, and what it makes of what came. To know what it does on a terabyte,
//! beside a busy program or after a move that fails, the loop itself has to run,
//! on a machine whose truth is known.
//!
//! # Approach
//!
//! [`SimWorld`] is a [`World`] over a [`Machine`]. The loop waits in
//! [`World::wait`]; there the machine runs on, step by step, and with it the
//! sources, until one has something to tell. Every other call has a price in
//! [`WorldCosts`]: the caller's clock goes on by it, the machine follows, and a
//! CPU of the machine is charged.
//!
//! There are two machines. [`Simulated`] is the engine's, where every access is
//! made. [`Light`] knows rates only and takes time for what is looked at and not
//! for what there is; its essay says what it leaves out.
//!
//! # Properties
//!
//! - The same machine, options and seed give the same run, to the last byte.
//! - What a source tells is what its kernel part could know: an access that the
//!   TLB answered sets no bit; what was never looked at is not told.
//! - Time goes on only by waiting, resting and by what calls cost.

mod classes;
mod costs;
mod damon;
mod faults;
mod kdamond;
mod light;
mod machine;
mod page_faults;
pub mod row;
mod sampler;
mod simulated;
mod stalls;
#[cfg(test)]
mod tests;

pub use costs::WorldCosts;
pub use faults::{Faults, MoveFault};
pub use light::{Heat, Light, LightArea, LightNode, LightProcess, LightSpec};
pub use machine::Machine;
pub use page_faults::FaultsFor;
pub use simulated::Simulated;
pub use stalls::Waits;

use crate::rng::Rng;
pub(crate) use classes::Membership;
use damon::{AccessedBits, Kind};
use memtide_core::pages::NodeSpace;
use memtide_core::topology::{HandTiers, Topology, TopologyError};
use memtide_core::units::{NodeId, PageSize};
use memtide_loop::options::Classes;
use memtide_loop::world::{
    AddressSpace, Affinity, Came, ClassUse, Counted, Found, HUGE_PAGES, Lend, MoveHow, PageRun,
    Presence, ProcessId, ProcessSeen, Report, Settled, Sought, SourceId, SourceInfo, SourceStatus,
    Span, Stalls, Subject, ThreadId, ThreadSeen, View, World, WorldError,
};
use page_faults::PageFaults;
use sampler::Sampler;

/// Milliseconds from the machine's boot to the world's beginning.
const BOOT_MS: u64 = 60_000;
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// The longest step while a source works, so that what it sees is what was there.
const WORK_NS: u64 = 5 * MS;
/// The stream of the seed that a canary's noise comes from.
const CANARY_STREAM: u64 = 0xca;
/// By how much a reading of a latency differs from the truth at most, in thousandths.
const CANARY_NOISE: u32 = 50;

/// A source that a world can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChoice {
    /// DAMON.
    Damon,
    /// memtide's own scans of the page tables.
    PageTables,
    /// Page faults.
    Faults(FaultsFor),
    /// Hardware samples.
    Hardware {
        /// Their unit's name.
        name: &'static str,
        /// How many of them are wanted a second of each CPU.
        per_cpu_second: u32,
    },
}

/// One at work.
enum Observer {
    Bits(Box<AccessedBits>),
    Samples(Sampler),
    Faults(PageFaults),
}

/// A world over a simulated machine. See the module's essay.
pub struct SimWorld<M> {
    /// The machine.
    pub machine: M,
    /// What goes wrong.
    pub faults: Faults,
    costs: WorldCosts,
    clock_ns: u64,
    own_cpu_ns: u64,
    infos: Vec<SourceInfo>,
    observers: Vec<Observer>,
    pending: Came,
    /// The machine with tiers by hand.
    by_hand: Option<Topology>,
    classes: Membership,
    /// When programs wait for memory; nobody can tell without it.
    waits: Option<Vec<Waits>>,
    /// What readings of latencies differ by.
    noise: Rng,
}

impl<M: Machine> SimWorld<M> {
    /// A world over `machine` with these sources; `seed` decides what they draw.
    pub fn new(machine: M, sources: &[SourceChoice], costs: WorldCosts, seed: u64) -> SimWorld<M> {
        let observer = |(id, choice): (u8, &SourceChoice)| {
            let id = SourceId(id);
            let bits = |kind| Observer::Bits(Box::new(AccessedBits::new(id, kind, costs, seed)));
            match *choice {
                SourceChoice::Damon => bits(Kind::Damon),
                SourceChoice::PageTables => bits(Kind::PageTables),
                SourceChoice::Faults(heard_for) => {
                    Observer::Faults(PageFaults::new(id, heard_for, costs.report_ns))
                }
                SourceChoice::Hardware {
                    name,
                    per_cpu_second,
                } => Observer::Samples(Sampler::new(id, name, per_cpu_second, costs.report_ns)),
            }
        };
        let observers: Vec<Observer> = (0..).zip(sources).map(observer).collect();
        let info = |observer: &Observer| match observer {
            Observer::Bits(bits) => bits.info(machine.scale()),
            Observer::Samples(sampler) => sampler.info(),
            Observer::Faults(faults) => faults.info(),
        };
        SimWorld {
            clock_ns: machine.now_ns(),
            infos: observers.iter().map(info).collect(),
            observers,
            machine,
            faults: Faults::default(),
            costs,
            own_cpu_ns: 0,
            pending: Came::default(),
            by_hand: None,
            classes: Membership::default(),
            waits: None,
            noise: Rng::new(seed, CANARY_STREAM),
        }
    }

    /// The same world with these tiers for the loop. The simulated kernel keeps its own.
    ///
    /// # Errors
    ///
    /// Tiers that do not fit the machine.
    pub fn with_tiers(mut self, tiers: &HandTiers) -> Result<SimWorld<M>, TopologyError> {
        self.by_hand = Some(self.machine.topology().with_tiers(tiers)?);
        Ok(self)
    }

    /// The same world with classes of processes, by their cgroups.
    pub fn with_classes(mut self, classes: &Classes) -> SimWorld<M> {
        self.classes = Membership::new(classes);
        self
    }

    /// The same world with a kernel that tells for how long programs wait for memory, and when they do.
    pub fn with_waits(mut self, waits: Vec<Waits>) -> SimWorld<M> {
        self.waits = Some(waits);
        self
    }

    /// The machine, once the loop is done with it.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// Pages of the real machine that the kernel has to look at for `run`: base
    /// pages, or huge ones.
    fn folios(&self, run: &Found) -> u64 {
        let pages = run.pages * self.machine.scale();
        if run.huge {
            pages.div_ceil(HUGE_PAGES)
        } else {
            pages
        }
    }

    /// We work for `ns`.
    fn work(&mut self, ns: u64) {
        self.own_cpu_ns += ns;
        self.machine.charge(ns);
        self.pass(ns);
    }

    /// Time passes in which nobody reads what sources tell.
    fn pass(&mut self, ns: u64) {
        self.clock_ns += ns;
        // What fails here fails again when the loop waits, and is told there.
        let _ = self.run_to(self.clock_ns, false, false);
    }

    /// Runs machine and sources on to `to_ns`, or until a look has something or a ring of page faults is
    /// half full if `wakes`. Samples wake nobody: their rings are read when it is time.
    fn run_to(&mut self, to_ns: u64, reading: bool, wakes: bool) -> Result<(), WorldError> {
        while self.machine.now_ns() < to_ns {
            let now_ns = self.machine.now_ns();
            let next = self.observers.iter().filter_map(|observer| match observer {
                Observer::Bits(bits) => bits.next_ns(),
                Observer::Samples(_) | Observer::Faults(_) => None,
            });
            let next_ns = next.min().unwrap_or(to_ns).max(now_ns + WORK_NS);
            self.machine.step(next_ns.min(to_ns))?;
            self.observe(reading);
            let look = |report: &Report| {
                self.is_of_bits(report)
                    && matches!(
                        report,
                        Report::Touched {
                            view: View::Look,
                            ..
                        } | Report::Pass {
                            view: View::Look,
                            ..
                        } | Report::Untouched { .. }
                    )
            };
            let rings = match self.observers.first() {
                Some(Observer::Faults(faults)) => faults.is_half_full(),
                _ => false,
            };
            if wakes && (rings || self.pending.reports.iter().any(look)) {
                break;
            }
        }
        Ok(())
    }

    fn observe(&mut self, reading: bool) {
        let now_ns = self.machine.now_ns();
        let slowdown = self.faults.pass_slowdown.max(1);
        for observer in &mut self.observers {
            match observer {
                Observer::Bits(bits) => {
                    let own_ns = bits.own_cpu_ns();
                    let out = &mut self.pending.reports;
                    bits.run(&mut self.machine, now_ns, reading, slowdown, out);
                    self.own_cpu_ns += bits.own_cpu_ns() - own_ns;
                }
                Observer::Samples(sampler) => {
                    sampler.take(&mut self.machine, &mut self.pending);
                }
                Observer::Faults(faults) => {
                    faults.take(&mut self.machine, &mut self.pending);
                }
            }
        }
        if self.faults.lose_reports {
            self.pending.clear();
        }
    }

    fn broken(&self, source_id: SourceId) -> Result<(), WorldError> {
        match &self.faults.broken {
            Some(what) => Err(WorldError::Source {
                source_id,
                what: what.clone(),
            }),
            None => Ok(()),
        }
    }

    fn bits(&mut self, source: SourceId) -> Option<&mut AccessedBits> {
        match self.observers.get_mut(usize::from(source.0)) {
            Some(Observer::Bits(bits)) => Some(bits),
            _ => None,
        }
    }

    fn begin(
        &mut self,
        source: SourceId,
        view: View,
        subjects: &[Subject],
        (piece, interval_ms): (u64, u64),
    ) -> Result<u64, WorldError> {
        self.broken(source)?;
        let (scale, now_ns) = (self.machine.scale(), self.clock_ns);
        let here: Vec<Subject> = subjects
            .iter()
            .filter(|subject| self.is_here(subject.process))
            .cloned()
            .collect();
        let Some(bits) = self.bits(source) else {
            return Ok(0);
        };
        let spans: u64 = here.iter().map(|subject| subject.spans.len() as u64).sum();
        let told_ns = spans * bits.span_ns();
        let (pages, waits_ns) = bits.begin(view, &here, (piece, interval_ms), scale, now_ns);
        if view == View::Glance {
            let ended = source;
            // What the glance before it saw is of no piece of this one.
            let of_it = |report: &Report| match *report {
                Report::Touched { source, view, .. } | Report::Pass { source, view } => {
                    (source, view) == (ended, View::Glance)
                }
                Report::Untouched { .. } => false,
            };
            self.pending.reports.retain(|report| !of_it(report));
        }
        self.work(told_ns);
        self.pass(waits_ns);
        Ok(pages)
    }

    /// Whether whoever watches accessed bits told it.
    fn is_of_bits(&self, report: &Report) -> bool {
        let (Report::Touched { source, .. }
        | Report::Untouched { source, .. }
        | Report::Pass { source, .. }) = report;
        let observer = self.observers.get(usize::from(source.0));
        matches!(observer, Some(Observer::Bits(_)))
    }

    fn is_here(&self, process: ProcessId) -> bool {
        let mut space = AddressSpace::default();
        self.machine.address_space(process, &mut space) == Presence::Here
    }

    /// Moves a batch, but for the pages to which something else is to happen.
    fn migrate(
        &mut self,
        process: ProcessId,
        target: NodeId,
        batch: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) -> u64 {
        let Some(fault) = &mut self.faults.moves else {
            return self.machine.migrate(process, target, batch, how, settled);
        };
        let mut ns = 0;
        for run in batch {
            let step = if run.huge { HUGE_PAGES } else { 1 };
            for page in (run.first.0..run.first.0 + run.pages).step_by(step as usize) {
                let one = PageRun {
                    first: memtide_core::tiering::space::VirtualPage(page),
                    pages: step,
                    huge: run.huge,
                };
                match fault(process, one.first) {
                    Some(outcome) => Settled::push(
                        settled,
                        Settled {
                            first: one.first,
                            pages: step,
                            huge: run.huge,
                            outcome,
                        },
                    ),
                    None => ns += self.machine.migrate(process, target, &[one], how, settled),
                }
            }
        }
        ns
    }
}

/// Cuts `runs` into batches of about `limit` base pages, huge pages whole.
fn batches(runs: &[PageRun], limit: u64) -> Vec<Vec<PageRun>> {
    let mut batches = Vec::new();
    let (mut batch, mut room) = (Vec::new(), limit);
    for &run in runs {
        let mut left = run;
        while left.pages > 0 {
            let whole = if run.huge { HUGE_PAGES } else { 1 };
            let pages = (room / whole * whole).max(whole).min(left.pages);
            batch.push(PageRun { pages, ..left });
            left.first.0 += pages;
            left.pages -= pages;
            room = room.saturating_sub(pages);
            if room < whole {
                batches.push(std::mem::take(&mut batch));
                room = limit;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

impl<M: Machine> World for SimWorld<M> {
    fn now_ns(&mut self) -> u64 {
        let now_ns = self.clock_ns + self.faults.clock_leaps_ns;
        self.faults.clock_stands_at_ns.unwrap_or(now_ns)
    }

    fn boot_ms(&self) -> u64 {
        BOOT_MS
    }

    fn own_cpu_ns(&mut self) -> u64 {
        self.own_cpu_ns
    }

    fn rest(&mut self, ms: u64) {
        self.pass(ms * MS);
    }

    fn page(&self) -> PageSize {
        PageSize::KIB_4
    }

    fn topology(&self) -> &Topology {
        let own = self.machine.topology();
        self.by_hand.as_ref().unwrap_or(own)
    }

    fn rooms(&mut self, rooms: &mut Vec<(NodeId, NodeSpace)>) -> Result<(), WorldError> {
        rooms.clear();
        let nodes = self.machine.topology().nodes().iter();
        let all = nodes.filter_map(|node| Some((node.id, self.machine.room(node.id)?)));
        rooms.extend(all);
        // The kernel's own memory comes from the nearest fast node.
        let scale = self.machine.scale();
        let kept = self.observers.iter().map(|observer| match observer {
            Observer::Bits(bits) => bits.kernel_bytes(scale) / 4096 / scale,
            Observer::Samples(_) | Observer::Faults(_) => 0,
        });
        let kept: u64 = kept.sum();
        let topology = self.machine.topology();
        let fast = rooms
            .iter_mut()
            .find(|(node, _)| topology.is_top_tier(*node));
        if let Some((_, space)) = fast {
            *space = space.less(kept);
        }
        Ok(())
    }

    fn has_canary(&self) -> bool {
        !self.faults.no_canary
    }

    fn canary(&mut self, node: NodeId) -> Result<Option<u32>, WorldError> {
        let Some(ns) = self.machine.latency_ns(node).filter(|_| self.has_canary()) else {
            return Ok(None);
        };
        self.work(self.costs.canary_ns + self.costs.canary_loads * u64::from(ns));
        // Two draws: most readings are near to what is so, and few are not.
        let draw = |noise: &mut Rng| u64::from(noise.below(CANARY_NOISE + 1));
        let read = 1000 - u64::from(CANARY_NOISE) + draw(&mut self.noise) + draw(&mut self.noise);
        let ns = u64::from(ns) * read / 1000;
        Ok(Some(u32::try_from(ns).unwrap_or(u32::MAX)))
    }

    fn has_pressure(&self) -> bool {
        self.waits.is_some()
    }

    fn pressure(&mut self, stalls: &mut Stalls) -> Result<(), WorldError> {
        let waits = self.waits.as_deref().unwrap_or_default();
        *stalls = stalls::until(waits, self.clock_ns / MS, self.classes.len());
        Ok(())
    }

    fn processes(&mut self, seen: &mut Vec<ProcessSeen>) -> Result<(), WorldError> {
        seen.clear();
        self.machine.processes(seen);
        self.classes.assign(&self.machine, seen);
        self.work(seen.len() as u64 * self.costs.process_ns);
        Ok(())
    }

    /// What reading a cgroup's file costs is what a process in the list of all does.
    fn class_use(&mut self, used: &mut Vec<ClassUse>) -> Result<(), WorldError> {
        let own = self.machine.topology();
        let topology = self.by_hand.as_ref().unwrap_or(own);
        self.classes.used(&self.machine, topology, used);
        self.work(self.classes.len() as u64 * self.costs.process_ns);
        Ok(())
    }

    fn address_space(
        &mut self,
        process: ProcessId,
        into: &mut AddressSpace,
    ) -> Result<Presence, WorldError> {
        if self.faults.forbidden {
            return Err(WorldError::NotPermitted { pid: process.pid });
        }
        let presence = self.machine.address_space(process, into);
        if presence == Presence::Here {
            let mut folios = 0;
            for area in &mut into.areas {
                let mut by_node = Vec::new();
                let span = Span {
                    first: area.first,
                    pages: area.pages,
                };
                self.machine.present(process, span, &mut |one| {
                    folios += self.folios(&one);
                    by_node.push((one.node, one.pages));
                });
                area.counted = Counted::of(by_node);
            }
            let areas_ns = into.areas.len() as u64 * self.costs.area_ns;
            self.work(areas_ns + folios * self.costs.count_page_ns);
        }
        Ok(presence)
    }

    fn survey(
        &mut self,
        process: ProcessId,
        spans: &[Sought],
        found: &mut dyn FnMut(Found),
    ) -> Result<Presence, WorldError> {
        if self.faults.forbidden {
            return Err(WorldError::NotPermitted { pid: process.pid });
        }
        if !self.is_here(process) {
            return Ok(Presence::Gone);
        }
        let mut cost_ns = 0;
        for sought in spans {
            let mut folios = 0;
            let present = self.machine.present(process, sought.span, &mut |one| {
                folios += self.folios(&one);
                found(one);
            });
            let counted = sought.counted;
            let locate_ns = match counted.and_then(|counted| counted.holds(present)) {
                Some(_) => 0,
                None => self.costs.locate_page_ns,
            };
            cost_ns += folios * (self.costs.find_page_ns + locate_ns);
        }
        self.work(cost_ns);
        Ok(Presence::Here)
    }

    fn move_pages(
        &mut self,
        process: ProcessId,
        target: NodeId,
        runs: &[PageRun],
        how: MoveHow,
        settled: &mut Vec<Settled>,
    ) {
        let limit = (u64::from(how.batch) / self.machine.scale()).max(1);
        for batch in batches(runs, limit) {
            let pages_ns = self.migrate(process, target, &batch, how, settled);
            self.work(self.costs.move_call_ns + pages_ns);
        }
    }

    fn sources(&self) -> &[SourceInfo] {
        &self.infos
    }

    fn finish_view(&mut self, source: SourceId, view: View) -> Result<(), WorldError> {
        self.broken(source)?;
        if let Some(bits) = self.bits(source) {
            bits.finish(view);
        }
        Ok(())
    }

    fn source_status(&mut self, source: SourceId) -> SourceStatus {
        match self.observers.get(usize::from(source.0)) {
            Some(Observer::Bits(bits)) => bits.status(),
            Some(Observer::Samples(sampler)) => sampler.status(),
            Some(Observer::Faults(faults)) => faults.status(),
            None => SourceStatus::default(),
        }
    }

    fn look(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<u64, WorldError> {
        self.broken(source)?;
        if let Some(Observer::Faults(faults)) = self.observers.get_mut(usize::from(source.0)) {
            return Ok(faults.look(&mut self.machine, subjects));
        }
        self.begin(source, View::Look, subjects, (1, interval_ms))
    }

    fn glance(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        self.glance_in_pieces(source, subjects, u64::MAX, interval_ms)
    }

    fn cuts(&mut self, source: SourceId) -> bool {
        self.bits(source).is_some_and(|bits| bits.cuts())
    }

    fn glance_in_pieces(
        &mut self,
        source: SourceId,
        subjects: &[Subject],
        piece: u64,
        interval_ms: u64,
    ) -> Result<(), WorldError> {
        let glances = self.infos[usize::from(source.0)].abilities.glances;
        match glances {
            true => self
                .begin(source, View::Glance, subjects, (piece, interval_ms))
                .map(drop),
            false => Ok(()),
        }
    }

    fn sample(&mut self, source: SourceId, processes: &[ProcessId]) -> Result<(), WorldError> {
        self.broken(source)?;
        match self.observers.get_mut(usize::from(source.0)) {
            Some(Observer::Samples(sampler)) => sampler.sample(&mut self.machine, processes),
            Some(Observer::Faults(faults)) => faults.sample(&mut self.machine, processes),
            _ => {}
        }
        Ok(())
    }

    fn adapt(&mut self, source: SourceId, elapsed_ms: u64, percent: u32) {
        if let Some(Observer::Samples(sampler)) = self.observers.get_mut(usize::from(source.0)) {
            sampler.adapt(&mut self.machine, elapsed_ms, percent);
        }
    }

    fn provoke(&mut self, source: SourceId) -> Result<(), WorldError> {
        self.broken(source)?;
        let now_ms = self.clock_ns / MS;
        if let Some(Observer::Faults(faults)) = self.observers.get_mut(usize::from(source.0)) {
            let notices = &mut self.pending.notices;
            let ns = faults.provoke(&mut self.machine, now_ms, notices);
            self.work(ns);
        }
        Ok(())
    }

    fn wait(&mut self, at_most_ms: u64, came: &mut Came) -> Result<(), WorldError> {
        self.broken(SourceId(0))?;
        self.work(self.costs.turn_ns);
        let until_ns = self.clock_ns + at_most_ms * MS;
        let mut told = self.pending.reports.iter();
        if !told.any(|report| self.is_of_bits(report)) {
            self.run_to(until_ns, true, true)?;
            // An engine goes in quanta: it may be a little ahead of us.
            self.clock_ns = self.machine.now_ns().clamp(self.clock_ns, until_ns);
        }
        for observer in &mut self.observers {
            match observer {
                Observer::Bits(bits) => bits.drained(),
                Observer::Faults(faults) => faults.drained(&mut self.pending),
                Observer::Samples(_) => {}
            }
        }
        let records = |report: &Report| match report {
            Report::Touched {
                view: View::Look,
                pages,
                ..
            } => *pages,
            _ => 1,
        };
        let reports: u64 = self.pending.reports.iter().map(records).sum();
        let news = reports + self.pending.samples.len() as u64;
        came.reports.append(&mut self.pending.reports);
        came.samples.append(&mut self.pending.samples);
        came.invalid.append(&mut self.pending.invalid);
        came.notices.append(&mut self.pending.notices);
        self.work(news * self.machine.scale() * self.costs.report_ns);
        Ok(())
    }

    fn close(&mut self) -> Result<(), WorldError> {
        for observer in &mut self.observers {
            match observer {
                Observer::Bits(bits) => bits.close(),
                Observer::Samples(sampler) => sampler.sample(&mut self.machine, &[]),
                Observer::Faults(faults) => faults.sample(&mut self.machine, &[]),
            }
        }
        Ok(())
    }
    fn thread(&mut self, pid: u32, tid: u32) -> Result<Option<ThreadSeen>, WorldError> {
        self.work(self.costs.thread_ns);
        Ok(self.machine.thread(pid, tid))
    }

    fn lend_affinity(&mut self, thread: ThreadId, node: NodeId, how: Lend) -> Affinity {
        self.work(self.costs.thread_ns);
        self.machine.lend_affinity(thread, node, how)
    }

    fn lent(&self) -> usize {
        self.machine.lent()
    }

    fn put_back(&mut self) -> Result<usize, WorldError> {
        let freed = self.machine.put_back();
        self.work(freed as u64 * self.costs.thread_ns);
        Ok(freed)
    }
}
