//! The simulated hardware: CPUs with TLBs and caches, memory with load, a sampler.
//!
//! The kernel side calls three things here: flushes ([`Hardware::flush_pages`],
//! [`Hardware::flush_space`], [`Hardware::flush_cpus`]), which cost the caller what is returned and
//! every other CPU that runs the space an interrupt; traffic of its own ([`Hardware::copy_pages`], [`Hardware::clear_pages`]); and
//! what things cost ([`Hardware::costs`]).
//!
//! Nanoseconds that a call returns are those of one event of the simulated machine, not multiplied by
//! the scale; the engine multiplies once, where it charges a thread. Traffic is noted multiplied: a
//! simulated page is `scale` real pages on the memory channels.

pub mod cpu;
pub mod law;
pub mod llc;
pub mod memory;
pub mod sampler;
pub mod shootdown;
pub mod threads;
pub mod tlb;

use crate::config::Configuration;
use crate::page::{MAX_NODES, Pte, Slot};
use crate::spec::{Costs, CpuSpec, MachineSpec};
use crate::workload::{Pattern, Plan};
use cpu::{Cpu, SpaceOf};
use llc::Llc;
use memory::Memory;
use memtide_core::access::Source;
use memtide_core::units::NodeId;
use sampler::SamplerSettings;
use shootdown::CpuSet;
use threads::Threads;

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// Cache lines of a base page.
pub const PAGE_LINES: u64 = 64;
/// Samples that a CPU's ring holds, of the real machine.
pub const SAMPLER_RING: u32 = 512;
/// Entries of a page table in one cache line.
pub const PTES_A_LINE: u32 = 8;

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// A cache of this or another CPU.
    Cache,
    /// DRAM of the CPU's own node.
    LocalDram,
    /// DRAM of another node with CPUs.
    RemoteDram,
    /// A node without CPUs.
    Extension,
}

/// A hardware sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The page.
    pub slot: Slot,
    /// The CPU.
    pub cpu: u32,
    /// The thread that ran there.
    pub thread: u32,
    /// Whether it stored.
    pub write: bool,
    /// What it took.
    pub latency_ns: u32,
    /// Who served it.
    pub served: ServedBy,
}

/// What the hardware counted, in simulated events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareCounters {
    /// Shootdown interrupts received.
    pub tlb_shootdowns: u64,
    /// Flushes asked for (of pages, of a space or of CPUs).
    pub tlb_flushes: u64,
    /// Flushes that CPUs made, on their own behalf or interrupted.
    pub cpu_flushes: u64,
    /// Nanoseconds of sending and receiving shootdowns.
    pub shootdown_ns: u64,
}

/// The machine's hardware.
pub struct Hardware {
    /// What the kernel's work costs.
    pub costs: Costs,
    /// Processors.
    pub cpu_spec: CpuSpec,
    /// Real pages that a simulated page stands for.
    pub scale: u32,
    /// CPUs; node by node, in the order of the machine's nodes.
    pub cpus: Vec<Cpu>,
    /// Last-level caches, by domain.
    pub caches: Vec<Llc>,
    /// Memory by node.
    pub memory: Memory,
    /// Counts.
    pub counters: HardwareCounters,
    /// The CPUs that may have translations of each space.
    spaces: Vec<CpuSet>,
    space_of: SpaceOf,
    /// CPUs that forgot everything since the kernel asked last.
    emptied: CpuSet,
    threads: Threads,
    node_cpus: [std::ops::Range<u32>; MAX_NODES],
    has_cpus: [bool; MAX_NODES],
}

