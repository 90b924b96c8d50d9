//! What the search reaches, by size and shape of memory, on a machine made of
//! numbers: DAMON's costs, 5 % of one CPU, one page in 64 hot.

mod toy;

use memtide_core::tiering::space::OwnerId;
use memtide_loop::search::{Config, UnitCosts};
use toy::{FAST, GIB, MIB, Machine, Shape, TIB, Toy};

const LARGE: Shape = Shape::Ranges(64 * MIB);
const HUGE: Shape = Shape::Pieces(512);

/// Fifty times slower, and every second spent waits three more for a processor.
const SLOW: Machine = Machine {
    page_us: 50.0,
    span_us: 500.0,
    begin_us: 10_000.0,
    busy: 4.0,
};

fn toy(machine: Machine, shape: Shape, pages: u64, owners: u32) -> Toy {
    Toy::new(machine, shape, pages, owners, Config::default())
}

/// Runs until nine tenths of `hot` pages were found; how long that took, in s.
#[track_caller]
fn nine_tenths(toy: &mut Toy, hot: u64, limit_s: f64) -> f64 {
    let took = toy.run(limit_s * 1000.0, |toy| toy.found_hot * 10 >= hot * 9);
    let found = toy.found_hot;
    let took = took.unwrap_or_else(|| panic!("{found} of {hot} pages within {limit_s} s"));
    few_are_cold(toy, hot);
    took
}

/// Of the cold pages one in a hundred may be taken for hot: some are touched in two passes by chance.
fn few_are_cold(toy: &Toy, hot: u64) {
    let cold = toy.pages - hot;
    assert!(
        toy.found_cold * 100 <= cold,
        "{} of {cold} cold pages were taken for hot",
        toy.found_cold
    );
}

/// No minute may cost more than the budget and a tenth.
#[track_caller]
fn within_budget(toy: &Toy) {
    let worst = toy.worst_minute();
    assert!(worst <= 0.055, "{worst} of a CPU in a minute");
}

#[test]
fn large_ranges_are_found_in_10_s_of_4_gib_20_s_of_64_gib_60_s_of_4_tib() {
    for (pages, owners, limit_s) in [(4 * GIB, 1, 10.0), (64 * GIB, 4, 20.0), (4 * TIB, 4, 60.0)] {
        let mut toy = toy(FAST, LARGE, pages, owners);
        nine_tenths(&mut toy, pages / 64, limit_s);
        within_budget(&toy);
    }
}

#[test]
fn pieces_of_2_mib_are_found_in_60_s_of_512_gib() {
    for (pages, owners) in [(4 * GIB, 1), (64 * GIB, 2), (512 * GIB, 4)] {
        let mut toy = toy(FAST, HUGE, pages, owners);
        nine_tenths(&mut toy, pages / 64, 60.0);
        within_budget(&toy);
    }
}

/// A processor on which a page costs what it does in an emulated guest. Live, the
/// search begins with passes of 100 ms, and every piece comes home, not most of them.
#[test]
fn every_piece_is_found_where_programs_stand_still_now_and_then() {
    let emulated = Machine {
        page_us: 15.0,
        span_us: 150.0,
        begin_us: 3_000.0,
        busy: 1.0,
    };
    // Of so many ms without a processor for so many. Promised are 8 s for 4 GiB.
    let cases = [
        (2, None, 8.0),
        (4, None, 8.0),
        (2, Some((1_000.0, 300.0)), 12.0),
    ];
    for (gib, stalls, limit_s) in cases {
        for seed in 1..=3 {
            let mut toy = toy(emulated, HUGE, gib * GIB, 1);
            toy.seed(seed);
            toy.stalls = stalls;
            let hot = gib * GIB / 64;
            let took = toy.run(limit_s * 1000.0, |toy| toy.found_hot * 100 >= hot * 99);
            let found = toy.found_hot;
            assert!(took.is_some(), "{found} of {hot}, seed {seed}, {stalls:?}");
            few_are_cold(&toy, hot);
        }
    }
}

#[test]
fn pieces_that_begin_anywhere_are_found_too() {
    let mut toy = toy(FAST, Shape::Ranges(512), 16 * GIB, 1);
    let bound_s = toy.search.promise().bound_s;
    nine_tenths(&mut toy, 16 * GIB / 64, bound_s / 2.0);
}

#[test]
fn scattered_pages_are_found_within_one_and_a_half_times_the_bound() {
    for pages in [GIB / 4, 2 * GIB] {
        let mut toy = toy(FAST, Shape::Scattered, pages, 1);
        let hot = Shape::Scattered.count(0, pages);
        let bound_s = toy.search.promise().bound_s;
        // 65,536 or 524,288 pages, two passes at a microsecond, 50 ms a second.
        let expected = pages as f64 * 2.0 / 50_000.0;
        assert!((bound_s - expected).abs() < 1e-6, "{bound_s}");
        nine_tenths(&mut toy, hot, 1.5 * bound_s);
        within_budget(&toy);
    }
}

