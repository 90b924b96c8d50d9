//! Worlds through the trait that the loop uses: what looks see, what moves come to, what time does.

use super::machine::Missing;
use super::*;
use crate::config::Configuration;
use crate::engine::{Run, Source};
use crate::kernel::testing::{machine, region};
use crate::page::Slot;
use crate::rng::Rng;
use crate::workload::{
    Access, Filled, Kind as Mapped, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::topology::{NodeInput, TopologyInput};
use memtide_loop::world::{Allowed, MemoryKind, Outcome, SharedPages};
use std::collections::{BTreeMap, BTreeSet};

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const DAMON: SourceId = SourceId(0);
const HOW: MoveHow = MoveHow {
    batch: 512,
    shared: SharedPages::Leave,
};

/// Each thread accesses pages of the first region of its space: one in `every`, at random.
struct Program {
    plan: Plan,
    bases: Vec<Slot>,
    every: u32,
    hot: u32,
    ends_at_ns: u64,
}

impl Source for Program {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        if now_ns >= self.ends_at_ns {
            return Filled::Done;
        }
        let space = self.plan.threads[thread].space;
        let mut regions = self.plan.regions.iter();
        let own = regions.position(|region| region.space == space).unwrap();
        for access in &mut *batch {
            let page = rng.below(self.hot) * self.every;
            *access = Access::new(self.bases[own] + page, rng.below(64), 1, false);
        }
        Filled::Accesses(batch.len())
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}

fn on_slow(pages: u32, space: u16) -> RegionPlan {
    let spec = machine(&[(16_384, 4), (16_384, 0)], 64);
    let places = Places::new(&spec);
    RegionPlan {
        space,
        policy: places.prefer(1),
        policy_after: Some(places.default_policy()),
        populated_from: Some(0),
        ..region(pages)
    }
}

fn thread(space: u16) -> ThreadPlan {
    ThreadPlan {
        space,
        nodes: vec![0],
        pattern: Pattern::Random,
        ops_per_access: 1,
        think_ns: 0.0,
        misses_at_once: None,
        group: 0,
    }
}

type Engine = SimWorld<Simulated<Program>>;

/// A world with `hot` pages, one in `every`, of each space's first region. Fast memory has so many
/// pages.
fn engine(regions: Vec<RegionPlan>, fast: u64, every: u32, hot: u32) -> Engine {
    let spaces: BTreeSet<u16> = regions.iter().map(|region| region.space).collect();
    let program = Program {
        plan: Plan {
            regions,
            threads: spaces.into_iter().map(thread).collect(),
            ends_at_ns: None,
        },
        bases: Vec::new(),
        every,
        hot,
        ends_at_ns: 2_000 * MS,
    };
    let spec = machine(&[(fast, 4), (16_384, 0)], 64);
    let run = Run::new(&spec, program, &Configuration::off("test"), 1, 1).unwrap();
    let sources = [SourceChoice::Damon, SourceChoice::PageTables];
    SimWorld::new(Simulated::new(run), &sources, WorldCosts::BARE, 1)
}

/// The same as rates: areas of 512 pages and more, the first of each process hot.
fn light(processes: Vec<LightProcess>, fast: u64) -> SimWorld<Light> {
    let node = |id, pages: u64, cpus: &[u32]| NodeInput {
        id,
        online: true,
        memory_bytes: pages * 4096,
        cpus: cpus.to_vec(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let input = TopologyInput::new(vec![node(FAST, fast, &[0, 1]), node(SLOW, 1 << 28, &[])]);
    let space = |present| NodeSpace {
        free: present,
        high: 48,
        promo: 64,
        present,
    };
    let memory = |id, present, latency_ns| LightNode {
        id,
        space: space(present),
        min: 16,
        latency_ns,
    };
    let spec = LightSpec {
        topology: input.try_into().unwrap(),
        nodes: vec![memory(FAST, fast, 100), memory(SLOW, 1 << 28, 250)],
        processes,
        move_page_ns: 2_000,
        move_batch_ns: 1_000,
        seed: 1,
    };
    let sources = [SourceChoice::Damon, SourceChoice::PageTables];
    SimWorld::new(Light::new(spec), &sources, WorldCosts::BARE, 1)
}

fn area(pages: u64, heat: Vec<Heat>) -> LightArea {
    LightArea {
        first: 1 << 20,
        pages,
        node: SLOW,
        huge: false,
        allowed: Allowed::Anywhere,
        kind: MemoryKind::Anonymous,
        backing: None,
        heat,
    }
}

fn process(pid: u32, areas: Vec<LightArea>) -> LightProcess {
    LightProcess {
        pid,
        parent: 1,
        born_ms: 0,
        ends_ms: None,
        busy: 1.0,
        cgroup: None,
        areas,
        fork_of: None,
    }
}

/// All that a process maps, as one subject.
fn subject<M: Machine>(world: &mut SimWorld<M>, index: usize) -> Subject {
    let mut seen = Vec::new();
    world.processes(&mut seen).unwrap();
    let process = seen[index].process;
    let mut space = AddressSpace::default();
    assert_eq!(world.address_space(process, &mut space), Ok(Presence::Here));
    let span = |area: &memtide_loop::world::Area| Span {
        first: area.first,
        pages: area.pages,
    };
    Subject {
        owner: OwnerId(index as u32),
        process,
        spans: space.areas.iter().map(span).collect(),
    }
}

/// The pages that a pass told of, and when it was over.
fn pass<M: Machine>(world: &mut SimWorld<M>, source: SourceId) -> (BTreeSet<u64>, u64) {
    let mut touched = BTreeSet::new();
    for _ in 0..200 {
        let mut came = Came::default();
        world.wait(100, &mut came).unwrap();
        for report in came.reports {
            match report {
                Report::Touched { first, pages, .. } => touched.extend(first.0..first.0 + pages),
                Report::Pass { source: of, .. } if of == source => {
                    return (touched, world.now_ns() / MS);
                }
                _ => {}
            }
        }
    }
    panic!("no pass in 20 s");
}

fn hot(subject: &Subject, every: u64, hot: u64) -> BTreeSet<u64> {
    let first = subject.spans[0].first.0;
    (0..hot).map(|n| first + n * every).collect()
}

/// Pages by outcome.
fn moved<M: Machine>(
    world: &mut SimWorld<M>,
    process: ProcessId,
    runs: &[(u64, u64)],
    target: NodeId,
    how: MoveHow,
) -> BTreeMap<String, u64> {
    let runs: Vec<PageRun> = runs
        .iter()
        .map(|&(first, pages)| PageRun {
            first: VirtualPage(first),
            pages,
            huge: false,
        })
        .collect();
    let mut settled = Vec::new();
    world.move_pages(process, target, &runs, how, &mut settled);
    let asked: u64 = runs.iter().map(|run| run.pages).sum();
    let told: u64 = settled.iter().map(|run| run.pages).sum();
    assert_eq!(asked, told, "every page once: {settled:?}");
    assert!(settled.windows(2).all(|pair| pair[0].first < pair[1].first));
    let mut by_outcome = BTreeMap::new();
    for run in settled {
        *by_outcome.entry(format!("{:?}", run.outcome)).or_insert(0) += run.pages;
    }
    by_outcome
}

fn outcomes(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
    list.iter()
        .map(|&(name, pages)| (name.to_owned(), pages))
        .collect()
}

const UP: &str = "Moved { from: NodeId(1) }";

#[test]
fn a_look_tells_exactly_the_pages_that_were_touched() {
    // More hot pages than the TLB holds, so that nothing stays hidden.
    let mut engine = engine(vec![on_slow(8192, 0)], 8192, 3, 2700);
    let own = subject(&mut engine, 0);
    assert_eq!(
        engine.look(DAMON, std::slice::from_ref(&own), 200),
        Ok(8192)
    );
    let began = engine.now_ns() / MS;
    let (touched, ended) = pass(&mut engine, DAMON);
    assert_eq!(touched, hot(&own, 3, 2700));
    // 200 ms between walks that take 4 ms each, at a microsecond a page for both.
    assert!((208..=211).contains(&(ended - began)), "{began} to {ended}");
    let spent = engine.source_status(DAMON).kernel_cpu_ns / 1000;
    assert!((8192..10_300).contains(&spent), "{spent} us");

    let heat = Heat::pieces(8100, 1, 3, 1e4);
    let mut light = light(vec![process(7, vec![area(8192, vec![heat])])], 8192);
    let own = subject(&mut light, 0);
    assert_eq!(light.look(DAMON, std::slice::from_ref(&own), 200), Ok(8192));
    let began = light.now_ns() / MS;
    let (touched, ended) = pass(&mut light, DAMON);
    assert_eq!(touched, hot(&own, 3, 2700));
    assert!((207..=215).contains(&(ended - began)), "{began} to {ended}");
}

#[test]
fn what_the_tlb_hides_shows_after_a_move() {
    let mut world = engine(vec![on_slow(4096, 0)], 8192, 1, 32);
    let own = subject(&mut world, 0);
    world.look(DAMON, std::slice::from_ref(&own), 100).unwrap();
    pass(&mut world, DAMON);
    let (hidden, _) = pass(&mut world, DAMON);
    assert!(hidden.is_empty(), "{hidden:?}");
    // One cold page moves in the middle of the next pass.
    world.rest(50);
    let cold = own.spans[0].first.0 + 4000;
    let found = moved(&mut world, own.process, &[(cold, 1)], FAST, HOW);
    assert_eq!(found, outcomes(&[(UP, 1)]));
    let (shown, _) = pass(&mut world, DAMON);
    assert_eq!(shown, hot(&own, 1, 32));
}

#[test]
fn moves_come_to_what_the_kernel_says() {
    let mut plan = on_slow(2048, 0);
    plan.freed_at_ns = Some(500 * MS);
    let mut world = engine(vec![on_slow(4096, 0), plan], 2048, 1, 2000);
    let own = subject(&mut world, 0);
    let (first, other) = (own.spans[0].first.0, own.spans[1].first.0);
    let (process, at) = (own.process, world.now_ns());
    assert_eq!(
        moved(&mut world, process, &[(first, 512)], FAST, HOW),
        outcomes(&[(UP, 512)])
    );
    assert!(world.now_ns() - at > 512 * 1500, "it takes time");
    let again = moved(&mut world, process, &[(first, 513)], FAST, HOW);
    // The last batch's pages may be in the kernel's hands still.
    assert_eq!(again.values().sum::<u64>(), 513);
    assert_eq!(again[UP], 1);
    world.rest(10);
    let again = moved(&mut world, process, &[(first, 513)], FAST, HOW);
    assert_eq!(again, outcomes(&[("AlreadyThere", 513)]));
    let nowhere = moved(&mut world, process, &[(first, 2)], NodeId(9), HOW);
    assert_eq!(nowhere, outcomes(&[("NoSuchNode", 2)]));
    let outside = moved(&mut world, process, &[(first - 5, 3)], FAST, HOW);
    assert_eq!(outside, outcomes(&[("ZeroOrUnmapped", 3)]));
    // Node 0 has 2,048 pages, of which the lowest watermark stays free.
    let full = moved(&mut world, process, &[(first, 4096)], FAST, HOW);
    assert!(full["NoMemory"] > 1000, "{full:?}");
    let mut rooms = Vec::new();
    world.rooms(&mut rooms).unwrap();
    let least = world.machine.run().kernel.frames.marks(FAST).min();
    assert!(rooms[0].1.free >= least, "{rooms:?}");
    world.rest(600);
    let gone = moved(&mut world, process, &[(other, 7)], SLOW, HOW);
    assert_eq!(gone, outcomes(&[("ZeroOrUnmapped", 7)]));
    world.rest(2_000);
    let ended = moved(&mut world, process, &[(first, 7)], SLOW, HOW);
    assert_eq!(ended, outcomes(&[("ProcessGone", 7)]));
    let mut seen = Vec::new();
    world.processes(&mut seen).unwrap();
    assert!(seen.is_empty());
}

#[test]
fn a_file_that_two_map_is_shared() {
    let file = |space| RegionPlan {
        kind: Mapped::SharedFile,
        file: Some(3),
        writable: false,
        ..on_slow(1024, space)
    };
    let mut world = engine(vec![file(0), file(1)], 8192, 1, 1024);
    world.rest(50);
    let (one, two) = (subject(&mut world, 0), subject(&mut world, 1));
    assert_ne!(one.process, two.process);
    let mut space = AddressSpace::default();
    let mut backing = |process| {
        assert_eq!(world.address_space(process, &mut space), Ok(Presence::Here));
        space.areas[0].backing.unwrap()
    };
    assert_eq!(backing(one.process), backing(two.process));
    let runs = [(one.spans[0].first.0, 16)];
    let left = moved(&mut world, one.process, &runs, FAST, HOW);
    assert_eq!(left, outcomes(&[("Shared", 16)]));
    let how = MoveHow {
        shared: SharedPages::Move,
        ..HOW
    };
    assert_eq!(
        moved(&mut world, one.process, &runs, FAST, how),
        outcomes(&[(UP, 16)])
    );
    world.rest(10);
    let runs = [(two.spans[0].first.0, 16)];
    let there = moved(&mut world, two.process, &runs, FAST, how);
    assert_eq!(there, outcomes(&[("AlreadyThere", 16)]));
}

#[test]
fn moves_on_the_light_machine_come_to_the_same() {
    let mut parent = process(7, vec![area(4096, Vec::new())]);
    parent.ends_ms = Some(3000);
    let child = LightProcess {
        born_ms: 500,
        ends_ms: Some(1000),
        fork_of: Some(0),
        ..process(8, Vec::new())
    };
    // Another program gets the number of the first.
    let heir = LightProcess {
        born_ms: 4000,
        ..process(7, vec![area(512, Vec::new())])
    };
    let mut world = light(vec![parent, child, heir], 2048);
    let own = subject(&mut world, 0);
    let (first, process) = (own.spans[0].first.0, own.process);
    let runs = [(first - 2, 4)];
    let edge = moved(&mut world, process, &runs, FAST, HOW);
    assert_eq!(edge, outcomes(&[("ZeroOrUnmapped", 2), (UP, 2)]));
    let there = moved(&mut world, process, &[(first, 3)], FAST, HOW);
    assert_eq!(there, outcomes(&[("AlreadyThere", 2), (UP, 1)]));
    let full = moved(&mut world, process, &[(first, 4096)], FAST, HOW);
    // All of node 0 but its lowest watermark, three pages of which were there.
    let wanted = [
        ("AlreadyThere", 3),
        (UP, 2048 - 16 - 3),
        ("NoMemory", 4096 - 2032),
    ];
    assert_eq!(full, outcomes(&wanted));
    let back = moved(&mut world, process, &[(first, 4096)], SLOW, HOW);
    assert_eq!(
        back,
        outcomes(&[("Moved { from: NodeId(0) }", 2032), ("AlreadyThere", 2064)])
    );
    assert_eq!(world.machine.pages_on(SLOW), 4096);
    world.rest(600);
    let shared = moved(&mut world, process, &[(first, 5)], FAST, HOW);
    assert_eq!(shared, outcomes(&[("Shared", 5)]));
    world.rest(600);
    let alone = moved(&mut world, process, &[(first, 5)], FAST, HOW);
    assert_eq!(alone, outcomes(&[(UP, 5)]));
    world.rest(3000);
    // The number is in use again, by somebody else.
    let gone = moved(&mut world, process, &[(first, 5)], SLOW, HOW);
    assert_eq!(gone, outcomes(&[("ProcessGone", 5)]));
    let mut space = AddressSpace::default();
    assert_eq!(world.address_space(process, &mut space), Ok(Presence::Gone));
    let heir = subject(&mut world, 0).process;
    assert!(heir.pid == process.pid && heir != process);
    assert_eq!(
        (world.machine.pages_on(SLOW), world.machine.pages_on(FAST)),
        (512, 0)
    );
}

#[test]
fn huge_pages_are_touched_and_moved_whole() {
    let mut mapping = area(2048, vec![Heat::range(600, 1, 1e4)]);
    mapping.huge = true;
    let mut world = light(vec![process(7, vec![mapping])], 4096);
    let own = subject(&mut world, 0);
    let first = own.spans[0].first.0;
    world.look(DAMON, std::slice::from_ref(&own), 100).unwrap();
    let (touched, _) = pass(&mut world, DAMON);
    assert_eq!(touched, (first + 512..first + 1024).collect());
    let mut settled = Vec::new();
    let run = PageRun {
        first: VirtualPage(first + 512),
        pages: 512,
        huge: true,
    };
    world.move_pages(own.process, FAST, &[run], HOW, &mut settled);
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].outcome, Outcome::Moved { from: SLOW });
    assert_eq!(world.machine.pages_on(FAST), 512);
    assert_eq!(world.machine.fast_share(), 1.0);
}

#[test]
fn a_glance_tells_of_spans_as_a_whole() {
    let heat = Heat::range(0, 4096, 1e4);
    let mut world = light(vec![process(7, vec![area(65_536, vec![heat])])], 4096);
    let own = subject(&mut world, 0);
    let first = own.spans[0].first.0;
    let spans = (0..16).map(|n| Span {
        first: VirtualPage(first + n * 4096),
        pages: 4096,
    });
    let own = Subject {
        spans: spans.collect(),
        ..own
    };
    world.glance(DAMON, &[own], 200).unwrap();
    let (touched, _) = pass(&mut world, DAMON);
    assert_eq!(touched, (first..first + 4096).collect());
}

#[test]
fn page_table_scans_tell_of_both_and_are_paid_by_us() {
    let scan = SourceId(1);
    let heat = Heat::pieces(4096, 1, 2, 1e4);
    let mut world = light(vec![process(7, vec![area(4096, vec![heat])])], 4096);
    let own = subject(&mut world, 0);
    world.look(scan, &[own], 200).unwrap();
    let before = world.own_cpu_ns();
    let (mut touched, mut untouched) = (0, 0);
    for _ in 0..10 {
        let mut came = Came::default();
        world.wait(100, &mut came).unwrap();
        for report in came.reports {
            match report {
                Report::Touched { pages, .. } => touched += pages,
                Report::Untouched { pages, .. } => untouched += pages,
                Report::Pass { .. } => {}
            }
        }
    }
    assert!(
        touched >= 2 * 2048 && touched == untouched,
        "{touched}, {untouched}"
    );
    assert!(world.own_cpu_ns() - before > 2 * 4096 * 20);
    assert_eq!(world.source_status(scan).kernel_cpu_ns, 0);
}

#[test]
fn of_one_process_a_look_takes_in_a_gibibyte_at_a_time() {
    let mut world = light(vec![process(7, vec![area(1 << 20, Vec::new())])], 4096);
    let own = subject(&mut world, 0);
    assert_eq!(world.look(DAMON, &[own], 200), Ok(262_144));
    // Of several, those that fit.
    let many = (0..4).map(|n| process(10 + n, vec![area(150_000, Vec::new())]));
    let mut world = light(many.collect(), 4096);
    let all: Vec<Subject> = (0..4).map(|n| subject(&mut world, n)).collect();
    assert_eq!(world.look(DAMON, &all, 200), Ok(150_000));
}

#[test]
fn a_full_ring_loses_reports_and_with_them_the_pass() {
    let heat = Heat::range(0, 262_144, 1e4);
    let mut world = light(vec![process(7, vec![area(262_144, vec![heat])])], 4096);
    let own = subject(&mut world, 0);
    world.look(DAMON, &[own], 200).unwrap();
    // Nobody reads while the pass ends.
    world.rest(600);
    let mut came = Came::default();
    world.wait(1, &mut came).unwrap();
    let touched: u64 = came
        .reports
        .iter()
        .map(|report| match report {
            Report::Touched { pages, .. } => *pages,
            report => panic!("{report:?}"),
        })
        .sum();
    // 4 MiB of 72 bytes each.
    assert_eq!(touched, (4 << 20) / 72);
    assert_eq!(world.source_status(DAMON).lost, 262_144 + 1 - touched);
    // Whoever reads loses nothing.
    let (touched, _) = pass(&mut world, DAMON);
    assert_eq!(touched.len(), 262_144);
}

#[test]
fn time_passes_by_waiting_and_by_what_calls_cost() {
    let mut world = light(vec![process(7, vec![area(65_536, Vec::new())])], 4096);
    let mut came = Came::default();
    world.wait(100, &mut came).unwrap();
    assert!(world.now_ns() >= 100 * MS && world.now_ns() < 101 * MS);
    let (at, own) = (world.now_ns(), world.own_cpu_ns());
    let all = subject(&mut world, 0);
    let sought: Vec<Sought> = all.spans.into_iter().map(Sought::from).collect();
    let presence = world.survey(all.process, &sought, &mut |_| {});
    assert_eq!(presence, Ok(Presence::Here));
    let WorldCosts {
        find_page_ns,
        locate_page_ns,
        ..
    } = WorldCosts::BARE;
    let cost = 65_536 * (find_page_ns + locate_page_ns);
    assert!(world.now_ns() - at >= cost && world.own_cpu_ns() - own >= cost);
    world.rest(1000);
    assert!(world.now_ns() >= 1100 * MS);
    assert!(world.own_cpu_ns() < 10 * MS, "resting costs nothing");
}

#[test]
fn faults_are_what_was_asked_for() {
    let heat = Heat::range(0, 1024, 1e4);
    let mut world = light(vec![process(7, vec![area(1024, vec![heat])])], 4096);
    let own = subject(&mut world, 0);
    let first = own.spans[0].first.0;
    let odd: MoveFault = Box::new(|_, page| (page.0 % 2 == 1).then_some(Outcome::Busy));
    world.faults.moves = Some(odd);
    let half = moved(&mut world, own.process, &[(first, 100)], FAST, HOW);
    assert_eq!(half, outcomes(&[(UP, 50), ("Busy", 50)]));
    world.faults.pass_slowdown = 50;
    world.look(DAMON, std::slice::from_ref(&own), 200).unwrap();
    let began = world.now_ns() / MS;
    let (_, ended) = pass(&mut world, DAMON);
    assert!(ended - began >= 251, "1,024 pages take 51 ms");
    world.faults.lose_reports = true;
    let mut came = Came::default();
    for _ in 0..20 {
        world.wait(100, &mut came).unwrap();
    }
    assert!(came.reports.is_empty());
    world.faults.broken = Some("somebody else has it".to_owned());
    assert!(world.wait(1, &mut came).is_err() && world.look(DAMON, &[own], 1).is_err());
    world.faults.clock_stands_at_ns = Some(5);
    assert_eq!(world.now_ns(), 5);
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = |seed: u64| {
        let heat = [Heat::range(0, 4096, 3.0), Heat::pieces(65_536, 1, 7, 1.0)];
        let mut world = light(vec![process(7, vec![area(65_536, heat.to_vec())])], 4096);
        world.machine.reseed(seed);
        let own = subject(&mut world, 0);
        world.look(DAMON, &[own], 200).unwrap();
        (0..5).map(|_| pass(&mut world, DAMON)).collect::<Vec<_>>()
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
    let engine_story = || {
        let mut world = engine(vec![on_slow(4096, 0)], 4096, 1, 3000);
        let own = subject(&mut world, 0);
        world.look(DAMON, &[own], 50).unwrap();
        (0..5).map(|_| pass(&mut world, DAMON)).collect::<Vec<_>>()
    };
    assert_eq!(engine_story(), engine_story());
}

#[test]
fn accessed_bits_come_as_often_as_rates_say() {
    // 0.2 s at 5 a second: 1 - 1/e of 100,000 pages.
    let heat = Heat::range(0, 100_000, 5.0);
    let mut world = light(vec![process(7, vec![area(100_000, vec![heat])])], 4096);
    let own = subject(&mut world, 0);
    world.look(SourceId(1), &[own], 198).unwrap();
    let (touched, _) = pass(&mut world, SourceId(1));
    let share = touched.len() as f64 / 1e5;
    // Exposed for 199 ms; three standard deviations of a hundred thousand draws.
    let wanted = -(-5.0f64 * 0.199).exp_m1();
    assert!((share - wanted).abs() < 0.005, "{share} for {wanted}");
}

#[test]
fn nothing_is_bound_where_nothing_was_said() {
    let mut world = engine(vec![on_slow(64, 0)], 4096, 1, 64);
    let own = subject(&mut world, 0);
    let mut space = AddressSpace::default();
    assert_eq!(
        world.address_space(own.process, &mut space),
        Ok(Presence::Here)
    );
    assert_eq!(space.areas[0].allowed, Allowed::Anywhere);
    assert_eq!(space.cpuset, NodeMask::ALL);
}

#[test]
fn tiers_by_hand_are_the_loops() {
    let world = || light(vec![process(7, vec![area(512, Vec::new())])], 1 << 20);
    assert_eq!(world().topology().promotion_target(FAST), None);
    let by_hand = world().with_tiers(&"1/0".parse().unwrap()).unwrap();
    assert_eq!(by_hand.topology().promotion_target(FAST), Some(SLOW));
    assert!(world().with_tiers(&"0/2".parse().unwrap()).is_err());
}

/// A node of 100 ns is read as 95 to 105, more often near 100 than not; the same again with
/// the same seed. 200 readings cost 30 us and 160 loads each.
#[test]
fn canaries_tell_of_latency_with_some_noise() {
    let readings = || {
        let mut world = light(Vec::new(), 1 << 20);
        assert!(world.has_canary());
        let all: Vec<u32> = (0..200)
            .map(|_| world.canary(FAST).unwrap().unwrap())
            .collect();
        (all, world.own_cpu_ns())
    };
    let (all, cost_ns) = readings();
    assert_eq!(cost_ns, 200 * (30_000 + 160 * 100));
    assert!(all.iter().all(|ns| (95..=105).contains(ns)), "{all:?}");
    let near = all.iter().filter(|ns| (98..=102).contains(*ns)).count();
    assert!(near > 100 && near < 200, "{near}");
    assert_eq!(readings().0, all);
    let mut blind = light(Vec::new(), 1 << 20);
    blind.faults.no_canary = true;
    assert!(!blind.has_canary());
    assert_eq!(blind.canary(FAST), Ok(None));
}

/// Each page of two programs is accessed once a millisecond; a third of them is on the fast node.
#[test]
fn the_light_machine_samples_by_rates_and_charges_cgroups() {
    let hot = |pid, cgroup: &str, pages| LightProcess {
        cgroup: Some(cgroup.to_owned()),
        ..process(pid, vec![area(pages, vec![Heat::range(0, pages, 1000.0)])])
    };
    let mut world = light(vec![hot(7, "/a", 512), hot(8, "/b", 1024)], 4096);
    world.machine = world.machine.clone().with_sampler(1);
    let one = subject(&mut world, 0);
    let runs = [(one.spans[0].first.0, 512)];
    assert_eq!(
        moved(&mut world, one.process, &runs, FAST, HOW),
        outcomes(&[(UP, 512)])
    );
    assert_eq!(world.machine.cgroup(one.process), Some("/a"));
    let mut charged = Vec::new();
    world
        .machine
        .charged(&mut |cgroup, node, pages| charged.push((cgroup.to_owned(), node, pages)));
    let expected = [("/a", FAST, 512), ("/b", SLOW, 1024)];
    assert_eq!(
        charged,
        expected.map(|(cgroup, node, pages)| (cgroup.to_owned(), node, pages))
    );
    // 1536 pages are accessed 1000 times in a second, and one access of 1000 is sampled.
    world.machine.set_sampling(1000);
    let mut taken = BTreeMap::new();
    let began_ns = world.machine.now_ns();
    for ms in 1..=1000 {
        world.machine.step(began_ns + ms * MS).unwrap();
        let missing = world
            .machine
            .take_samples(&mut |sample| *taken.entry(sample.pid).or_insert(0u32) += 1);
        assert_eq!(missing, Missing::default());
    }
    assert_eq!(taken.values().sum::<u32>(), 1536);
    // The samples of a millisecond are in turn, not drawn: each gets its share.
    assert!(taken[&7].abs_diff(512) < 5, "{taken:?}");
    world.machine.set_sampling(0);
    world.machine.step(began_ns + 1100 * MS).unwrap();
    world
        .machine
        .take_samples(&mut |sample| panic!("it is off: {sample:?}"));
}
