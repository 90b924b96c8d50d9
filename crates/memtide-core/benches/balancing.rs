//! What a sample costs where it is counted.
//!
//! - `sample/private`: a sample of a task's own page, one of 500,000 pages that it has, 64 tasks.
//! - `batch/private`: the same in batches of 256, as a drained ring has them: what live balancing
//!   does. Promised is less than 100 ns a sample, decoded and counted.
//! - `sample/shared`: of a page that another task touched last, so that tasks group.
//! - `sample/unknown-node`: the page's node is not known, and the queue is full.
//! - `act`: a batch of 10,000 pages, by page, with the two samples that each of them takes.
//!
//! Samples include the random number that chooses the page (2 ns). `cargo bench -p memtide-core
//! --bench balancing -- --quick` takes some seconds.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use memtide_core::balancing::machine::Machine;
use memtide_core::balancing::sampled::{Plan, Sampled, SampledAccess, SampledConfig};
use memtide_core::balancing::{
    BalancerConfig, Clock, CpupidFormat, Modes, Pacing, SampleSettings, Settings, TaskId,
};
use memtide_core::pages::Pages;
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::hint::black_box;

const TASKS: u32 = 64;
const PAGES: u64 = 32_000_000;

/// A random generator of a few instructions (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * limit) >> 32
    }
}

struct AllOnFirst;

impl Pages for AllOnFirst {
    fn node_of(&self, _: PageNumber) -> Option<NodeId> {
        Some(NodeId(0))
    }
}

fn sampled(pages: u64) -> Sampled {
    let node = |id: u16| NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: 1 << 38,
        cpus: (0..64).map(|cpu| u32::from(id) * 64 + cpu).collect(),
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let nodes = vec![node(0), node(1)];
    let topology: Topology = TopologyInput::new(nodes).try_into().expect("two nodes");
    let balancer = BalancerConfig {
        settings: Settings::default(),
        scan_pages: 1,
        chunk_pages: 1,
        modes: Modes::from_bits(1),
        format: CpupidFormat::new(9, 22, 128).expect("31 bits"),
        machine: Machine::new(&topology),
        node_of_cpu: (0..128).map(|cpu| NodeId(cpu / 64)).collect(),
        pacing: Pacing::Samples(SampleSettings::default()),
    };
    let mut sampled = Sampled::new(SampledConfig::new(balancer, pages)).expect("good settings");
    let space = sampled.add_space(0);
    let first = sampled.add_task(space, 1000, None);
    for n in 1..TASKS {
        sampled.add_task(space, 1000 + n, Some(first));
    }
    sampled
}

fn clock(ms: u64) -> Clock {
    Clock {
        now_ns: ms * 1_000_000,
        runtime_ns: ms * 1_000_000,
    }
}

/// Samples of all tasks, each on its own CPU, half of them on node 1.
fn access(random: &mut Random, n: u64, shared: bool, known: bool) -> (SampledAccess, Clock) {
    let task = (n % u64::from(TASKS)) as u32;
    let own = PAGES / u64::from(TASKS);
    let page = match shared {
        true => random.below(own),
        false => u64::from(task) * own + random.below(own),
    };
    let access = SampledAccess {
        task: TaskId(task),
        cpu: task * 2,
        page: PageNumber(page),
        pages: 1,
        node: known.then_some(NodeId((task / 32) as u16)),
        writable: true,
        shared: false,
    };
    (access, clock(2000 + n / 1000))
}

fn sample(sampled: &mut Sampled, random: &mut Random, n: u64, shared: bool, known: bool) {
    let (access, clock) = access(random, n, shared, known);
    black_box(sampled.sample(&access, &clock));
}

fn drained(criterion: &mut Criterion) {
    const TOGETHER: u64 = 256;
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements(TOGETHER));
    for (name, shared) in [("private", false), ("shared", true)] {
        let mut sampled = sampled(PAGES);
        let mut random = Random(7);
        for n in 0..2_000_000 {
            sample(&mut sampled, &mut random, n, shared, true);
        }
        let mut n = 2_000_000;
        let mut together = Vec::new();
        group.bench_function(name, |bench| {
            bench.iter(|| {
                together.clear();
                together.extend((n..n + TOGETHER).map(|n| access(&mut random, n, shared, true)));
                n += TOGETHER;
                sampled.sample_batch(&together);
            });
        });
    }
    group.finish();
}

fn samples(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sample");
    group.throughput(Throughput::Elements(1));
    for (name, shared, known) in [
        ("private", false, true),
        ("shared", true, true),
        ("unknown-node", false, false),
    ] {
        let mut sampled = sampled(PAGES);
        let mut random = Random(7);
        // Sections appear, tasks group, the queue fills.
        for n in 0..2_000_000 {
            sample(&mut sampled, &mut random, n, shared, known);
        }
        let mut n = 2_000_000;
        group.bench_function(name, |bench| {
            bench.iter(|| {
                n += 1;
                sample(&mut sampled, &mut random, n, shared, known);
            });
        });
    }
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    const QUEUED: u64 = 10_000;
    let mut group = criterion.benchmark_group("act");
    group.throughput(Throughput::Elements(QUEUED));
    let mut ms = 2000;
    let mut sampled = sampled(1 << 20);
    let mut plan = Plan::default();
    group.bench_function("10000-pages", |bench| {
        bench.iter_batched(
            || {
                ms += 1000;
                ms
            },
            |ms| {
                // Twice each, so that they are seen often enough.
                for page in (0..QUEUED).chain(0..QUEUED) {
                    let access = SampledAccess {
                        task: TaskId(63),
                        cpu: 126,
                        page: PageNumber(page),
                        pages: 1,
                        node: Some(NodeId(0)),
                        writable: true,
                        shared: false,
                    };
                    sampled.sample(&access, &clock(ms));
                }
                sampled.act(Millis(ms), &AllOnFirst, &mut plan);
                assert_eq!(plan.moves.len() as u64, QUEUED);
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, drained, samples, batches);
criterion_main!(benches);
