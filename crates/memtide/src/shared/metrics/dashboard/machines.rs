//! Two machines that are watched. Both are simulated, and their time is: what is told is the same each time.
//!
//! Tiering runs on the machine of rates ([`Light`]), at full size. Balancing runs on the loop's small world
//! for tests, whose samples are given here: the machine of rates has no threads.
//!
//! - `mill` is a service with two classes. `web` has a protected share. `batch` has a bound; what it uses moves on
//!   every five minutes, and some of its pages are pinned. From minute 14 to 17 its tasks wait for memory, and before
//!   that some other tasks do.
//! - `forge` has two sockets, and a service that tiers and balances. Two of four threads change sockets twice.

use super::history::Scrape;
use crate::shared::metrics::exposition::Exposition;
use crate::shared::metrics::families::Loaded;
use memtide_core::pages::NodeSpace;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::{NodeId, PageSize};
use memtide_loop::World;
use memtide_loop::balance::{BalanceConfig, Balancer};
use memtide_loop::options::{BalanceOptions, Classes, Size, TierOptions};
use memtide_loop::testing::{FAST, FakeProcess, FakeWorld};
use memtide_loop::tier::{TierConfig, Tierer};
use memtide_loop::world::{
    Allowed, ClassId, HUGE_PAGES, MemoryKind, Outcome, Sample, SourceId, ThreadId, ThreadSeen,
};
use memtide_sim::rng::Rng;
use memtide_sim::world::{
    Heat, Light, LightArea, LightNode, LightProcess, LightSpec, SimWorld, SourceChoice, Waits,
    WorldCosts,
};
use std::ops::Range;
use std::time::Duration;

const PAGE: PageSize = PageSize::KIB_4;
/// Base pages of a GiB and of a MiB.
const GIB: u64 = 1 << 18;
const MIB: u64 = 1 << 8;
/// What sizes are multiples of: small enough that a run takes seconds.
const PART: u64 = GIB / 4;
const MINUTE_MS: u64 = 60_000;
const SEED: u64 = 7;
/// What `mill` has for classes.
const CLASSES: &str = "\
[batch]
cgroup = '/batch'
fast.high = '1GiB'
[web]
cgroup = '/web'
fast.low = '1280MiB'
";

/// What is told of a run that lasts `until_ms`, every `every_ms`.
type Told = Vec<Scrape>;

/// A node: its number, its pages, its processors and its latency.
type Node = (u16, u64, Range<u32>, u32);