impl Hardware {
    /// The hardware of a machine with empty caches and TLBs, scaled down by `scale`; the threads of
    /// `plan` have their CPUs, and samplers run if `configuration` wants samples.
    #[must_use]
    pub fn new(
        spec: &MachineSpec,
        plan: &Plan,
        configuration: &Configuration,
        scale: u32,
        seed: u64,
    ) -> Hardware {
        let scale = scale.max(1);
        let mut cpus = Vec::new();
        let mut node_cpus: [std::ops::Range<u32>; MAX_NODES] = std::array::from_fn(|_| 0..0);
        let mut has_cpus = [false; MAX_NODES];
        let mut domain = 0;
        for node in &spec.nodes {
            let first = cpus.len() as u32;
            for index in 0..node.cpus {
                if index > 0 && index % spec.cpu.llc_cpus.max(1) == 0 {
                    domain += 1;
                }
                cpus.push(Cpu::new(&spec.cpu, scale, NodeId(node.id), domain));
            }
            domain += u32::from(node.cpus > 0);
            node_cpus[usize::from(node.id)] = first..cpus.len() as u32;
            has_cpus[usize::from(node.id)] = node.cpus > 0;
        }
        let sampling = configuration.pghot.as_ref().filter(|pghot| {
            pghot.sources.contains(Source::Hardware) && configuration.bound.is_none()
        });
        let by_samples = configuration
            .samples
            .filter(|_| configuration.bound.is_none());
        for (index, cpu) in cpus.iter_mut().enumerate() {
            cpu.sampler.seed(seed, index as u64);
            if let Some(samples) = by_samples {
                cpu.sampler.set(SamplerSettings {
                    // Until the kernel says otherwise.
                    period: 0,
                    misses_only: samples.misses_only,
                    loads: true,
                    stores: true,
                    // No ring: each is taken to its task at once.
                    ring: SAMPLER_RING,
                    per_tick: 0,
                });
            }
            if let Some(pghot) = sampling {
                cpu.sampler.set(SamplerSettings {
                    period: pghot.sample_period,
                    misses_only: pghot.sample_misses_only,
                    loads: true,
                    stores: true,
                    ring: (SAMPLER_RING / scale).max(1),
                    per_tick: 0,
                });
            }
        }
        let mut hardware = Hardware {
            threads: Threads::new(&cpus),
            costs: spec.costs.clone(),
            cpu_spec: spec.cpu.clone(),
            scale,
            cpus,
            caches: (0..domain)
                .map(|_| Llc::new(spec.cpu.llc_bytes / u64::from(scale)))
                .collect(),
            memory: Memory::new(spec),
            counters: HardwareCounters::default(),
            spaces: Vec::new(),
            space_of: SpaceOf::new(plan.regions.iter().map(|r| (r.space, r.pages))),
            emptied: CpuSet::default(),
            node_cpus,
            has_cpus,
        };
        for thread in &plan.threads {
            hardware.place_thread(thread);
        }
        hardware
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: u32) -> NodeId {
        self.cpus[cpu as usize].node
    }

    /// The CPUs of a node; empty for memory without CPUs.
    #[must_use]
    pub fn cpus_of_node(&self, node: NodeId) -> std::ops::Range<u32> {
        self.node_cpus[node.index()].clone()
    }

    /// Whether a node has CPUs.
    #[must_use]
    pub fn has_cpus(&self, node: NodeId) -> bool {
        self.has_cpus[node.index()]
    }

    /// The CPUs that may have translations of `space`.
    #[must_use]
    pub fn cpus_of_space(&self, space: u16) -> CpuSet {
        self.spaces
            .get(usize::from(space))
            .copied()
            .unwrap_or_default()
    }

    /// Told by the engine when a thread of `space` starts on `cpu`.
    pub fn enter_space(&mut self, space: u16, cpu: u32) {
        let index = usize::from(space);
        if self.spaces.len() <= index {
            self.spaces.resize(index + 1, CpuSet::default());
        }
        if self.cpus[cpu as usize].runs(space) {
            return;
        }
        self.spaces[index].insert(cpu);
        let lost = self.cpus[cpu as usize].enter(space, &self.space_of);
        if let Some(lost) = lost {
            self.spaces[usize::from(lost)].remove(cpu);
        }
    }

    /// Pages moved by no act of the machine: TLB entries follow them.
    pub fn memory_moved(&mut self, ptes: &[Pte]) {
        for cpu in &mut self.cpus {
            cpu.tlb.follow(ptes);
        }
    }

    /// No thread runs on `cpu` any more.
    fn leave(&mut self, cpu: u32) {
        for &space in self.cpus[cpu as usize].spaces() {
            self.spaces[usize::from(space)].remove(cpu);
        }
        self.cpus[cpu as usize].leave();
        self.emptied.insert(cpu);
    }

    /// Copies `pages` base pages from one node to another: nanoseconds for all of them at the load
    /// there is now; the traffic counts on both.
    pub fn copy_pages(&mut self, from: NodeId, to: NodeId, pages: u64) -> u64 {
        let lines = pages * PAGE_LINES;
        let scaled = lines * u64::from(self.scale);
        self.memory.add_pages(from, scaled, 0);
        self.memory.add_pages(to, 0, scaled);
        self.memory.copy_over_link(from, to, scaled);
        let read = self.memory.nearest_ns(from, false);
        let write = self.memory.nearest_ns(to, true);
        (lines as f64 * (read + write) / self.cpu_spec.mlp_sequential) as u64
    }

    /// Clears `pages` new base pages of a node: the traffic, and nanoseconds beside
    /// [`Costs::clear_page_ns`].
    pub fn clear_pages(&mut self, node: NodeId, pages: u64) -> u64 {
        let lines = pages * PAGE_LINES;
        self.memory
            .add_pages(node, 0, lines * u64::from(self.scale));
        let write = self.memory.nearest_ns(node, true);
        (lines as f64 * write / self.cpu_spec.mlp_sequential) as u64
    }

    /// Misses of one CPU that are under way at once: as many as its thread says (`own`), or as its pattern has;
    /// at least 1.
    #[must_use]
    pub fn mlp(&self, pattern: Pattern, own: Option<f64>) -> f64 {
        let of_pattern = match pattern {
            Pattern::Dependent => self.cpu_spec.mlp_dependent,
            Pattern::Random | Pattern::Sweep => self.cpu_spec.mlp_random,
            Pattern::Sequential => self.cpu_spec.mlp_sequential,
        };
        own.unwrap_or(of_pattern).max(1.0)
    }
}
