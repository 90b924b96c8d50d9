//! Simulated accesses a second, beside a plain loop over a page table with a TLB check.
//!
//! The machine has two nodes; four threads on the first access a region on both, uniformly at random,
//! half of it stores. Hint faults, accessed bits, hardware samples and both TLB levels are on. That is
//! what SPECIFICATION.md promises a speed for, measured as "promised"; "with cache" has a 32 MiB
//! last-level cache in addition, whose tags data and page-table lines go through. One host core.
//! `cargo bench -p memtide-sim --bench accesses -- --figures` prints both and a plain loop, and their
//! ratios, block by block in turn in one process, over a simulated time in which page tables are
//! scanned, pages fault and pages move; what is promised is the median of the blocks. Sizes and
//! conditions after it (`-- --figures 2097152 promised`) measure those alone. Without the option criterion
//! measures.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

// The command's allocator. The simulator itself does not know the crate that has it.
#[path = "../../memtide-linux/src/sys/huge_pages.rs"]
#[allow(unused_imports)]
mod huge_pages;
#[path = "../tests/closed_forms/machine.rs"]
#[allow(dead_code)]
mod machine;

use criterion::{BenchmarkId, Criterion, Throughput};
use machine::{Node, Uniform, machine, policy};
use memtide_core::access::SourceSet;
use memtide_core::hotness::Layout;
use memtide_core::mempolicy::Mode;
use memtide_core::vmstat::Counter;
use memtide_sim::config::{Configuration, Pghot, PromotionGate};
use memtide_sim::engine::Run;
use memtide_sim::page::{Flags, Pte};
use memtide_sim::rng::Rng;
use std::hint::black_box;
use std::time::Instant;

/// As in the command.
#[global_allocator]
static ALLOCATOR: huge_pages::HugePages = huge_pages::HugePages;

const SIZES: [u32; 2] = [2_097_152, 42_000_000];

/// What is on beside all that the promise names, and the size of that cache.
const CONDITIONS: [(&str, u64); 2] = [("promised", 0), ("with cache", 32 << 20)];

/// A run with everything on, and a cache of `llc_bytes`.
fn everything(pages: u32, llc_bytes: u64) -> Run<Uniform> {
    let mib = u64::from(pages) / 256;
    let mut spec = machine(&[
        Node(4, mib * 3 / 4, 90.0, 300.0),
        Node(0, mib * 3 / 4, 250.0, 60.0),
    ]);
    spec.cpu.llc_bytes = llc_bytes;
    spec.cpu.walk_ns = 20.0;
    spec.cpu.l2_tlb_ns = 3.0;
    let mut policy = policy(Mode::Local, &[]);
    (policy.on_fault, policy.to_accessor) = (true, true);
    let configuration = Configuration {
        numa_balancing: 2,
        pghot: Some(Pghot {
            sources: SourceSet::ALL,
            layout: Layout::Precise,
            threshold: 2,
            window_ms: 4000,
            gate: PromotionGate::Kernel,
            page_table_scan_ms: 1000,
            sample_period: 10_000,
            sample_misses_only: true,
        }),
        ..Configuration::off("everything")
    };
    let source = Uniform::new(4, 0, pages, u64::MAX / 2, policy).stores_of_64(32);
    Run::new(&spec, source, &configuration, 1, 1).unwrap()
}

/// A plain loop: a random page, a TLB of 2048 entries, and its entry in the page table on a miss.
struct Plain {
    ptes: Vec<Pte>,
    tags: Vec<[u32; 4]>,
    rng: Rng,
}

impl Plain {
    fn new(pages: u32) -> Plain {
        Plain {
            ptes: vec![Pte::default(); pages as usize],
            tags: vec![[u32::MAX; 4]; 512],
            rng: Rng::new(1, 1),
        }
    }

