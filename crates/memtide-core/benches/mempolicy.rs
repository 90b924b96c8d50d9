//! What placing pages costs.
//!
//! - `index`, `counter`: one decision; `index` with page numbers in order and
//!   with random ones, whose own cost is shown as `empty`.
//! - `compile`: making a spread ready, as every change of a policy or weight does.
//! - `machine`: a machine of so many nodes, with all their fallback orders.
//! - `bulk`: a million pages at once; the time is for all nodes together.
//! - `touch`: a page of a process that is touched for the first time.
//! - `table`: one look at the weights by each of one or two reading threads,
//!   while nobody writes, while a third replaces the table 10,000 times a second
//!   (`here`), and while it does so to another table (`elsewhere`: what the
//!   writer costs by using a core at all). The time is per look of one thread, so
//!   no contention is the same time for one and two, and here and elsewhere. Looks are made in rounds that see about two writes each,
//!   both threads starting together; the median round counts, so that a round
//!   in which another program took the core does not. `reader` keeps its last
//!   view, `load` asks anew.
//!
//! `cargo bench -p memtide-core --bench mempolicy -- --quick`.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memtide_core::mempolicy::{
    Counter, Kernel, Machine, MachineInput, Process, RawMask, Spread, TableState, WeightFiles,
    WeightTable, Weights,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The spreads that are measured.
fn spreads() -> Vec<(&'static str, Spread)> {
    let first = |n: u16| (0..n).map(NodeId).collect::<NodeMask>();
    let odd: Vec<u8> = (0..64).map(|i| 255 - i).collect();
    let weighted = |n, w: &[u8]| Spread::weighted(&first(n), &Weights::new(w)).unwrap();
    vec![
        ("plain-3", Spread::plain(&first(3)).unwrap()),
        ("weighted-2", weighted(2, &[9, 2])),
        ("weighted-8", weighted(8, &[32, 32, 31, 31, 7, 7, 1, 1])),
        ("weighted-64", weighted(64, &odd)),
    ]
}

/// Decisions between two looks at the clock.
const DECISIONS: u64 = 10_000;

/// Keeps the compiler from leaving out what nobody reads.
fn keep<T: Copy>(value: T) {
    black_box(value);
}

fn index(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    group.throughput(Throughput::Elements(DECISIONS));
    let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    group.bench_function("empty/random", |b| {
        b.iter(|| (0..DECISIONS).for_each(|i| keep(random(i))));
    });
    for (name, spread) in spreads() {
        let at = |i| keep(spread.node_at(black_box(i)));
        group.bench_function(BenchmarkId::new(name, "in-order"), |b| {
            b.iter(|| (0x7000_0000..0x7000_0000 + DECISIONS).for_each(at));
        });
        group.bench_function(BenchmarkId::new(name, "random"), |b| {
            b.iter(|| (0..DECISIONS).map(random).for_each(at));
        });
    }
    group.finish();
}

fn counter(c: &mut Criterion) {
    let mut group = c.benchmark_group("counter");
    group.throughput(Throughput::Elements(DECISIONS));
    for (name, spread) in spreads() {
        let mut counter = Counter::START;
        group.bench_function(name, |b| {
            b.iter(|| (0..DECISIONS).for_each(|_| keep(counter.next_node(&spread))));
        });
    }
    group.finish();
}

fn compile(c: &mut Criterion) {
    let mut group = c.benchmark_group("compile");
    for nodes in [2, 8, 64] {
        let set: NodeMask = (0..nodes).map(NodeId).collect();
        let weights = Weights::new(&[32; 64]);
        group.bench_function(BenchmarkId::from_parameter(nodes), |b| {
            b.iter(|| Spread::weighted(black_box(&set), &weights));
        });
    }
    group.finish();
}

