//! A slow machine, in virtual time: moves take long, and looks are dear.

use super::shares_tests::{COMMUTER, hot, on, options, process, run_and, tierer};

use crate::testing::{FAST, FakeWorld, SLOW};
use crate::world::World as _;
use std::cell::Cell;

/// What a page takes on an emulated machine beside other programs, in ns.
const DEAR_NS: u64 = 400_000;

/// Notes the longest time in ms in which nobody read reports.
fn longest_ms(world: &FakeWorld, last: &Cell<u64>, longest: &Cell<u64>) {
    let now = world.now_ns / 1_000_000;
    longest.set(longest.get().max(now - last.replace(now)));
}

/// 15,000 pages are above the bound: six seconds' worth of moves, in which a look that nobody ends
/// would go on.
#[test]
fn a_class_comes_down_to_its_bound_in_turns_in_which_reports_are_read() {
    let mut world = FakeWorld::two_tiers(50_000, 100_000);
    world.move_ns = DEAR_NS;
    world.processes.push(process(7, Some(0), 16_000, FAST));
    world.processes.push(process(8, None, 1000, SLOW));
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(1000))]);
    let (last, longest) = (Cell::new(0), Cell::new(0));
    run_and(&mut tierer, &mut world, 15_000, |world| {
        longest_ms(world, &last, &longest);
    });
    let fast = on(&world, 7, FAST);
    assert!((990 - COMMUTER..=1000).contains(&fast), "{fast}");
    assert!(longest.get() <= 1_500, "{} ms", longest.get());
}

/// The same of pages that go up: what is left waits, and is not forgotten.
#[test]
fn hot_pages_come_up_in_turns_in_which_reports_are_read() {
    let mut world = FakeWorld::two_tiers(50_000, 100_000);
    world.move_ns = DEAR_NS;
    let mut one = process(7, None, 20_000, SLOW);
    hot(&mut one, 15_000);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[]);
    let (last, longest) = (Cell::new(0), Cell::new(0));
    run_and(&mut tierer, &mut world, 12_000, |world| {
        longest_ms(world, &last, &longest);
    });
    assert_eq!(world.process(7).hot_on(FAST), 15_000);
    assert!(longest.get() <= 1_500, "{} ms", longest.get());
}

/// A look at 40,000 pages takes 8 s of a processor in each pass, where 3 s can be saved up: it would never end.
#[test]
fn where_looks_are_dear_it_searches_until_they_are_cheap() {
    let mut world = FakeWorld::two_tiers(50_000, 100_000);
    (world.page_ns, world.cuts) = (200_000, true);
    let mut one = process(7, None, 40_000, SLOW);
    hot(&mut one, 2_000);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[]);
    run_and(&mut tierer, &mut world, 5_000, |_| {});
    assert!(tierer.observer.searching.is_some());
    run_and(&mut tierer, &mut world, 200_000, |_| {});
    assert_eq!(world.process(7).hot_on(FAST), 2_000);
    let spent_ms = world.source_status(tierer.observer.source).kernel_cpu_ns / 1_000_000;
    // What is saved up at first, and a twentieth of the time.
    assert!(spent_ms <= 3_000 + 205_000 / 20 * 11 / 10, "{spent_ms} ms");
    world.page_ns = 2_000;
    run_and(&mut tierer, &mut world, 100_000, |_| {});
    assert!(tierer.observer.searching.is_none());
}
