use crate::config::Configuration;
use crate::kernel::Who;
use crate::kernel::testing::{Bench, machine, policy, region};
use crate::page::{Flags, Slot};
use crate::workload::RegionPlan;
use memtide_core::mempolicy::Mode;
use memtide_core::vmstat::Counter;

const MS: u64 = 1_000_000;

fn on(modes: u8) -> Configuration {
    Configuration {
        numa_balancing: modes,
        ..Configuration::off("test")
    }
}

/// Two sockets with two CPUs each, and a thread on each socket.
fn sockets(plan: RegionPlan, configuration: &Configuration) -> Bench {
    let spec = machine(&[(1 << 16, 2), (1 << 16, 2)], 0);
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[1])];
    let mut bench = Bench::with_threads(&spec, vec![plan], &threads, configuration, 1);
    bench.kernel.populate(&mut bench.hw).unwrap();
    bench
}

/// Each thread runs for `ms`, with a tick a millisecond; what scanning cost.
fn run(bench: &mut Bench, threads: u32, ms: u64) -> u64 {
    let mut ns = 0;
    for _ in 0..ms {
        bench.pass(1);
        for thread in 0..threads {
            let who = bench.thread(thread, 0);
            ns += bench.kernel.tick(&mut bench.hw, &who, MS);
        }
    }
    ns
}

fn armed(bench: &Bench) -> u64 {
    let armed = bench.kernel.ptes.iter().filter(|p| p.has(Flags::HINT));
    armed.count() as u64
}

fn arm(bench: &mut Bench, slots: std::ops::Range<Slot>) {
    for slot in slots {
        bench.kernel.ptes[slot as usize].set(Flags::HINT);
    }
}

fn from(node: u16, pages: u32) -> RegionPlan {
    RegionPlan {
        populated_from: Some(node),
        ..region(pages)
    }
}

#[test]
fn scans_arm_each_page_once_a_sequence_and_each_faults_once() {
    // 256 MiB are 65,536 pages; 20,000 pages are one window, so the period stays 1000 ms. A thread's
    // first scan comes after 1 s of CPU time, and then one thread scans each second of the space's
    // time: at 1.001 and 2.00x, and so on.
    let mut bench = sockets(from(0, 20_000), &on(1));
    run(&mut bench, 2, 1000);
    assert_eq!(armed(&bench), 0);
    let ns = run(&mut bench, 2, 3);
    assert_eq!(armed(&bench), 20_000);
    let get = |bench: &Bench, c| bench.kernel.counters.get(c);
    assert_eq!(get(&bench, Counter::NumaPteUpdates), 20_000);
    // 15 ns each, and a flush that interrupts one other CPU: 300 + 30.
    assert_eq!(ns, 300_000 + 330);
    assert_eq!(bench.kernel.overhead.numa_scan_ns, ns);
    let who = bench.thread(0, 0);
    for slot in 0..20_000 {
        assert_eq!(bench.touch_by(who, slot, false).unwrap(), 1000);
        assert_eq!(bench.touch_by(who, slot, false).unwrap(), 0);
    }
    assert_eq!(get(&bench, Counter::NumaHintFaults), 20_000);
    assert_eq!(get(&bench, Counter::NumaHintFaultsLocal), 20_000);
    assert_eq!(armed(&bench), 0);
}

#[test]
fn scanning_never_costs_more_than_a_thirty_third() {
    // An entry that costs 5 us: a scan of 65,536 is 0.33 s, so the next is 10.5 s away.
    let mut bench = sockets(from(0, 60_000), &on(1));
    bench.hw.costs.scan_pte_ns = 5000.0;
    let ns = run(&mut bench, 1, 30_000);
    assert!(ns > 0);
    assert!(ns * 33 <= 30_000 * MS + 33 * 330_000_000, "{ns}");
}

