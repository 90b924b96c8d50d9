use crate::config::Configuration;
use crate::kernel::migrate::{Initiator, MoveReason, Moved};
use crate::kernel::testing::{Bench, machine, region};
use crate::page::{Flags, LAST_NONE, Slot};
use crate::workload::RegionPlan;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);

/// A fast node with two CPUs over a slow one; 100 pages on the fast one, touched by two threads.
fn bench(plan: RegionPlan, fast_pages: u64) -> Bench {
    let spec = machine(&[(fast_pages, 2), (8192, 0)], 0);
    let configuration = Configuration {
        numa_balancing: 2,
        ..Configuration::off("test")
    };
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[0])];
    let mut bench = Bench::with_threads(&spec, vec![plan], &threads, &configuration, 1);
    let pages = bench.kernel.regions.get(0).plan.pages;
    for page in 0..pages {
        bench.touch(0, page, true).unwrap();
    }
    bench
}

fn run(bench: &mut Bench, slots: &[Slot], to: NodeId, cpu: Option<u32>) -> Moved {
    let by = Initiator {
        cpu,
        now_ns: bench.now_ns,
    };
    let why = match to {
        FAST => MoveReason::Balancing,
        _ => MoveReason::DemotionKswapd,
    };
    let moved = bench.kernel.migrate(&mut bench.hw, slots, to, why, by);
    if to == SLOW {
        // Reclaim counts this itself.
        bench.kernel.count(Counter::PgscanKswapd, moved.moved);
        bench.kernel.count(Counter::PgstealKswapd, moved.moved);
    }
    bench.check();
    moved
}

#[test]
fn a_batch_is_one_flush_whatever_its_size() {
    let mut bench = bench(region(100), 4096);
    let all: Vec<Slot> = (0..100).collect();
    let before = bench.hw.counters;
    let moved = run(&mut bench, &all, SLOW, None);
    assert_eq!((moved.moved, moved.busy, moved.no_memory), (100, 0, 0));
    // One flush, received by both CPUs of the space.
    assert_eq!(bench.hw.counters.tlb_flushes - before.tlb_flushes, 1);
    assert_eq!(bench.hw.counters.tlb_shootdowns - before.tlb_shootdowns, 2);
    // 1000 for the batch, 300 + 2 * 30 for the interrupts, 100 times 1500, and the copies.
    assert!(moved.ns > 1000 + 360 + 150_000);
    let counters = &bench.kernel.counters;
    assert_eq!(counters.get(Counter::PgmigrateSuccess), 100);
    assert_eq!(counters.get(Counter::PgdemoteKswapd), 100);
    assert_eq!(counters.get(Counter::NumaPagesMigrated), 0);
}

#[test]
fn armed_pages_need_no_flush() {
    let mut bench = bench(region(3), 4096);
    for slot in 0..2 {
        bench.kernel.ptes[slot].set(Flags::HINT);
    }
    let flushes = bench.hw.counters.tlb_flushes;
    run(&mut bench, &[0, 1], SLOW, Some(0));
    assert_eq!(bench.hw.counters.tlb_flushes, flushes);
    // And are not armed where they arrive.
    assert!(!bench.kernel.ptes[0].has(Flags::HINT));
    run(&mut bench, &[2], SLOW, Some(0));
    assert_eq!(bench.hw.counters.tlb_flushes, flushes + 1);
}

#[test]
fn who_meets_a_page_on_its_way_waits_for_its_part_of_the_batch() {
    let mut bench = bench(region(2), 4096);
    let moved = run(&mut bench, &[0, 1], SLOW, None);
    assert!(
        bench.kernel.ptes[0].has(Flags::MIGRATING) && !bench.kernel.ptes[0].has(Flags::PRESENT)
    );
    // Nobody else may take it meanwhile.
    assert_eq!(run(&mut bench, &[0], SLOW, None).busy, 1);
    // The second page is there when the batch is over: 500 for the fault and the whole batch.
    let ns = bench.touch(0, 1, false).unwrap();
    assert_eq!(ns, 500 + moved.ns);
    // The first is there after its own half.
    let ns = bench.touch(0, 0, false).unwrap();
    assert!(ns < 500 + moved.ns);
    assert_eq!(bench.pages(0), [0, 2]);
    assert_eq!(
        bench.kernel.overhead.migration_wait_ns,
        1000 + moved.ns + ns - 500
    );
    bench.check();
}

