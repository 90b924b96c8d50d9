//! Programs wait for memory, in virtual time.

use super::*;
use crate::options::{ClassOptions, Pressure, TierOptions};
use crate::report::{Stay, WhyStayed};
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{ClassId, HUGE_PAGES, Stalls};
use memtide_core::pressure::{LEAST_PPM, WHOLE_PPM};
use memtide_core::tiering::space::VirtualPage;
use std::collections::BTreeMap;

type Events = Vec<(Millis, Event)>;

/// A page of each process commutes while it is observed.
const COMMUTER: u64 = 1;
/// Pages that may go up a second.
const RATE: u64 = 2048;

fn options() -> TierOptions {
    TierOptions {
        headroom: "0".parse().unwrap(),
        rate_limit: "8MiB".parse().unwrap(),
        explain: true,
        ..TierOptions::DEFAULT
    }
}

/// A loop with so many classes, of which the last may ignore that its processes wait.
fn tierer(world: &mut FakeWorld, options: &TierOptions, last: Option<Pressure>) -> Tierer {
    let (topology, page) = (world.topology().clone(), world.page());
    let config = TierConfig::new(options, &topology, page, 1).unwrap();
    let class = |pressure| ClassOptions {
        pressure,
        ..ClassOptions::default()
    };
    let mut classes = BTreeMap::new();
    if let Some(last) = last {
        classes.insert("class0".to_owned(), class(Pressure::Heed));
        classes.insert("class1".to_owned(), class(last));
    }
    Tierer::new(world, config.with_classes(&classes, &topology, page))
}

/// Two processes, each of a class, with so many pages on slow memory; there is room for all.
fn world(pages: u64) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(5 * pages, 10 * pages);
    for pid in [7, 8] {
        let mut process = FakeProcess::new(pid, u64::from(pid) << 20, pages, SLOW);
        process.class = Some(ClassId(pid - 7));
        world.processes.push(process);
    }
    world.stalls = Some(Stalls {
        machine: Some(0),
        classes: vec![Some(0); 2],
    });
    world
}

/// Of each second, the part in which some task waits, in thousandths.
#[derive(Clone, Copy, Default)]
struct Waits {
    machine: u64,
    first: u64,
    second: u64,
}

fn run(tierer: &mut Tierer, world: &mut FakeWorld, s: u64, waits: Waits) -> Events {
    let mut events = Events::new();
    let end = world.now().0 + 1000 * s;
    while world.now().0 < end {
        let before = world.now().0;
        tierer.step(world, &mut events).unwrap();
        let passed = world.now().0 - before;
        let stalls = world.stalls.as_mut().unwrap();
        *stalls.machine.as_mut().unwrap() += passed * waits.machine;
        for (class, waits) in stalls.classes.iter_mut().zip([waits.first, waits.second]) {
            *class.as_mut().unwrap() += passed * waits;
        }
    }
    events
}

fn heat(world: &mut FakeWorld) {
    for process in &mut world.processes {
        process.hot = process.pages.keys().copied().collect();
    }
}

fn on_fast(world: &FakeWorld, pid: u32) -> u64 {
    let mut all = world.processes.iter();
    all.find(|known| known.process.pid == pid).unwrap().on(FAST)
}

fn says_pressure(events: &Events, pid: u32) -> bool {
    events.iter().any(|(_, event)| match event {
        Event::Stayed { range, why, .. } => {
            range.pid == pid && *why == WhyStayed::Tier(Stay::Pressure)
        }
        _ => false,
    })
}

#[test]
fn where_memory_is_short_the_kernel_comes_first() {
    let mut world = world(1000);
    let mut tierer = tierer(&mut world, &options(), None);
    let all = Waits {
        machine: 300,
        ..Waits::default()
    };
    run(&mut tierer, &mut world, 3, all);
    heat(&mut world);
    let why = "it is hot, but programs wait for memory, so that little is promoted";
    let (mut events, mut said) = (Events::new(), false);
    for _ in 0..10 {
        events.extend(run(&mut tierer, &mut world, 1, all));
        let page = tierer.page(&mut world, 7, ((7 << 20) + 500) << 12).unwrap();
        said |= page.why == why;
    }
    assert!(said);
    assert!(on_fast(&world, 7) <= COMMUTER && on_fast(&world, 8) <= COMMUTER);
    assert!(says_pressure(&events, 7));
    let status = tierer.status(&mut world).tiering.unwrap().pressure.unwrap();
    assert_eq!((status.limit_pages, status.slowed), (0, true));
    assert!((3000..=4000).contains(&status.stalled_ms), "{status:?}");
    // It is over.
    run(&mut tierer, &mut world, 80, Waits::default());
    assert_eq!((on_fast(&world, 7), on_fast(&world, 8)), (1000, 1000));
    let status = tierer.status(&mut world).tiering.unwrap().pressure.unwrap();
    assert_eq!((status.limit_pages, status.slowed), (RATE, false));
}

