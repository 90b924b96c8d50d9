//! Shares of fast memory, in virtual time.

use super::making_way::Turn;
use super::*;
use crate::options::{ClassOptions, TierOptions};
use crate::random::Random;
use crate::report::Direction;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Allowed, ClassId};
use std::collections::BTreeMap;

pub(super) type Events = Vec<(Millis, Event)>;

/// A loop with classes whose `fast.low` and `fast.high` are these, in pages.
pub(super) fn tierer(
    world: &mut FakeWorld,
    options: &TierOptions,
    classes: &[(u64, Option<u64>)],
) -> Tierer {
    tierer_with(world, options, classes, |_| {})
}

pub(super) fn tierer_with(
    world: &mut FakeWorld,
    options: &TierOptions,
    classes: &[(u64, Option<u64>)],
    change: impl FnOnce(&mut TierConfig),
) -> Tierer {
    let (topology, page) = (world.topology().clone(), world.page());
    let pages = |pages: u64| format!("{}KiB", pages * 4).parse().unwrap();
    let class = |(n, (low, high)): (usize, &(u64, Option<u64>))| {
        let mut class = ClassOptions::default();
        class.fast.low = (*low > 0).then(|| pages(*low));
        class.fast.high = high.map(pages);
        (format!("class{n}"), class)
    };
    let classes: BTreeMap<String, ClassOptions> = classes.iter().enumerate().map(class).collect();
    let mut config = TierConfig::new(options, &topology, page, 1).unwrap();
    change(&mut config);
    Tierer::new(world, config.with_classes(&classes, &topology, page))
}

pub(super) fn options() -> TierOptions {
    TierOptions {
        headroom: "0".parse().unwrap(),
        ..TierOptions::DEFAULT
    }
}

/// Turns until `ms` of the world's time have passed; `each` sees the world after each.
pub(super) fn run_and(
    tierer: &mut Tierer,
    world: &mut FakeWorld,
    ms: u64,
    mut each: impl FnMut(&FakeWorld),
) -> Events {
    let mut events = Events::new();
    let end = world.now().0 + ms;
    while world.now().0 < end {
        tierer.step(world, &mut events).unwrap();
        each(world);
    }
    events
}

pub(super) fn run(tierer: &mut Tierer, world: &mut FakeWorld, ms: u64) -> Events {
    run_and(tierer, world, ms, |_| {})
}

pub(super) fn process(
    pid: u32,
    class: Option<u32>,
    pages: u64,
    node: memtide_core::units::NodeId,
) -> FakeProcess {
    let mut process = FakeProcess::new(pid, u64::from(pid) << 20, pages, node);
    process.class = class.map(ClassId);
    process
}

pub(super) fn hot(process: &mut FakeProcess, pages: u64) {
    process.hot = process.pages.keys().take(pages as usize).copied().collect();
}

pub(super) fn on(world: &FakeWorld, pid: u32, node: memtide_core::units::NodeId) -> u64 {
    let mut all = world.processes.iter();
    all.find(|known| known.process.pid == pid).unwrap().on(node)
}

/// A page of each process commutes while it is observed.
pub(super) const COMMUTER: u64 = 1;

#[test]
fn nothing_comes_up_above_the_bound_and_others_come() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    for (pid, class) in [(7, Some(0)), (8, None)] {
        let mut one = process(pid, class, 2000, SLOW);
        hot(&mut one, 1000);
        world.processes.push(one);
    }
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(400))]);
    run_and(&mut tierer, &mut world, 10_000, |world| {
        assert!(on(world, 7, FAST) <= 400 + COMMUTER);
    });
    // Up to the mark, a hundredth below the bound.
    assert!(on(&world, 7, FAST) >= 396, "{}", on(&world, 7, FAST));
    assert_eq!(world.process(8).hot_on(FAST), 1000);
    let status = tierer.status(&mut world).tiering.unwrap();
    let class = &status.classes[0];
    assert_eq!((&*class.name, class.high_pages), ("class0", Some(400)));
    assert_eq!(class.promoted_pages, 396);
    assert!(class.waiting_pages > 0);
}

