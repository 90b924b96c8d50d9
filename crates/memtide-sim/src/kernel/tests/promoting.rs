use crate::config::{Configuration, Lru, Pghot, PromotionGate};
use crate::hardware::{Sample, ServedBy};
use crate::kernel::testing::{Bench, machine, policy, region};
use crate::page::Flags;
use crate::spec::MachineSpec;
use crate::workload::RegionPlan;
use memtide_core::access::{Source, SourceSet};
use memtide_core::hotness::Layout;
use memtide_core::mempolicy::Mode;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

const MS: u64 = 1_000_000;

fn pghot(source: Source, threshold: u8) -> Pghot {
    Pghot {
        sources: SourceSet::NONE.with(source),
        layout: Layout::Precise,
        threshold,
        window_ms: 5000,
        gate: PromotionGate::Kernel,
        page_table_scan_ms: 500,
        sample_period: 10_000,
        sample_misses_only: true,
    }
}

/// Fast node 0 over slow node 1 that holds 1000 pages.
fn bench(pghot: Pghot, fast: u64) -> Bench {
    bench_balancing(0, pghot, fast)
}

fn bench_balancing(numa_balancing: u8, pghot: Pghot, fast: u64) -> Bench {
    let configuration = Configuration {
        numa_balancing,
        pghot: Some(pghot),
        ..Configuration::off("test")
    };
    let spec = machine(&[(fast, 2), (1 << 14, 0)], 0);
    let plan = RegionPlan {
        policy: policy(Mode::Bind, "1"),
        policy_after: Some(policy(Mode::Local, "")),
        populated_from: Some(0),
        ..region(1000)
    };
    populated(&spec, plan, &configuration)
}

/// Two threads, and nothing accessed yet.
fn populated(spec: &MachineSpec, plan: RegionPlan, configuration: &Configuration) -> Bench {
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[0])];
    let mut bench = Bench::with_threads(spec, vec![plan], &threads, configuration, 1);
    bench.kernel.populate(&mut bench.hw).unwrap();
    for pte in &mut bench.kernel.ptes {
        pte.clear(Flags::ACCESSED);
    }
    bench
}

/// Our own gate, told by the page table.
fn without_thresholds() -> Pghot {
    Pghot {
        gate: PromotionGate::ThresholdFree,
        ..pghot(Source::PageTableScan, 1)
    }
}

fn get(bench: &Bench, counter: Counter) -> u64 {
    bench.kernel.counters.get(counter)
}

#[test]
fn a_threshold_of_two_needs_two_scans() {
    let mut bench = bench(pghot(Source::PageTableScan, 2), 1 << 14);
    let mut promoted = Vec::new();
    for _ in 0..3 {
        for page in 0..100 {
            bench.kernel.ptes[page].set(Flags::ACCESSED);
        }
        // A scan at the end of 500 ms, the thread at most 100 ms later.
        bench.pass(500);
        bench.kernel.check().unwrap();
        promoted.push(get(&bench, Counter::PgpromoteSuccess));
    }
    // Recorded at 500 and 1000 ms, moved by 1100.
    bench.pass(110);
    assert_eq!(promoted[0], 0);
    assert_eq!(bench.pages(0), [100, 900]);
    assert_eq!(get(&bench, Counter::PgpromoteSuccess), 100);
    assert_eq!(get(&bench, Counter::PghotRecordedPgtscans), 200);
    // The third time they were on the fast node, whose bits are left alone.
    assert!(bench.kernel.ptes[0].has(Flags::ACCESSED));
    assert_eq!(get(&bench, Counter::PghotRecordedAccesses), 200);
    // Three scans of 1000 entries at 4 ns, and 200 reports at 60.
    assert_eq!(
        bench.kernel.overhead.page_table_scan_ns,
        3 * 4000 + 200 * 60
    );
    bench.check();
}

#[test]
fn a_batch_of_hot_pages_is_one_flush() {
    let mut bench = bench(pghot(Source::PageTableScan, 1), 1 << 14);
    for page in 0..600 {
        bench.kernel.ptes[page].set(Flags::ACCESSED);
    }
    bench.pass(700);
    assert_eq!(bench.pages(0), [600, 400]);
    // 512 and 88, each received by the space's two CPUs.
    assert_eq!(bench.hw.counters.tlb_flushes, 2);
    assert_eq!(bench.hw.counters.tlb_shootdowns, 4);
    assert!(bench.kernel.overhead.kmigrated_ns > 600 * 1500);
    bench.check();
}

#[test]
fn samples_of_slow_memory_promote_and_those_of_caches_do_not() {
    let mut bench = bench(pghot(Source::Hardware, 2), 1 << 14);
    let sample = |slot, served| Sample {
        slot,
        cpu: 0,
        thread: 0,
        write: false,
        latency_ns: 250,
        served,
    };
    let samples = [
        sample(1, ServedBy::Extension),
        sample(2, ServedBy::Extension),
        sample(3, ServedBy::Cache),
        sample(1, ServedBy::Extension),
        sample(3, ServedBy::Cache),
    ];
    bench.kernel.samples(&mut bench.hw, &samples, 0);
    bench.pass(150);
    assert_eq!(bench.pages(0), [1, 999]);
    assert_eq!(bench.kernel.ptes[1].node().0, 0);
    assert_eq!(get(&bench, Counter::HwhintTotalEvents), 5);
    assert_eq!(get(&bench, Counter::HwhintExtmemAccesses), 3);
    assert_eq!(get(&bench, Counter::HwhintUsefulEvents), 3);
    assert_eq!(get(&bench, Counter::PghotRecordedHwhints), 3);
}

