//! A swarm: random small machines, regions, policies and configurations, random accesses and calls, and
//! after each step a look at the whole kernel.
//!
//! All choices come from a seed, or from the bytes of a fuzzer; the same choices make the same case.
//! Memory that is out is an outcome like others. What fails is a broken conservation law, a page that
//! faults without end, an access that finds a wrong page, or a panic.

use memtide_core::access::SourceSet;
use memtide_core::hotness::Layout;
use memtide_core::mempolicy::{Mode, ModeFlags, Policy};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::NodeId;
use memtide_sim::config::{Configuration, Interleave, Lru, Pghot, PromotionGate};
use memtide_sim::hardware::{Hardware, Sample, ServedBy};
use memtide_sim::kernel::{Fault, Kernel, KernelError, Who};
use memtide_sim::page::{Flags, Slot};
use memtide_sim::rng::Rng;
use memtide_sim::spec::{Costs, CpuSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec};
use memtide_sim::workload::{Kind, Pattern, Plan, RegionPlan, ThreadPlan};

/// Where choices come from: bytes as long as there are some, then a generator.
pub struct Choices<'a> {
    bytes: &'a [u8],
    rng: Rng,
}

impl<'a> Choices<'a> {
    /// Choices of a seed.
    pub fn of_seed(seed: u64) -> Choices<'a> {
        Choices {
            bytes: &[],
            rng: Rng::new(seed, 0),
        }
    }

    /// Choices of a fuzzer.
    #[allow(dead_code)]
    pub fn of_bytes(bytes: &'a [u8]) -> Choices<'a> {
        Choices {
            bytes,
            rng: Rng::new(0, 0),
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        match self.bytes {
            [a, b, rest @ ..] => {
                self.bytes = rest;
                u32::from(u16::from_le_bytes([*a, *b])) % limit
            }
            _ => self.rng.below(limit),
        }
    }

    fn within(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    /// One time in `n`.
    fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u32) as usize]
    }
}

/// A case.
#[derive(Debug)]
pub struct Case {
    machine: MachineSpec,
    plan: Plan,
    configuration: Configuration,
    scale: u32,
    quanta: u32,
    seed: u64,
}

/// How a case ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// All quanta ran.
    Done,
    /// The workload needed more memory than there is.
    OutOfMemory,
}

/// Makes a case and runs it; panics with what does not hold.
pub fn run(choices: &mut Choices<'_>) -> Ended {
    let case = case(choices);
    let mut run = Run::new(&case);
    let ended = run.all(&case, choices);
    run.check();
    match ended {
        Ok(()) => Ended::Done,
        Err(KernelError::OutOfMemory { .. }) => Ended::OutOfMemory,
        Err(error) => panic!("{error}"),
    }
}

/// The case of these choices, to be shown.
pub fn case(choices: &mut Choices<'_>) -> Case {
    let scale = choices.of(&[1, 1, 2, 8]);
    let machine = machine(choices, u64::from(scale));
    let nodes = machine.nodes.len() as u16;
    let regions = (0..choices.within(1, 6))
        .map(|at| region(choices, nodes, at))
        .collect();
    let threads = (0..choices.within(1, 4))
        .map(|_| thread(choices, &machine))
        .collect();
    Case {
        plan: Plan {
            regions,
            threads,
            ends_at_ns: None,
        },
        configuration: configuration(choices, nodes),
        machine,
        scale,
        quanta: choices.within(5, 40),
        seed: u64::from(choices.below(1 << 16)),
    }
}