fn spec(nodes: &[Node], processes: Vec<LightProcess>) -> LightSpec {
    let input = |(id, pages, cpus, _): &Node| NodeInput {
        id: NodeId(*id),
        online: true,
        memory_bytes: pages * PAGE.bytes(),
        cpus: cpus.clone().collect(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let inputs: Vec<NodeInput> = nodes.iter().map(input).collect();
    let light = |&(id, pages, _, latency_ns): &Node| LightNode {
        id: NodeId(id),
        space: NodeSpace {
            free: pages,
            high: 16 * MIB,
            promo: 32 * MIB,
            present: pages,
        },
        min: 8 * MIB,
        latency_ns,
    };
    let topology: Topology = TopologyInput::new(inputs).try_into().expect("good nodes");
    LightSpec {
        topology,
        nodes: nodes.iter().map(light).collect(),
        processes,
        move_page_ns: 1_000,
        move_batch_ns: 1_000,
        seed: SEED,
    }
}

/// A program whose memory is on `node` at first.
fn program(pid: u32, cgroup: &str, pages: u64, node: u16, heat: Vec<Heat>) -> LightProcess {
    LightProcess {
        pid,
        parent: 1,
        born_ms: 0,
        ends_ms: None,
        busy: 4.0,
        cgroup: Some(cgroup.to_owned()),
        areas: vec![LightArea {
            first: u64::from(pid) << 25,
            pages,
            node: NodeId(node),
            huge: true,
            allowed: Allowed::Anywhere,
            kind: MemoryKind::Anonymous,
            backing: None,
            heat,
        }],
        fork_of: None,
    }
}

/// Huge pages that are hot from one minute to another: a base page of each is accessed.
fn hot(first: u64, pages: u64, minutes: Range<u64>) -> Heat {
    Heat {
        first,
        from_ms: minutes.start * MINUTE_MS,
        until_ms: Some(minutes.end * MINUTE_MS),
        ..Heat::pieces(pages, 1, HUGE_PAGES, 1000.0)
    }
}

/// All huge pages of a program are accessed once in ten minutes.
fn cold(pages: u64) -> Heat {
    Heat::pieces(pages, 1, HUGE_PAGES, 1.0 / 600.0)
}

pub fn mill(times: &[u64], taken: Duration) -> Told {
    const MOVES_ON: [(u64, Range<u64>); 4] = [(0, 0..5), (6, 5..10), (12, 10..15), (18, 15..60)];
    let moving = MOVES_ON.map(|(first, minutes)| hot(first * PART, 5 * PART, minutes));
    let moving = moving.into_iter().chain([cold(24 * PART)]);
    let processes = vec![
        program(1001, "/batch", 24 * PART, 2, moving.collect()),
        program(
            1002,
            "/web",
            10 * PART,
            2,
            vec![hot(2 * PART, 6 * PART, 0..60), cold(10 * PART)],
        ),
        program(
            1003,
            "/rest",
            6 * PART,
            0,
            vec![hot(0, 2 * PART, 8..60), cold(6 * PART)],
        ),
    ];
    let nodes: [Node; 2] = [(0, 16 * PART, 0..32, 100), (2, 64 * PART, 0..0, 260)];
    let classes: Classes = toml::from_str(CLASSES).expect("good classes");
    let light = Light::new(spec(&nodes, processes)).with_sampler(SEED);
    let sources = [
        SourceChoice::Damon,
        SourceChoice::Hardware {
            name: "ibs",
            per_cpu_second: 20,
        },
    ];
    let waits = |minutes: Range<u64>, permille, class| Waits {
        from_ms: minutes.start * MINUTE_MS,
        until_ms: minutes.end * MINUTE_MS,
        permille,
        class,
    };
    let waits = vec![waits(7..9, 20, None), waits(14..17, 60, Some(ClassId(0)))];
    let mut world = SimWorld::new(light, &sources, WorldCosts::BARE, SEED)
        .with_classes(&classes)
        .with_waits(waits);
    world.faults.moves = Some(Box::new(|process, page| {
        let pinned = process.pid == 1001 && page.0 % PART < 8 * MIB;
        pinned.then_some(Outcome::Busy)
    }));
    let options = TierOptions {
        rate_limit: Size(64 << 20),
        ..TierOptions::DEFAULT
    };
    tier(world, &options, &classes, times, taken, &mut |_, _| ())
}

pub fn forge(times: &[u64], taken: Duration) -> Told {
    let minutes = [(0, 0..6), (7, 6..13), (3, 13..60)];
    let moving = minutes.map(|(first, minutes)| hot(first * PART, 6 * PART, minutes));
    let moving = moving.into_iter().chain([cold(20 * PART)]);
    let processes = vec![program(2001, "/db", 20 * PART, 2, moving.collect())];
    let nodes: [Node; 3] = [
        (0, 8 * PART, 0..16, 100),
        (1, 8 * PART, 16..32, 100),
        (2, 32 * PART, 0..0, 260),
    ];
    let light = Light::new(spec(&nodes, processes));
    let world = SimWorld::new(light, &[SourceChoice::Damon], WorldCosts::BARE, SEED + 1)
        .with_waits(Vec::new());
    let mut sockets = Sockets::new();
    let options = TierOptions {
        rate_limit: Size(128 << 20),
        ..TierOptions::DEFAULT
    };
    tier(
        world,
        &options,
        &Classes::new(),
        times,
        taken,
        &mut |exposition, at_ms| {
            let status = sockets.run_to(at_ms);
            exposition.tell_of_balancing(Some(Some(&status)));
        },
    )
}

/// Runs the loop, and tells of it at each of the times.
fn tier(
    mut world: SimWorld<Light>,
    options: &TierOptions,
    classes: &Classes,
    times: &[u64],
    taken: Duration,
    beside: &mut dyn FnMut(&Exposition, u64),
) -> Told {
    let config = TierConfig::new(options, world.topology(), PAGE, SEED).expect("good options");
    let config = config.with_classes(classes, world.topology(), PAGE);
    let mut tierer = Tierer::new(&mut world, config);
    let exposition = Exposition::new("tier", PAGE);
    exposition.tell_of_configuration(Loaded {
        taken,
        successful: true,
    });
    let mut told = Told::new();
    for &at_ms in times {
        while world.now_ns() < at_ms * 1_000_000 {
            tierer.step(&mut world, &mut ()).expect("nothing ends it");
        }
        let status = tierer.status(&mut world);
        exposition.tell(&status);
        beside(&exposition, at_ms);
        let text = exposition.open_metrics();
        told.push(Scrape { at_ms, text });
    }
    told
}

/// Two sockets, threads that change from one to the other, and balancing.
struct Sockets {
    world: FakeWorld,
    balancer: Balancer,
    rng: Rng,
}

/// The pages of one of the four threads.
const THREAD_PAGES: u64 = 8 * MIB;
const THREADS: u64 = 4;
/// One that began long ago: balancing waits for those that did not.
const PID: u32 = 71;

impl Sockets {
    fn new() -> Sockets {
        let mut world = FakeWorld::two_nodes_and_slow(GIB);
        let pages = THREADS * THREAD_PAGES;
        world
            .processes
            .push(FakeProcess::new(PID, 1 << 20, pages, FAST));
        let thread = |n: u64| ThreadSeen {
            thread: ThreadId {
                pid: PID,
                tid: PID + 1 + n as u32,
                start_ticks: u64::from(PID) * 100,
            },
            runtime_ns: 60_000_000_000,
        };
        world.threads = (0..THREADS).map(thread).collect();
        // About what calls cost on a server.
        world.read_ns = 2_000_000;
        world.wait_cpu_ns = 200_000;
        world.move_cpu_ns = 3_000;
        world.survey_page_ns = 100;
        let config = BalanceConfig::new(&BalanceOptions::DEFAULT, PAGE, false);
        let config = config.expect("good options");
        let config = config.beside_tiering(&Classes::new(), true, 0);
        Sockets {
            balancer: Balancer::new(&mut world, config).expect("good settings"),
            world,
            rng: Rng::new(SEED, 1),
        }
    }

    /// The CPU of a thread: 0 and 1 are of one socket, 2 and 3 of the other. Two threads change sockets after
    /// 4 minutes and after 12.
    fn cpu(n: u64, now_ms: u64) -> u32 {
        let swapped = (4 * MINUTE_MS..12 * MINUTE_MS).contains(&now_ms);
        match (n, swapped) {
            (0, _) => 0,
            (1, _) => 2,
            (2, false) | (3, true) => 1,
            _ => 3,
        }
    }

    fn run_to(&mut self, at_ms: u64) -> memtide_loop::report::Status {
        while self.world.now_ns < at_ms * 1_000_000 {
            let now_ms = self.world.now_ns / 1_000_000;
            let (rng, samples) = (&mut self.rng, &mut self.world.samples);
            // What was sampled since the last turn, of which each is about as long.
            samples.extend((0..200).map(|_| {
                let n = u64::from(rng.below(THREADS as u32));
                let page = (1 << 20) + n * THREAD_PAGES + u64::from(rng.below(THREAD_PAGES as u32));
                Sample {
                    source: SourceId(0),
                    pid: PID,
                    tid: PID + 1 + n as u32,
                    cpu: Sockets::cpu(n, now_ms),
                    address: page << 12,
                }
            }));
            let stepped = self.balancer.step(&mut self.world, &mut ());
            assert!(stepped.expect("nothing ends it"), "the program runs on");
        }
        self.balancer.status(&mut self.world)
    }
}