/// A process that comes into such a class goes, and comes again when it leaves it.
#[test]
fn who_is_left_alone_is_not_touched() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    for (pid, class) in [(7, Some(0)), (8, None), (9, None)] {
        let mut one = process(pid, class, 2000, SLOW);
        hot(&mut one, 1000);
        world.processes.push(one);
    }
    let (topology, page) = (world.topology().clone(), world.page());
    let class = ClassOptions {
        leave_alone: true,
        ..ClassOptions::default()
    };
    let classes = BTreeMap::from([("backup".to_owned(), class)]);
    let config = TierConfig::new(&options(), &topology, page, 1).unwrap();
    let mut tierer = Tierer::new(&mut world, config.with_classes(&classes, &topology, page));
    world.class_use_known = false;
    let events = run(&mut tierer, &mut world, 10_000);
    assert_eq!(
        (on(&world, 7, FAST), world.process(8).hot_on(FAST)),
        (0, 1000)
    );
    // It has no share, so that nobody misses what it uses.
    let notice = |(_, event): &(Millis, Event)| matches!(event, Event::Notice { .. });
    assert!(!events.iter().any(notice), "{events:?}");
    assert_eq!(tierer.status(&mut world).processes, 2);
    world.processes[1].class = Some(ClassId(0));
    world.processes[0].class = None;
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(7).hot_on(FAST), 1000);
    assert_eq!(tierer.status(&mut world).processes, 2);
    let (before, tried) = (on(&world, 8, FAST), world.tried.len());
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(on(&world, 8, FAST), before);
    assert!(
        world.tried[tried..]
            .iter()
            .all(|(process, ..)| process.pid != 8)
    );
    let status = tierer.status(&mut world).tiering.unwrap();
    assert!(status.classes[0].left_alone);
}

/// One class has pages to come up, one is above its bound, and one could give idle pages.
#[test]
fn pages_of_paused_classes_stay_until_they_are_resumed() {
    let mut world = FakeWorld::two_tiers(3000, 10_000);
    for (pid, node) in [(7, SLOW), (8, FAST), (9, FAST), (6, SLOW)] {
        let class = (pid != 6).then(|| pid - 7);
        let mut one = process(pid, class, 1000, node);
        hot(&mut one, if node == SLOW { 1000 } else { 0 });
        world.processes.push(one);
    }
    let classes = [(0, None), (0, Some(500)), (0, None)];
    let mut tierer = tierer(&mut world, &options(), &classes);
    for name in ["class0", "class1", "class2"] {
        assert_eq!(tierer.pause(&mut world, name, true), Some(true));
        assert_eq!(tierer.pause(&mut world, name, true), Some(false));
    }
    assert_eq!(tierer.pause(&mut world, "class3", true), None);
    run(&mut tierer, &mut world, 20_000);
    let paused = |(process, ..): &(crate::world::ProcessId, _, _)| process.pid != 6;
    assert!(!world.tried.iter().any(paused), "{:?}", world.tried);
    assert!(on(&world, 6, FAST) >= 900, "others go on");
    let status = tierer.status(&mut world).tiering.unwrap();
    assert!(status.classes.iter().all(|class| class.paused));
    let why = tierer.page(&mut world, 7, 7 << 32).unwrap().why;
    assert_eq!(why, "its class is paused, and waits to be resumed");
    for name in ["class0", "class1", "class2"] {
        assert_eq!(tierer.pause(&mut world, name, false), Some(true));
    }
    run(&mut tierer, &mut world, 20_000);
    assert_eq!(world.process(7).hot_on(FAST), 1000);
    assert!(on(&world, 8, FAST) <= 500 + COMMUTER);
    // What commutes is home before a class is paused: turns until something is away.
    let away = |world: &FakeWorld, pid: u32| {
        let mut all = world.processes.iter();
        let found = all.find(|known| known.process.pid == pid);
        found.map_or(0, |known| known.on(FAST))
    };
    let at_rest = away(&world, 8);
    let mut turns = 0;
    while away(&world, 8) == at_rest {
        turns += 1;
        assert!(turns < 10_000, "nothing commutes");
        tierer.step(&mut world, &mut ()).unwrap();
    }
    let (before, tried) = (away(&world, 8).min(at_rest), world.tried.len());
    tierer.pause(&mut world, "class1", true);
    assert!(world.tried[tried..].iter().all(|(_, _, to)| *to == SLOW));
    assert_eq!(away(&world, 8), before);
    run(&mut tierer, &mut world, 5000);
    assert_eq!(away(&world, 8), before);
}

