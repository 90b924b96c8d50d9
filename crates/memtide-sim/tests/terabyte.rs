//! A terabyte of slow memory and 200 processes: an hour of it has to pass in a minute of one core,
//! since nobody tries what takes longer.
//!
//! The machine is the one of rates. The promise is of processor time, so that a busy machine is no
//! failure.

use memtide_core::pages::NodeSpace;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::{NodeId, PageSize};
use memtide_loop::World;
use memtide_loop::options::TierOptions;
use memtide_loop::tier::{TierConfig, Tierer};
use memtide_loop::world::{Allowed, Came, MemoryKind, Report, SourceId, Span, Subject};
use memtide_sim::world::{
    Heat, Light, LightArea, LightNode, LightProcess, LightSpec, Machine, SimWorld, SourceChoice,
    WorldCosts,
};
use std::time::Duration;

const PAGES: u64 = (1 << 40) / 4096;
const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const PROCESSES: u64 = 200;

fn topology() -> Topology {
    let node = |id, pages: u64, cpus: std::ops::Range<u32>| NodeInput {
        id,
        online: true,
        memory_bytes: pages * 4096,
        cpus: cpus.collect(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let nodes = vec![
        node(FAST, PAGES / 4, 0..64),
        node(SLOW, PAGES + PAGES / 64, 0..0),
    ];
    TopologyInput::new(nodes).try_into().unwrap()
}

fn node(id: NodeId, present: u64, latency_ns: u32) -> LightNode {
    LightNode {
        id,
        space: NodeSpace {
            free: present,
            high: 65_536,
            promo: 131_072,
            present,
        },
        min: 32_768,
        latency_ns,
    }
}

/// Each program has its share of the slow node, of which a 64th is hot and the rest is touched once
/// in an hour.
fn programs() -> Vec<LightProcess> {
    let pages = PAGES / PROCESSES;
    let program = |n: u64| LightProcess {
        pid: 1000 + n as u32,
        parent: 1,
        born_ms: 0,
        ends_ms: None,
        busy: 0.5,
        cgroup: None,
        areas: vec![LightArea {
            first: 1 << 25,
            pages,
            node: SLOW,
            huge: false,
            allowed: Allowed::Anywhere,
            kind: MemoryKind::Anonymous,
            backing: None,
            heat: vec![
                Heat::range(pages / 2, pages / 64, 20.0),
                Heat::range(0, pages, 1.0 / 3600.0),
            ],
        }],
        fork_of: None,
    };
    (0..PROCESSES).map(program).collect()
}

/// Processor time of this thread: what others do on the machine is not in it.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn world() -> SimWorld<Light> {
    let spec = LightSpec {
        topology: topology(),
        nodes: vec![
            node(FAST, PAGES / 4, 100),
            node(SLOW, PAGES + PAGES / 64, 250),
        ],
        processes: programs(),
        move_page_ns: 3_000,
        move_batch_ns: 1_000,
        seed: 1,
    };
    SimWorld::new(
        Light::new(spec),
        &[SourceChoice::Damon],
        WorldCosts::BARE,
        1,
    )
}

/// The loop for so long: processor time, the share of accesses to fast memory, pages moved.
fn run(simulated: Duration) -> (Duration, f64, u64) {
    let mut world = world();
    let config = TierConfig::new(&TierOptions::DEFAULT, world.topology(), PageSize::KIB_4, 1);
    let mut tierer = Tierer::new(&mut world, config.unwrap());
    let begin = cpu_time();
    while u128::from(world.now_ns()) < simulated.as_nanos() {
        tierer.step(&mut world, &mut ()).unwrap();
    }
    assert_eq!(world.machine.scale(), 1);
    (
        cpu_time() - begin,
        world.machine.fast_share(),
        world.machine.moved(),
    )
}

#[test]
fn an_hour_of_looks_at_a_terabyte_takes_less_than_a_minute() {
    let mut world = world();
    let begin = cpu_time();
    let mut seen = Vec::new();
    world.processes(&mut seen).unwrap();
    let (mut came, mut passes, mut touched, mut turn) = (Came::default(), 0, 0, 0);
    while world.now_ns() < 3_600_000_000_000 {
        // A gibibyte of one program after the other, the hot one, two passes each, then a rest: 5 %
        // of a CPU.
        let process = seen[turn % seen.len()].process;
        turn += 1;
        let span = Span {
            first: VirtualPage((1 << 25) + PAGES / PROCESSES / 2),
            pages: 262_144,
        };
        let subject = Subject {
            owner: OwnerId(0),
            process,
            spans: vec![span],
        };
        let looked = world.look(SourceId(0), &[subject], 200).unwrap();
        assert_eq!(looked, 262_144);
        let until = passes + 2;
        while passes < until {
            came.clear();
            world.wait(1000, &mut came).unwrap();
            for report in &came.reports {
                match report {
                    Report::Touched { pages, .. } => touched += pages,
                    _ => passes += 1,
                }
            }
        }
        world.look(SourceId(0), &[], 200).unwrap();
        world.rest(9_000);
    }
    let took = cpu_time() - begin;
    println!("1 h of looks in {took:?}: {passes} passes, {touched} touched pages");
    assert!(passes > 600 && touched > 1_000_000);
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
#[ignore = "half a minute, optimised: --release -- --ignored"]
fn an_hour_of_the_loop_on_a_terabyte_takes_a_minute() {
    let (took, share, moved) = run(Duration::from_secs(3600));
    println!("1 h simulated in {took:?}; {share:.3} fast, {moved} moved");
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(share > 0.9, "{share}");
}
