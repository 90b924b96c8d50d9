use crate::config::{Configuration, Lru, Luf};
use crate::kernel::testing::{Bench, machine, policy, region};
use crate::workload::{Kind, RegionPlan};
use memtide_core::mempolicy::Mode;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

const FAST: NodeId = NodeId(0);

fn configuration(lru: Lru, demotion: bool) -> Configuration {
    Configuration {
        lru,
        demotion,
        ..Configuration::off("test")
    }
}

/// A fast node of 2048 pages over a slow one of 8192; the fast one's share of the minimum is 51: the
/// step is 12, so low 63, high 75, promo 87. With four CPUs it is too small for CPUs' lists.
fn tiered(lru: Lru, demotion: bool, regions: Vec<RegionPlan>) -> Bench {
    let spec = machine(&[(2048, 4), (8192, 0)], 256);
    Bench::new(&spec, regions, &configuration(lru, demotion))
}

fn bound(pages: u32) -> RegionPlan {
    RegionPlan {
        policy: policy(Mode::Bind, "0"),
        ..region(pages)
    }
}

const BOTH: [Lru; 2] = [Lru::Classic, Lru::Multigenerational];

#[test]
fn kswapd_demotes_until_the_node_is_above_high() {
    for lru in BOTH {
        // Bound memory goes down to min and wakes kswapd, which does not ask policies.
        let mut bench = tiered(lru, true, vec![bound(2048 - 51)]);
        for page in 0..2048 - 51 {
            bench.touch(0, page, true).unwrap();
        }
        assert!(bench.kernel.kswapd_is_awake(FAST));
        bench.pass(20);
        assert!(!bench.kernel.kswapd_is_awake(FAST), "{lru:?}");
        let free = bench.kernel.frames.free(FAST);
        // Above 75, by no more than a batch.
        assert!((76..=75 + 64).contains(&free), "{lru:?}: {free}");
        let counters = &bench.kernel.counters;
        assert_eq!(counters.get(Counter::PgdemoteKswapd), free - 51);
        assert_eq!(counters.get(Counter::PgstealKswapd), free - 51);
        assert_eq!(bench.pages(0)[1], free - 51);
        assert!(bench.kernel.overhead.kswapd_ns > 0);
        bench.check();
    }
}

#[test]
fn tiering_keeps_room_up_to_promo() {
    let spec = machine(&[(2048, 4), (8192, 0)], 256);
    let tiering = Configuration {
        numa_balancing: 2,
        ..configuration(Lru::Multigenerational, true)
    };
    let mut bench = Bench::new(&spec, vec![bound(2048 - 51)], &tiering);
    for page in 0..2048 - 51 {
        bench.touch(0, page, true).unwrap();
    }
    bench.pass(20);
    assert!(bench.kernel.frames.free(FAST) > 87);
}

#[test]
fn what_is_used_stays_and_what_is_not_goes_down() {
    for lru in BOTH {
        let mut bench = tiered(lru, true, vec![region(1000), bound(900)]);
        // The first 500 pages are used in each millisecond, the others never again.
        for page in 0..1000 {
            bench.touch(0, page, true).unwrap();
        }
        let first = bench.slot(1, 0);
        for page in 0..900 {
            bench.touch(0, first + page, true).unwrap();
        }
        for round in 0..40 {
            for page in 0..500 {
                bench.touch(0, page, false).unwrap();
            }
            // Idle bound pages are to go too, so that only the used ones remain.
            let now = bench.now_ns;
            if round >= 4 {
                bench
                    .kernel
                    .reclaim_proactively(&mut bench.hw, FAST, 32, now);
            }
            bench.pass(1);
            bench.check();
        }
        let hot = (0..500).filter(|&p| bench.kernel.ptes[p as usize].node() == FAST);
        let hot = hot.count();
        let counters = &bench.kernel.counters;
        let demoted = counters.get(Counter::PgdemoteProactive);
        assert_eq!(demoted, 36 * 32, "{lru:?}");
        // The first call of all finds every page accessed, so its 32 are the first in order.
        assert!(
            hot >= 500 - 32,
            "{lru:?}: {hot} of the 500 used pages stayed"
        );
    }
}