#[test]
fn private_memory_follows_its_thread_and_shared_memory_stays() {
    // Thread 1 on node 1 uses pages 0..500 alone; both use 500..1000 in turn.
    let mut bench = sockets(from(0, 1000), &on(1));
    for _ in 0..8 {
        run(&mut bench, 2, 1100);
        let (zero, one) = (bench.thread(0, 0), bench.thread(1, 0));
        arm(&mut bench, 0..1000);
        for slot in 0..500 {
            bench.touch_by(one, slot, false).unwrap();
        }
        for slot in 500..1000 {
            bench.touch_by(zero, slot, true).unwrap();
        }
        arm(&mut bench, 500..1000);
        for slot in 500..1000 {
            bench.touch_by(one, slot, true).unwrap();
        }
    }
    let on_one = |range: std::ops::Range<usize>| {
        let ptes = &bench.kernel.ptes[range];
        ptes.iter().filter(|p| p.node().0 == 1).count()
    };
    assert_eq!(on_one(0..500), 500);
    assert_eq!(on_one(500..1000), 0);
    let moved = bench.kernel.counters.get(Counter::NumaPagesMigrated);
    assert_eq!(moved, 500);
    assert_eq!(bench.kernel.counters.get(Counter::PgpromoteSuccess), 0);
    bench.check();
}

/// A thread that has long been there: it has a preferred node and saw more than four sequences.
fn settled(bench: &mut Bench) {
    for _ in 0..8 {
        run(bench, 2, 1100);
        for thread in [0, 1] {
            let who = bench.thread(thread, 0);
            let page = thread * 10 + 5;
            bench.touch_by(who, page, true).unwrap();
        }
    }
    let pages = bench.kernel.ptes.iter_mut();
    pages.for_each(|p| p.clear(Flags::HINT));
}

#[test]
fn a_page_that_another_node_touches_twice_moves_and_once_does_not() {
    let mut bench = sockets(from(0, 100), &on(1));
    settled(&mut bench);
    let (zero, one): (Who, Who) = (bench.thread(0, 0), bench.thread(1, 0));
    let page = 50;
    let mut touch = |who: Who| {
        arm(&mut bench, page..page + 1);
        bench.touch_by(who, page, false).unwrap();
        bench.kernel.ptes[page as usize].node().0
    };
    assert_eq!(touch(zero), 0);
    assert_eq!(touch(one), 0);
    assert_eq!(touch(one), 1);
    // And back, by the same rule.
    assert_eq!(touch(zero), 1);
    assert_eq!(touch(zero), 0);
}

#[test]
fn bound_memory_is_balanced_within_its_nodes_by_the_flag_only() {
    let moved = |flag: bool, nodes: &str| {
        let mut bound = policy(Mode::Bind, nodes);
        (bound.on_fault, bound.to_accessor) = (flag, flag);
        let plan = RegionPlan {
            policy: bound,
            ..from(0, 1000)
        };
        let mut bench = sockets(plan, &on(1));
        run(&mut bench, 2, 1100);
        let scanned = armed(&bench);
        let who = bench.thread(1, 0);
        for slot in 0..1000 {
            bench.touch_by(who, slot, false).unwrap();
        }
        (scanned, bench.pages(0)[1])
    };
    assert_eq!(moved(true, "0-1"), (1000, 1000));
    assert_eq!(moved(false, "0-1"), (0, 0));
    // Node 1 is not in the mask: scanned, and stays.
    assert_eq!(moved(true, "0"), (1000, 0));
}

#[test]
fn a_lone_thread_does_not_fault_on_its_own_nodes_pages() {
    let spec = machine(&[(1 << 14, 2), (1 << 14, 2)], 0);
    let plans = vec![from(0, 100)];
    let mut bench = Bench::with_threads(&spec, plans, &[(0, &[0])], &on(1), 1);
    bench.kernel.populate(&mut bench.hw).unwrap();
    run(&mut bench, 1, 2100);
    assert_eq!(armed(&bench), 0);
}

#[test]
fn a_thread_goes_to_its_memory_if_it_may() {
    let moves_to = |nodes: &[u16]| {
        let spec = machine(&[(1 << 14, 2), (1 << 14, 2)], 0);
        let mut plan = from(1, 1000);
        // Pages that stay: bound to node 1 and balanced.
        plan.policy = policy(Mode::Bind, "1");
        (plan.policy.on_fault, plan.policy.to_accessor) = (true, true);
        let mut bench = Bench::with_threads(&spec, vec![plan], &[(0, nodes)], &on(1), 1);
        bench.kernel.populate(&mut bench.hw).unwrap();
        assert_eq!(bench.thread(0, 0).node.0, 0);
        // The first placement finds no faults and doubles the period, so the next scan is at 5 s.
        for _ in 0..6 {
            run(&mut bench, 1, 1100);
            let who = bench.thread(0, 0);
            for slot in 0..1000 {
                bench.touch_by(who, slot, false).unwrap();
            }
        }
        bench.thread(0, 0).node.0
    };
    assert_eq!(moves_to(&[0, 1]), 1);
    assert_eq!(moves_to(&[0]), 0);
}

