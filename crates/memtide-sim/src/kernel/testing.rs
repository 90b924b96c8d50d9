//! Small machines for the kernel's tests.

use super::{Fault, Kernel, KernelError, Who};
use crate::config::Configuration;
use crate::hardware::Hardware;
use crate::page::Slot;
use crate::spec::{Costs, CpuSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec};
use crate::workload::{Kind, Pattern, Plan, RegionPlan, ThreadPlan};
use memtide_core::mempolicy::{Mode, ModeFlags, Policy};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::NodeId;

/// A machine of nodes with so many pages and CPUs. `min_free` pages are kept by the whole machine.
pub(crate) fn machine(nodes: &[(u64, u32)], min_free: u64) -> MachineSpec {
    let mut first = 0;
    let inputs = nodes.iter().zip(0..).map(|(&(pages, cpus), id)| {
        let cpus = first..first + cpus;
        first = cpus.end;
        NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: pages * 4096,
            cpus: cpus.collect(),
            distances: None,
            figures: Default::default(),
            tier: None,
        }
    });
    let topology: Topology = TopologyInput::new(inputs.collect()).try_into().unwrap();
    let node = |(&(pages, cpus), id): (&(u64, u32), u16)| NodeSpec {
        id,
        capacity_bytes: pages * 4096,
        cpus,
        memory: MemorySpec {
            read_ns: if cpus > 0 { 100.0 } else { 250.0 },
            write_ns: if cpus > 0 { 100.0 } else { 250.0 },
            read_bytes_per_s: 1e11,
            write_bytes_per_s: 1e11,
            duplex: false,
            loaded: LoadedLatency::Regions {
                flat_until: 0.4,
                linear_until: 0.8,
                linear_factor: 1.5,
                peak_factor: 4.0,
            },
        },
        seen_from: vec![1.0; nodes.len()],
    };
    MachineSpec {
        name: "test".into(),
        about: String::new(),
        nodes: nodes.iter().zip(0..).map(node).collect(),
        topology,
        cpu: CpuSpec {
            l1_tlb_4k: 64,
            l1_tlb_2m: 32,
            l2_tlb: 1024,
            l2_tlb_ways: 8,
            l2_tlb_ns: 2.0,
            walk_ns: 10.0,
            walk_huge_ns: 8.0,
            llc_cpus: 8,
            llc_bytes: 1 << 20,
            llc_ns: 15.0,
            cache_to_cache_ns: 80.0,
            mlp_dependent: 1.0,
            mlp_random: 4.0,
            mlp_sequential: 10.0,
        },
        costs: Costs::default(),
        min_free_bytes: min_free * 4096,
        watermark_scale_factor: 10,
        storage: None,
        links: Vec::new(),
    }
}

pub(crate) fn policy(mode: Mode, nodes: &str) -> Policy {
    let nodes: NodeMask = nodes.parse().unwrap();
    Policy {
        mode,
        flags: ModeFlags::default(),
        nodes,
        remembered: nodes,
        home: None,
        on_fault: mode == Mode::Local,
        to_accessor: mode == Mode::Local,
    }
}

/// Anonymous, writable, base pages, first touch on the local node.
pub(crate) fn region(pages: u32) -> RegionPlan {
    RegionPlan {
        name: "data".into(),
        space: 0,
        kind: Kind::Anonymous,
        file: None,
        writable: true,
        huge: false,
        pages,
        start_vpn: 0,
        policy: policy(Mode::Local, ""),
        policy_after: None,
        populated_from: None,
        bandwidth: false,
        freed_at_ns: None,
        foreign: false,
    }
}

/// A kernel and its hardware.
pub(crate) struct Bench {
    pub kernel: Kernel,
    pub hw: Hardware,
    pub now_ns: u64,
}

impl Bench {
    pub fn new(
        spec: &MachineSpec,
        regions: Vec<RegionPlan>,
        configuration: &Configuration,
    ) -> Bench {
        Bench::scaled(spec, regions, configuration, 1)
    }