    fn run(&mut self, accesses: u64) -> u64 {
        let mut sum = 0;
        for n in 0..accesses {
            let slot = self.rng.below(self.ptes.len() as u32);
            let set = &mut self.tags[slot as usize & 511];
            if !set.contains(&slot) {
                set[n as usize & 3] = slot;
                let pte = &mut self.ptes[slot as usize];
                pte.set(Flags::ACCESSED);
                sum += pte.0;
            }
        }
        sum
    }
}

fn quantum(run: &mut Run<Uniform>) -> u64 {
    let before = run.tally.accesses;
    run.quantum().unwrap();
    run.tally.accesses - before
}

/// Nanoseconds that this thread had a CPU, so that what else runs on the host does not count.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Blocks of accesses that are measured, and accesses of a block.
const BLOCKS: usize = 9;
const BLOCK: u64 = 20_000_000;

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn figures(only: &[String]) {
    let mut sizes: Vec<u32> = only.iter().filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes.extend(SIZES);
    }
    let names: Vec<_> = only.iter().filter(|w| w.parse::<u32>().is_err()).collect();
    for pages in sizes {
        let mut plain = Plain::new(pages);
        for (name, llc_bytes) in CONDITIONS {
            if !names.is_empty() && !names.iter().any(|wanted| *wanted == name) {
                continue;
            }
            let mut run = everything(pages, llc_bytes);
            for _ in 0..100 {
                quantum(&mut run);
            }
            let (mut speeds, mut plains, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..BLOCKS {
                let (mut accesses, start) = (0, cpu_ns());
                while accesses < BLOCK {
                    accesses += quantum(&mut run);
                }
                let ours = accesses as f64 / (cpu_ns() - start) * 1e3;
                let start = cpu_ns();
                black_box(plain.run(BLOCK));
                let theirs = BLOCK as f64 / (cpu_ns() - start) * 1e3;
                speeds.push(ours);
                plains.push(theirs);
                ratios.push(ours / theirs);
                let count = |counter| run.kernel.counters.get(counter);
                println!(
                    "{pages} pages, {name}: {ours:.1} million accesses/s; plain loop {theirs:.1}; \
                     ratio {:.2}; {} hint faults, {} promoted, {} samples",
                    ours / theirs,
                    count(Counter::NumaHintFaults),
                    count(Counter::PgpromoteSuccess),
                    run.tally.samples,
                );
            }
            println!(
                "{pages} pages, {name}: median {:.1} million accesses/s, plain loop {:.1}, ratio {:.2}; \
                 least {:.1}, best {:.1}",
                median(&mut speeds),
                median(&mut plains),
                median(&mut ratios),
                speeds[0],
                speeds[BLOCKS - 1],
            );
        }
    }
}

fn main() {
    huge_pages::HugePages::ask();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|a| a == "--figures") {
        // `cargo bench` adds an argument of its own.
        let only = arguments[at + 1..].iter().filter(|a| !a.starts_with('-'));
        return figures(&only.cloned().collect::<Vec<_>>());
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let mut group = criterion.benchmark_group("accesses");
    const CHUNK: u64 = 1_000_000;
    group.throughput(Throughput::Elements(CHUNK));
    for pages in SIZES {
        for (name, llc_bytes) in CONDITIONS {
            let mut run = everything(pages, llc_bytes);
            for _ in 0..100 {
                quantum(&mut run);
            }
            group.bench_function(BenchmarkId::new(name, pages), |b| {
                // Quanta make as many accesses as they will: counted, and the time is for CHUNK.
                b.iter_custom(|rounds| {
                    let (mut accesses, start) = (0, Instant::now());
                    while accesses < rounds * CHUNK {
                        accesses += quantum(&mut run);
                    }
                    start
                        .elapsed()
                        .mul_f64((rounds * CHUNK) as f64 / accesses as f64)
                });
            });
        }
        let mut plain = Plain::new(pages);
        group.bench_function(BenchmarkId::new("plain loop", pages), |b| {
            b.iter(|| plain.run(CHUNK));
        });
    }
    group.finish();
    criterion.final_summary();
}