#[test]
fn hint_faults_report_and_do_not_move() {
    let mut bench = bench(pghot(Source::HintFault, 1), 1 << 14);
    for _ in 0..1002 {
        bench.pass(1);
        for thread in 0..2 {
            let who = bench.thread(thread, 0);
            bench.kernel.tick(&mut bench.hw, &who, MS);
        }
    }
    let who = bench.thread(0, 0);
    // 1000 for the fault and 60 for the record.
    assert_eq!(bench.touch_by(who, 7, false).unwrap(), 1060);
    assert_eq!(bench.pages(0), [0, 1000]);
    bench.pass(110);
    assert_eq!(bench.pages(0), [1, 999]);
    assert_eq!(get(&bench, Counter::PghotRecordedHintfaults), 1);
    assert_eq!(get(&bench, Counter::PgpromoteSuccess), 1);
}

#[test]
fn a_bound_page_stays_and_a_demoted_one_starts_afresh() {
    let mut bench = bench(pghot(Source::PageTableScan, 2), 1 << 14);
    bench.kernel.ptes[5].set(Flags::ACCESSED);
    bench.pass(500);
    // Up and down again: the one access that was seen is forgotten.
    use crate::kernel::migrate::{Initiator, MoveReason};
    use memtide_core::units::NodeId;
    for (node, why) in [(0, MoveReason::Balancing), (1, MoveReason::DemotionKswapd)] {
        let by = Initiator {
            cpu: Some(0),
            now_ns: bench.now_ns,
        };
        bench
            .kernel
            .migrate(&mut bench.hw, &[5], NodeId(node), why, by);
    }
    bench.kernel.ptes[5].set(Flags::ACCESSED);
    bench.pass(620);
    assert_eq!(bench.kernel.ptes[5].node().0, 1);
}

#[test]
fn a_full_fast_node_wakes_kswapd_where_tiering_is_on() {
    for numa_balancing in [0, 2] {
        let scan = pghot(Source::PageTableScan, 1);
        let mut bench = bench_balancing(numa_balancing, scan, 4096);
        let fast = NodeId(0);
        while bench.kernel.frames.space(fast).takes(1) {
            bench.kernel.frames.take(fast, false).unwrap();
        }
        bench.kernel.ptes[5].set(Flags::ACCESSED);
        for _ in 0..620 {
            bench.now_ns += MS;
            bench.kernel.kmigrated(&mut bench.hw, bench.now_ns, MS);
        }
        assert_eq!(bench.kernel.ptes[5].node().0, 1);
        assert_eq!(bench.kernel.kswapd_is_awake(fast), numa_balancing == 2);
    }
}

#[test]
fn without_thresholds_the_hottest_that_fit_go_up() {
    let mut bench = bench(without_thresholds(), 1 << 14);
    // 100 pages in every interval, 100 others in one of three.
    for round in 0..6 {
        for page in 0..100 {
            bench.kernel.ptes[page].set(Flags::ACCESSED);
            if round % 3 == 0 {
                bench.kernel.ptes[100 + page].set(Flags::ACCESSED);
            }
        }
        bench.pass(500);
    }
    // There is room for all that asked.
    assert_eq!(bench.pages(0), [200, 800]);
    bench.check();
}

/// DRAM is full of idle pages, and 300 pages of slow memory are in use: they change places with as many.
#[test]
fn without_thresholds_idle_pages_of_a_full_node_leave_for_hot_ones_and_no_more() {
    const HOT: u32 = 300;
    for lru in [Lru::Classic, Lru::Multigenerational] {
        let configuration = Configuration {
            pghot: Some(without_thresholds()),
            lru,
            ..Configuration::off("test")
        };
        let spec = machine(&[(4096, 2), (1 << 14, 0)], 0);
        let plan = RegionPlan {
            policy: policy(Mode::Local, ""),
            populated_from: Some(0),
            ..region(6000)
        };
        let mut bench = populated(&spec, plan, &configuration);
        let full = bench.pages(0)[0];
        let hot = 6000 - HOT..6000;
        let on_slow = |bench: &Bench| {
            let slots = hot.clone().map(|page| bench.slot(0, page) as usize);
            slots
                .filter(|&slot| bench.kernel.ptes[slot].node().0 == 1)
                .count()
        };
        assert_eq!(on_slow(&bench), HOT as usize);
        for _ in 0..20 {
            for page in hot.clone() {
                let slot = bench.slot(0, page) as usize;
                bench.kernel.ptes[slot].set(Flags::ACCESSED);
            }
            bench.pass(500);
        }
        assert_eq!(on_slow(&bench), 0, "{lru:?}");
        let marks = bench.kernel.frames.marks(NodeId(0));
        let demoted = get(&bench, Counter::PgdemoteKswapd);
        // kswapd works in batches, up to a watermark.
        let most = u64::from(HOT) + marks.promo() + 64;
        assert!(
            demoted <= most,
            "{lru:?}: {demoted} of {full} left, {most} at most"
        );
        assert!(!bench.kernel.kswapd_is_awake(NodeId(0)), "{lru:?}");
        bench.check();
    }
}