#[test]
fn clean_file_pages_are_dropped_and_dirty_ones_later() {
    for lru in BOTH {
        let file = RegionPlan {
            kind: Kind::SharedFile,
            ..region(1000)
        };
        let mut bench = Bench::new(
            &machine(&[(2048, 2)], 64),
            vec![file, region(400)],
            &configuration(lru, true),
        );
        for page in 0..1000 {
            bench.touch(0, page, page < 100).unwrap();
        }
        let first = bench.slot(1, 0);
        for page in 0..400 {
            bench.touch(0, first + page, true).unwrap();
        }
        let freed = bench
            .kernel
            .reclaim_proactively(&mut bench.hw, FAST, 5000, 0);
        // There is nowhere to demote to and no swap: anonymous memory stays, every file page goes.
        assert_eq!(freed, 1000, "{lru:?}");
        assert_eq!((bench.pages(0), bench.pages(1)), (vec![0], vec![400]));
        assert_eq!(bench.kernel.counters.get(Counter::PgstealProactive), 1000);
        bench.check();
        bench.touch(0, 3, false).unwrap();
        assert_eq!(bench.kernel.counters.get(Counter::Pgmajfault), 1001);
        bench.check();
    }
}

#[test]
fn a_thread_that_finds_nothing_free_reclaims_for_itself() {
    for lru in BOTH {
        let mut bench = tiered(lru, true, vec![bound(3000)]);
        let mut paid = 0;
        for page in 0..3000 {
            paid = paid.max(bench.touch(0, page, true).unwrap());
        }
        // No time passed for kswapd; what lies on the slow node was demoted by the thread itself.
        let counters = &bench.kernel.counters;
        let demoted = counters.get(Counter::PgdemoteDirect);
        assert_eq!(counters.get(Counter::PgdemoteKswapd), 0);
        assert_eq!(bench.pages(0), [3000 - demoted, demoted], "{lru:?}");
        assert!(demoted >= 3000 - (2048 - 51), "{lru:?}");
        assert!(counters.get(Counter::Allocstall) >= (3000 - 1997) / 64);
        assert!(bench.kernel.overhead.direct_reclaim_ns > 0 && paid > 32 * 1500);
        bench.check();
    }
}

#[test]
fn without_demotion_kswapd_gives_up_and_is_left_alone() {
    for lru in BOTH {
        let mut bench = tiered(lru, false, vec![bound(2048 - 51)]);
        for page in 0..2048 - 51 {
            bench.touch(0, page, true).unwrap();
        }
        bench.pass(50);
        assert!(!bench.kernel.kswapd_is_awake(FAST));
        bench.kernel.wake_kswapd(FAST);
        assert!(!bench.kernel.kswapd_is_awake(FAST));
        assert_eq!(bench.pages(0), [1997, 0]);
    }
}

#[test]
fn kswapd_works_no_longer_than_the_time_that_passed() {
    let spec = machine(&[(2048 * 16, 4), (8192 * 16, 0)], 256 * 16);
    let mut bench = Bench::scaled(
        &spec,
        vec![bound(2048 - 51)],
        &configuration(Lru::Multigenerational, true),
        16,
    );
    for page in 0..2048 - 51 {
        bench.touch(0, page, true).unwrap();
    }
    bench.pass(1);
    // A millisecond is 62,500 ns of unscaled work; a batch, which is 4 of these pages, goes beyond it at most once.
    let spent = bench.kernel.overhead.kswapd_ns;
    assert!(spent > 0 && spent <= 62_500 + 4 * 5_000, "{spent}");
}

/// 64 pages of the machine are 4 and one of the simulated ones, and never less than one.
#[test]
fn a_coarse_scale_frees_no_more_than_a_batch_beyond_the_mark() {
    for (scale, batch) in [(16, 4), (64, 1), (256, 1)] {
        let pages = u64::from(scale) * 2048;
        let spec = machine(&[(pages, 4), (pages * 4, 0)], pages / 8);
        let mut bench = Bench::scaled(
            &spec,
            vec![bound(2048 - 51)],
            &configuration(Lru::Multigenerational, true),
            scale,
        );
        for page in 0..2048 - 51 {
            bench.touch(0, page, true).unwrap();
        }
        bench.pass(500);
        assert!(!bench.kernel.kswapd_is_awake(FAST));
        let free = bench.kernel.frames.free(FAST);
        let beyond = free - bench.kernel.frames.marks(FAST).high();
        assert!((1..=batch).contains(&beyond), "1/{scale}: {beyond}");
        bench.check();
    }
}