/// Hot pages that wait for a paused class ask for no haste, and other processes' translations go on
/// being flushed.
#[test]
fn a_pause_costs_others_nothing() {
    let mut world = FakeWorld::two_tiers(3000, 10_000);
    for (pid, class) in [(7, Some(0)), (8, None)] {
        let mut one = process(pid, class, 1000, SLOW);
        hot(&mut one, 300);
        world.processes.push(one);
    }
    let mut tierer = tierer(&mut world, &options(), &[(0, None)]);
    assert_eq!(tierer.pause(&mut world, "class0", true), Some(true));
    while world.now().0 < 6000 {
        tierer.step(&mut world, &mut ()).unwrap();
        let others_wait = world.process(8).hot_on(FAST) < 300;
        let waits = tierer.promoter.pages_wait();
        assert!(others_wait || !waits, "what is paused waits in haste");
    }
    assert_eq!(world.process(8).hot_on(FAST), 300);
    let flushed = world.tried.iter().filter(|(process, ..)| process.pid == 8);
    assert!(flushed.count() > 0);
}

/// All of a process's slow pages are in use and its class's bound keeps them down: one of them
/// commutes all the same, or their accesses would hide.
#[test]
fn a_process_of_which_all_is_in_use_is_flushed() {
    let mut world = FakeWorld::two_tiers(100, 100);
    let mut one = process(7, Some(0), 10, SLOW);
    hot(&mut one, 10);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(0))]);
    let mut flushes = 0;
    while world.now().0 < 20_000 {
        world.process(7).ticks += 1;
        let before = world.tried.len();
        tierer.step(&mut world, &mut ()).unwrap();
        let late = world.now().0 > 5_000;
        flushes += if late { world.tried.len() - before } else { 0 };
    }
    assert!(flushes >= 10, "{flushes} flushes in 15 s");
}

/// Four pages: a hot one, one that is touched once, a bound one and one that is not there.
#[test]
fn a_page_is_explained_by_what_is_known() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    let mut one = process(7, Some(0), 1000, SLOW);
    hot(&mut one, 10);
    world.processes.push(one);
    let mut bound = process(8, None, 10, SLOW);
    hot(&mut bound, 10);
    bound.memory.areas[0].allowed = Allowed::Nodes(Box::new([SLOW].into_iter().collect()));
    world.processes.push(bound);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(400))]);
    run(&mut tierer, &mut world, 10_000);
    let mut page = |pid: u32, page: u64| {
        let address = (((u64::from(pid) << 20) + page) << 12) + 7;
        tierer.page(&mut world, pid, address)
    };
    let hot = page(7, 3).unwrap();
    assert_eq!(
        (hot.node, hot.fast, hot.class.as_deref()),
        (Some(FAST), Some(true), Some("class0"))
    );
    assert_eq!(hot.address, ((7 << 20) + 3) << 12);
    assert_eq!(hot.mapping_end - hot.mapping_start, 1000 << 12);
    let last = hot.last_move.unwrap();
    assert_eq!(last.direction, Direction::Promotion);
    assert!(last.ms_ago < 10_000 && hot.touched_ms_ago.is_none_or(|ms| ms < 10_000));
    let idle = page(7, 900).unwrap();
    assert_eq!(
        (idle.node, idle.touches, idle.last_move),
        (Some(SLOW), None, None)
    );
    assert_eq!(idle.why, "it was not seen touched; it waits to be");
    let bound = page(8, 0).unwrap();
    assert_eq!(
        bound.why,
        "it stays on slow memory: its mempolicy does not allow the target"
    );
    assert_eq!(
        bound.policy,
        "its pages may be only on the nodes that it is bound to"
    );
    assert_eq!(page(9, 0).unwrap_err(), "process 9 is not managed");
    let outside = page(7, 1000).unwrap_err();
    assert!(
        outside.starts_with("0x7003e8007 is in no mapping of process 7"),
        "{outside}"
    );
}

