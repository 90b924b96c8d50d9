//! Shares of classes that lie within others, in virtual time.

use super::shares_tests::*;
use crate::testing::{FAST, FakeWorld, SLOW};
use crate::world::ClassId;

/// A world in which the second class and the third lie within the first.
fn world(fast: u64) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(fast, 10_000);
    world.within = [1, 2].map(|n| (ClassId(n), ClassId(0))).into();
    world
}

fn fast(world: &FakeWorld, pids: &[u32]) -> u64 {
    pids.iter().map(|pid| on(world, *pid, FAST)).sum()
}

#[test]
fn classes_together_stay_below_the_bound_around_them() {
    let mut world = world(5000);
    for (pid, class) in [(7, 0), (8, 1), (9, 2)] {
        let mut one = process(pid, Some(class), 1500, SLOW);
        hot(&mut one, 800);
        world.processes.push(one);
    }
    let classes = [(0, Some(900)), (0, Some(200)), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run_and(&mut tierer, &mut world, 15_000, |world| {
        assert!(fast(world, &[7, 8, 9]) <= 900 + 3 * COMMUTER);
        assert!(on(world, 8, FAST) <= 200 + COMMUTER);
    });
    // Up to the mark, a hundredth below the bound.
    assert!(fast(&world, &[7, 8, 9]) >= 891 - 3 * COMMUTER);
    let status = tierer.status(&mut world).tiering.unwrap();
    let within: Vec<Option<&str>> = (status.classes.iter())
        .map(|class| class.within.as_deref())
        .collect();
    assert_eq!(within, [None, Some("class0"), Some("class0")]);
    let used = |n: usize| status.classes[n].fast_pages.unwrap();
    assert!(used(0) >= used(1) + used(2) && used(0) <= 900 + 3 * COMMUTER);
}

/// The classes use 2,600 pages and may have 1,500. Of the second 400 are protected.
#[test]
fn who_is_above_the_bound_around_them_keeps_what_is_protected() {
    let mut world = world(5000);
    for (pid, class, pages) in [(7, 0, 500), (8, 1, 600), (9, 2, 1500)] {
        world.processes.push(process(pid, Some(class), pages, FAST));
    }
    let classes = [(0, Some(1500)), (400, None), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run_and(&mut tierer, &mut world, 15_000, |world| {
        assert!(on(world, 8, FAST) >= 400 - COMMUTER);
    });
    let used = fast(&world, &[7, 8, 9]);
    assert!((1485 - 3 * COMMUTER..=1500).contains(&used), "{used}");
}

/// Of the second class, all huge and idle, half a huge page may go; the third is hot.
#[test]
fn a_huge_page_that_is_protected_in_part_does_not_hold_up_others() {
    let mut world = world(8000);
    let mut idle = process(8, Some(1), 2048, FAST);
    idle.huge = true;
    world.processes.push(idle);
    let mut one = process(9, Some(2), 2000, FAST);
    hot(&mut one, 2000);
    world.processes.push(one);
    let classes = [(0, Some(3000)), (1792, None), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run_and(&mut tierer, &mut world, 30_000, |world| {
        assert_eq!(on(world, 8, FAST), 2048);
    });
    let used = fast(&world, &[8, 9]);
    assert!(used <= 3000 + COMMUTER, "{used}");
}

/// All of the second class is protected, and hot; the bound around it is smaller.
#[test]
fn a_bound_holds_against_what_is_protected_within_it() {
    let mut world = world(5000);
    for (pid, class) in [(8, 1), (9, 2)] {
        let mut one = process(pid, Some(class), 800, FAST);
        hot(&mut one, 800);
        world.processes.push(one);
    }
    let classes = [(0, Some(600)), (800, None), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run(&mut tierer, &mut world, 30_000);
    let used = fast(&world, &[8, 9]);
    assert!(used <= 612, "{used}");
    // The other one paid first.
    assert!(on(&world, 9, FAST) <= 60, "{}", on(&world, 9, FAST));
}

/// Hot pages of a class wait for the bound around it; idle ones of its neighbour leave.
#[test]
fn idle_pages_of_a_neighbour_leave_for_hot_ones() {
    let mut world = world(5000);
    world.processes.push(process(8, Some(1), 590, FAST));
    let mut one = process(9, Some(2), 1000, SLOW);
    hot(&mut one, 500);
    world.processes.push(one);
    let classes = [(0, Some(600)), (0, None), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run_and(&mut tierer, &mut world, 30_000, |world| {
        assert!(fast(world, &[8, 9]) <= 600 + 2 * COMMUTER);
    });
    let home = world.process(9).hot_on(FAST);
    assert!(home >= 490, "{home}");
}

/// Others press; all of the first class and what lies in it is protected.
#[test]
fn others_take_nothing_of_what_is_protected_around_a_class() {
    let mut world = world(1000);
    world.processes.push(process(7, Some(0), 300, FAST));
    world.processes.push(process(8, Some(1), 600, FAST));
    let mut other = process(9, None, 2000, SLOW);
    hot(&mut other, 2000);
    world.processes.push(other);
    let classes = [(800, None), (0, None), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    run_and(&mut tierer, &mut world, 20_000, |world| {
        assert!(fast(world, &[7, 8]) >= 800 - 2 * COMMUTER);
    });
    assert!(fast(&world, &[7, 8]) <= 800 + 2 * COMMUTER);
}