fn machine(choices: &mut Choices<'_>, scale: u64) -> MachineSpec {
    let count = choices.within(1, 4);
    let mut first_cpu = 0;
    let mut inputs = Vec::new();
    let mut nodes = Vec::new();
    for id in 0..count as u16 {
        let pages = u64::from(choices.within(600, 4000)) * scale;
        // The first has CPUs; the others are as often without.
        let cpus = if id == 0 || choices.once_in(2) {
            choices.within(1, 3)
        } else {
            0
        };
        inputs.push(NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: pages * 4096,
            cpus: (first_cpu..first_cpu + cpus).collect(),
            distances: None,
            figures: Default::default(),
            tier: None,
        });
        first_cpu += cpus;
        nodes.push(NodeSpec {
            id,
            capacity_bytes: pages * 4096,
            cpus,
            memory: MemorySpec {
                read_ns: 100.0,
                write_ns: 100.0,
                read_bytes_per_s: 1e11,
                write_bytes_per_s: 1e11,
                loaded: LoadedLatency::Regions {
                    flat_until: 0.4,
                    linear_until: 0.8,
                    linear_factor: 1.5,
                    peak_factor: 4.0,
                },
            },
            seen_from: vec![1.0; count as usize],
        });
    }
    let nodes_of = TopologyInput { nodes: inputs };
    MachineSpec {
        name: "swarm".into(),
        about: String::new(),
        nodes,
        topology: Topology::try_from(nodes_of).expect("a machine that can be"),
        cpu: CpuSpec {
            l1_tlb_4k: 16,
            l1_tlb_2m: 8,
            l2_tlb: 64,
            l2_tlb_ways: 4,
            l2_tlb_ns: 2.0,
            walk_ns: 10.0,
            walk_huge_ns: 8.0,
            llc_cpus: 2,
            llc_bytes: 1 << 18,
            llc_ns: 15.0,
            cache_to_cache_ns: 80.0,
            mlp_dependent: 1.0,
            mlp_random: 4.0,
            mlp_sequential: 10.0,
        },
        costs: Costs::default(),
        min_free_bytes: u64::from(choices.below(300)) * scale * 4096,
        watermark_scale_factor: choices.of(&[10, 10, 100]),
    }
}

fn region(choices: &mut Choices<'_>, nodes: u16, at: u32) -> RegionPlan {
    let kind = choices.of(&[
        Kind::Anonymous,
        Kind::Anonymous,
        Kind::PrivateFile,
        Kind::SharedFile,
    ]);
    let huge = kind == Kind::Anonymous && choices.once_in(3);
    let start_vpn = (u64::from(at) + 1) * (1 << 20) + u64::from(choices.below(8));
    RegionPlan {
        name: format!("region {at}"),
        space: choices.of(&[0, 0, 1]),
        kind,
        file: choices.of(&[None, Some(0), Some(1)]),
        writable: !choices.once_in(5),
        huge,
        pages: match huge {
            true => choices.within(1, 3) * 512 + choices.of(&[0, 0, 77]),
            false => choices.within(1, 1500),
        },
        start_vpn: if huge { start_vpn & !511 } else { start_vpn },
        policy: policy(choices, nodes),
        policy_after: choices.once_in(3).then(|| policy(choices, nodes)),
        populated_from: choices.of(&[None, Some(0)]),
        bandwidth: choices.once_in(2),
        freed_at_ns: choices
            .once_in(4)
            .then(|| u64::from(choices.below(20)) * 1_000_000),
    }
}

fn policy(choices: &mut Choices<'_>, nodes: u16) -> Policy {
    let mode = choices.of(&[
        Mode::Local,
        Mode::Local,
        Mode::Local,
        Mode::Preferred,
        Mode::Bind,
        Mode::Interleave,
        Mode::PreferredMany,
        Mode::WeightedInterleave,
    ]);
    let mut mask = NodeMask::EMPTY;
    for node in 0..nodes {
        if choices.once_in(2) {
            mask.insert(NodeId(node));
        }
    }
    if mask.is_empty() {
        mask.insert(NodeId(choices.below(u32::from(nodes)) as u16));
    }
    let balancing = match mode {
        Mode::Local => true,
        Mode::Bind | Mode::PreferredMany => choices.once_in(2),
        _ => false,
    };
    let nodes = match mode {
        Mode::Local => NodeMask::EMPTY,
        Mode::Preferred => mask.iter().take(1).collect(),
        _ => mask,
    };
    Policy {
        mode,
        flags: ModeFlags {
            numa_balancing: balancing && mode != Mode::Local,
            ..ModeFlags::default()
        },
        nodes,
        remembered: mask,
        home: None,
        on_fault: balancing,
        to_accessor: balancing,
    }
}

