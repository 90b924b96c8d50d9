//! What reviewers objected to lazy unmap flush, one test for each objection, on the simulated kernel.
//!
//! Every test brings a CPU into the state that the objection is about: it holds a translation to memory
//! that was taken from the page. Then the objection's event happens, and the CPU reads. Each ends in one
//! of three ways, which its name says: the flush is *forced*, the flush is done *at use*, or lazy flushing
//! is *refused* for such pages from the beginning. Where that matters, the same is done by a kernel that
//! leaves the flush out, and the check of contents has to notice: that is what shows that the danger is
//! real and the flush is what averts it.

#[path = "luf/machine.rs"]
#[allow(dead_code)] // Each of the two tests uses a part of it.
mod machine;

use machine::{Bench, anonymous, file, machine, thread};
use memtide_core::lazy_flush::Cause;
use memtide_sim::config::Luf;
use memtide_sim::kernel::Omit;
use memtide_sim::spec::MachineSpec;
use memtide_sim::workload::{Kind, Plan, RegionPlan};

/// Pages that need no reclaim, and leave so few that some of the 128 frames that wait are used: 64 of each
/// node.
const MOST: u32 = 4096 - 56;

/// Twice 2048 pages, nearly all of which may be used.
fn short() -> MachineSpec {
    machine([2048, 2048], 2, 10)
}

/// Reader and writer: threads 0 and 1 on CPUs of their own, in spaces 0 and 1.
fn bench(regions: Vec<RegionPlan>) -> Bench {
    let plan = Plan {
        regions,
        threads: vec![thread(0), thread(1)],
        ends_at_ns: None,
    };
    Bench::new(&short(), plan, Some(Luf::Machine))
}

fn shared(space: u16, number: u16, writable: bool) -> RegionPlan {
    file(space, number, Kind::SharedFile, writable, 64)
}

/// Thread 0 reads the 64 pages of region 0, and reclaim takes them away without its CPU knowing.
fn stale(bench: &mut Bench) {
    for page in 0..64 {
        bench.access(0, 0, page, false);
    }
    // Down to the other node, then out; and the first look finds a page accessed.
    for _ in 0..8 {
        bench.reclaim(64);
    }
    assert!(!bench.is_cached(0, 0), "the page is gone");
    let flushes = bench.hw.counters.tlb_flushes;
    bench.access(0, 0, 0, false);
    assert!(
        !bench.is_cached(0, 0),
        "the CPU still reads it through its TLB"
    );
    assert_eq!(bench.hw.counters.tlb_flushes, flushes);
    assert_eq!(bench.wrong(), 0, "what it reads there is right");
}

/// Does `event` after [`stale`], then lets thread 0 read; wrong reads of the whole kernel, and of one
/// that leaves out `omit`.
fn with_and_without(
    make: impl Fn() -> Bench,
    omit: Omit,
    event: impl Fn(&mut Bench),
) -> (Bench, u64) {
    let mut runs = [make(), make().broken(omit)];
    for bench in &mut runs {
        stale(bench);
        event(bench);
        bench.access(0, 0, 0, false);
    }
    let [whole, broken] = runs;
    assert_eq!(whole.wrong(), 0);
    let wrong = broken.wrong();
    (whole, wrong)
}

#[test]
fn a_fixed_remap_over_a_stale_entry_forces_the_flush() {
    // Another file at the same address, as with MAP_FIXED: the old entry is gone from the page table,
    // so unmapping finds nothing to flush.
    let make = || bench(vec![shared(0, 0, false), shared(1, 1, false)]);
    let (whole, wrong) = with_and_without(make, Omit::Forced, |bench| {
        let who = bench.who(0);
        bench.kernel.remap(&mut bench.hw, &who, 0, Some(1));
    });
    assert_eq!(whole.forced(Cause::MappingChanged), 1);
    assert!(wrong > 0, "without the flush the old file is read");
}

