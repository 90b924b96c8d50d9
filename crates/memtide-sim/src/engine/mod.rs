//! The engine: time passes, threads make accesses, the kernel works, memory answers later or sooner.
//!
//! Time goes in quanta of one millisecond. In each, every thread runs until its clock passes the
//! quantum's end (CPUs with several threads give each a slice); then samplers are emptied, kernel
//! threads do their work, and latencies follow the traffic. Within a quantum threads run one after the
//! other, in the order of their CPUs; so a run depends on its inputs alone.
//!
//! Scaling: an access of the simulated machine stands for S real ones. The engine multiplies by S what
//! an access, a fault, an interrupt costs a thread, and what goes over memory channels; and it
//! multiplies what was counted when it writes the result.

pub mod access;
mod asked;
pub mod oracle;
mod outcome;
mod programs;
mod series;
mod sharing;
mod source;
mod threads;

pub use source::Source;

use crate::config::{Bound, Configuration};
use crate::hardware::{Hardware, Sample};
use crate::kernel::{Kernel, KernelError};
use crate::page::MAX_NODES;
use crate::result::{HeatPart, RunResult};
use crate::spec::MachineSpec;
use crate::workload::Workload;
use access::{Ahead, Group, HEAT_GROUPS, Tally};
use memtide_core::units::NodeId;
use oracle::Oracle;
use programs::Programs;
use series::Recorder;
use sharing::Sharing;
use threads::{PriceLists, Stalls, Thread};

/// A quantum, in nanoseconds.
pub const QUANTUM_NS: u64 = 1_000_000;
/// Quanta in which nobody does anything before time jumps.
pub(crate) const IDLE_QUANTA: u64 = 2_000;
/// Picoseconds of a nanosecond.
const PS: u64 = 1000;

/// Runs one configuration: `machine` unscaled, `workload` built for scale 1/`scale`. `progress` is told
/// the share done now and then.
///
/// # Errors
///
/// What the kernel could not do for the workload, such as finding memory.
pub fn run_configuration(
    machine: &MachineSpec,
    workload: Workload,
    configuration: &Configuration,
    seed: u64,
    scale: u32,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    run(machine, workload, configuration, seed, scale, progress)
}