fn thread(choices: &mut Choices<'_>, machine: &MachineSpec) -> ThreadPlan {
    let with_cpus: Vec<u16> = machine
        .nodes
        .iter()
        .filter(|n| n.cpus > 0)
        .map(|n| n.id)
        .collect();
    let mut nodes = vec![choices.of(&with_cpus)];
    nodes.extend(
        with_cpus
            .into_iter()
            .filter(|&n| n != nodes[0] && choices.once_in(2))
            .collect::<Vec<_>>(),
    );
    ThreadPlan {
        space: choices.of(&[0, 0, 1]),
        nodes,
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 0.0,
        group: 0,
    }
}

fn configuration(choices: &mut Choices<'_>, nodes: u16) -> Configuration {
    let weights = (0..nodes)
        .map(|n| (n, choices.within(1, 5) as u8))
        .collect();
    let pghot = choices.once_in(2).then(|| Pghot {
        sources: SourceSet::from_bits(choices.below(16) as u8).expect("four sources"),
        layout: choices.of(&[Layout::Compact, Layout::Precise]),
        threshold: choices.within(1, 3) as u8,
        window_ms: 3000,
        gate: choices.of(&[PromotionGate::Kernel, PromotionGate::ThresholdFree]),
        page_table_scan_ms: choices.within(1, 10),
        sample_period: 100,
        sample_misses_only: choices.once_in(2),
    });
    Configuration {
        numa_balancing: choices.below(4) as u8,
        demotion: !choices.once_in(4),
        lru: choices.of(&[Lru::Classic, Lru::Multigenerational]),
        pghot,
        interleave: choices.once_in(2).then_some(Interleave {
            weights,
            targeted: false,
        }),
        scan_period_min_ms: choices.within(1, 10),
        scan_period_max_ms: 60_000,
        scan_delay_ms: choices.below(5),
        scan_size_mb: choices.within(1, 8),
        hot_threshold_ms: choices.of(&[1, 20, 1000]),
        rate_limit_mbps: choices.of(&[1, 100, 65_536]),
        ..Configuration::off("swarm")
    }
}

struct Run {
    kernel: Kernel,
    hw: Hardware,
    now_ns: u64,
    samples: Vec<Sample>,
}

impl Run {
    fn new(case: &Case) -> Run {
        let Case {
            machine,
            plan,
            configuration,
            scale,
            seed,
            ..
        } = case;
        Run {
            kernel: Kernel::new(machine, plan, configuration, *scale, *seed).expect("a kernel"),
            hw: Hardware::new(machine, plan, configuration, *scale, *seed),
            now_ns: 0,
            samples: Vec::new(),
        }
    }

    fn all(&mut self, case: &Case, choices: &mut Choices<'_>) -> Result<(), KernelError> {
        self.kernel.populate(&mut self.hw)?;
        self.check();
        for _ in 0..case.quanta {
            for (thread, plan) in case.plan.threads.iter().enumerate() {
                self.quantum(case, thread as u32, plan, choices)?;
            }
            self.now_ns += 1_000_000;
            let samples = std::mem::take(&mut self.samples);
            self.kernel.samples(&mut self.hw, &samples, self.now_ns);
            if choices.once_in(10) {
                let node = NodeId(choices.below(case.machine.nodes.len() as u32) as u16);
                let pages = u64::from(choices.within(1, 500));
                let (kernel, hw) = (&mut self.kernel, &mut self.hw);
                kernel.reclaim_proactively(hw, node, pages, self.now_ns);
            }
            self.kernel.background(&mut self.hw, self.now_ns, 1_000_000);
            self.check();
        }
        Ok(())
    }