#[test]
fn of_zipf_the_hottest_are_found_within_the_bound() {
    let shape = Shape::Zipf(GIB);
    let mut toy = toy(FAST, shape, GIB, 1);
    let hot = shape.count(0, GIB);
    let bound_s = toy.search.promise().bound_s;
    toy.run(1.5 * bound_s * 1000.0, |toy| toy.found_hot * 10 >= hot * 9)
        .expect("the hottest");
}

#[test]
fn a_thousand_processes_with_little_each() {
    let shape = Shape::First(MIB / 16);
    let mut toy = toy(FAST, shape, 4 * GIB, 1000);
    let bound_s = toy.search.promise().bound_s;
    nine_tenths(&mut toy, 1000 * MIB / 16, bound_s);
    within_budget(&toy);
}

/// 100,000 mappings of eight pages with as many missing between them: 3 GiB, a
/// page in 64 of what is there hot.
#[test]
fn a_hundred_thousand_mappings() {
    let mut toy = Toy::empty(FAST, Shape::Gaps, Config::default());
    let mappings: Vec<(u64, u64)> = (0..100_000).map(|n| (n * 16, 8)).collect();
    toy.map(OwnerId(0), &mappings);
    // The bound of what is there and of what lies between.
    let bound_s = 2.0 * toy.search.promise().bound_s;
    nine_tenths(&mut toy, Shape::Gaps.count(0, 1_600_000), 1.5 * bound_s);
    within_budget(&toy);
}

#[test]
fn a_slow_machine_is_slower_and_finds_everything() {
    let mut large = toy(SLOW, LARGE, 4 * GIB, 1);
    nine_tenths(&mut large, 4 * GIB / 64, 100.0);
    within_budget(&large);

    let pages = 256 * MIB;
    let mut scattered = toy(SLOW, Shape::Scattered, pages, 1);
    // 65,536 pages, two passes at 50 us, 50 ms a second: 131 s.
    let hot = Shape::Scattered.count(0, pages);
    nine_tenths(&mut scattered, hot, 1.5 * 131.0);
    scattered.run(600_000.0, |_| false);
    within_budget(&scattered);
}

#[test]
fn the_budget_holds_for_ever_and_at_any_size() {
    for (shape, pages) in [
        (Shape::Cold, GIB),
        (Shape::Scattered, GIB),
        (LARGE, 64 * GIB),
        (Shape::Cold, TIB),
    ] {
        let mut toy = toy(FAST, shape, pages, 1);
        toy.run(200_000.0, |_| false);
        within_budget(&toy);
    }
}

#[test]
fn cold_memory_costs_little_in_the_end() {
    let mut toy = toy(FAST, Shape::Cold, GIB, 1);
    toy.run(120_000.0, |_| false);
    let spent = toy.ledger.len();
    toy.run(240_000.0, |_| false);
    let us: f64 = toy.ledger[spent..].iter().map(|(_, us)| us).sum();
    // Less than a fifth of what it might.
    assert!(us / 120e6 < 0.01, "{}", us / 120e6);
}

/// What the search says that the budget buys, it buys.
#[test]
fn promises_are_kept() {
    // One range of 64 MiB in half a TiB.
    let mut one = toy(FAST, Shape::First(64 * MIB), 512 * GIB, 1);
    one.run(1_000.0, |_| false);
    let promise = one.search.promise();
    assert!(promise.range_pages <= 64 * MIB, "{promise}");
    nine_tenths(&mut one, 64 * MIB, 1.0 + promise.range_s);

    let mut all = toy(FAST, Shape::Scattered, 2 * GIB, 1);
    all.run(1_000.0, |_| false);
    let promise = all.search.promise();
    nine_tenths(
        &mut all,
        Shape::Scattered.count(0, 2 * GIB),
        1.0 + promise.cover_s,
    );
}

#[test]
fn a_source_that_does_not_cut_is_told_every_piece() {
    let config = Config {
        cuts: false,
        ..Config::default()
    };
    let mut toy = Toy::new(FAST, LARGE, 64 * GIB, 1, config);
    nine_tenths(&mut toy, GIB, 60.0);
    within_budget(&toy);
}

#[test]
fn a_hot_set_that_moves_is_found_again() {
    let mut toy = toy(FAST, Shape::Cold, 16 * GIB, 1);
    toy.run(100_000.0, |_| false);
    toy.shape = Shape::First(64 * MIB);
    let took = toy.run(120_000.0, |toy| toy.found_hot * 10 >= 64 * MIB * 9);
    assert!(took.is_some(), "{} of {} pages", toy.found_hot, 64 * MIB);
}

#[test]
fn the_same_run_twice() {
    let run = || {
        let mut toy = toy(FAST, Shape::Ranges(3 * MIB), 8 * GIB, 3);
        toy.run(20_000.0, |_| false);
        (toy.ledger.clone(), toy.found_hot, toy.found_cold)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_wrong_idea_of_costs_is_corrected() {
    let config = Config {
        costs: UnitCosts {
            page: 0.1,
            piece: 0.1,
            span: 1.0,
            begin: 20.0,
        },
        ..Config::default()
    };
    let mut toy = Toy::new(FAST, Shape::Scattered, GIB, 1, config);
    toy.run(100_000.0, |_| false);
    within_budget(&toy);
}