    pub fn scaled(
        spec: &MachineSpec,
        regions: Vec<RegionPlan>,
        configuration: &Configuration,
        scale: u32,
    ) -> Bench {
        Bench::with_threads(spec, regions, &[(0, &[0])], configuration, scale)
    }

    /// Threads are spaces and the nodes that they may use.
    pub fn with_threads(
        spec: &MachineSpec,
        regions: Vec<RegionPlan>,
        threads: &[(u16, &[u16])],
        configuration: &Configuration,
        scale: u32,
    ) -> Bench {
        Bench::with_pattern(
            spec,
            regions,
            threads,
            Pattern::Random,
            configuration,
            scale,
        )
    }

    /// The same with a pattern of their accesses.
    pub fn with_pattern(
        spec: &MachineSpec,
        regions: Vec<RegionPlan>,
        threads: &[(u16, &[u16])],
        pattern: Pattern,
        configuration: &Configuration,
        scale: u32,
    ) -> Bench {
        let thread = |&(space, nodes): &(u16, &[u16])| ThreadPlan {
            space,
            nodes: nodes.to_vec(),
            pattern,
            ops_per_access: 1,
            think_ns: 0.0,
            misses_at_once: None,
            group: 0,
        };
        let plan = Plan {
            regions,
            threads: threads.iter().map(thread).collect(),
            ends_at_ns: None,
        };
        Bench {
            kernel: Kernel::new(spec, &plan, configuration, scale, 1).unwrap(),
            hw: Hardware::new(spec, &plan, configuration, scale, 1),
            now_ns: 0,
        }
    }

    pub fn who(&self, node: u16) -> Who {
        let node = NodeId(node);
        Who {
            thread: 0,
            cpu: self.kernel.topology.node(node).unwrap().cpus[0],
            node,
            space: 0,
            now_ns: self.now_ns,
        }
    }

    /// A thread of the plan, where it runs now.
    pub fn thread(&self, thread: u32, space: u16) -> Who {
        let cpu = self.hw.cpu_of_thread(thread);
        Who {
            thread,
            cpu,
            node: self.hw.node_of_cpu(cpu),
            space,
            now_ns: self.now_ns,
        }
    }

    /// A thread on `node` touches a page as hardware would.
    pub fn touch(&mut self, node: u16, slot: Slot, write: bool) -> Result<u64, KernelError> {
        let who = self.who(node);
        self.touch_by(who, slot, write)
    }

    /// The same by anybody.
    pub fn touch_by(&mut self, who: Who, slot: Slot, write: bool) -> Result<u64, KernelError> {
        use crate::page::Flags;
        let mut ns = 0;
        for _ in 0..8 {
            let head = self.kernel.head(slot);
            let pte = &mut self.kernel.ptes[head as usize];
            let Some(why) = Fault::of(*pte, write) else {
                pte.set(Flags::ACCESSED);
                if write {
                    pte.set(Flags::DIRTY);
                }
                return Ok(ns);
            };
            ns += self.kernel.fault(&mut self.hw, &who, slot, why, write)?;
        }
        panic!(
            "slot {slot} faults for ever: {:?}",
            self.kernel.ptes[slot as usize]
        );
    }

    /// Milliseconds in which only the kernel's threads work.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ns += 1_000_000;
            self.kernel.background(&mut self.hw, self.now_ns, 1_000_000);
        }
    }

    /// Pages of a region on nodes 0, 1...
    pub fn pages(&self, region: usize) -> Vec<u64> {
        let nodes = self.kernel.machine.memory_nodes().len();
        self.kernel.pages_by_node(region)[..nodes].to_vec()
    }

    pub fn slot(&self, region: usize, page: u32) -> Slot {
        self.kernel.regions.get(region).base + page
    }

    pub fn check(&self) {
        self.kernel.check().unwrap();
    }
}
