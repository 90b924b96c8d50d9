//! Pages that leave because nobody touched them for long, in virtual time.

use super::*;
use crate::options::{ClassOptions, IdleOnly, TierOptions};
use crate::report::Direction;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Allowed, Backing, ClassId, MemoryKind, Outcome};
use memtide_core::tiering::space::VirtualPage;
use std::collections::BTreeMap;

type Events = Vec<(Millis, Event)>;

/// A page of a process commutes while it is observed.
const COMMUTER: u64 = 1;

fn options(rate: &str) -> TierOptions {
    TierOptions {
        headroom: "0".parse().unwrap(),
        demote_idle: Some("10m".parse().unwrap()),
        demote_idle_rate: rate.parse().unwrap(),
        explain: true,
        ..TierOptions::DEFAULT
    }
}

fn tierer(world: &mut FakeWorld, options: &TierOptions, low: u64) -> Tierer {
    let (topology, page) = (world.topology().clone(), world.page());
    let mut class = ClassOptions::default();
    class.fast.low = (low > 0).then(|| format!("{}KiB", low * 4).parse().unwrap());
    let config = TierConfig::new(options, &topology, page, 1).unwrap();
    let classes = BTreeMap::from([("class0".to_owned(), class)]);
    Tierer::new(world, config.with_classes(&classes, &topology, page))
}

/// A process of which only the first 200 pages are in use; all is on fast memory, which
/// has room for five times as much.
fn world(pages: u64) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(5 * pages, 10 * pages);
    world.processes.push(process(7, pages, 200));
    world
}

fn process(pid: u32, pages: u64, hot: usize) -> FakeProcess {
    let mut process = FakeProcess::new(pid, u64::from(pid) << 20, pages, FAST);
    process.hot = process.pages.keys().take(hot).copied().collect();
    process
}

fn run(tierer: &mut Tierer, world: &mut FakeWorld, s: u64) -> Events {
    let mut events = Events::new();
    let end = world.now().0 + 1000 * s;
    while world.now().0 < end {
        for process in &mut world.processes {
            process.ticks += 1;
        }
        tierer.step(world, &mut events).unwrap();
    }
    events
}

fn demoted(events: &Events) -> Vec<(Millis, u64, &str)> {
    let mut found = Vec::new();
    for (at, event) in events {
        if let Event::Moved {
            direction: Some(Direction::Demotion),
            range,
            why,
            ..
        } = event
        {
            found.push((*at, range.pages, &**why));
        }
    }
    found
}

/// Eight rounds of 75 s, and the one in which it was seen first: 675 s.
#[test]
fn idle_pages_leave_after_the_time_and_not_before() {
    let mut world = world(1000);
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    let early = run(&mut tierer, &mut world, 600);
    assert_eq!(demoted(&early), []);
    let why = tierer.page(&mut world, 7, ((7 << 20) + 900) << 12).unwrap();
    assert!(
        why.why
            .starts_with("it was not touched of late, and leaves in about 7"),
        "{}",
        why.why
    );
    assert!(why.why.ends_with("idle pages leave after 10m"));
    let late = run(&mut tierer, &mut world, 100);
    // What is seen at a time is a stretch of 64 pages, so that some neighbours of pages
    // in use stay, too.
    let left: u64 = demoted(&late).iter().map(|(_, pages, _)| pages).sum();
    assert!((736..=800).contains(&left), "{left}");
    for (_, _, why) in demoted(&late) {
        assert_eq!(why, "not touched for 10m");
    }
    assert_eq!(world.process(7).hot_on(FAST), 200);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!(status.demoted_idle_pages, Some(left));
    assert_eq!(status.pgdemote_proactive, left);
}

#[test]
fn without_the_option_nothing_leaves() {
    let mut world = world(1000);
    let options = TierOptions {
        demote_idle: None,
        ..options("64MiB")
    };
    let mut tierer = tierer(&mut world, &options, 0);
    run(&mut tierer, &mut world, 1500);
    assert_eq!(world.tried, []);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!(status.demoted_idle_pages, None);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
}

/// Touched once a minute for a second, which no look at what is hot would mind.
#[test]
fn what_is_used_now_and_then_stays() {
    let mut world = world(1000);
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    let rare: Vec<_> = world.process(7).pages.keys().copied().skip(704).collect();
    for _ in 0..25 {
        world.process(7).hot.extend(&rare);
        run(&mut tierer, &mut world, 1);
        world.process(7).hot.retain(|page| !rare.contains(page));
        run(&mut tierer, &mut world, 59);
    }
    let on_fast = &world.process(7).pages;
    assert!(rare.iter().all(|page| on_fast[page] == FAST));
    assert!(world.process(7).on(FAST) < 600, "the others left");
}