#[test]
fn who_is_above_the_bound_is_brought_down_coldest_first() {
    // All is on fast nodes, and there is room for all: 400 are in use.
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    for (pid, class) in [(7, Some(0)), (8, None)] {
        let mut one = process(pid, class, 2000, FAST);
        hot(&mut one, 400);
        world.processes.push(one);
    }
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(600))]);
    run(&mut tierer, &mut world, 5000);
    let used = on(&world, 7, FAST);
    assert!((590..=600 + COMMUTER).contains(&used), "{used}");
    assert_eq!(world.process(7).hot_on(FAST), 400, "idle pages left first");
    assert_eq!(on(&world, 8, FAST), 2000, "nobody bounds the other");
    // And there it stays: nothing goes to and fro.
    let tried = world.tried.len();
    run(&mut tierer, &mut world, 20_000);
    let moves = world.tried[tried..].iter();
    let others: Vec<_> = moves
        .filter(|(_, page, _)| page.0 % (1 << 20) < 400)
        .collect();
    assert!(others.is_empty(), "{others:?}");
    let demoted = tierer.status(&mut world).tiering.unwrap().classes[0].demoted_pages;
    assert!((1400..=1410).contains(&demoted), "{demoted}");
}

#[test]
fn pages_in_use_leave_too_if_nothing_else_brings_it_down() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    let mut one = process(7, Some(0), 2000, FAST);
    hot(&mut one, 2000);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(500))]);
    run(&mut tierer, &mut world, 5000);
    run_and(&mut tierer, &mut world, 30_000, |world| {
        assert!(on(world, 7, FAST) <= 510, "{}", on(world, 7, FAST));
    });
    assert!(on(&world, 7, FAST) >= 490);
}

#[test]
fn a_class_at_its_bound_exchanges_idle_pages_for_hot_ones() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    let mut idle = process(7, Some(0), 500, FAST);
    hot(&mut idle, 0);
    let mut busy = process(8, Some(0), 1000, SLOW);
    hot(&mut busy, 300);
    world.processes.extend([idle, busy]);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(500))]);
    run(&mut tierer, &mut world, 30_000);
    assert_eq!(world.process(8).hot_on(FAST), 300);
    let used = on(&world, 7, FAST) + on(&world, 8, FAST);
    assert!(used <= 500 + 2 * COMMUTER, "{used}");
}

#[test]
fn pages_that_may_not_leave_stay_whatever_the_bound() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    let mut bound = process(7, Some(0), 1000, FAST);
    bound.memory.areas[0].allowed = Allowed::Nodes(Box::new([FAST].into_iter().collect()));
    let free = process(8, Some(0), 300, FAST);
    world.processes.extend([bound, free]);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(500))]);
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(on(&world, 7, FAST), 1000);
    assert!(on(&world, 8, FAST) <= COMMUTER);
    assert!(world.tried.iter().all(|(process, _, _)| process.pid == 8));
}

#[test]
fn what_is_protected_is_not_taken_for_others() {
    // The first class's 600 idle pages fill fast memory with others' 400.
    let mut world = FakeWorld::two_tiers(1000, 10_000);
    let calm = process(6, Some(0), 600, FAST);
    let other = process(7, None, 400, FAST);
    let mut press = process(8, None, 2000, SLOW);
    hot(&mut press, 900);
    world.processes.extend([calm, other, press]);
    let mut tierer = tierer(&mut world, &options(), &[(500, None)]);
    run_and(&mut tierer, &mut world, 60_000, |world| {
        assert!(on(world, 6, FAST) >= 500 - COMMUTER);
    });
    // What is above that is taken, and all of who is in no class.
    assert!(on(&world, 6, FAST) <= 501 && on(&world, 7, FAST) <= COMMUTER);
    assert!(world.process(8).hot_on(FAST) >= 490);
}

#[test]
fn who_is_below_its_low_is_served_first() {
    // Room for 300, and both want more; the later addresses are the protected ones.
    let mut world = FakeWorld::two_tiers(300, 10_000);
    for (pid, class) in [(7, None), (8, Some(0))] {
        let mut one = process(pid, class, 1000, SLOW);
        hot(&mut one, 1000);
        world.processes.push(one);
    }
    let mut tierer = tierer(&mut world, &options(), &[(250, None)]);
    run(&mut tierer, &mut world, 10_000);
    assert!(
        on(&world, 8, FAST) >= 250 - COMMUTER,
        "{}",
        on(&world, 8, FAST)
    );
    // Beyond that it waits as others do.
    assert!(on(&world, 7, FAST) > 0);
}

