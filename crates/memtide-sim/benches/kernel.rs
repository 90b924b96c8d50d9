//! Host time of the kernel's own work: a first touch, a demotion, an entry in an aging walk.
//!
//! Aims: a first touch below 100 ns, a demotion below 1 us.

#[path = "../tests/swarm/mod.rs"]
#[allow(dead_code)]
mod cases;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use memtide_core::units::NodeId;
use memtide_sim::config::Configuration;
use memtide_sim::hardware::Hardware;
use memtide_sim::kernel::{Fault, Kernel, Who};
use memtide_sim::workload::Plan;
use std::hint::black_box;

/// Pages of the fast node; the slow one has four times as many.
const PAGES: u32 = 1 << 20;

fn kernel(pages: u32) -> (Kernel, Hardware) {
    let spec = cases::draw::two_tiers(u64::from(PAGES));
    let plan = Plan {
        regions: vec![cases::draw::plain_region(pages)],
        threads: vec![cases::draw::plain_thread()],
        ends_at_ns: None,
    };
    let configuration = Configuration::off("bench");
    let kernel = Kernel::new(&spec, &plan, &configuration, 1, 1).unwrap();
    (kernel, Hardware::new(&spec, &plan, &configuration, 1, 1))
}

fn touch_all(kernel: &mut Kernel, hw: &mut Hardware, pages: u32) {
    let who = Who {
        thread: 0,
        cpu: 0,
        node: NodeId(0),
        space: 0,
        now_ns: 0,
    };
    for slot in 0..pages {
        black_box(kernel.fault(hw, &who, slot, Fault::NotPresent, true)).unwrap();
    }
}

fn first_touch(criterion: &mut Criterion) {
    let pages = PAGES / 2;
    let mut group = criterion.benchmark_group("first touch");
    group.throughput(Throughput::Elements(u64::from(pages)));
    group.sample_size(10);
    group.bench_function("base page", |bench| {
        bench.iter_batched_ref(
            || kernel(pages),
            |(kernel, hw)| touch_all(kernel, hw, pages),
            BatchSize::PerIteration,
        )
    });
    group.finish();
}

fn demotion(criterion: &mut Criterion) {
    let (pages, demoted) = (PAGES / 2, PAGES / 4);
    let mut group = criterion.benchmark_group("demotion");
    group.throughput(Throughput::Elements(u64::from(demoted)));
    group.sample_size(10);
    group.bench_function("base page", |bench| {
        bench.iter_batched_ref(
            || {
                let (mut kernel, mut hw) = kernel(pages);
                touch_all(&mut kernel, &mut hw, pages);
                // All idle: the walk before the first generation ends found each page accessed.
                kernel.harvest_accessed(0..pages, |_| {});
                (kernel, hw)
            },
            |(kernel, hw)| {
                let freed = kernel.reclaim_proactively(hw, NodeId(0), u64::from(demoted), 0);
                assert_eq!(freed, u64::from(demoted));
            },
            BatchSize::PerIteration,
        )
    });
    group.finish();
}

criterion_group!(benches, first_touch, demotion);
criterion_main!(benches);
