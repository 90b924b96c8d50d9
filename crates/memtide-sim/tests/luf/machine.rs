//! A small machine whose memory is short, and programs that map files on it.

use memtide_core::mempolicy::{Mode, ModeFlags, Policy};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::NodeId;
use memtide_sim::config::{Configuration, Luf};
use memtide_sim::hardware::Hardware;
use memtide_sim::kernel::{Kernel, Omit, Who};
use memtide_sim::page::Slot;
use memtide_sim::spec::{Costs, CpuSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec};
use memtide_sim::workload::{Kind, Pattern, Plan, RegionPlan, ThreadPlan};

/// Two nodes of so many pages: one with `cpus` CPUs, one below it without. Watermarks are that many
/// ten-thousandths of a node apart.
pub fn machine(pages: [u64; 2], cpus: u32, watermark_scale_factor: u64) -> MachineSpec {
    let cpus_of = [cpus, 0];
    let input = |id: usize| NodeInput {
        id: NodeId(id as u16),
        online: true,
        memory_bytes: pages[id] * 4096,
        cpus: (0..cpus_of[id]).collect(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let node = |id: usize| NodeSpec {
        id: id as u16,
        capacity_bytes: pages[id] * 4096,
        cpus: cpus_of[id],
        memory: MemorySpec {
            read_ns: 100.0,
            write_ns: 100.0,
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
        seen_from: vec![1.0; 2],
    };
    let nodes = vec![input(0), input(1)];
    MachineSpec {
        name: "short".into(),
        about: String::new(),
        nodes: vec![node(0), node(1)],
        topology: Topology::try_from(TopologyInput::new(nodes)).expect("a machine that can be"),
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
        min_free_bytes: 16 * 4096,
        watermark_scale_factor,
        storage: None,
        links: Vec::new(),
    }
}

/// A mapping of a file of a space.
pub fn file(space: u16, file: u16, kind: Kind, writable: bool, pages: u32) -> RegionPlan {
    RegionPlan {
        name: format!("file {file} in space {space}"),
        space,
        kind,
        file: Some(file),
        writable,
        huge: false,
        pages,
        start_vpn: 0,
        policy: Policy {
            mode: Mode::Local,
            flags: ModeFlags::default(),
            nodes: NodeMask::EMPTY,
            remembered: NodeMask::EMPTY,
            home: None,
            on_fault: true,
            to_accessor: true,
        },
        policy_after: None,
        populated_from: None,
        bandwidth: false,
        freed_at_ns: None,
        foreign: false,
    }
}

/// Anonymous memory of a space.
pub fn anonymous(space: u16, pages: u32) -> RegionPlan {
    RegionPlan {
        name: format!("memory of space {space}"),
        kind: Kind::Anonymous,
        file: None,
        ..file(space, 0, Kind::Anonymous, true, pages)
    }
}

/// A thread of a space on node 0.
pub fn thread(space: u16) -> ThreadPlan {
    ThreadPlan {
        space,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 200.0,
        misses_at_once: None,
        group: 0,
    }
}

/// A kernel whose accesses are checked, and its hardware.
pub struct Bench {
    pub kernel: Kernel,
    pub hw: Hardware,
    pub plan: Plan,
    pub now_ns: u64,
}

impl Bench {
    pub fn new(spec: &MachineSpec, plan: Plan, luf: Option<Luf>) -> Bench {
        let configuration = Configuration {
            luf,
            check: true,
            ..Configuration::off("test")
        };
        Bench {
            kernel: Kernel::new(spec, &plan, &configuration, 1, 1).expect("a kernel"),
            hw: Hardware::new(spec, &plan, &configuration, 1, 1),
            plan,
            now_ns: 0,
        }
    }

    /// The same with a flush left out.
    pub fn broken(mut self, omit: Omit) -> Bench {
        self.kernel.omit_flushes(omit);
        self
    }

    pub fn who(&self, thread: u32) -> Who {
        let cpu = self.hw.cpu_of_thread(thread);
        Who {
            thread,
            cpu,
            node: self.hw.node_of_cpu(cpu),
            space: self.plan.threads[thread as usize].space,
            now_ns: self.now_ns,
        }
    }

    pub fn slot(&self, region: usize, page: u32) -> Slot {
        self.kernel.regions.get(region).base + page
    }

    /// A thread reads or stores; returns the content that it found or made, as page and version.
    pub fn access(&mut self, thread: u32, region: usize, page: u32, write: bool) -> (Slot, u32) {
        let (who, slot) = (self.who(thread), self.slot(region, page));
        let frame = self.kernel.access(&mut self.hw, &who, slot, write);
        let frame = frame.unwrap_or_else(|error| panic!("{error}"));
        let found = self
            .kernel
            .contents
            .as_ref()
            .expect("checked")
            .of_frame(frame);
        (found.page().unwrap_or(Slot::MAX), found.version())
    }

    /// Reclaims so many pages of both nodes, and waits until those that moved have arrived.
    pub fn reclaim(&mut self, pages: u64) {
        for node in 0..2 {
            let (kernel, hw) = (&mut self.kernel, &mut self.hw);
            kernel.reclaim_proactively(hw, NodeId(node), pages, self.now_ns);
        }
        self.pass();
    }

    /// A millisecond of the kernel's threads.
    pub fn pass(&mut self) {
        self.now_ns += 1_000_000;
        let (kernel, hw) = (&mut self.kernel, &mut self.hw);
        kernel.background(hw, self.now_ns, 1_000_000);
    }

    /// Accesses that found what is not the page's.
    pub fn wrong(&self) -> u64 {
        self.kernel.contents.as_ref().expect("checked").wrong()
    }

    pub fn forced(&self, cause: memtide_core::lazy_flush::Cause) -> u64 {
        let lazy = self.kernel.lazy.as_ref().expect("lazy flushing is on");
        lazy.tally().forced[cause as usize]
    }

    /// Whether the page is in memory.
    pub fn is_cached(&self, region: usize, page: u32) -> bool {
        use memtide_sim::page::Flags;
        let pte = self.kernel.ptes[self.slot(region, page) as usize];
        pte.has_any(Flags::PRESENT.with(Flags::MIGRATING))
    }
}