#[test]
fn a_dry_run_plans_down_to_the_bound_and_not_further() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.processes.push(process(7, Some(0), 2000, FAST));
    let dry = TierOptions {
        dry_run: true,
        ..options()
    };
    let mut tierer = tierer(&mut world, &dry, &[(0, Some(600))]);
    run(&mut tierer, &mut world, 10_000);
    assert!(world.tried.is_empty());
    let class = &tierer.status(&mut world).tiering.unwrap().classes[0];
    assert!((1400..=1406).contains(&class.demoted_pages), "{class:?}");
}

#[test]
fn without_figures_nothing_is_kept_and_people_are_told_once() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.processes.push(process(7, Some(0), 2000, FAST));
    world.class_use_known = false;
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(600))]);
    let events = run(&mut tierer, &mut world, 10_000);
    assert_eq!(on(&world, 7, FAST), 2000);
    let told = |(_, event): &&(Millis, Event)| matches!(event, Event::Notice { text } if text.starts_with("class class0: "));
    assert_eq!(events.iter().filter(told).count(), 1);
}

/// 20 ms of processor time each.
#[test]
fn where_it_is_dear_to_ask_what_classes_use_bounds_are_kept_with_a_two_hundredth_of_a_processor() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.processes.push(process(7, Some(0), 2000, FAST));
    world.class_use_cost_ns = 20_000_000;
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(600))]);
    run(&mut tierer, &mut world, 30_000);
    assert!((594..=600).contains(&on(&world, 7, FAST)));
    assert!((7..=8).contains(&world.class_use_asked));
}

#[test]
fn without_classes_nothing_is_asked() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.processes.push(process(7, Some(0), 2000, FAST));
    let mut tierer = tierer(&mut world, &options(), &[]);
    run(&mut tierer, &mut world, 5000);
    assert_eq!(world.class_use_asked, 0);
    assert!(
        tierer
            .status(&mut world)
            .tiering
            .unwrap()
            .classes
            .is_empty()
    );
}

#[test]
fn a_process_that_joins_a_class_counts_there() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    let mut one = process(7, Some(0), 100, FAST);
    hot(&mut one, 100);
    let mut other = process(8, None, 1000, FAST);
    hot(&mut other, 1000);
    world.processes.extend([one, other]);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(500))]);
    run(&mut tierer, &mut world, 5000);
    assert_eq!(on(&world, 8, FAST), 1000);
    world.process(8).class = Some(ClassId(0));
    run(&mut tierer, &mut world, 6000);
    let used = on(&world, 7, FAST) + on(&world, 8, FAST);
    assert!((490..=500 + 2 * COMMUTER).contains(&used), "{used}");
}

/// Every tenth page, from the `n`th on.
fn scattered(process: &mut FakeProcess, n: usize) {
    process.hot = process.pages.keys().skip(n).step_by(10).copied().collect();
}

/// Hot pages scattered over a class that is at its bound, so that each stretch of its
/// memory is in use, become others while it is paused.
#[test]
fn hot_pages_of_a_class_at_its_bound_are_home_although_no_stretch_is_idle() {
    let mut world = FakeWorld::two_tiers(65_536, 200_000);
    let mut one = process(7, Some(0), 40_960, FAST);
    scattered(&mut one, 0);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(20_480))]);
    run(&mut tierer, &mut world, 15_000);
    assert_eq!(world.process(7).hot_on(FAST), 4096);
    tierer.pause(&mut world, "class0", true);
    scattered(world.process(7), 5);
    run(&mut tierer, &mut world, 15_000);
    assert!(world.process(7).hot_on(FAST) < 2500);
    tierer.pause(&mut world, "class0", false);
    run(&mut tierer, &mut world, 15_000);
    assert_eq!(world.process(7).hot_on(FAST), 4096);
    assert!(on(&world, 7, FAST) <= 20_480 + COMMUTER);
    let moved = world.tried.len();
    run(&mut tierer, &mut world, 60_000);
    let moved = world.tried.len() - moved;
    assert!(
        moved < 100,
        "{moved} pages moved where all is as it should be"
    );
}

