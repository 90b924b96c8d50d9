//! What tiering does for some processes and not for others, in virtual time.
//!
//! In each test process 7 is of the class `a`, and 8 of none.

use super::*;
use crate::options::{Classes, TierOptions, Tiered};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::ClassId;
use memtide_core::units::NodeId;

fn tierer(world: &mut FakeWorld, options: &str, class: &str, others: Tiered) -> Tierer {
    let options: TierOptions = toml::from_str(&format!("headroom = '0'\n{options}")).unwrap();
    let classes: Classes = toml::from_str(&format!("[a]\n{class}")).unwrap();
    let (topology, page) = (world.topology().clone(), world.page());
    let config = TierConfig::new(&options, &topology, page, 1).unwrap();
    let config = config.with_others(others);
    Tierer::new(world, config.with_classes(&classes, &topology, page))
}

/// Of both processes `hot` pages are in use.
fn world(fast: u64, pages: u64, node: NodeId, hot: usize) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(fast, 100_000);
    for (pid, class) in [(7, Some(ClassId(0))), (8, None)] {
        let mut process = FakeProcess::new(pid, u64::from(pid) << 20, pages, node);
        process.hot = process.pages.keys().take(hot).copied().collect();
        process.class = class;
        world.processes.push(process);
    }
    world
}

fn run(tierer: &mut Tierer, world: &mut FakeWorld, s: u64) {
    let end = world.now().0 + 1000 * s;
    while world.now().0 < end {
        world.processes.iter_mut().for_each(|one| one.ticks += 1);
        tierer.step(world, &mut ()).unwrap();
    }
}

fn on_fast(world: &mut FakeWorld) -> [u64; 2] {
    [7, 8].map(|pid| world.process(pid).on(FAST))
}

const ALL: Tiered = Tiered {
    tier: true,
    demote: true,
    demote_idle: true,
};

/// 100 of 1000 pages are in use on slow memory.
#[test]
fn who_is_not_tiered_stays() {
    let others = Tiered { tier: false, ..ALL };
    for (class, others, wanted) in [
        ("", ALL, [true, true]),
        ("tier = false", ALL, [false, true]),
        ("tier = true", others, [true, false]),
        ("", others, [false, false]),
    ] {
        let mut world = world(5000, 1000, SLOW, 100);
        let mut tierer = tierer(&mut world, "", class, others);
        run(&mut tierer, &mut world, 20);
        let moved = on_fast(&mut world).map(|pages| pages >= 100);
        assert_eq!(moved, wanted, "{class}");
        let status = tierer.status(&mut world);
        let managed = wanted.iter().filter(|is| **is).count();
        assert_eq!(status.processes, managed, "{class}");
        assert_eq!(status.tiering.unwrap().classes[0].tiered, wanted[0]);
    }
}

/// Two nodes of one tier and no source, as the service has it where it only balances.
#[test]
fn without_a_source_a_loop_that_tiers_nobody_rests() {
    let mut world = FakeWorld::two_nodes(5000, 5000);
    world.sources.clear();
    let mut process = FakeProcess::new(7, 0, 1000, SLOW);
    process.class = Some(ClassId(0));
    world.processes.push(process);
    let classes: Classes = toml::from_str("[a]\ntier = true\n").unwrap();
    let (topology, page) = (world.topology().clone(), world.page());
    let config = TierConfig::new(&TierOptions::DEFAULT, &topology, page, 1).unwrap();
    let config = config.with_classes(&classes, &topology, page).resting();
    let mut tierer = Tierer::new(&mut world, config);
    let mut turns = 0;
    while world.now().0 < 60_000 {
        tierer.step(&mut world, &mut ()).unwrap();
        turns += 1;
    }
    assert!(turns <= 61, "{turns}");
    let status = tierer.status(&mut world);
    assert_eq!(status.processes, 0);
    assert!(!status.tiering.unwrap().classes[0].tiered);
    assert!(world.tried.is_empty());
    tierer.finish(&mut world).unwrap();
}

/// 1000 pages of each are idle on fast memory, which 1000 hot ones of another process want.
#[test]
fn who_is_not_demoted_makes_no_room() {
    let others = Tiered {
        demote: false,
        ..ALL
    };
    for (class, others, wanted) in [
        ("demote = false", ALL, [true, false]),
        ("demote = true", others, [false, true]),
        ("", others, [true, true]),
    ] {
        let mut world = world(2000, 1000, FAST, 0);
        let mut hot = FakeProcess::new(9, 9 << 20, 1000, SLOW);
        hot.hot = hot.pages.keys().copied().collect();
        world.processes.push(hot);
        let mut tierer = tierer(&mut world, "", class, others);
        run(&mut tierer, &mut world, 30);
        let kept = on_fast(&mut world).map(|pages| pages == 1000);
        assert_eq!(kept, wanted, "{class} {:?}", on_fast(&mut world));
        let page = tierer.page(&mut world, 7, ((7 << 20) + 900) << 12).unwrap();
        let says = page.why == "nothing of its class is demoted, as the configuration says";
        assert_eq!(says, wanted[0], "{}", page.why);
    }
}

/// Nobody touches anything for 700 s, and room is plenty.
#[test]
fn who_keeps_idle_pages_keeps_them() {
    let others = Tiered {
        demote_idle: false,
        ..ALL
    };
    for (class, others, wanted) in [
        ("", ALL, [false, false]),
        ("demote_idle = false", ALL, [true, false]),
        ("demote = false", ALL, [true, false]),
        ("demote_idle = true", others, [false, true]),
    ] {
        let mut world = world(20_000, 1000, FAST, 0);
        let mut tierer = tierer(&mut world, "demote_idle = '10m'", class, others);
        run(&mut tierer, &mut world, 750);
        let kept = on_fast(&mut world).map(|pages| pages == 1000);
        assert_eq!(kept, wanted, "{class} {:?}", on_fast(&mut world));
    }
}
