use crate::config::{Acts, BySamples, Configuration};
use crate::hardware::{Sample, ServedBy};
use crate::kernel::Fault;
use crate::kernel::testing::{Bench, machine, policy, region};
use crate::page::{Flags, Slot};
use crate::workload::{Pattern, RegionPlan};
use memtide_core::balancing::sampled::Cause;
use memtide_core::balancing::{Counting, SampleSettings};
use memtide_core::mempolicy::Mode;
use memtide_core::vmstat::Counter;

const MS: u64 = 1_000_000;

fn on(acts: Acts) -> Configuration {
    let counting = match acts {
        Acts::Each => Counting::BetweenRetries,
        Acts::Batches { .. } => Counting::Every,
    };
    Configuration {
        numa_balancing: 1,
        samples: Some(BySamples {
            settings: SampleSettings {
                counting,
                ..SampleSettings::default()
            },
            acts,
            misses_only: true,
        }),
        ..Configuration::off("test")
    }
}

const BATCHES: Acts = Acts::Batches {
    interval_ms: 100,
    threshold: 2,
    window_ms: 5000,
    young_at_once: false,
};

/// Two sockets with two CPUs each, a thread on each, 1000 pages on the first.
fn sockets(acts: Acts, change: impl FnOnce(&mut RegionPlan)) -> Bench {
    let spec = machine(&[(1 << 16, 2), (1 << 16, 2)], 0);
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[1])];
    let mut plan = RegionPlan {
        populated_from: Some(0),
        ..region(1000)
    };
    change(&mut plan);
    let mut bench = Bench::with_threads(&spec, vec![plan], &threads, &on(acts), 1);
    bench.kernel.populate(&mut bench.hw).unwrap();
    bench.now_ns = 1000 * MS;
    bench
}

fn sample(bench: &mut Bench, thread: u32, slot: Slot, served: ServedBy) {
    let who = bench.thread(thread, 0);
    let sample = Sample {
        slot,
        cpu: who.cpu,
        thread,
        write: false,
        latency_ns: 200,
        served,
    };
    bench.kernel.samples(&mut bench.hw, &[sample], bench.now_ns);
}

fn node(bench: &Bench, slot: Slot) -> u16 {
    bench.kernel.ptes[slot as usize].node().0
}

#[test]
fn a_sample_moves_its_page_at_once_and_its_task_pays() {
    let mut bench = sockets(Acts::Each, |_| ());
    sample(&mut bench, 1, 5, ServedBy::RemoteDram);
    assert_eq!((node(&bench, 5), node(&bench, 6)), (1, 0));
    // A hit in a cache says nothing; a local access is counted and moves nothing.
    sample(&mut bench, 1, 6, ServedBy::Cache);
    sample(&mut bench, 0, 7, ServedBy::LocalDram);
    assert_eq!((node(&bench, 6), node(&bench, 7)), (0, 0));
    let get = |c| bench.kernel.counters.get(c);
    assert_eq!(get(Counter::NumaPagesMigrated), 1);
    assert_eq!(get(Counter::NumaHintFaults), 0);
    let account = bench.kernel.balance.account();
    assert_eq!(account.pages_moved, 1);
    assert_eq!(account.of(Cause::Sample).events, 3);
    // A batch of one (1000 ns), the page (1500 ns) and its copy, and a flush that interrupts the other
    // thread's CPU: 300 + 30 ns, and 700 ns of that CPU.
    let moved = account.of(Cause::Move);
    assert!(moved.ns > 2830, "{moved:?}");
    assert_eq!(account.of(Cause::Shootdown).ns, 700);
    let cpu = bench.thread(1, 0).cpu as usize;
    assert_eq!(bench.hw.cpus[cpu].stolen_ns, moved.ns);
    bench.check();
}

#[test]
fn batches_move_what_was_seen_twice() {
    let mut bench = sockets(BATCHES, |_| ());
    for slot in [5, 6, 7, 5, 6] {
        sample(&mut bench, 1, slot, ServedBy::RemoteDram);
    }
    assert_eq!(node(&bench, 5), 0);
    bench.pass(100);
    assert_eq!([5, 6, 7].map(|slot| node(&bench, slot)), [1, 1, 0]);
    let account = bench.kernel.balance.account();
    assert_eq!(account.pages_moved, 2);
    assert_eq!(account.of(Cause::Decide).events, 3);
    // One flush for both.
    assert_eq!(account.of(Cause::Shootdown).events % 2, 0);
    bench.pass(1);
    assert!(bench.kernel.ptes[5].has(Flags::PRESENT));
    bench.check();
}