/// The same where a pass sees one page of each stretch, drawn at random: many pages in use
/// leave as idle ones.
#[test]
fn hot_pages_are_home_although_samples_miss_them() {
    let mut world = FakeWorld::two_tiers(65_536, 200_000);
    world.sampled = Some(Random::new(1));
    let mut one = process(7, Some(0), 40_960, FAST);
    scattered(&mut one, 0);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(20_480))]);
    let home = |world: &mut FakeWorld| world.process(7).hot_on(FAST);
    run(&mut tierer, &mut world, 10_000);
    assert!(home(&mut world) * 100 >= 4096 * 99);
    tierer.pause(&mut world, "class0", true);
    scattered(world.process(7), 5);
    run(&mut tierer, &mut world, 15_000);
    assert!(home(&mut world) < 2500);
    tierer.pause(&mut world, "class0", false);
    run(&mut tierer, &mut world, 10_000);
    assert!(home(&mut world) * 100 >= 4096 * 99);
    run(&mut tierer, &mut world, 30_000);
    let moved = world.tried.len();
    run(&mut tierer, &mut world, 60_000);
    let moved = world.tried.len() - moved;
    assert!(
        moved < 200,
        "{moved} pages moved where all is as it should be"
    );
}

/// The same where memory is searched, and few pages are hot: one of fifty.
#[test]
fn hot_pages_are_home_where_memory_is_searched() {
    let mut world = FakeWorld::two_tiers(65_536, 200_000);
    world.sampled = Some(Random::new(1));
    let mut one = process(7, Some(0), 40_960, FAST);
    let every = |one: &mut FakeProcess, n: usize| {
        one.hot = one.pages.keys().skip(n).step_by(50).copied().collect();
    };
    every(&mut one, 0);
    world.processes.push(one);
    world.processes.push(process(8, None, 60_000, SLOW));
    let classes = [(0, Some(20_480))];
    let mut tierer = tierer_with(&mut world, &options(), &classes, |config| {
        config.look_pages = 10_000;
    });
    run(&mut tierer, &mut world, 30_000);
    assert!(tierer.observer.searching.is_some());
    tierer.pause(&mut world, "class0", true);
    every(world.process(7), 25);
    run(&mut tierer, &mut world, 15_000);
    tierer.pause(&mut world, "class0", false);
    run(&mut tierer, &mut world, 20_000);
    let home = world.process(7).hot_on(FAST);
    assert!(home * 100 >= 820 * 99, "{home} of 820");
    assert!(on(&world, 7, FAST) <= 20_480 + COMMUTER);
}

/// A sixteenth of a share goes, at most every 128 s.
fn most_demoted(high: u64, ms: u64) -> u64 {
    high.div_ceil(16) * (ms / 128_000 + 1)
}

/// Pages of the first class that were demoted so far.
fn demoted(tierer: &mut Tierer, world: &mut FakeWorld) -> u64 {
    tierer.status(world).tiering.unwrap().classes[0].demoted_pages
}

/// More is hot than the class may have: whatever makes way comes back.
#[test]
fn pages_make_way_ever_more_rarely_if_that_does_not_help() {
    let mut world = FakeWorld::two_tiers(65_536, 200_000);
    let mut one = process(7, Some(0), 4096, FAST);
    hot(&mut one, 4096);
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(2048))]);
    let minute = 60_000;
    run(&mut tierer, &mut world, 4 * minute);
    let before = demoted(&mut tierer, &mut world);
    run(&mut tierer, &mut world, 16 * minute);
    let gone = demoted(&mut tierer, &mut world) - before;
    assert!(gone <= most_demoted(2048, 16 * minute), "{gone}");
}

/// What makes way is of all the class's memory, and not of where all is in use.
#[test]
fn pages_make_way_wherever_they_are() {
    let mut world = FakeWorld::two_tiers(65_536, 200_000);
    let mut one = process(7, Some(0), 40_960, FAST);
    scattered(&mut one, 0);
    let dense = one.pages.keys().skip(20_700).take(6000).copied();
    one.hot.extend(dense);
    let all = one.hot.len() as u64;
    world.processes.push(one);
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(20_480))]);
    run(&mut tierer, &mut world, 20_000);
    let home = world.process(7).hot_on(FAST);
    assert!(home * 100 >= all * 99, "{home} of {all}");
}

