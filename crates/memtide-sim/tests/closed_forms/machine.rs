//! Machines and sources of accesses for tests whose results are known beforehand.

use memtide_core::mempolicy::{Mode, ModeFlags, Policy};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{NodeInput, TierId, Topology, TopologyInput};
use memtide_core::units::NodeId;
use memtide_sim::engine::Source;
use memtide_sim::page::Slot;
use memtide_sim::rng::Rng;
use memtide_sim::spec::{Costs, CpuSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec};
use memtide_sim::workload::{Access, Filled, Kind, Pattern, Plan, RegionPlan, ThreadPlan, Truth};

/// A node: CPUs, MiB, nanoseconds idle, GB/s.
pub struct Node(pub u32, pub u64, pub f64, pub f64);

/// The curve of the documents.
pub fn three_regions(peak_factor: f64) -> LoadedLatency {
    LoadedLatency::Regions {
        flat_until: 0.4,
        linear_until: 0.8,
        linear_factor: 1.5,
        peak_factor,
    }
}

/// A machine without caches, whose reads and writes cost alike.
pub fn machine(nodes: &[Node]) -> MachineSpec {
    let mut first = 0;
    let inputs = nodes.iter().enumerate().map(|(id, node)| {
        let cpus = (first..first + node.0).collect();
        first += node.0;
        NodeInput {
            id: NodeId(id as u16),
            online: true,
            memory_bytes: node.1 << 20,
            cpus,
            distances: None,
            figures: Default::default(),
            tier: Some(TierId(if node.0 > 0 { 4 } else { 22 })),
        }
    });
    let topology = Topology::try_from(TopologyInput::new(inputs.collect()));
    let specs = nodes.iter().enumerate().map(|(id, node)| NodeSpec {
        id: id as u16,
        capacity_bytes: node.1 << 20,
        cpus: node.0,
        memory: MemorySpec {
            read_ns: node.2,
            write_ns: node.2,
            read_bytes_per_s: node.3 * 1e9,
            write_bytes_per_s: node.3 * 1e9,
            duplex: false,
            loaded: three_regions(3.0),
        },
        seen_from: vec![1.0; nodes.len()],
    });
    MachineSpec {
        name: "test".into(),
        about: String::new(),
        nodes: specs.collect(),
        topology: topology.unwrap(),
        cpu: CpuSpec {
            l1_tlb_4k: 64,
            l1_tlb_2m: 32,
            l2_tlb: 2048,
            l2_tlb_ways: 16,
            l2_tlb_ns: 0.0,
            walk_ns: 0.0,
            walk_huge_ns: 0.0,
            llc_cpus: 64,
            llc_bytes: 0,
            llc_ns: 20.0,
            cache_to_cache_ns: 80.0,
            mlp_dependent: 1.0,
            mlp_random: 4.0,
            mlp_sequential: 12.0,
        },
        costs: Costs::default(),
        min_free_bytes: 1 << 20,
        watermark_scale_factor: 10,
        storage: None,
        links: Vec::new(),
    }
}

/// Threads that access random lines of one region.
pub struct Uniform {
    plan: Plan,
    base: Slot,
    pages: u32,
    stores_of_64: u32,
    left: Vec<u64>,
    of: u64,
}

impl Uniform {
    /// `threads` threads of `node`, each with so many accesses, the region under `policy`.
    pub fn new(threads: u32, node: u16, pages: u32, accesses: u64, policy: Policy) -> Uniform {
        Uniform {
            plan: Plan {
                regions: vec![RegionPlan {
                    name: "memory".into(),
                    space: 0,
                    kind: Kind::Anonymous,
                    file: None,
                    writable: true,
                    huge: false,
                    pages,
                    start_vpn: 0x1000,
                    policy,
                    policy_after: None,
                    populated_from: Some(node),
                    bandwidth: true,
                    freed_at_ns: None,
                    foreign: false,
                }],
                threads: (0..threads).map(|_| thread(node)).collect(),
                ends_at_ns: None,
            },
            base: 0,
            pages,
            stores_of_64: 0,
            left: vec![accesses; threads as usize],
            of: accesses,
        }
    }

    pub fn stores_of_64(mut self, stores: u32) -> Uniform {
        self.stores_of_64 = stores;
        self
    }

    pub fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

fn thread(node: u16) -> ThreadPlan {
    ThreadPlan {
        space: 0,
        nodes: vec![node],
        pattern: Pattern::Random,
        ops_per_access: 10,
        think_ns: 0.0,
        misses_at_once: None,
        group: 0,
    }
}

impl Source for Uniform {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = (batch.len() as u64).min(self.left[thread]) as usize;
        for access in &mut batch[..count] {
            let bits = rng.bits();
            let page = (((bits >> 32) * u64::from(self.pages)) >> 32) as u32;
            let write = (bits as u32 >> 6) & 63 < self.stores_of_64;
            *access = Access::new(self.base + page, bits as u32 & 63, 1, write);
        }
        self.left[thread] -= count as u64;
        match count {
            0 => Filled::Done,
            _ => Filled::Accesses(count),
        }
    }

    fn done(&self) -> f64 {
        let most = self.left.iter().max().copied().unwrap_or(0);
        1.0 - most as f64 / self.of as f64
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}

/// A policy that only names nodes.
pub fn policy(mode: Mode, nodes: &[u16]) -> Policy {
    let nodes: NodeMask = nodes.iter().map(|&n| NodeId(n)).collect();
    Policy {
        mode,
        flags: ModeFlags::default(),
        remembered: nodes,
        nodes,
        home: None,
        on_fault: false,
        to_accessor: false,
    }
}