#[test]
fn huge_folios_go_whole() {
    for lru in BOTH {
        let huge = RegionPlan {
            huge: true,
            ..bound(512 * 3)
        };
        let mut bench = tiered(lru, true, vec![huge]);
        for page in (0..512 * 3).step_by(512) {
            bench.touch(0, page, true).unwrap();
        }
        let freed = bench.kernel.reclaim_proactively(&mut bench.hw, FAST, 10, 0);
        assert_eq!(freed, 512, "{lru:?}");
        assert_eq!(bench.pages(0), [1024, 512]);
        bench.check();
    }
}

/// Two programs of two threads each stream over files of four times the node, in stretches of whole
/// batches: CPUs interrupted for each of 100 pages that kswapd took, and late flushes.
fn interrupts(lru: Lru, demotion: bool, luf: Option<Luf>, scale: u32) -> (f64, u64) {
    // The smallest node at 1/128 has 512 pages.
    const PAGES: u64 = 512 * 128;
    const STRETCH: u64 = 128;
    let whole = 4 * PAGES;
    // What is free between two watermarks is many stretches.
    let spec = machine(&[(PAGES, 4), (PAGES, 0)], PAGES / 4);
    let file = |space: u16| RegionPlan {
        kind: Kind::SharedFile,
        file: Some(space),
        space,
        writable: false,
        ..bound((whole / u64::from(scale)) as u32)
    };
    let threads: [(u16, &[u16]); 4] = [(0, &[0]), (0, &[0]), (1, &[0]), (1, &[0])];
    let configuration = Configuration {
        luf,
        ..configuration(lru, demotion)
    };
    let files = vec![file(0), file(1)];
    let mut bench = Bench::with_threads(&spec, files, &threads, &configuration, scale);
    let stretch = (STRETCH / u64::from(scale)) as u32;
    for at in 0..(whole / STRETCH) as u32 {
        for space in 0..2 {
            for page in at * stretch..(at + 1) * stretch {
                let slot = bench.slot(usize::from(space), page);
                for thread in [2 * space, 2 * space + 1] {
                    let who = bench.thread(u32::from(thread), space);
                    let Bench { kernel, hw, .. } = &mut bench;
                    kernel.access(hw, &who, slot, false).unwrap();
                }
            }
        }
        bench.pass(1);
        for _ in 0..100 {
            if bench.kernel.kswapd_is_awake(FAST) {
                bench.pass(1);
            }
        }
    }
    bench.check();
    let counters = &bench.kernel.counters;
    assert_eq!(
        counters.get(Counter::Allocstall),
        0,
        "nobody reclaims for itself"
    );
    let interrupts = bench.hw.counters.tlb_shootdowns as f64;
    let taken = counters.get(Counter::PgstealKswapd) as f64;
    let late = bench
        .kernel
        .lazy
        .as_ref()
        .map_or(0, |lazy| lazy.tally().at_use);
    (100.0 * interrupts / taken, late)
}

/// A batch of 32 or 64 pages ends with one flush, which interrupts the two CPUs of a program.
#[test]
fn a_scale_changes_no_number_of_interrupts() {
    for (lru, batch) in [(Lru::Classic, 32.0), (Lru::Multigenerational, 64.0)] {
        for demotion in [false, true] {
            for scale in [1, 4, 32, 128] {
                let (found, _) = interrupts(lru, demotion, None, scale);
                let right = 100.0 * 2.0 / batch;
                assert!(
                    (found / right - 1.0).abs() < 0.15,
                    "{lru:?}, {demotion} at 1/{scale}: {found}, not {right}"
                );
            }
        }
    }
}

/// Late flushes come when the free list has gone round: as often at each scale.
#[test]
fn a_scale_changes_no_number_of_late_flushes() {
    let of = |scale| interrupts(Lru::Classic, false, Some(Luf::Machine), scale).1 as f64;
    let whole = of(1);
    for scale in [4, 16, 64] {
        let found = of(scale);
        assert!(
            (found / whole - 1.0).abs() < 0.2,
            "{found} at 1/{scale}, {whole} at 1/1"
        );
    }
}
