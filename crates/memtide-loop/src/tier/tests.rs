//! The loop in virtual time.

use super::*;
use crate::options::TierOptions;
use crate::report::{Direction, ProcessOrder, Stay, WhyStayed};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Allowed, Fixed, Outcome, SourceId};
use memtide_core::pages::Folio;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::NodeId;

type Events = Vec<(Millis, Event)>;

fn tierer(world: &mut FakeWorld, options: &TierOptions) -> Tierer {
    let (topology, page) = (world.topology().clone(), world.page());
    let config = TierConfig::new(options, &topology, page, 1).unwrap();
    Tierer::new(world, config)
}

fn options() -> TierOptions {
    TierOptions {
        headroom: "0".parse().unwrap(),
        ..TierOptions::DEFAULT
    }
}

/// Turns until `ms` of the world's time have passed.
fn run(tierer: &mut Tierer, world: &mut FakeWorld, ms: u64) -> Events {
    let mut events = Events::new();
    let end = world.now().0 + ms;
    while world.now().0 < end {
        tierer.step(world, &mut events).unwrap();
    }
    events
}

/// 4,000 pages on the slow node, every 40th of them hot.
fn world() -> FakeWorld {
    let mut world = FakeWorld::two_tiers(2000, 10_000);
    let mut process = FakeProcess::new(7, 1000, 4000, SLOW);
    process.hot = (1000..5000).step_by(40).map(VirtualPage).collect();
    world.processes.push(process);
    world
}