/// What left and is in use again comes back as any hot page does.
#[test]
fn what_is_used_again_comes_back_and_counts_from_nothing() {
    let mut world = world(1000);
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    run(&mut tierer, &mut world, 700);
    let back: Vec<_> = world.process(7).pages.keys().copied().skip(500).collect();
    world.process(7).hot.extend(&back);
    run(&mut tierer, &mut world, 60);
    assert_eq!(world.process(7).hot_on(FAST), 700);
    world.process(7).hot.retain(|page| !back.contains(page));
    let events = run(&mut tierer, &mut world, 590);
    assert_eq!(demoted(&events), []);
    let events = run(&mut tierer, &mut world, 110);
    let left: u64 = demoted(&events).iter().map(|(_, pages, _)| pages).sum();
    assert!(left >= 448, "{left}");
}

/// 40 pages a second; a bucket of one huge page.
#[test]
fn the_rate_is_kept() {
    let mut world = world(8000);
    let mut tierer = tierer(&mut world, &options("160KiB"), 0);
    let events = run(&mut tierer, &mut world, 900);
    let moves = demoted(&events);
    for (n, (from, ..)) in moves.iter().enumerate() {
        let mut pages = 0;
        for (at, more, _) in &moves[n..] {
            pages += more;
            let most = 512 + 40 * at.since(*from) / 1000 + 1;
            assert!(pages <= most, "{pages} pages from {from:?} to {at:?}");
        }
    }
    let left: u64 = moves.iter().map(|(_, pages, _)| pages).sum();
    assert!((7000..=7800).contains(&left), "{left}");
}

#[test]
fn what_must_stay_stays() {
    let mut world = FakeWorld::two_tiers(20_000, 40_000);
    let mut bound = process(7, 1000, 0);
    bound.memory.areas[0].allowed = Allowed::Nodes(Box::new([FAST].into_iter().collect()));
    let mut protected = process(8, 1000, 0);
    protected.class = Some(ClassId(0));
    let mut file = process(9, 1000, 0);
    file.memory.areas[0].kind = MemoryKind::File;
    let mut shared = process(10, 1000, 0);
    shared.memory.areas[0].kind = MemoryKind::Shared;
    let small = process(11, 255, 0);
    world
        .processes
        .extend([bound, protected, file, shared, small]);
    let options = TierOptions {
        demote_idle_only: Some(IdleOnly::Anon),
        demote_idle_min: "1MiB".parse().unwrap(),
        ..options("64MiB")
    };
    let mut tierer = tierer(&mut world, &options, 400);
    run(&mut tierer, &mut world, 1500);
    let on = [7, 8, 9, 10, 11].map(|pid| world.process(pid).on(FAST));
    let stay = |n: usize, pages: u64| (pages - COMMUTER..=pages).contains(&on[n]);
    assert!(
        stay(0, 1000) && stay(1, 400) && stay(2, 1000) && stay(4, 255),
        "{on:?}"
    );
    // Pages that commute, and were found on fast memory by a survey, begin from nothing.
    assert!(on[3] < 64, "{}", on[3]);
}

#[test]
fn pages_of_files_leave_where_only_these_are_wanted() {
    let mut world = world(1000);
    let mut file = process(9, 1000, 0);
    file.memory.areas[0].kind = MemoryKind::File;
    world.processes.push(file);
    let options = TierOptions {
        demote_idle_only: Some(IdleOnly::File),
        ..options("64MiB")
    };
    let mut tierer = tierer(&mut world, &options, 0);
    run(&mut tierer, &mut world, 700);
    assert!(world.process(9).on(FAST) <= COMMUTER);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
}

#[test]
fn pages_of_paused_classes_stay() {
    let mut world = world(1000);
    world.process(7).class = Some(ClassId(0));
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    run(&mut tierer, &mut world, 600);
    assert_eq!(tierer.pause(&mut world, "class0", true), Some(true));
    run(&mut tierer, &mut world, 900);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
    // Nobody looked at them meanwhile: what was known before is worth nothing.
    tierer.pause(&mut world, "class0", false);
    run(&mut tierer, &mut world, 595);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
    run(&mut tierer, &mut world, 155);
    assert!(world.process(7).on(FAST) <= 264);
}

/// One process does not use what another does.
#[test]
fn memory_of_several_processes_stays() {
    let mut world = world(1000);
    world.processes.push(process(8, 1000, 1000));
    let backing = |object| Backing {
        object: (1, object),
        first: 0,
    };
    for pid in [7, 8] {
        world.process(pid).memory.areas[0].backing = Some(backing(1));
    }
    let mut alone = process(9, 1000, 200);
    alone.memory.areas[0].backing = Some(backing(2));
    world.processes.push(alone);
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    run(&mut tierer, &mut world, 900);
    for pid in [7, 8] {
        assert!(world.process(pid).on(FAST) >= 1000 - COMMUTER);
    }
    assert!(world.process(9).on(FAST) <= 264);
}

/// With credit for a huge page and no more, one that never goes is not tried for ever.
#[test]
fn what_does_not_go_holds_nobody_up() {
    let mut world = world(1000);
    for page in 200..712 {
        let page = VirtualPage((7 << 20) + page);
        world.refuse.insert((7, page), Outcome::Busy);
    }
    let mut tierer = tierer(&mut world, &options("2MiB"), 0);
    run(&mut tierer, &mut world, 800);
    assert!(world.process(7).on(FAST) <= 712 + 64);
}

