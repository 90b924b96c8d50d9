//! Fast memory that is full and of which nothing is idle, in virtual time: one page of each stretch is in
//! use.

use super::shares_tests::{on, options, process, run, tierer};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};

/// Pages of fast memory, all of them of process 7.
const FAST_PAGES: u64 = 16_384;

/// Of each 32 pages of `process` one is in use.
fn one_in_32(process: &mut FakeProcess) {
    process.hot = process.pages.keys().step_by(32).copied().collect();
}

/// A full world, with process 8 of 8,192 slow pages beside it, of which 256 are in use; both of these
/// classes.
fn full(of_fast: Option<u32>, of_slow: Option<u32>) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(FAST_PAGES, 100_000);
    let mut fast = process(7, of_fast, FAST_PAGES, FAST);
    let mut slow = process(8, of_slow, 8_192, SLOW);
    one_in_32(&mut fast);
    one_in_32(&mut slow);
    world.processes.extend([fast, slow]);
    world
}

fn hot_at_home(world: &mut FakeWorld) -> u64 {
    world.process(8).hot_on(FAST)
}

#[test]
fn hot_pages_take_the_place_of_colder_ones() {
    let mut world = full(None, None);
    let mut tierer = tierer(&mut world, &options(), &[]);
    run(&mut tierer, &mut world, 60_000);
    let home = hot_at_home(&mut world);
    assert!(home * 100 >= 256 * 95, "{home} of 256");
    // What is in use of the other stays, and no more leave than come.
    assert!(world.process(7).hot_on(FAST) * 100 >= 512 * 99);
    let left = FAST_PAGES - on(&world, 7, FAST);
    assert!(left <= on(&world, 8, FAST) + 64, "{left}");
}

/// Who has least of fast memory is not left out of contests.
#[test]
fn a_class_without_any_fast_memory_wins() {
    let mut world = full(Some(0), Some(1));
    let mut tierer = tierer(&mut world, &options(), &[(0, None), (0, None)]);
    run(&mut tierer, &mut world, 60_000);
    let home = hot_at_home(&mut world);
    assert!(home * 100 >= 256 * 95, "{home} of 256");
}

/// What is protected stays, and a bound holds: nobody leaves for who may not come.
#[test]
fn shares_are_kept() {
    let mut world = full(Some(0), Some(1));
    let mut tierer = tierer(
        &mut world,
        &options(),
        &[(FAST_PAGES - 100, None), (0, Some(40))],
    );
    run(&mut tierer, &mut world, 60_000);
    let (protected, bound) = (on(&world, 7, FAST), on(&world, 8, FAST));
    assert!(protected >= FAST_PAGES - 100, "{protected}");
    assert!(bound <= 40 + 1, "{bound}");
    assert!(FAST_PAGES - protected <= bound + 64, "{protected} {bound}");
}

/// It may end between a contest and its judgement, and another process may have its number.
#[test]
fn a_process_that_ends_is_not_looked_at() {
    for end in (5_000..12_000).step_by(500) {
        let mut world = full(None, None);
        let mut tierer = tierer(&mut world, &options(), &[]);
        run(&mut tierer, &mut world, end);
        world.processes.retain(|of| of.process.pid != 8);
        let mut next = process(8, None, 8_192, SLOW);
        next.process.start_ticks += 1;
        one_in_32(&mut next);
        world.processes.push(next);
        run(&mut tierer, &mut world, 60_000);
        let home = hot_at_home(&mut world);
        assert!(home * 100 >= 256 * 95, "{home} of 256, {end}");
    }
}
