//! Lazy unmap flush: what waits, what one flush serves, and what others do for it.

use crate::config::{Configuration, Luf};
use crate::kernel::migrate::{Initiator, MoveReason};
use crate::kernel::testing::{Bench, machine, region};
use crate::page::{Flags, Slot};
use crate::workload::{Kind, RegionPlan};
use memtide_core::units::NodeId;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);

/// Two threads of space 0 on two CPUs, which share a file; the slow node has no CPUs.
fn bench(luf: Luf) -> Bench {
    let spec = machine(&[(2048, 2), (2048, 0)], 0);
    let configuration = Configuration {
        luf: Some(luf),
        check: true,
        ..Configuration::off("test")
    };
    let plan = RegionPlan {
        kind: Kind::SharedFile,
        writable: false,
        ..region(1000)
    };
    let threads: [(u16, &[u16]); 2] = [(0, &[0]), (0, &[0])];
    let mut bench = Bench::with_threads(&spec, vec![plan], &threads, &configuration, 1);
    for page in 0..100 {
        read(&mut bench, page);
    }
    bench
}

fn read(bench: &mut Bench, slot: Slot) {
    let who = bench.thread(0, 0);
    bench
        .kernel
        .access(&mut bench.hw, &who, slot, false)
        .unwrap();
}

/// Moves pages 0 to `pages` of the file.
fn send(bench: &mut Bench, pages: u32, to: NodeId) {
    let file = bench.kernel.regions.files()[0].base;
    let owners: Vec<Slot> = (file..file + pages).collect();
    let by = Initiator {
        cpu: Some(0),
        now_ns: bench.now_ns,
    };
    let moved = bench
        .kernel
        .migrate(&mut bench.hw, &owners, to, MoveReason::Balancing, by);
    assert_eq!(moved.moved, u64::from(pages));
    bench.check();
}

#[test]
fn moved_pages_interrupt_nobody_until_their_frames_are_used() {
    let mut bench = bench(Luf::Machine);
    let before = bench.hw.counters;
    send(&mut bench, 10, SLOW);
    send(&mut bench, 10, FAST);
    let lazy = bench.kernel.lazy.as_ref().unwrap();
    assert_eq!(lazy.tally().deferred, 20);
    assert_eq!(bench.hw.counters, before);
    assert_eq!(bench.kernel.frames.waiting(FAST), 10);
    assert_eq!(bench.kernel.frames.waiting(SLOW), 10);
    // The reader goes on through its old translations and finds what it should.
    (0..100).for_each(|page| read(&mut bench, page));
    assert_eq!(bench.kernel.contents.as_ref().unwrap().wrong(), 0);
}

#[test]
fn one_flush_serves_all_that_waited() {
    let mut bench = bench(Luf::Machine);
    for _ in 0..3 {
        send(&mut bench, 10, SLOW);
        send(&mut bench, 10, FAST);
    }
    let before = bench.hw.counters;
    // 2048 frames of the fast node, 100 in use: the 30 that wait are the last 30 of the rest.
    let who = bench.thread(1, 0);
    let mut taken = 0;
    while bench.kernel.frames.free(FAST) > 0 {
        bench.kernel.take_for_kernel(&mut bench.hw, &who).unwrap();
        taken += 1;
        let flushed = bench.hw.counters.tlb_flushes - before.tlb_flushes;
        let on_lists = bench.kernel.frames.on_cpu_lists(FAST);
        assert_eq!(on_lists, 0, "too small for lists");
        assert_eq!(flushed, u64::from(taken > 2048 - 100 - 30));
    }
    assert_eq!(taken, 2048 - 100);
    // The caller's own CPU is not interrupted, the other one is.
    assert_eq!(bench.hw.counters.tlb_shootdowns - before.tlb_shootdowns, 1);
    let tally = bench.kernel.lazy.as_ref().unwrap().tally();
    assert_eq!((tally.at_use, tally.satisfied), (1, 29));
}

#[test]
fn a_flush_of_everything_that_comes_anyway_does_it_for_nothing() {
    let mut bench = bench(Luf::Zones);
    send(&mut bench, 10, SLOW);
    bench.hw.flush_space(0, None);
    let who = bench.thread(1, 0);
    let before = bench.hw.counters.tlb_flushes;
    while bench.kernel.frames.free(FAST) > 0 {
        bench.kernel.take_for_kernel(&mut bench.hw, &who).unwrap();
    }
    assert_eq!(bench.hw.counters.tlb_flushes, before);
    let tally = bench.kernel.lazy.as_ref().unwrap().tally();
    assert_eq!((tally.covered, tally.at_use, tally.satisfied), (1, 0, 10));
}

#[test]
fn a_zone_waits_for_its_own_frames_only() {
    // Ten pages left the fast node, ten the slow one. Frames of the slow node are used up.
    let flushes = |luf| {
        let mut bench = bench(luf);
        send(&mut bench, 10, SLOW);
        send(&mut bench, 10, FAST);
        let who = bench.thread(1, 0);
        while bench.kernel.frames.free(SLOW) > 0 {
            let frame = bench.kernel.frames.take(SLOW, false).unwrap();
            bench
                .kernel
                .leave_free_lists(&mut bench.hw, frame, Some(who.cpu));
        }
        let tally = bench.kernel.lazy.as_ref().unwrap().tally();
        (tally.at_use, tally.covered)
    };
    assert_eq!(flushes(Luf::Machine), (1, 0));
    // The one flush empties the CPUs that the other zone waits for.
    assert_eq!(flushes(Luf::Zones), (1, 1));
}

#[test]
fn stamped_frames_become_huge_pages_again_after_a_flush() {
    let mut bench = bench(Luf::Machine);
    send(&mut bench, 100, SLOW);
    assert_eq!(bench.kernel.frames.waiting(FAST), 100);
    bench.kernel.force_flush(
        &mut bench.hw,
        memtide_core::lazy_flush::Cause::Pressure,
        None,
    );
    bench.kernel.frames.settle(FAST);
    assert_eq!(bench.kernel.frames.waiting(FAST), 0);
    bench.check();
    // All four blocks of 512 are whole.
    let huge = || bench.kernel.frames.take(FAST, true);
    assert_eq!(std::iter::repeat_with(huge).take(5).flatten().count(), 4);
}

#[test]
fn armed_pages_wait_for_nothing() {
    let mut bench = bench(Luf::Machine);
    bench.kernel.ptes[0].set(Flags::HINT);
    bench.hw.flush_pages(0, &[0], Some(0));
    send(&mut bench, 1, SLOW);
    assert_eq!(bench.kernel.lazy.as_ref().unwrap().tally().deferred, 0);
    assert_eq!(bench.kernel.frames.waiting(FAST), 0);
}