/// Fast node 0 over slow node 1, whose first `pages` pages hold the region.
fn tiered(pages: u32, fast: u64, configuration: &Configuration) -> Bench {
    let spec = machine(&[(fast, 2), (1 << 16, 0)], 0);
    let plan = RegionPlan {
        policy: policy(Mode::Bind, "1"),
        policy_after: Some(policy(Mode::Local, "")),
        ..from(0, pages)
    };
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[0])];
    let mut bench = Bench::with_threads(&spec, vec![plan], &threads, configuration, 1);
    bench.kernel.populate(&mut bench.hw).unwrap();
    assert_eq!(bench.pages(0), [0, u64::from(pages)]);
    bench
}

#[test]
fn slow_pages_are_promoted_if_they_are_touched_soon_after_the_scan() {
    let mut bench = tiered(1000, 1 << 14, &on(2));
    run(&mut bench, 2, 1002);
    assert_eq!(armed(&bench), 1000);
    let scanned_ns = bench.now_ns;
    // The gate starts as the kernel's does: 1000 + 125 ms from its first call on.
    bench.now_ns = scanned_ns + 900 * MS;
    let who = bench.thread(0, 0);
    for slot in 0..400 {
        bench.touch_by(who, slot, false).unwrap();
    }
    bench.now_ns = scanned_ns + 1130 * MS;
    let who = bench.thread(0, 0);
    for slot in 400..1000 {
        bench.touch_by(who, slot, false).unwrap();
    }
    assert_eq!(bench.pages(0), [400, 600]);
    let get = |c| bench.kernel.counters.get(c);
    assert_eq!(get(Counter::PgpromoteSuccess), 400);
    assert_eq!(get(Counter::PgpromoteCandidate), 400);
    assert_eq!(get(Counter::NumaHintFaults), 1000);
    assert_eq!(get(Counter::NumaHintFaultsLocal), 0);
    // In the thread's own time: 400 * (batch 1000 + page 1500 + copy).
    assert!(bench.kernel.overhead.fault_migration_ns > 400 * 2500);
    assert_eq!(bench.hw.counters.tlb_shootdowns, 1);
    bench.check();
}

#[test]
fn the_rate_limit_refuses_and_plenty_of_room_does_not_ask() {
    // 1 MB/s are 256 pages a second; the page that opens the window is not in it: 256 of 1000.
    let limited = Configuration {
        rate_limit_mbps: 1,
        ..on(2)
    };
    let promoted = |fast| {
        let mut bench = tiered(1000, fast, &limited);
        run(&mut bench, 2, 1002);
        let who = bench.thread(0, 0);
        for slot in 0..1000 {
            bench.touch_by(who, slot, false).unwrap();
        }
        let get = |c| bench.kernel.counters.get(c);
        let candidates = get(Counter::PgpromoteCandidate);
        (
            get(Counter::PgpromoteSuccess),
            candidates,
            get(Counter::PgpromoteCandidateNrl),
        )
    };
    assert_eq!(promoted(1 << 14), (256, 1000, 0));
    // 2 GiB: more than 1 GiB is free beyond promo.
    assert_eq!(promoted(1 << 19), (1000, 0, 1000));
}

#[test]
fn fast_pages_are_armed_only_if_placement_is_on_too() {
    let scanned = |modes| {
        let mut bench = sockets(from(0, 1000), &on(modes));
        run(&mut bench, 2, 1100);
        armed(&bench)
    };
    assert_eq!(scanned(2), 0);
    assert_eq!(scanned(3), 1000);
    assert_eq!(scanned(0), 0);
}

#[test]
fn a_fault_that_finds_its_node_full_leaves_the_page_and_wakes_kswapd() {
    let mut bench = tiered(100, 2048, &on(2));
    run(&mut bench, 2, 1002);
    let fast = memtide_core::units::NodeId(0);
    while bench.kernel.frames.space(fast).takes(1) {
        bench.kernel.frames.take(fast, false).unwrap();
    }
    let who = bench.thread(0, 0);
    let ns = bench.touch_by(who, 0, false).unwrap();
    assert_eq!(ns, 1000);
    assert_eq!(bench.pages(0), [0, 100]);
    assert!(bench.kernel.kswapd_is_awake(fast));
}