#[test]
fn hot_pages_come_home_and_nothing_else_does() {
    let mut world = world();
    let mut tierer = tierer(&mut world, &options());
    let events = run(&mut tierer, &mut world, 3000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!(status.pgpromote_success, 100);
    assert_eq!((status.top_pages, status.lower_pages), (100, 3900));
    assert!(matches!(
        &events[0].1,
        Event::Process {
            pid: 7,
            lower_pages: Some(4000),
            ..
        }
    ));
    tierer.finish(&mut world).unwrap();
    // The page that commutes is at home again.
    assert_eq!(world.process(7).on(FAST), 100);
    assert!(world.closed);
}

/// At the beginning there is nothing to look at.
#[test]
fn what_the_kernel_sends_down_later_comes_home() {
    let mut world = world();
    world
        .process(7)
        .pages
        .values_mut()
        .for_each(|at| *at = FAST);
    world.capacity.insert(FAST, 6000);
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 5000);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!((status.observing, status.passes), ("glance", 0));
    world
        .process(7)
        .pages
        .values_mut()
        .for_each(|at| *at = SLOW);
    // A survey every two minutes, and a look every half.
    run(&mut tierer, &mut world, 150_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

#[test]
fn nothing_goes_where_its_owner_does_not_let_it() {
    let mut world = world();
    let slow_only = Allowed::Nodes(Box::new([SLOW].into_iter().collect()));
    for (pid, allowed) in [(8, slow_only), (9, Allowed::Never(Fixed::Interleaved))] {
        let mut process = FakeProcess::new(pid, 0, 100, SLOW);
        process.memory.areas[0].allowed = allowed;
        process.hot = process.pages.keys().copied().collect();
        world.processes.push(process);
    }
    let mut narrow = FakeProcess::new(10, 0, 100, SLOW);
    narrow.memory.cpuset = [SLOW].into_iter().collect();
    narrow.hot = narrow.pages.keys().copied().collect();
    world.processes.push(narrow);
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
    assert!(world.tried.iter().all(|(process, _, _)| process.pid == 7));
}

#[test]
fn idle_pages_make_room() {
    let mut world = FakeWorld::two_tiers(1000, 10_000);
    world.processes.push(FakeProcess::new(6, 0, 1000, FAST));
    let mut process = FakeProcess::new(7, 0, 2000, SLOW);
    process.hot = (0..500).map(VirtualPage).collect();
    world.processes.push(process);
    let mut tierer = tierer(&mut world, &options());
    let events = run(&mut tierer, &mut world, 30_000);
    assert_eq!(world.process(7).hot_on(FAST), 500);
    assert!(world.used(FAST) <= 1000);
    let demoted = |(_, event): &&(Millis, Event)| {
        matches!(event, Event::MovedPages(moved)
            if moved.direction == Some(Direction::Demotion) && moved.pid == 6)
    };
    assert!(events.iter().any(|event| demoted(&event)));
    let six = world.process(6).on(FAST);
    let seven = world.process(7).on(FAST);
    // A page of each may commute.
    let near = |counted: u64, there: u64| counted.abs_diff(there) <= 1;
    let up = tierer.processes(ProcessOrder::Promoted, 1);
    assert_eq!((up.len(), up[0].pid), (1, 7));
    assert!(near(up[0].top_pages, seven) && up[0].promoted_pages >= 500);
    assert_eq!(up[0].top_pages + up[0].lower_pages, 2000);
    let fast = tierer.processes(ProcessOrder::Fast, 9);
    let most = fast.iter().map(|process| process.top_pages);
    assert!(most.is_sorted_by(|a, b| a >= b) && fast.len() == 2);
    let down = tierer.processes(ProcessOrder::Demoted, 2);
    assert!(down[0].pid == 6 && near(down[0].top_pages, six));
    assert_eq!(down[0].demoted_pages, 1000 - down[0].top_pages);
}

/// Pages that may not leave take nobody's turn, however idle they are.
#[test]
fn idle_pages_that_must_stay_do_not_delay_others() {
    let ms_until_home = |bound: u64| {
        let mut world = FakeWorld::two_tiers(1000 + bound, 10_000);
        if bound > 0 {
            let mut process = FakeProcess::new(6, 0, bound, FAST);
            let fast_only = Allowed::Nodes(Box::new([FAST].into_iter().collect()));
            process.memory.areas[0].allowed = fast_only;
            world.processes.push(process);
        }
        world.processes.push(FakeProcess::new(7, 0, 1000, FAST));
        let mut process = FakeProcess::new(8, 0, 2000, SLOW);
        process.hot = (0..100).map(VirtualPage).collect();
        world.processes.push(process);
        let mut tierer = tierer(&mut world, &options());
        let mut events = Events::new();
        while world.process(8).hot_on(FAST) < 100 {
            tierer.step(&mut world, &mut events).unwrap();
            assert!(world.now().0 < 60_000, "they never come home");
        }
        world.now().0
    };
    let (alone, beside_bound) = (ms_until_home(0), ms_until_home(50_000));
    // No turn is lost to them.
    assert!(
        beside_bound < alone + RETRY_MS,
        "{alone} ms, {beside_bound} ms"
    );
}

#[test]
fn a_dry_run_moves_nothing_and_names_each_page_once() {
    let mut world = world();
    let mut tierer = tierer(
        &mut world,
        &TierOptions {
            dry_run: true,
            ..options()
        },
    );
    let events = run(&mut tierer, &mut world, 5000);
    assert!(world.tried.is_empty());
    let planned = events.iter().filter_map(|(_, event)| match event {
        Event::Moved {
            dry_run: true,
            range,
            ..
        } => Some(range.pages),
        _ => None,
    });
    assert_eq!(planned.sum::<u64>(), 100);
}

#[test]
fn what_will_not_move_is_left_alone_for_a_minute_and_told_where_it_lies() {
    let mut world = world();
    let pinned = VirtualPage(1000);
    world.refuse.insert((7, pinned), Outcome::Shared);
    let mut tierer = tierer(
        &mut world,
        &TierOptions {
            explain: true,
            ..options()
        },
    );
    let events = run(&mut tierer, &mut world, 50_000);
    let tries = |world: &FakeWorld| {
        world
            .tried
            .iter()
            .filter(|(_, page, _)| *page == pinned)
            .count()
    };
    assert_eq!(tries(&world), 1);
    let refused = events.iter().find_map(|(_, event)| match event {
        Event::Stayed {
            node,
            why: WhyStayed::Tier(Stay::Refused { .. }),
            range,
            ..
        } => Some((*node, range.address)),
        _ => None,
    });
    assert_eq!(refused, Some((SLOW, 1000 << 12)));
    world.refuse.clear();
    run(&mut tierer, &mut world, 60_000);
    assert_eq!(tries(&world), 2);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

#[test]
fn a_busy_page_is_tried_again() {
    let mut world = world();
    world.refuse.insert((7, VirtualPage(1000)), Outcome::Busy);
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 3000);
    assert_eq!(world.process(7).hot_on(FAST), 99);
    world.refuse.clear();
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

#[test]
fn a_pid_used_again_is_another_process() {
    let mut world = world();
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 3000);
    let old = world.process(7).process;
    let mut next = FakeProcess::new(7, 1000, 4000, SLOW);
    next.process.start_ticks += 1;
    next.hot = (1000..1050).map(VirtualPage).collect();
    world.processes = vec![next.clone()];
    world.tried.clear();
    let events = run(&mut tierer, &mut world, 5000);
    assert!(matches!(
        events
            .iter()
            .find(|(_, e)| !matches!(e, Event::Notice { .. })),
        Some((_, Event::ProcessGone { pid: 7 }))
    ));
    assert_eq!(world.process(7).hot_on(FAST), 50);
    // Whoever is moved is named by his start time; the page that commuted may
    // have been asked for once more before the end was noticed.
    let late = world.tried.iter().filter(|(process, _, _)| *process == old);
    assert!(late.count() <= 1);
}

#[test]
fn everybody_may_end_and_somebody_come() {
    let mut world = world();
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 1500);
    let processes = std::mem::take(&mut world.processes);
    run(&mut tierer, &mut world, 3000);
    assert!(!tierer.step(&mut world, &mut ()).unwrap());
    world.processes = processes;
    world.process(7).process.start_ticks += 5;
    run(&mut tierer, &mut world, 5000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

#[test]
fn another_source_takes_over_from_one_that_broke() {
    let mut world = world();
    let mut tierer = tierer(&mut world, &options());
    world.breaks = Some(SourceId(0));
    let events = run(&mut tierer, &mut world, 5000);
    let told = events.iter().any(|(_, event)| {
        matches!(event, Event::Notice { text } if text.ends_with("the other takes over"))
    });
    assert!(told);
    assert_eq!(world.process(7).hot_on(FAST), 100);
    // There is no third.
    world.breaks = Some(SourceId(1));
    let ended = tierer.step(&mut world, &mut ());
    assert!(matches!(ended, Err(WorldError::Source { .. })));
}

/// What observing has cost in all, as status and account have it.
fn observed(tierer: &mut Tierer, world: &mut FakeWorld) -> (Duration, u64, u64) {
    let status = tierer.status(world);
    let tiering = status.tiering.unwrap();
    let spent_ns = tiering.account.unwrap().spent.observing_ns;
    (tiering.kernel_cpu, spent_ns, status.lost)
}

#[test]
fn counters_do_not_fall_when_a_source_breaks() {
    let mut world = world();
    world.latencies = [(FAST, 100), (SLOW, 300)].into();
    let mut tierer = tierer(&mut world, &resting());
    run(&mut tierer, &mut world, 4000);
    let cost_ns = world.source_status(SourceId(0)).kernel_cpu_ns;
    assert!(cost_ns > 0);
    world.breaks = Some(SourceId(0));
    let mut before = observed(&mut tierer, &mut world);
    for _ in 0..100 {
        run(&mut tierer, &mut world, 100);
        let now = observed(&mut tierer, &mut world);
        assert!(
            now.0 >= before.0 && now.1 >= before.1,
            "{now:?} after {before:?}"
        );
        before = now;
    }
    tierer.finish(&mut world).unwrap();
    let all_ns = cost_ns + world.source_status(SourceId(1)).kernel_cpu_ns;
    let (kernel_cpu, ..) = observed(&mut tierer, &mut world);
    assert_eq!(kernel_cpu, Duration::from_nanos(all_ns));
}

/// Slow memory that its programs have left after the first reading, or that nobody uses, is no reason to
/// wake up: there are as many turns as where latencies cannot be read.
#[test]
fn nobody_is_woken_for_latencies_that_do_not_matter() {
    let turns = |latencies: &[(NodeId, u32)]| {
        let mut world = world();
        world.latencies = latencies.iter().copied().collect();
        let mut tierer = tierer(&mut world, &TierOptions::DEFAULT);
        tierer.step(&mut world, &mut ()).unwrap();
        world.processes.clear();
        let until = world.now().0 + 20_000;
        let mut turns = 0;
        while world.now().0 < until {
            tierer.step(&mut world, &mut ()).unwrap();
            turns += 1;
        }
        turns
    };
    let unread = turns(&[]);
    let read = turns(&[(FAST, 100), (SLOW, 300)]);
    assert!(read <= unread + 5, "{read} and {unread}");
}

/// What the next source had cost before nobody pays for again.
#[test]
fn a_source_that_takes_over_may_look_at_once() {
    let mut world = world();
    world.set_kernel_cpu_ns(SourceId(1), 60_000_000_000);
    let mut tierer = tierer(&mut world, &options());
    world.breaks = Some(SourceId(0));
    run(&mut tierer, &mut world, 5000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

#[test]
fn observing_stays_within_its_share() {
    let mut world = world();
    // A pass over 4,000 pages takes the kernel 0.4 s.
    world.page_ns = 100_000;
    let mut tierer = tierer(&mut world, &options());
    for second in 0..120 {
        // Other pages are hot each second, so that there is always news.
        let pages = (1000..5000).skip(second % 40).step_by(40);
        world.process(7).hot = pages.map(VirtualPage).collect();
        run(&mut tierer, &mut world, 1000);
    }
    // 5 % of 120 s, 3 s in hand, and two passes over: the second one of a look is taken on
    // credit.
    let spent_ms = world.source_status(SourceId(0)).kernel_cpu_ns / 1_000_000;
    assert!(spent_ms <= 6000 + 3000 + 2 * 400, "{spent_ms} ms");
}

/// A source that does the work itself costs no less for it.
#[test]
fn what_observing_costs_ourselves_is_within_the_share_too() {
    let mut world = world();
    world.page_ns = 100_000;
    world.observes_itself = true;
    world.names_untouched = true;
    world.sources[0].abilities.glances = false;
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 120_000);
    // As above.
    let spent_ms = world.source_status(SourceId(0)).own_cpu_ns / 1_000_000;
    assert!(spent_ms <= 6000 + 3000 + 2 * 400, "{spent_ms} ms");
    assert_eq!(world.process(7).hot_on(FAST), 100);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert!(status.kernel_cpu.is_zero());
}

/// A pass costs more than all that is in hand, as on a machine that others use.
#[test]
fn where_passes_are_dear_hot_pages_come_home_all_the_same() {
    let mut world = world();
    // Of 2.5 s, over 4,000 pages.
    world.page_ns = 625_000;
    let mut tierer = tierer(&mut world, &options());
    // What is in hand at first goes: other pages are hot for a while.
    for second in 0..60 {
        let pages = (1000..5000).skip(second % 40).step_by(40);
        world.process(7).hot = pages.map(VirtualPage).collect();
        run(&mut tierer, &mut world, 1000);
    }
    world.process(7).hot = (1017..5000).step_by(40).map(VirtualPage).collect();
    let before_ms = world.source_status(SourceId(0)).kernel_cpu_ns / 1_000_000;
    // Two passes are 5 s, which 100 s earn.
    run(&mut tierer, &mut world, 200_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
    let spent_ms = world.source_status(SourceId(0)).kernel_cpu_ns / 1_000_000 - before_ms;
    assert!(spent_ms <= 10_000 + 5000, "{spent_ms} ms");
}

/// On a machine that others use a pass takes longer than it is from one program's start to the next.
#[test]
fn a_look_ends_where_programs_come_and_go_all_the_time() {
    let mut world = world();
    // Of 8 s, and cheap.
    (world.page_ns, world.slowness) = (10, 160);
    let mut tierer = tierer(&mut world, &options());
    for pid in 100..140 {
        world.processes.retain(|process| process.process.pid == 7);
        world.processes.push(FakeProcess::new(pid, 0, 10, FAST));
        run(&mut tierer, &mut world, 1000);
    }
    assert_eq!(world.process(7).hot_on(FAST), 100);
    // Who comes with slow pages is looked at with the others at once.
    let mut late = FakeProcess::new(200, 0, 40, SLOW);
    late.hot = late.pages.keys().copied().collect();
    world.processes.push(late);
    run(&mut tierer, &mut world, 30_000);
    assert_eq!(world.process(200).hot_on(FAST), 40);
}

#[test]
fn the_same_seed_does_the_same() {
    let one = || {
        let mut world = world();
        let mut tierer = tierer(&mut world, &options());
        let events = run(&mut tierer, &mut world, 20_000);
        (
            events,
            world.tried,
            tierer.status(&mut FakeWorld::two_tiers(1, 1)),
        )
    };
    assert_eq!(one(), one());
}

#[test]
fn a_full_target_is_no_reason_to_stop() {
    let mut world = world();
    // The node says that it has room, and then has none.
    for page in (1000..5000).step_by(40) {
        world
            .refuse
            .insert((7, VirtualPage(page)), Outcome::NoMemory);
    }
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 3000);
    assert_eq!(world.process(7).hot_on(FAST), 0);
    assert_eq!(tierer.status(&mut world).failed_pages, 0);
    world.refuse.clear();
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(7).hot_on(NodeId(0)), 100);
}

/// Where slow memory is more than a look takes in, the search drives the source.
fn searching(world: &mut FakeWorld) -> Tierer {
    let (topology, page) = (world.topology().clone(), world.page());
    let mut config = TierConfig::new(&options(), &topology, page, 1).unwrap();
    config.look_pages = 5_000;
    Tierer::new(world, config)
}

/// 40,960 pages on the slow node, 2,048 of them hot, in one piece.
fn large_world() -> FakeWorld {
    let mut world = FakeWorld::two_tiers(20_000, 100_000);
    let mut process = FakeProcess::new(7, 512 * 100, 512 * 80, SLOW);
    process.hot = (512 * 150..512 * 154).map(VirtualPage).collect();
    world.processes.push(process);
    world
}

#[test]
fn what_is_more_than_a_look_takes_in_is_searched() {
    let mut world = large_world();
    let mut tierer = searching(&mut world);
    run(&mut tierer, &mut world, 20_000);
    assert!(tierer.observer.searching.is_some());
    assert_eq!(world.process(7).hot_on(FAST), 2048);
    let cold = world.process(7).on(FAST) - 2048;
    assert!(cold <= 40_960 / 100, "{cold} cold pages came along");
}

/// A pass over 4,000 pages costs 4 s: 3 s were saved up, and in 20 s one is earned. A second
/// process makes slow memory too large for one look, while the look at the first one goes on.
#[test]
fn a_look_that_goes_on_ends_where_the_search_takes_over() {
    let mut world = world();
    (world.page_ns, world.slowness) = (20_000, 50);
    let mut tierer = searching(&mut world);
    run(&mut tierer, &mut world, 100);
    assert!(tierer.observer.is_looking());
    world
        .processes
        .push(FakeProcess::new(8, 10_000, 4000, SLOW));
    run(&mut tierer, &mut world, 20_000);
    assert!(tierer.observer.searching.is_some());
    let cost = tierer.status(&mut world).tiering.unwrap().kernel_cpu;
    // What was saved up and earned, and the pass that had begun.
    assert!(cost.as_secs() <= 3 + 1 + 4, "{cost:?}");
}

/// Others bring a page to fast memory that the loop takes for a slow one, and would have commute.
#[test]
fn what_others_brought_to_fast_memory_stays_there() {
    let mut world = world();
    let mut tierer = tierer(&mut world, &options());
    let page = (0..1000).find_map(|_| {
        run(&mut tierer, &mut world, 10);
        let (_, page, target) = *world.tried.last()?;
        (target == SLOW).then_some(page)
    });
    let page = page.expect("a page commutes");
    world.process(7).pages.insert(page, FAST);
    world.tried.clear();
    for _ in 0..100 {
        // It has run, or there would be nothing to show.
        world.process(7).ticks += 1;
        run(&mut tierer, &mut world, 100);
    }
    let down = |(_, of, target): &&(_, VirtualPage, _)| (*of, *target) == (page, SLOW);
    assert_eq!(world.tried.iter().filter(down).count(), 0);
    assert!(world.tried.len() > 2, "another one commutes");
}

/// Notices of a run over a large world in which these pages are hot.
fn notices(hot: impl Iterator<Item = u64>, page_ns: u64) -> Vec<String> {
    let mut world = large_world();
    world.cuts = true;
    world.sampled = Some(crate::random::Random::new(1));
    world.page_ns = page_ns;
    world.process(7).hot = hot.map(VirtualPage).collect();
    let mut tierer = searching(&mut world);
    let events = run(&mut tierer, &mut world, 60_000);
    let notice = |(_, event): (Millis, Event)| match event {
        Event::Notice { text } => Some(text),
        _ => None,
    };
    events.into_iter().filter_map(notice).collect()
}

#[test]
fn scattered_pages_that_take_long_are_told_with_the_source_for_them() {
    let advice = |text: &&String| text.starts_with("hot pages are scattered");
    let every_32nd = || (512 * 100..512 * 180).step_by(32);
    let told = notices(every_32nd(), 100_000);
    let told: Vec<&String> = told.iter().filter(advice).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("DAMON sees every page of"), "{told:?}");
    assert!(told[0].contains("source page-table"), "{told:?}");
    // Where it takes no time, and where they lie together.
    assert_eq!(notices(every_32nd(), 1_000).iter().find(advice), None);
    let together = notices(512 * 150..512 * 154, 100_000);
    assert_eq!(together.iter().find(advice), None);
}

#[test]
fn a_process_that_ends_while_it_is_searched_is_no_trouble() {
    let mut world = large_world();
    let mut other = FakeProcess::new(8, 512 * 100, 512 * 80, SLOW);
    other.hot = (512 * 120..512 * 122).map(VirtualPage).collect();
    world.processes.push(other);
    let mut tierer = searching(&mut world);
    run(&mut tierer, &mut world, 150);
    world.processes.retain(|process| process.process.pid != 7);
    run(&mut tierer, &mut world, 30_000);
    assert_eq!(world.process(8).hot_on(FAST), 1024);
}

/// Decides to move a folio of process 7, which is known to lie on the slow node.
fn decides(change: impl FnOnce(&mut Tierer) -> (OwnerId, NodeId, Direction)) {
    let mut world = world();
    world.processes.push(FakeProcess::new(8, 9000, 10, SLOW));
    let mut tierer = tierer(&mut world, &options());
    tierer.step(&mut world, &mut ()).unwrap();
    let job = change(&mut tierer);
    let first = tierer
        .shared
        .ledger
        .space
        .find(OwnerId(0), VirtualPage(1000));
    let folio = Folio {
        first: first.expect("it was surveyed"),
        pages: 1,
    };
    let shared = &mut tierer.shared;
    shared.move_folios(&mut world, job, &[folio], &[], "", &mut ());
}

#[test]
#[should_panic(expected = "is not of the top tier")]
fn a_promotion_to_a_slow_node_is_noticed() {
    decides(|_| (OwnerId(0), SLOW, Direction::Promotion));
}

#[test]
#[should_panic(expected = "than which none is faster")]
fn a_demotion_to_the_fastest_node_is_noticed() {
    decides(|_| (OwnerId(0), FAST, Direction::Demotion));
}

#[test]
#[should_panic(expected = "is to move as another's")]
fn a_page_of_another_process_is_noticed() {
    decides(|_| (OwnerId(1), FAST, Direction::Promotion));
}

#[test]
#[should_panic(expected = "where its owner does not allow it")]
fn a_move_against_a_policy_is_noticed() {
    decides(|tierer| {
        let mut bound = FakeWorld::two_tiers(1, 1);
        let slow_only = Allowed::Nodes(Box::new([SLOW].into_iter().collect()));
        let mut process = FakeProcess::new(7, 1000, 4000, SLOW);
        process.memory.areas[0].allowed = slow_only;
        bound.processes.push(process);
        let owner = OwnerId(0);
        tierer
            .shared
            .ledger
            .processes
            .reread(&mut bound, owner)
            .unwrap();
        (owner, FAST, Direction::Promotion)
    });
}

fn resting() -> TierOptions {
    TierOptions {
        rest: true,
        ..options()
    }
}

/// Pages that are hot when they are looked at, and idle from then on: a scan.
fn scanning(latencies: (u32, u32)) -> (FakeWorld, Tierer) {
    let mut world = world();
    world.latencies = [(FAST, latencies.0), (SLOW, latencies.1)].into();
    let tierer = tierer(&mut world, &resting());
    (world, tierer)
}

#[test]
fn what_promotion_wins_is_in_the_status() {
    let (mut world, mut tierer) = scanning((100, 250));
    for _ in 0..30 {
        run(&mut tierer, &mut world, 1000);
        world.process(7).ticks += 100;
    }
    let account = tierer.status(&mut world).tiering.unwrap().account.unwrap();
    // 100 pages moved for 5,024 ns each.
    assert_eq!(account.spent.moves_ns, 502_400);
    assert!(account.won_ns_per_s > 0 && account.won_ns > account.spent.moves_ns);
    assert_eq!(account.latencies_ns, [(FAST, 100), (SLOW, 250)]);
    assert_eq!(account.resting_processes, 0);
    let process = tierer.processes(ProcessOrder::Fast, 1).remove(0);
    let of_process = process.account.unwrap();
    assert!(of_process.won_ns_per_s > of_process.spent_ns_per_s && !of_process.rests);
    // Nobody can tell, or nobody asked: there is no account.
    let without = |world: &mut FakeWorld, options| {
        let mut other = self::tierer(world, &options);
        run(&mut other, world, 5000);
        assert_eq!(other.status(world).tiering.unwrap().account, None);
    };
    without(&mut self::world(), resting());
    without(&mut world, options());
}

/// Fast memory becomes slower than slow memory under its load: nothing goes up any more, and
/// people are told why, until the load is gone.
#[test]
fn nothing_goes_up_while_fast_memory_is_no_faster() {
    // A process that runs all the time.
    let run = |tierer: &mut Tierer, world: &mut FakeWorld, ms: u64| {
        let mut events = Events::new();
        for _ in 0..ms / 1000 {
            world.process(7).ticks += 100;
            events.extend(run(tierer, world, 1000));
        }
        events
    };
    let (mut world, mut tierer) = scanning((100, 250));
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
    world.latencies.insert(FAST, 400);
    run(&mut tierer, &mut world, 20_000);
    // Others are hot by now.
    world.process(7).hot = (1020..5000).step_by(40).map(VirtualPage).collect();
    tierer.shared.config.explain = true;
    let events = run(&mut tierer, &mut world, 60_000);
    assert_eq!(world.process(7).hot_on(FAST), 0);
    let why = Stay::NoFaster {
        target: FAST,
        fast_ns: 400,
        slow_ns: 250,
    };
    let told = |event: &Event| matches!(event, Event::Stayed { why: WhyStayed::Tier(told), .. } if *told == why);
    assert!(events.iter().any(|(_, event)| told(event)));
    assert!(why.to_string().starts_with("rests: "));
    let page = tierer.page(&mut world, 7, 1020 << 12).unwrap();
    assert!(
        page.why.contains("rests: under its load node 0"),
        "{page:?}"
    );
    world.latencies.insert(FAST, 100);
    run(&mut tierer, &mut world, 60_000);
    assert_eq!(world.process(7).hot_on(FAST), 100);
}

/// Of a turn's pages most move: the next turn comes at once. Where none moves, it does not.
#[test]
fn moving_goes_on_while_there_are_more() {
    let mut world = world();
    world.process(7).hot = (1000..3000).map(VirtualPage).collect();
    let mut tierer = tierer(&mut world, &options());
    tierer.shared.config.turn_pages = 100;
    while world.process(7).hot_on(FAST) == 0 {
        run(&mut tierer, &mut world, 1);
    }
    // Twenty turns, which would take two seconds if each waited for the next.
    run(&mut tierer, &mut world, 200);
    assert!(world.process(7).hot_on(FAST) > 1900);
    assert!(!tierer.promoter.more);
    let moved: Vec<VirtualPage> = (3000..4000).map(VirtualPage).collect();
    world.refuse = moved
        .iter()
        .map(|page| ((7, *page), Outcome::Busy))
        .collect();
    world.process(7).hot = moved.into_iter().collect();
    while world.tried.len() < 2100 {
        run(&mut tierer, &mut world, 1);
    }
    assert!(!tierer.promoter.more);
}

/// Each second other pages are hot, and those that went up are idle: they never win what
/// their moves cost, for their process does not run.
#[test]
fn a_process_that_wins_nothing_rests() {
    let (mut world, mut tierer) = scanning((100, 250));
    tierer.shared.config.explain = true;
    let mut events = Events::new();
    for second in 0..60 {
        let first = 1000 + second;
        world.process(7).hot = (first..5000).step_by(40).map(VirtualPage).collect();
        events.extend(run(&mut tierer, &mut world, 1000));
    }
    let process = tierer.processes(ProcessOrder::Fast, 1).remove(0);
    assert!(process.account.unwrap().rests, "{process:?}");
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!(status.account.unwrap().resting_processes, 1);
    let mut events = events.iter().map(|(_, event)| event);
    let noticed = |event: &&Event| matches!(event, Event::Notice { text } if text.starts_with("process 7 rests: "));
    assert!(events.clone().any(|event| noticed(&event)));
    let rests = |event: &Event| {
        matches!(
            event,
            Event::Stayed {
                why: WhyStayed::Tier(Stay::Rests { .. }),
                ..
            }
        )
    };
    assert!(events.any(rests));
    // Later it is tried again.
    let before = status.pgpromote_success;
    for _ in 0..60 {
        run(&mut tierer, &mut world, 1000);
    }
    let status = tierer.status(&mut world).tiering.unwrap();
    assert!(status.pgpromote_success > before);
}