/// After ten seconds of 15 % the pace is at its least: 8 pages a second.
#[test]
fn fewer_pages_go_up_while_programs_wait() {
    let least = RATE * u64::from(LEAST_PPM) / u64::from(WHOLE_PPM);
    let mut world = world(5000);
    let mut tierer = tierer(&mut world, &options(), None);
    let some = Waits {
        machine: 150,
        ..Waits::default()
    };
    run(&mut tierer, &mut world, 10, some);
    heat(&mut world);
    run(&mut tierer, &mut world, 20, some);
    let up = on_fast(&world, 7) + on_fast(&world, 8);
    // What a bucket holds, and 21 seconds.
    let most = HUGE_PAGES + 21 * least + 2 * COMMUTER;
    assert!((HUGE_PAGES..=most).contains(&up), "{up} of {most}");
    let status = tierer.status(&mut world).tiering.unwrap().pressure.unwrap();
    assert_eq!((status.limit_pages, status.slowed), (least, true));
}

#[test]
fn a_class_that_waits_is_slowed_and_no_other() {
    for (last, both) in [(Pressure::Heed, false), (Pressure::Ignore, true)] {
        let mut world = world(5000);
        let mut tierer = tierer(&mut world, &options(), Some(last));
        let second = Waits {
            second: 150,
            ..Waits::default()
        };
        run(&mut tierer, &mut world, 10, second);
        heat(&mut world);
        let events = run(&mut tierer, &mut world, 20, second);
        assert_eq!(on_fast(&world, 7), 5000);
        assert_eq!(on_fast(&world, 8) == 5000, both, "{last:?}");
        assert_eq!(says_pressure(&events, 8), !both);
        assert!(!says_pressure(&events, 7));
        let status = tierer.status(&mut world).tiering.unwrap();
        assert!(!status.pressure.unwrap().slowed);
        assert!(!status.classes[0].pressure.unwrap().slowed);
        let of_last = status.classes[1].pressure;
        assert_eq!(of_last.is_none(), both);
        assert!(both || of_last.unwrap().slowed);
        // Pages that pressure keeps down do not wait for their class's share.
        assert_eq!(status.classes[1].waiting_pages, 0);
    }
}

#[test]
fn who_cannot_tell_or_is_not_heeded_is_not_asked() {
    for (told, pressure) in [(false, Pressure::Heed), (true, Pressure::Ignore)] {
        let mut world = world(500);
        if !told {
            world.stalls = None;
        }
        let options = TierOptions {
            pressure,
            ..options()
        };
        let mut tierer = tierer(&mut world, &options, Some(Pressure::Heed));
        heat(&mut world);
        let mut events = Events::new();
        while world.now().0 < 10_000 {
            tierer.step(&mut world, &mut events).unwrap();
        }
        assert_eq!((on_fast(&world, 7), world.stalls_asked), (500, 0));
        let status = tierer.status(&mut world).tiering.unwrap();
        assert_eq!(status.pressure, None);
        assert!(status.classes.iter().all(|class| class.pressure.is_none()));
    }
}

/// Idle pages of fast memory, at 256 pages a second.
fn left_in_ten_seconds(waits: Waits) -> [u64; 2] {
    let mut world = world(20_000);
    for process in &mut world.processes {
        let all: Vec<VirtualPage> = process.pages.keys().copied().collect();
        process.pages = all.into_iter().map(|page| (page, FAST)).collect();
    }
    let options = TierOptions {
        demote_idle: Some("1m".parse().unwrap()),
        demote_idle_rate: "1MiB".parse().unwrap(),
        explain: false,
        ..options()
    };
    let mut tierer = tierer(&mut world, &options, Some(Pressure::Heed));
    let mut passed = 0;
    while tierer.leaver.left == 0 {
        passed += 1;
        assert!(passed < 100);
        run(&mut tierer, &mut world, 1, waits);
    }
    let before = [7, 8].map(|pid| on_fast(&world, pid));
    run(&mut tierer, &mut world, 10, waits);
    let after = [7, 8].map(|pid| on_fast(&world, pid));
    [0, 1].map(|n| before[n] - after[n])
}

#[test]
fn idle_pages_leave_up_to_four_times_as_fast() {
    let calm: u64 = left_in_ten_seconds(Waits::default()).iter().sum();
    assert!((2000..=2048 + 11 * 256).contains(&calm), "{calm}");
    let all = Waits {
        machine: 150,
        ..Waits::default()
    };
    let pressed: u64 = left_in_ten_seconds(all).iter().sum();
    assert!(pressed > 3 * calm && pressed <= 11 * 4 * 256, "{pressed}");
    // What the class has beside the others, three times the rate, is for its own pages.
    let second = Waits {
        second: 150,
        ..Waits::default()
    };
    let [first, second] = left_in_ten_seconds(second);
    assert!(first <= 11 * 256, "{first}");
    assert!(first + second <= 11 * 4 * 256 + 1024, "{first} {second}");
}