/// The same for any source of accesses.
///
/// # Errors
///
/// See [`run_configuration`].
pub fn run<W: Source>(
    machine: &MachineSpec,
    source: W,
    configuration: &Configuration,
    seed: u64,
    scale: u32,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunResult, KernelError> {
    let mut run = Run::new(machine, source, configuration, seed, scale)?;
    let mut told = 0.0;
    while run.quantum()? {
        let done = run.done();
        if done - told > 0.002 {
            told = done;
            progress(done);
        }
    }
    progress(1.0);
    Ok(run.result())
}

/// A machine with a workload on it, some way into a run.
pub struct Run<W> {
    configuration: Configuration,
    scale: u64,
    /// The kernel.
    pub kernel: Kernel,
    /// The hardware.
    pub hw: Hardware,
    source: W,
    ends_at_ps: Option<u64>,
    threads: Vec<Thread>,
    /// Threads by CPU, as of `generation`.
    order: Vec<(u32, Vec<usize>)>,
    generation: Option<u64>,
    groups: Vec<Group>,
    /// Whether a region may have huge pages.
    huge: bool,
    tables: Vec<Option<NodeId>>,
    sharing: Sharing,
    prices: PriceLists,
    stalls: Stalls,
    oracle: Option<Oracle>,
    /// What was added up so far.
    pub tally: Tally,
    ahead: Ahead,
    samples: Vec<Sample>,
    programs: Programs,
    recorder: Recorder,
    placed: Vec<[u64; MAX_NODES]>,
    now_ps: u64,
    quanta: u64,
    /// Quanta in a row in which nobody did anything.
    idle_quanta: u64,
}

impl<W: Source> Run<W> {
    /// A machine whose workload is populated; its time begins.
    ///
    /// # Errors
    ///
    /// See [`run_configuration`].
    pub fn new(
        machine: &MachineSpec,
        mut source: W,
        configuration: &Configuration,
        seed: u64,
        scale: u32,
    ) -> Result<Run<W>, KernelError> {
        let configuration = still(configuration);
        let plan = source.plan().clone();
        let mut hw = Hardware::new(machine, &plan, &configuration, scale, seed);
        let mut kernel = Kernel::new(machine, &plan, &configuration, scale, seed)?;
        let oracle = match configuration.bound {
            Some(Bound::Oracle) => Some(Oracle::new(machine, &source, scale, &mut kernel, &mut hw)),
            _ => {
                kernel.populate(&mut hw)?;
                None
            }
        };
        // Population takes no time, and its traffic is no load.
        hw.memory.reset();
        hw.counters = Default::default();
        let bases: Vec<_> = kernel.regions.iter().map(|region| region.base).collect();
        source.mapped(&bases);
        let threads = plan.threads.iter().enumerate();
        let threads = threads.map(|(index, plan)| Thread::new(plan.clone(), seed, index as u64));
        let mut run = Run {
            scale: u64::from(scale.max(1)),
            sharing: Sharing::new(&plan, &hw),
            prices: PriceLists::default(),
            stalls: Stalls::default(),
            ends_at_ps: plan.ends_at_ns.map(|ns| ns * PS),
            threads: threads.collect(),
            order: Vec::new(),
            generation: None,
            groups: vec![Group::default(); (kernel.regions.slots() >> Group::SHIFT) as usize + 1],
            tables: vec![None; kernel.regions.len()],
            huge: plan.regions.iter().any(|region| region.huge),
            oracle,
            tally: Tally::default(),
            ahead: Ahead::default(),
            samples: Vec::new(),
            programs: Programs::new(source.programs()),
            recorder: Recorder::new(machine),
            placed: Vec::new(),
            now_ps: 0,
            quanta: 0,
            idle_quanta: 0,
            configuration,
            kernel,
            hw,
            source,
        };
        run.ask_oracle();
        run.note_tables(true);
        run.placed = (0..run.kernel.regions.len())
            .map(|region| run.kernel.pages_by_node(region))
            .collect();
        Ok(run)
    }

    /// Where its accesses come from.
    pub fn source(&self) -> &W {
        &self.source
    }

    /// The share that is done.
    pub fn done(&self) -> f64 {
        match self.ends_at_ps {
            Some(end) => self.now_ps as f64 / end as f64,
            None => self.source.done(),
        }
    }

    /// One quantum; whether there is more to do.
    ///
    /// # Errors
    ///
    /// See [`run_configuration`].
    pub fn quantum(&mut self) -> Result<bool, KernelError> {
        self.quantum_within(u64::MAX)
    }

    /// The same for somebody who looks on at `to_ns`: time jumps no further.
    ///
    /// # Errors
    ///
    /// See [`run_configuration`].
    pub(crate) fn quantum_within(&mut self, to_ns: u64) -> Result<bool, KernelError> {
        let ended = self.ends_at_ps.is_some_and(|end| self.now_ps >= end);
        if ended || self.threads.iter().all(Thread::is_done) {
            return Ok(false);
        }
        self.skip_idle_time(to_ns);
        let end_ps = self.now_ps + QUANTUM_NS * PS;
        self.run_threads(end_ps)?;
        self.now_ps = end_ps;
        self.quanta += 1;
        let now_ns = end_ps / PS;
        self.end_programs();
        self.empty_samplers(now_ns);
        if self.oracle.is_none() {
            self.kernel.background(&mut self.hw, now_ns, QUANTUM_NS);
        }
        self.ask_oracle();
        self.note_tables(false);
        self.sharing.end_quantum();
        self.wait_for_memory();
        self.prices.clear();
        if self.recorder.is_due(self.quanta) {
            self.record();
        }
        Ok(true)
    }

    /// Where nobody does anything for long, time jumps to shortly before somebody does: the kernel has had
    /// [`IDLE_QUANTA`] to finish what it was at, and pages age no further by being left alone longer.
    fn skip_idle_time(&mut self, to_ns: u64) {
        const QUANTUM_PS: u64 = QUANTUM_NS * PS;
        let next_ps = self.next_ps().unwrap_or(0);
        let next_ps = self.ends_at_ps.map_or(next_ps, |end| next_ps.min(end));
        let ahead = next_ps.saturating_sub(self.now_ps) / QUANTUM_PS;
        if ahead == 0 {
            self.idle_quanta = 0;
            return;
        }
        self.idle_quanta += 1;
        let within = to_ns.saturating_mul(PS).saturating_sub(self.now_ps) / QUANTUM_PS;
        let jump = ahead.min(within).saturating_sub(1);
        if self.idle_quanta > IDLE_QUANTA && jump > 0 {
            self.now_ps += jump * QUANTUM_PS;
            self.quanta += jump;
            // Somebody looks on before the end: the next quantum jumps on.
            if ahead <= within {
                self.idle_quanta = 0;
            }
        }
    }

    /// Whether nobody is doing anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_quanta > 0
    }

    /// Hands samples to the kernel; who was sampled pays for the work.
    fn empty_samplers(&mut self, now_ns: u64) {
        self.samples.clear();
        let read_by_programs = self.configuration.reads_samples();
        for cpu in &mut self.hw.cpus {
            let before = self.samples.len();
            cpu.sampler.drain(&mut self.samples);
            cpu.sampler.quantum_over();
            // What a program reads through perf the kernel does not look at.
            let looked_at = match read_by_programs {
                true => 0,
                false => self.samples.len() - before,
            };
            let work = looked_at as f64 * self.hw.costs.sample_work_ns;
            cpu.stolen_ns += work as u64;
            self.kernel.overhead.sample_work_ns += work as u64;
        }
        if !self.samples.is_empty() {
            self.kernel.samples(&mut self.hw, &self.samples, now_ns);
        }
    }

    /// Bytes that the engine itself holds beside kernel, hardware, workload and oracle and that could
    /// grow with pages: the groups of 512 slots.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.groups.len() * size_of::<Group>()
    }

    /// Keeps the table of groups in step with where page tables are.
    fn note_tables(&mut self, all: bool) {
        let regions = &self.kernel.regions;
        let last = regions.iter().last();
        let slots = last.map_or(1, |region| u64::from(region.slots().end).max(1));
        let blocks = slots.div_ceil(1 << Group::SHIFT);
        for (index, region) in regions.iter().enumerate() {
            if !all && region.page_table_node == self.tables[index] {
                continue;
            }
            self.tables[index] = region.page_table_node;
            let node = region.page_table_node.map_or(0, NodeId::index);
            let groups = region.slots().start >> Group::SHIFT
                ..region.slots().end.div_ceil(1 << Group::SHIFT);
            for group in groups {
                let heat = heat_of(u64::from(group), blocks);
                self.groups[group as usize] = Group::new(index as u16, heat as u8, node);
            }
        }
    }

    /// How many groups of pages the heat series has: no more than there are blocks of 512 slots.
    fn heat_groups(&self) -> usize {
        let regions = self.kernel.regions.iter();
        let slots = regions.last().map_or(0, |region| region.slots().end);
        (slots.div_ceil(1 << Group::SHIFT) as usize).clamp(1, HEAT_GROUPS)
    }

    /// Which pages of which region are in each group of the heat series; a block of 512 slots holds pages
    /// of one region.
    fn heat_parts(&self) -> Vec<HeatPart> {
        let regions = &self.kernel.regions;
        let slots = regions.iter().last().map_or(0, |region| region.slots().end);
        let blocks = u64::from(slots.div_ceil(1 << Group::SHIFT));
        let mut parts: Vec<HeatPart> = Vec::new();
        for region in regions.iter() {
            let slots = region.slots();
            let mut before = None;
            for block in slots.start >> Group::SHIFT..slots.end.div_ceil(1 << Group::SHIFT) {
                let (from, to) = (block << Group::SHIFT, (block + 1) << Group::SHIFT);
                let pages = u64::from(to.min(slots.end) - from.max(slots.start)) * self.scale;
                let group = heat_of(u64::from(block), blocks) as usize;
                match parts.last_mut() {
                    Some(part) if before == Some(group) => part.pages += pages,
                    _ => parts.push(HeatPart {
                        group,
                        region: region.plan.name.clone(),
                        pages,
                    }),
                }
                before = Some(group);
            }
        }
        parts
    }

    /// The oracle's census and placement, where there is one.
    fn ask_oracle(&mut self) {
        if let Some(oracle) = &mut self.oracle {
            oracle.end_quantum(
                &self.source,
                &mut self.kernel,
                &mut self.hw,
                self.now_ps / PS,
            );
        }
    }
}

/// A configuration with what its bound forbids turned off.
fn still(configuration: &Configuration) -> Configuration {
    let mut still = configuration.clone();
    if still.bound.is_some() {
        still.numa_balancing = 0;
        still.demotion = false;
        still.pghot = None;
        still.samples = None;
    }
    still
}

/// The group of the heat series that a block of 512 slots is in, of so many blocks.
fn heat_of(block: u64, blocks: u64) -> u64 {
    block * (HEAT_GROUPS as u64).min(blocks) / blocks
}