#[test]
fn a_source_that_cannot_tell_says_so_once() {
    let mut world = world(1000);
    for source in &mut world.sources {
        source.abilities.passes = false;
        source.abilities.glances = false;
    }
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    let events = run(&mut tierer, &mut world, 1500);
    let notices = events.iter().filter(|(_, event)| {
        *event == Event::Notice {
            text: "DAMON cannot tell which pages are idle, so demote-idle has no effect; DAMON can"
                .into(),
        }
    });
    assert_eq!(notices.count(), 1);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
}

/// A source without glances looks at all pages: each of them is judged by itself.
#[test]
fn looks_at_every_page_judge_single_pages() {
    let mut world = world(1000);
    for source in &mut world.sources {
        source.abilities.glances = false;
    }
    world.names_untouched = true;
    let scattered = world.process(7).pages.keys().step_by(5).copied().collect();
    world.process(7).hot = scattered;
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    run(&mut tierer, &mut world, 600);
    assert!(world.process(7).on(FAST) >= 1000 - COMMUTER);
    run(&mut tierer, &mut world, 100);
    // One page commutes, up or down.
    let (all, hot) = (world.process(7).on(FAST), world.process(7).hot_on(FAST));
    assert!(
        (200..=200 + COMMUTER).contains(&all) && hot >= 200 - COMMUTER,
        "{all} {hot}"
    );
}

/// Pages in use stay on fast memory all the time: one that was chosen while it was cold makes
/// way for a cold one, which commutes in its place.
#[test]
fn a_page_in_use_does_not_commute() {
    let mut world = world(1000);
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    // Pages commute once looks begin and some were seen untouched.
    run(&mut tierer, &mut world, 40);
    let commuted = world.tried.last().expect("a page commutes").1;
    assert!(!world.process(7).hot.contains(&commuted));
    world.process(7).hot.insert(commuted);
    // Until it was seen in use, and is at home.
    run(&mut tierer, &mut world, 2);
    world.tried.clear();
    run(&mut tierer, &mut world, 20);
    assert!(!world.tried.is_empty(), "another page commutes");
    let hot = world.process(7).hot.clone();
    let moved = world.tried.iter().filter(|(_, page, _)| hot.contains(page));
    assert_eq!(moved.count(), 0);
}

/// Where all of fast memory is in use no page of it commutes, and one does again when that ends.
#[test]
fn what_is_all_in_use_is_left_in_peace_until_that_ends() {
    let mut world = world(200);
    world.process(7).hot.clear();
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    run(&mut tierer, &mut world, 40);
    assert!(!world.tried.is_empty(), "a page commutes");
    let all = world.process(7).pages.keys().copied().collect();
    world.process(7).hot = all;
    run(&mut tierer, &mut world, 2);
    world.tried.clear();
    run(&mut tierer, &mut world, 10);
    assert_eq!(world.tried, []);
    world.process(7).hot.clear();
    run(&mut tierer, &mut world, 5);
    assert!(!world.tried.is_empty(), "one commutes again");
}

/// 313 stretches of 64 pages are more than are seen at a time: they have their turns, and
/// none is longer for it.
#[test]
fn stretches_have_their_turns_within_a_round() {
    let mut world = world(20_000);
    let pages = world.process(7).pages.keys().copied();
    let scattered: Vec<_> = pages.step_by(2000).collect();
    world.process(7).hot = scattered.into_iter().collect();
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    let events = run(&mut tierer, &mut world, 600);
    assert_eq!(demoted(&events), []);
    run(&mut tierer, &mut world, 100);
    let on = world.process(7).on(FAST);
    assert!((10..=10 * 64 + COMMUTER).contains(&on), "{on}");
    assert_eq!(world.process(7).hot_on(FAST), 10);
}

/// More slow memory than one look takes in: the search drives the source, which may cut into pieces what it is
/// told.
fn a_search_lets_idle_pages_go(cuts: bool) {
    let mut world = FakeWorld::two_tiers(20_000, 400_000);
    world.cuts = cuts;
    world.processes.push(process(7, 4000, 200));
    world
        .processes
        .push(FakeProcess::new(8, 8 << 20, 300_000, SLOW));
    let mut tierer = tierer(&mut world, &options("64MiB"), 0);
    let events = run(&mut tierer, &mut world, 600);
    assert!(tierer.observer.searching.is_some());
    assert_eq!(demoted(&events), []);
    run(&mut tierer, &mut world, 160);
    assert!(
        world.process(7).on(FAST) <= 264,
        "{}",
        world.process(7).on(FAST)
    );
    assert_eq!(world.process(7).hot_on(FAST), 200);
}

#[test]
fn a_search_lets_idle_pages_go_too() {
    a_search_lets_idle_pages_go(false);
}

#[test]
fn a_search_lets_idle_pages_go_where_the_source_cuts() {
    a_search_lets_idle_pages_go(true);
}