#[test]
fn a_writable_remap_over_a_stale_entry_forces_the_flush() {
    // Anonymous memory at the address of a file: a store, then a read by another thread of the program.
    let writable = || RegionPlan {
        writable: true,
        ..file(0, 0, Kind::PrivateFile, false, 64)
    };
    let make = || bench(vec![writable()]);
    let (whole, wrong) = with_and_without(make, Omit::Forced, |bench| {
        let who = bench.who(0);
        bench.kernel.remap(&mut bench.hw, &who, 0, None);
    });
    assert_eq!(whole.forced(Cause::MappingChanged), 1);
    assert!(
        wrong > 0,
        "without the flush the file is read instead of zeros"
    );
}

#[test]
fn a_file_written_by_another_process_forces_the_flush() {
    let make = || bench(vec![shared(0, 0, false)]);
    let (whole, wrong) = with_and_without(make, Omit::Forced, |bench| {
        let who = bench.who(1);
        bench.kernel.write_file(&mut bench.hw, &who, 0, 0);
    });
    assert_eq!(whole.forced(Cause::ContentWritten), 1);
    assert!(
        wrong > 0,
        "without the flush the version before the write is read"
    );
}

#[test]
fn a_file_written_through_a_mapping_of_another_process_forces_the_flush() {
    let make = || bench(vec![shared(0, 0, false), shared(1, 0, true)]);
    let (whole, wrong) = with_and_without(make, Omit::Forced, |bench| {
        bench.access(1, 1, 0, true);
    });
    assert_eq!(whole.forced(Cause::TurnedWritable), 1);
    assert!(
        wrong > 0,
        "without the flush the version before the store is read"
    );
}

#[test]
fn a_private_page_that_another_thread_stores_to_forces_the_flush() {
    // Two threads of one program: the store of one makes a copy that the other has to see.
    let plan = Plan {
        regions: vec![file(0, 0, Kind::PrivateFile, true, 64)],
        threads: vec![thread(0), thread(0)],
        ends_at_ns: None,
    };
    let make = || Bench::new(&short(), plan.clone(), Some(Luf::Machine));
    let (whole, wrong) = with_and_without(make, Omit::Forced, |bench| {
        bench.access(1, 0, 0, true);
    });
    assert_eq!(whole.forced(Cause::TurnedWritable), 1);
    assert!(
        wrong > 0,
        "without the flush the file is read instead of the copy"
    );
}

#[test]
fn a_file_changed_behind_the_kernels_back_is_unsafe_and_so_refused() {
    // A network file system changes the page with no call that could flush. If such a file took part,
    // the reader would see the old version: lazy flushing is unsafe for it.
    let mut unsafe_one = bench(vec![shared(0, 0, false)]);
    stale(&mut unsafe_one);
    unsafe_one.kernel.change_file(0, 0);
    unsafe_one.access(0, 0, 0, false);
    assert_eq!(unsafe_one.wrong(), 1, "unsafe: nobody could know");
    // So it does not take part: its pages are flushed as they are unmapped.
    let foreign = RegionPlan {
        foreign: true,
        ..shared(0, 0, false)
    };
    let mut refused = bench(vec![foreign]);
    refused.access(0, 0, 0, false);
    for _ in 0..8 {
        refused.reclaim(64);
    }
    assert!(!refused.is_cached(0, 0));
    refused.kernel.change_file(0, 0);
    refused.access(0, 0, 0, false);
    assert_eq!(refused.wrong(), 0);
    assert!(refused.is_cached(0, 0), "it was read again");
    let lazy = refused.kernel.lazy.as_ref().unwrap();
    assert_eq!(lazy.tally().deferred, 0);
    let counted = lazy.refusals().map(|(_, count)| count).sum::<u64>();
    // On its way down, and out.
    assert_eq!(counted, 2);
}

#[test]
fn a_page_that_becomes_anonymous_memory_of_another_process_is_flushed_at_use() {
    // Thread 1 takes all free memory, the stale page's too, and stores to it. What the reader saw then
    // would be another program's data.
    let make = || bench(vec![shared(0, 0, false), anonymous(1, MOST)]);
    let (whole, wrong) = with_and_without(make, Omit::AtUse, |bench| {
        for page in 0..MOST {
            bench.access(1, 1, page, true);
        }
    });
    let tally = whole.kernel.lazy.as_ref().unwrap().tally();
    assert_eq!((tally.deferred > 0, tally.at_use), (true, 1));
    assert!(
        wrong > 0,
        "without the flush another program's memory is read"
    );
}

