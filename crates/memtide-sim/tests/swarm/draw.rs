//! What a case is made of.

use super::Choices;
use memtide_core::access::SourceSet;
use memtide_core::balancing::SampleSettings;
use memtide_core::hotness::Layout;
use memtide_core::mempolicy::{Mode, ModeFlags, Policy};
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::NodeId;
use memtide_sim::config::{
    Acts, BySamples, Configuration, Interleave, Lru, Luf, Pghot, PromotionGate,
};
use memtide_sim::spec::{Costs, CpuSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec};
use memtide_sim::workload::{Kind, Pattern, Plan, RegionPlan, ThreadPlan};

/// A case.
#[derive(Debug)]
pub struct Case {
    pub machine: MachineSpec,
    pub plan: Plan,
    pub configuration: Configuration,
    pub scale: u32,
    pub quanta: u32,
    pub seed: u64,
    /// Through the engine, or straight to the kernel.
    pub engine: bool,
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
        engine: choices.once_in(2),
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
                duplex: false,
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
    let nodes_of = TopologyInput::new(inputs);
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
        storage: None,
        links: Vec::new(),
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
        foreign: choices.once_in(6),
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
        pattern: choices.of(&[Pattern::Random, Pattern::Sweep]),
        ops_per_access: 1,
        think_ns: 0.0,
        misses_at_once: None,
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
    let samples = (pghot.is_none() && choices.once_in(2)).then(|| BySamples {
        settings: SampleSettings {
            period: 100,
            min_period: 50,
            max_period: 200,
            placement_samples: choices.within(2, 50),
            delay_ms: choices.below(3),
            ..SampleSettings::default()
        },
        acts: match choices.once_in(2) {
            true => Acts::Each,
            false => Acts::Batches {
                interval_ms: choices.within(1, 5),
                threshold: choices.within(1, 3) as u8,
                window_ms: 3000,
                young_at_once: choices.once_in(2),
            },
        },
        misses_only: choices.once_in(2),
    });
    Configuration {
        numa_balancing: match samples {
            Some(_) => 1,
            None => choices.below(4) as u8,
        },
        samples,
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
        luf: choices.of(&[None, Some(Luf::Machine), Some(Luf::Zones)]),
        check: true,
        ..Configuration::off("swarm")
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
    let inputs = TopologyInput::new(vec![
        node(0, pages, (0..64).collect()),
        node(1, pages * 4, vec![]),
    ]);
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
        foreign: false,
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
        misses_at_once: None,
        group: 0,
    }
}