fn machine(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine");
    let mut state = 7u32;
    let mut distance = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        10 + (state >> 16) % 246
    };
    for nodes in [64, 256, NodeId::LIMIT] {
        let all: NodeMask = (0..nodes).map(NodeId).collect();
        let mut row = |_| (0..nodes).map(|_| distance()).collect();
        let input = MachineInput {
            distances: Some((0..nodes).map(&mut row).collect()),
            ..MachineInput::new(all, all, Kernel::WITH_AUTO)
        };
        group.bench_function(BenchmarkId::from_parameter(nodes), |b| {
            b.iter_batched(
                || input.clone(),
                |input| Machine::new(input).unwrap(),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn bulk(c: &mut Criterion) {
    let mut group = c.benchmark_group("bulk-1000000-pages");
    for (name, spread) in spreads() {
        let mut counter = Counter::START;
        group.bench_function(name, |b| {
            b.iter(|| {
                counter.bulk(&spread, black_box(1_000_000), |node, pages| {
                    black_box((node, pages));
                });
            });
        });
    }
    group.finish();
}

fn touch(c: &mut Criterion) {
    const PAGES: u64 = 1 << 18;
    const START: u64 = 0x2000_0000_0000;
    let nodes: NodeMask = "0-2".parse().unwrap();
    let input = MachineInput::new(nodes, nodes, Kernel::WITH_AUTO);
    let machine = std::sync::Arc::new(Machine::new(input).unwrap());
    let files = WeightFiles::new(&machine, Some(Weights::new(&[9, 2, 1])));
    let mut group = c.benchmark_group("touch");
    group.throughput(Throughput::Elements(PAGES));
    for (name, mode) in [("local", 4), ("interleave", 3), ("weighted", 6)] {
        let mut process = Process::new(machine.clone(), &nodes, files.clone());
        let mask = RawMask::Words(vec![if mode == 4 { 0 } else { 7 }]);
        process.set_mempolicy(mode, &mask, 64).unwrap();
        group.bench_function(name, |b| {
            b.iter_custom(|count| {
                let mut spent = Duration::ZERO;
                for _ in 0..count {
                    process.mmap(START, PAGES << 12).unwrap();
                    let start = Instant::now();
                    process.touch(START >> 12, PAGES).unwrap();
                    spent += start.elapsed();
                    process.munmap(START, PAGES << 12).unwrap();
                }
                spent
            });
        });
    }
    group.finish();
}

const WRITES_PER_SECOND: u64 = 10_000;

fn table(c: &mut Criterion) {
    let mut group = c.benchmark_group("table");
    let state = |w| TableState {
        weights: Weights::new(&[w; 8]),
        auto: false,
    };
    let (table, other) = (WeightTable::new(state(1)), WeightTable::new(state(1)));
    for (way, look) in [("reader", looks as Look), ("load", loads as Look)] {
        for readers in [1, 2] {
            for (writes, written) in [
                ("none", None),
                ("elsewhere", Some(&other)),
                ("here", Some(&table)),
            ] {
                let name = format!("{way}/{readers}-threads/writes-{writes}");
                group.bench_function(name, |b| {
                    b.iter_custom(|count| {
                        let stop = AtomicBool::new(false);
                        let rounds = count.div_ceil(ROUND).max(5);
                        let median = std::thread::scope(|scope| {
                            if let Some(table) = written {
                                scope.spawn(|| write(&stop, |w| table.store(state(w))));
                            }
                            let median = median_round(readers, rounds, || look(&table));
                            stop.store(true, Ordering::Relaxed);
                            median
                        });
                        median.mul_f64(count as f64 / ROUND as f64)
                    });
                });
            }
        }
    }
    group.finish();
}

/// Looks in a round: about 200 microseconds.
const ROUND: u64 = 60_000;
type Look = fn(&WeightTable) -> Duration;

/// The median time of all rounds of all threads.
fn median_round(threads: usize, rounds: u64, round: impl Fn() -> Duration + Sync) -> Duration {
    let barrier = std::sync::Barrier::new(threads);
    let run = || {
        let one = |_| {
            barrier.wait();
            round()
        };
        (0..rounds).map(one).collect::<Vec<Duration>>()
    };
    let mut times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let times = threads.into_iter().flat_map(|t| t.join().unwrap());
        times.collect::<Vec<Duration>>()
    });
    times.sort();
    times[times.len() / 2]
}

fn looks(table: &WeightTable) -> Duration {
    let mut reader = table.reader();
    let start = Instant::now();
    for _ in 0..ROUND {
        black_box(reader.load().weights.get(black_box(NodeId(3))));
    }
    start.elapsed()
}

fn loads(table: &WeightTable) -> Duration {
    let start = Instant::now();
    for _ in 0..ROUND {
        black_box(table.load().weights.get(black_box(NodeId(3))));
    }
    start.elapsed()
}

/// Calls `store` [`WRITES_PER_SECOND`] times a second until told to stop; after
/// a late wake-up it makes up for what it missed.
fn write(stop: &AtomicBool, store: impl Fn(u8)) {
    let start = Instant::now();
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_micros() as u64 * WRITES_PER_SECOND / 1_000_000;
        while written < due {
            store(1 + (written % 255) as u8);
            written += 1;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

criterion_group!(
    benches, index, counter, compile, machine, bulk, touch, table
);
criterion_main!(benches);
