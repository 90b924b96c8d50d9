use crate::config::{Configuration, Interleave};
use crate::kernel::KernelError;
use crate::kernel::testing::{Bench, machine, policy, region};
use crate::workload::{Kind, RegionPlan};
use memtide_core::mempolicy::Mode;
use memtide_core::vmstat::Counter;

fn interleaved(weights: &[(u16, u8)]) -> Configuration {
    Configuration {
        interleave: Some(Interleave {
            weights: weights.to_vec(),
            targeted: false,
        }),
        demotion: false,
        ..Configuration::off("test")
    }
}

/// Pages by node after populating `plan` on two nodes of 80,000 pages.
fn populated(plan: RegionPlan, weights: &[(u16, u8)]) -> Vec<u64> {
    let plan = RegionPlan {
        populated_from: Some(0),
        ..plan
    };
    let mut bench = Bench::new(
        &machine(&[(80_000, 2), (80_000, 2)], 0),
        vec![plan],
        &interleaved(weights),
    );
    bench.kernel.populate(&mut bench.hw).unwrap();
    bench.check();
    bench.pages(0)
}

#[test]
fn the_page_count_program_gets_the_kernels_counts() {
    let count = |pages, mode, weights: [u8; 2], start_vpn| {
        let plan = RegionPlan {
            start_vpn,
            policy: policy(mode, "0-1"),
            ..region(pages)
        };
        populated(plan, &[(0, weights[0]), (1, weights[1])])
    };
    let weighted = Mode::WeightedInterleave;
    // 65,537 = 10,922 rounds of 6 and 5 pages more: at 5:1 from phase 0 all 5 go to node 0; from
    // phases 1 to 5 one of the 5 lies on node 1.
    assert_eq!(
        count(65_537, weighted, [5, 1], 0x7_ffff_0000 / 6 * 6),
        [54_615, 10_922]
    );
    for phase in 1..6 {
        let start = 0x7_ffff_0000 / 6 * 6 + phase;
        assert_eq!(count(65_537, weighted, [5, 1], start), [54_614, 10_923]);
    }
    // 65,793 = 10,965 rounds and 3 pages.
    assert_eq!(count(65_793, weighted, [5, 1], 0), [54_828, 10_965]);
    assert_eq!(count(65_793, weighted, [1, 5], 0), [10_966, 54_827]);
    // Plain interleave does not look at weights.
    assert_eq!(count(65_793, Mode::Interleave, [5, 1], 0), [32_897, 32_896]);
    assert_eq!(count(65_793, weighted, [1, 1], 0), [32_897, 32_896]);
}

#[test]
fn addresses_decide_and_not_the_order_of_touching() {
    let plan = RegionPlan {
        policy: policy(Mode::Interleave, "0-1"),
        ..region(64)
    };
    let mut bench = Bench::new(
        &machine(&[(1000, 1), (1000, 1)], 0),
        vec![plan],
        &interleaved(&[]),
    );
    for page in (0..64).step_by(2) {
        bench.touch(1, page, true).unwrap();
    }
    assert_eq!(bench.pages(0), [32, 0]);
    // Each landed where the policy wanted it, but node 1's CPU was there.
    assert_eq!(bench.kernel.counters.get(Counter::NumaHit), 32);
    assert_eq!(bench.kernel.counters.get(Counter::NumaInterleave), 32);
    assert_eq!(bench.kernel.counters.get(Counter::NumaOther), 32);
}

#[test]
fn page_cache_takes_the_tasks_turn() {
    let plan = RegionPlan {
        kind: Kind::SharedFile,
        policy: policy(Mode::WeightedInterleave, "0-1"),
        ..region(64)
    };
    let mut bench = Bench::new(
        &machine(&[(1000, 1), (1000, 1)], 0),
        vec![plan],
        &interleaved(&[(0, 3), (1, 1)]),
    );
    // Every second page: 32 turns of 3:1. The page table took a turn after the first page, which is
    // node 0's second; page cache has turns 1, 3, 4, ... 33: 32 turns without the second.
    for page in (0..64).step_by(2) {
        bench.touch(0, page, false).unwrap();
    }
    assert_eq!(bench.pages(0), [24, 8]);
    bench.check();
}