/// The same where looks are slow, and where memory is searched: what is in vain is not
/// taken for a success because nobody looked yet.
#[test]
fn what_nobody_has_looked_at_is_no_success() {
    for search in [false, true] {
        let mut world = FakeWorld::two_tiers(65_536, 100_000);
        let mut one = process(7, Some(0), 8192, FAST);
        hot(&mut one, 8192);
        world.processes.push(one);
        if search {
            world.processes.push(process(8, None, 60_000, SLOW));
        }
        world.slowness = 100;
        let look_pages = if search { 10_000 } else { u64::MAX };
        let classes = [(0, Some(4096))];
        let mut tierer = tierer_with(&mut world, &options(), &classes, |config| {
            config.look_pages = look_pages;
        });
        let minute = 60_000;
        run(&mut tierer, &mut world, 8 * minute);
        assert_eq!(tierer.observer.searching.is_some(), search);
        let before = demoted(&mut tierer, &mut world);
        run(&mut tierer, &mut world, 16 * minute);
        let gone = demoted(&mut tierer, &mut world) - before;
        assert!(
            gone <= most_demoted(4096, 16 * minute),
            "search {search}: {gone}"
        );
    }
}

/// A bound of 200 pages, and 200 others that are hot, every 20 s: nobody's last move is
/// longer ago than two minutes.
#[test]
fn pages_that_go_to_and_fro_are_counted() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    for (pid, class) in [(7, 0), (8, 1)] {
        world.processes.push(process(pid, Some(class), 2000, SLOW));
    }
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(200)), (0, None)]);
    for turn in 0..12 {
        for one in &mut world.processes {
            let pages = one.pages.keys().skip(200 * (turn % 2)).take(200);
            one.hot = pages.copied().collect();
        }
        run(&mut tierer, &mut world, 20_000);
    }
    let status = tierer.status(&mut world).tiering.unwrap();
    let moved = status.pgpromote_success + status.pgdemote_proactive;
    assert!((1..=moved).contains(&status.returned_pages), "{status:?}");
    let classes = status.classes.iter().map(|class| class.returned_pages);
    // Nothing makes the pages of the other one leave.
    assert_eq!(classes.collect::<Vec<_>>(), [status.returned_pages, 0]);
    let processes = tierer.processes(ProcessOrder::Returned, 9);
    let of_each = processes.iter().map(|one| (one.pid, one.returned_pages));
    assert_eq!(
        of_each.collect::<Vec<_>>(),
        [(7, status.returned_pages), (8, 0)]
    );
}

/// 600 hot pages wait, and none of them comes up.
#[test]
fn a_class_makes_no_more_room_than_is_used() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.processes.push(process(7, Some(0), 1590, FAST));
    let mut tierer = tierer(&mut world, &options(), &[(0, Some(1600))]);
    let mut events = run(&mut tierer, &mut world, 5000);
    tierer.shared.budgets.set_waiting(|_| 600);
    for _ in 0..20 {
        let turn = Turn {
            now: world.now(),
            looks: 0,
            seen: 0,
        };
        let shared = &mut tierer.shared;
        (tierer.demoter).keep_bounds(&mut world, shared, turn, &mut events);
    }
    // A sixteenth of the bound, below its mark.
    assert_eq!(on(&world, 7, FAST), 1584 - 100);
}

/// It goes down by 1,200 pages in turns of 100.
#[test]
fn what_the_kernel_counts_late_leaves_once() {
    let mut world = FakeWorld::two_tiers(5000, 10_000);
    world.class_use_lags = true;
    world.processes.push(process(7, Some(0), 2000, FAST));
    let small = |config: &mut TierConfig| config.turn_pages = 100;
    let mut tierer = tierer_with(&mut world, &options(), &[(0, Some(800))], small);
    run_and(&mut tierer, &mut world, 20_000, |world| {
        assert!(
            on(world, 7, FAST) >= 792 - COMMUTER,
            "{}",
            on(world, 7, FAST)
        );
    });
    assert!(on(&world, 7, FAST) <= 800);
}