#[test]
fn nobody_scans_and_samplers_wait_for_the_start_delay() {
    for acts in [Acts::Each, BATCHES] {
        let mut bench = sockets(acts, |_| ());
        bench.now_ns = 999 * MS;
        let who = bench.thread(0, 0);
        let period = |bench: &Bench| bench.hw.cpus[who.cpu as usize].sampler.settings().period;
        bench.kernel.set_sampler(&mut bench.hw, &who);
        assert_eq!(period(&bench), 0);
        bench.now_ns = 1000 * MS;
        let who = bench.thread(0, 0);
        bench.kernel.set_sampler(&mut bench.hw, &who);
        assert_eq!(period(&bench), 10_000);
        for _ in 0..3000 {
            bench.pass(1);
            let who = bench.thread(0, 0);
            bench.kernel.tick(&mut bench.hw, &who, MS);
        }
        assert_eq!(bench.kernel.counters.get(Counter::NumaPteUpdates), 0);
    }
}

#[test]
fn bound_pages_stay_and_a_binding_with_the_flag_does_not_hold_them() {
    for (acts, at_once) in [(Acts::Each, true), (BATCHES, false)] {
        let mut bench = sockets(acts, |plan| plan.policy = policy(Mode::Bind, "0"));
        for _ in 0..3 {
            sample(&mut bench, 1, 5, ServedBy::RemoteDram);
        }
        bench.pass(200);
        assert_eq!(node(&bench, 5), 0, "at once: {at_once}");
        let mut bench = sockets(acts, |plan| {
            plan.policy = policy(Mode::Bind, "0-1");
            plan.policy.on_fault = true;
            plan.policy.to_accessor = true;
        });
        for _ in 0..3 {
            sample(&mut bench, 1, 5, ServedBy::RemoteDram);
        }
        bench.pass(200);
        assert_eq!(node(&bench, 5), 1, "at once: {at_once}");
    }
}

#[test]
fn two_sockets_that_fight_over_pages_move_them_rarely() {
    let mut bench = sockets(BATCHES, |_| ());
    // Turns of 300 ms, for 30 s: 100 turns could be 100 moves of each page.
    for turn in 0..100 {
        for _ in 0..3 {
            for slot in 0..10 {
                sample(&mut bench, turn % 2, slot, ServedBy::RemoteDram);
            }
            bench.pass(100);
        }
    }
    let moves = bench.kernel.counters.get(Counter::NumaPagesMigrated);
    // Rests of 1, 2, 4, 8, 16 s: five or six moves.
    assert!(moves <= 70, "{moves} moves of 10 pages");
}

#[test]
fn sweeps_wait_behind_a_page_on_the_move() {
    for scale in [1, 4] {
        let spec = machine(&[(1 << 16, 2), (1 << 16, 2)], 0);
        let threads: [(u16, &[u16]); 3] = [(0, &[1]), (0, &[1]), (0, &[0])];
        let plan = RegionPlan {
            populated_from: Some(0),
            ..region(1000)
        };
        let balanced = Configuration {
            numa_balancing: 1,
            ..Configuration::off("test")
        };
        let sweep = Pattern::Sweep;
        let mut bench = Bench::with_pattern(&spec, vec![plan], &threads, sweep, &balanced, scale);
        bench.kernel.populate(&mut bench.hw).unwrap();
        bench.now_ns = 5 * MS;
        bench.kernel.ptes[5].set(Flags::HINT);
        let first = bench.thread(0, 0);
        let hint = bench
            .kernel
            .fault(&mut bench.hw, &first, 5, Fault::Hint, false);
        let took = hint.unwrap();
        // It moved, and the mover goes on: its CPU has the translation. For others it is on its way.
        assert_eq!(node(&bench, 5), 1);
        let pte = bench.kernel.ptes[5];
        assert!(pte.has(Flags::MIGRATING) && !pte.has(Flags::PRESENT));
        let entry = |bench: &Bench, cpu: u32| {
            let mut entries = bench.hw.cpus[cpu as usize].tlb.entries();
            entries
                .find(|&(slot, ..)| slot == 5)
                .map(|(_, _, to)| to.frame())
        };
        assert_eq!(entry(&bench, first.cpu), Some(pte.frame()));
        // The second comes at the same time: a hint fault whose move fails, and it waits until the
        // page is there, which is S moves later, so 1/S of that for each of the S pages; and sleeps.
        let second = bench.thread(1, 0);
        assert_eq!(entry(&bench, second.cpu), None);
        let migrating = Fault::Migrating;
        let waited = bench
            .kernel
            .fault(&mut bench.hw, &second, 5, migrating, false)
            .unwrap();
        assert_eq!(waited, took + 2000);
        assert_eq!(bench.kernel.counters.get(Counter::NumaHintFaults), 2);
        assert_eq!(bench.kernel.balance.account().pages_failed, 1);
        assert_eq!(entry(&bench, second.cpu), Some(pte.frame()));
        // Who comes when half of the time is over waits for the rest, and finds the entry changed.
        let mut third = bench.thread(2, 0);
        third.now_ns += took * u64::from(scale) / 2;
        let waited = bench
            .kernel
            .fault(&mut bench.hw, &third, 5, migrating, false)
            .unwrap();
        assert!(waited.abs_diff(took / 2 + 2000) <= 1, "{waited}");
        // After the move it is an ordinary page again.
        bench.pass(1);
        assert!(bench.kernel.ptes[5].has(Flags::PRESENT));
        bench.check();
    }
}