    /// What one thread does in a millisecond: accesses to a part of a region of its space.
    fn quantum(
        &mut self,
        case: &Case,
        thread: u32,
        plan: &ThreadPlan,
        choices: &mut Choices<'_>,
    ) -> Result<(), KernelError> {
        let mine = |r: &&(usize, &RegionPlan)| r.1.space == plan.space;
        let regions: Vec<_> = case.plan.regions.iter().enumerate().collect();
        let regions: Vec<_> = regions.iter().filter(mine).collect();
        let cpu = self.hw.cpu_of_thread(thread);
        let who = Who {
            thread,
            cpu,
            node: self.hw.node_of_cpu(cpu),
            space: plan.space,
            now_ns: self.now_ns,
        };
        if !regions.is_empty() {
            let &&(at, region) = &regions[choices.below(regions.len() as u32) as usize];
            let first = choices.below(region.pages);
            let span = choices.within(1, region.pages - first);
            let stores = region.writable && choices.once_in(2);
            // The accesses themselves are the generator's, not the fuzzer's: bytes decide the shape.
            for _ in 0..choices.of(&[20, 200, 1000]) {
                let page = first + choices.rng.below(span);
                let slot = self.kernel.regions.get(at).base + page;
                let write = stores && choices.rng.chance(20_000);
                self.access(&who, slot, write)?;
            }
        }
        self.kernel.tick(&mut self.hw, &who, 1_000_000);
        Ok(())
    }

    fn access(&mut self, who: &Who, slot: Slot, write: bool) -> Result<(), KernelError> {
        for _ in 0..8 {
            let head = self.kernel.head(slot);
            let pte = &mut self.kernel.ptes[head as usize];
            let why = if pte.has(Flags::MIGRATING) {
                Fault::Migrating
            } else if !pte.has(Flags::PRESENT) {
                Fault::NotPresent
            } else if pte.has(Flags::HINT) {
                Fault::Hint
            } else if write && !pte.has(Flags::WRITABLE) {
                Fault::WriteProtect
            } else {
                pte.set(Flags::ACCESSED);
                if write {
                    pte.set(Flags::DIRTY);
                }
                self.sample(who, slot, write);
                return Ok(());
            };
            self.kernel.fault(&mut self.hw, who, slot, why, write)?;
        }
        panic!(
            "slot {slot} faults without end: {:?}",
            self.kernel.ptes[slot as usize]
        );
    }

    /// Each eleventh page is one that the sampler happens to pick.
    fn sample(&mut self, who: &Who, slot: Slot, write: bool) {
        if slot.is_multiple_of(11) {
            let node = self.kernel.ptes[slot as usize].node();
            let served = match (node == who.node, self.hw.has_cpus(node)) {
                (true, _) => ServedBy::LocalDram,
                (false, true) => ServedBy::RemoteDram,
                (false, false) => ServedBy::Extension,
            };
            self.samples.push(Sample {
                slot,
                cpu: who.cpu,
                thread: who.thread,
                write,
                latency_ns: 100,
                served,
            });
        }
    }

    fn check(&self) {
        if let Err(violation) = self.kernel.check() {
            panic!("conservation at {} ns: {violation}", self.now_ns);
        }
    }
}

/// A fast node of so many pages with CPUs over a slow one of four times as many, for benchmarks.
#[allow(dead_code)]
pub fn two_tiers(pages: u64) -> MachineSpec {
    let node = |id: u16, pages: u64, cpus: Vec<u32>| NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: pages * 4096,
        cpus,
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let mut spec = machine(&mut Choices::of_seed(0), 1);
    let sizes = [(pages, 64), (pages * 4, 0)];
    let mut nodes = Vec::new();
    for (id, (pages, cpus)) in sizes.into_iter().enumerate() {
        let mut node = spec.nodes[0].clone();
        node.id = id as u16;
        node.capacity_bytes = pages * 4096;
        node.cpus = cpus;
        node.seen_from = vec![1.0; 2];
        nodes.push(node);
    }
    spec.nodes = nodes;
    let inputs = TopologyInput {
        nodes: vec![
            node(0, pages, (0..64).collect()),
            node(1, pages * 4, vec![]),
        ],
    };
    spec.topology = Topology::try_from(inputs).expect("a machine that can be");
    spec
}

/// Anonymous memory where the thread is.
#[allow(dead_code)]
pub fn plain_region(pages: u32) -> RegionPlan {
    RegionPlan {
        name: "data".into(),
        space: 0,
        kind: Kind::Anonymous,
        file: None,
        writable: true,
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
    }
}

/// A thread of space 0 on node 0.
#[allow(dead_code)]
pub fn plain_thread() -> ThreadPlan {
    ThreadPlan {
        space: 0,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 0.0,
        group: 0,
    }
}