#[test]
fn a_full_node_spills_to_the_next_in_silence_and_wakes_nobody() {
    let mut bench = Bench::new(
        &machine(&[(1024, 2), (1024, 0)], 128),
        vec![region(1500)],
        &interleaved(&[]),
    );
    for page in 0..1500 {
        bench.touch(0, page, true).unwrap();
    }
    // Two CPUs: too small for lists. Half of the 128 pages is node 0's: min 64, step max(64 / 4, 1) = 16, low 80. A page is taken
    // while at least 81 are free: 1024 - 80 = 944.
    assert_eq!(bench.pages(0), [944, 556]);
    assert!(!bench.kernel.kswapd_is_awake(memtide_core::units::NodeId(0)));
    assert_eq!(bench.kernel.counters.get(Counter::NumaMiss), 556);
    bench.check();
}

#[test]
fn bind_goes_down_to_min_and_then_says_what_is_missing() {
    let plan = RegionPlan {
        policy: policy(Mode::Bind, "0"),
        ..region(1500)
    };
    let mut bench = Bench::new(
        &machine(&[(1024, 2), (1024, 0)], 128),
        vec![plan],
        &interleaved(&[]),
    );
    let mut touched = 0;
    let error = loop {
        match bench.touch(0, touched, true) {
            Ok(_) => touched += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(touched, 1024 - 64);
    assert!(bench.kernel.kswapd_is_awake(memtide_core::units::NodeId(0)));
    let KernelError::OutOfMemory {
        node,
        free,
        present,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((node.0, *free, *present), (0, 64, 1024));
    assert!(error.to_string().contains("region \"data\" (1500 pages"));
    bench.check();
}

#[test]
fn preferred_many_tries_its_nodes_first() {
    let plan = RegionPlan {
        policy: policy(Mode::PreferredMany, "1"),
        ..region(1200)
    };
    let mut bench = Bench::new(
        &machine(&[(1024, 2), (1024, 0)], 0),
        vec![plan],
        &interleaved(&[]),
    );
    for page in 0..1200 {
        bench.touch(0, page, true).unwrap();
    }
    // Without a minimum the step is 1024 * 10 / 10,000 = 1: low is 1.
    assert_eq!(bench.pages(0), [1200 - 1023, 1023]);
}

#[test]
fn huge_folios_take_whole_blocks_and_base_pages_fill_up() {
    let plan = RegionPlan {
        huge: true,
        ..region(512 * 3 + 100)
    };
    // Two whole blocks on node 0; a third of 400 pages that is none.
    let mut bench = Bench::new(&machine(&[(1424, 1)], 0), vec![plan], &interleaved(&[]));
    for page in [5, 600, 1024 + 5] {
        bench.touch(0, page, true).unwrap();
    }
    assert_eq!(bench.pages(0), [1025]);
    let huge = |page| bench.kernel.folio_pages(page) == 512;
    assert!(huge(0) && huge(1023) && !huge(1029));
    assert_eq!(bench.kernel.counters.get(Counter::ThpFaultAlloc), 2);
    assert_eq!(bench.kernel.counters.get(Counter::ThpFaultFallback), 1);
    bench.touch(0, 512 * 3 + 99, true).unwrap();
    assert_eq!(bench.pages(0), [1026]);
    bench.check();
}

#[test]
fn scaling_divides_memory_and_marks() {
    let spec = machine(&[(1 << 20, 1), (1 << 20, 0)], 1 << 14);
    let bench = Bench::scaled(&spec, vec![region(16)], &Configuration::off("test"), 16);
    let space = bench.kernel.frames.space(memtide_core::units::NodeId(0));
    assert_eq!(space.present, 1 << 16);
    // min 8192, step max(2048, 1048) = 2048: high 12,288, promo 14,336; by 16.
    assert_eq!((space.high, space.promo), (768, 896));
}

#[test]
fn a_node_that_scaling_leaves_nothing_of_is_refused() {
    let spec = machine(&[(1 << 16, 1), (1 << 12, 0)], 0);
    let plan = crate::workload::Plan {
        regions: vec![],
        threads: vec![],
        ends_at_ns: None,
    };
    let configuration = Configuration::off("test");
    let made = crate::kernel::Kernel::new(&spec, &plan, &configuration, 16, 1);
    let error = made.err().unwrap().to_string();
    // 4096 / 16 = 256 pages.
    assert!(
        error.starts_with("node 1: 256 pages at this scale are less than 512"),
        "{error}"
    );
}