#[test]
fn a_move_that_is_over_is_waited_for_by_nobody() {
    let mut bench = bench(region(2), 4096);
    run(&mut bench, &[0], SLOW, None);
    bench.pass(1);
    assert!(bench.kernel.ptes[0].has(Flags::PRESENT));
    assert_eq!(bench.touch(0, 0, true).unwrap(), 0);
    bench.check();
}

#[test]
fn dirt_and_accesses_travel_and_touchers_do_not_change_tiers() {
    let mut bench = bench(region(1), 4096);
    bench.kernel.ptes[0].set_last(0x123);
    run(&mut bench, &[0], SLOW, Some(0));
    let pte = bench.kernel.ptes[0];
    let kept = Flags::DIRTY.with(Flags::ACCESSED).with(Flags::WRITABLE);
    assert!(pte.has(kept) && pte.node() == SLOW);
    assert_eq!(pte.last(), LAST_NONE);
    // Back up: promoted.
    let moved = run(&mut bench, &[0], FAST, Some(0));
    assert_eq!(moved.moved, 1);
    let counters = &bench.kernel.counters;
    assert_eq!(counters.get(Counter::PgpromoteSuccess), 1);
    assert_eq!(counters.get(Counter::NumaPagesMigrated), 1);
}

#[test]
fn a_full_node_refuses_and_its_kswapd_wakes() {
    let mut bench = bench(region(600), 2048);
    let some: Vec<Slot> = (0..500).collect();
    assert_eq!(run(&mut bench, &some, SLOW, Some(0)).moved, 500);
    // Fill the fast node down to its high watermark. It has no minimum, so that and the others are
    // d = 2048 * 10 / 10000 = 2 apart: low 2, high 4, promo 6.
    let mut taken = Vec::new();
    while bench.kernel.frames.space(FAST).takes(1) {
        taken.push(bench.kernel.frames.take(FAST, false).unwrap());
    }
    assert_eq!(bench.kernel.frames.free(FAST), 5);
    let by = Initiator {
        cpu: Some(0),
        now_ns: 0,
    };
    let refused = bench
        .kernel
        .migrate(&mut bench.hw, &[0], FAST, MoveReason::Balancing, by);
    assert_eq!((refused.moved, refused.no_memory), (0, 1));
    assert!(bench.kernel.kswapd_is_awake(FAST));
    // Refused before it began: no failed move.
    assert_eq!(bench.kernel.counters.get(Counter::PgmigrateFail), 0);
    for frame in taken {
        bench.kernel.frames.give_back(frame, false);
    }
    bench.check();
}

#[test]
fn a_huge_folio_moves_whole() {
    let plan = RegionPlan {
        huge: true,
        ..region(1024)
    };
    let mut bench = bench(plan, 4096);
    let moved = run(&mut bench, &[512], SLOW, None);
    assert_eq!(moved.moved, 512);
    bench.pass(1);
    assert_eq!(bench.pages(0), [512, 512]);
    let head = bench.kernel.ptes[512].frame();
    assert!(head.is_multiple_of(512));
    assert_eq!(bench.kernel.ptes[1000].frame(), head + 488);
    bench.check();
}

#[test]
#[should_panic(expected = "is given back by whoever has it")]
fn a_frame_of_another_page_is_noticed() {
    let mut bench = bench(region(100), 4096);
    let frame = bench.kernel.ptes[0].frame();
    bench.kernel.frames.set_owner(frame, 5);
    run(&mut bench, &[0], SLOW, None);
}

#[test]
#[should_panic(expected = "a batch of moves made or lost frames")]
fn a_frame_that_is_lost_on_the_way_is_noticed() {
    let bench = bench(region(100), 4096);
    bench.kernel.conserved(bench.kernel.frames.all_free() + 1);
}