#[test]
fn a_page_that_becomes_cache_of_another_file_is_flushed_at_use() {
    let make = || {
        let other = file(1, 1, Kind::SharedFile, false, MOST);
        bench(vec![shared(0, 0, false), other])
    };
    let (whole, wrong) = with_and_without(make, Omit::AtUse, |bench| {
        for page in 0..MOST {
            bench.access(1, 1, page, false);
        }
    });
    assert!(whole.kernel.lazy.as_ref().unwrap().tally().at_use >= 1);
    assert!(wrong > 0, "without the flush another file is read");
}

#[test]
fn a_page_that_the_kernel_itself_takes_is_flushed_at_use() {
    // Page tables, slabs and the like come from the same lists, by the same way out.
    let mut bench = bench(vec![shared(0, 0, false)]);
    stale(&mut bench);
    let who = bench.who(1);
    let mut taken = 0;
    while bench.kernel.take_for_kernel(&mut bench.hw, &who).is_some() {
        taken += 1;
    }
    assert!(taken > 2000, "{taken} frames");
    assert_eq!(bench.kernel.lazy.as_ref().unwrap().tally().at_use, 1);
    // The reader's translation is gone: its next read faults, and finds no memory.
    let (who, slot) = (bench.who(0), bench.slot(0, 0));
    assert!(
        bench
            .kernel
            .access(&mut bench.hw, &who, slot, false)
            .is_err()
    );
    assert_eq!(bench.wrong(), 0);
}

#[test]
fn memory_that_fails_forces_the_flush() {
    let mut bench = bench(vec![shared(0, 0, false), shared(1, 1, false)]);
    stale(&mut bench);
    bench.access(1, 1, 0, false);
    let who = bench.who(1);
    assert!(bench.kernel.poison_file_page(&mut bench.hw, &who, 1, 0) > 0);
    assert_eq!(bench.forced(Cause::Poison), 1);
    bench.access(1, 1, 0, false);
    bench.access(0, 0, 0, false);
    assert_eq!(bench.wrong(), 0);
}

#[test]
fn huge_pages_and_writable_ones_are_refused() {
    let huge = RegionPlan {
        huge: true,
        ..anonymous(0, 512)
    };
    let mut bench = bench(vec![huge, anonymous(0, 64)]);
    bench.access(0, 0, 0, false);
    bench.access(0, 1, 0, true);
    for _ in 0..8 {
        bench.reclaim(600);
    }
    let lazy = bench.kernel.lazy.as_ref().unwrap();
    assert_eq!(lazy.tally().deferred, 0);
    // Each went down to the other node once; the whole huge page in one.
    assert_eq!(lazy.refusals().map(|(_, count)| count).sum::<u64>(), 2);
}

#[test]
fn memory_pressure_stops_the_deferring_and_flushes() {
    // 5000 pages of a file on 4096 pages of memory, and then anonymous memory that leaves no room: each
    // allocation has to reclaim for itself.
    let other = file(1, 1, Kind::SharedFile, false, 5000);
    let mut bench = bench(vec![shared(0, 0, false), other, anonymous(1, 3000)]);
    for page in 0..5000 {
        bench.access(1, 1, page, false);
    }
    for page in 0..3000 {
        bench.access(1, 2, page, true);
    }
    let tally = bench.kernel.lazy.as_ref().unwrap().tally();
    assert!(tally.refused > 0, "{tally:?}");
    assert_eq!(bench.wrong(), 0);
    // With room again, deferring goes on.
    let who = bench.who(1);
    bench.kernel.remap(&mut bench.hw, &who, 2, None);
    bench.pass();
    let before = bench.kernel.lazy.as_ref().unwrap().tally().deferred;
    bench.reclaim(100);
    bench.reclaim(100);
    assert!(bench.kernel.lazy.as_ref().unwrap().tally().deferred > before);
}
