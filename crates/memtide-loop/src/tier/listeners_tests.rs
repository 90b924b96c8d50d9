//! Samples beside looks and without them, in virtual time.

use super::*;
use crate::options::TierOptions;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Abilities, SourceId, SourceInfo};
use memtide_core::access;
use memtide_core::tiering::space::VirtualPage;

const PID: u32 = 7;

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

fn run(tierer: &mut Tierer, world: &mut FakeWorld, ms: u64) -> Vec<String> {
    let mut events: Vec<(Millis, Event)> = Vec::new();
    let end = world.now().0 + ms;
    while world.now().0 < end {
        tierer.step(world, &mut events).unwrap();
    }
    let text = |(_, event)| match event {
        Event::Notice { text } => Some(text),
        Event::WindowInvalid { lost, .. } => Some(format!("{lost} lost")),
        _ => None,
    };
    events.into_iter().filter_map(text).collect()
}

/// Every 40th of 4,000 pages from page 1000 on.
fn every_40th() -> Vec<VirtualPage> {
    (1000..5000).step_by(40).map(VirtualPage).collect()
}

/// 4,000 pages on the slow node. Accessed bits tell of `bits`, 2,000 samples a second
/// of every 40th page.
fn world(bits: &[VirtualPage]) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(2000, 10_000);
    let mut process = FakeProcess::new(PID, 1000, 4000, SLOW);
    process.hot = bits.iter().copied().collect();
    world.processes.push(process);
    world.sources.truncate(1);
    world.add_sampler(
        2_000,
        every_40th().into_iter().map(|page| (PID, page)).collect(),
    );
    world
}

/// The same without accessed bits.
fn only_samples() -> FakeWorld {
    let mut world = world(&[]);
    world.sources.remove(0);
    world.sampler.as_mut().unwrap().source = SourceId(0);
    world
}

fn recorded(tierer: &Tierer, source: access::Source) -> u64 {
    tierer.shared.counters.get(source.counter())
}

fn at(world: &mut FakeWorld, pages: &[VirtualPage]) -> usize {
    let process = world.process(PID);
    let home = |page: &&VirtualPage| process.pages[page] == FAST;
    pages.iter().filter(home).count()
}

#[test]
fn samples_alone_bring_hot_pages_home_and_nothing_else() {
    let mut world = only_samples();
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 2_000);
    assert_eq!(at(&mut world, &every_40th()), 100);
    assert_eq!(world.process(PID).on(FAST), 100);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!((status.observing, status.passes), ("samples", 0));
    assert!(status.kernel_cpu > Duration::ZERO);
    tierer.finish(&mut world).unwrap();
    assert!(world.closed);
}

#[test]
fn what_looks_and_samples_see_is_one_store() {
    // Each sees another half of what is hot.
    let all = every_40th();
    let mut world = world(&all[..50]);
    let sampler = world.sampler.as_mut().unwrap();
    sampler.pages.drain(..50);
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 3_000);
    // The page that commutes is at home again.
    tierer.finish(&mut world).unwrap();
    assert_eq!(at(&mut world, &all), 100);
    assert_eq!(world.process(PID).on(FAST), 100);
    assert!(recorded(&tierer, access::Source::Damon) >= 100);
    assert!(recorded(&tierer, access::Source::Hardware) >= 100);
}

/// An access that a look saw and one that was sampled make a page hot.
#[test]
fn accesses_count_together_whoever_saw_them() {
    let all = every_40th();
    let mut world = world(&all);
    // One sample of each page in 50 s: too few to count for themselves.
    world.sampler.as_mut().unwrap().per_second = 2;
    let options = TierOptions {
        threshold: "7".parse().unwrap(),
        ..options()
    };
    let mut tierer = tierer(&mut world, &options);
    run(&mut tierer, &mut world, 2_000);
    let before = recorded(&tierer, access::Source::Hardware);
    assert!((1..=4).contains(&before), "{before}");
    // A look is five passes, and two samples of a page in the window make it seven.
    world.sampler.as_mut().unwrap().per_second = 60;
    run(&mut tierer, &mut world, 4_000);
    assert!(at(&mut world, &all) > 0);
}

/// What one thing or another costs: over a minute not more than 5 % of a CPU.
#[test]
fn samples_stay_within_the_budget() {
    for beside_looks in [false, true] {
        let mut world = match beside_looks {
            true => world(&every_40th()),
            false => only_samples(),
        };
        // A whole CPU if nobody minds.
        let sampler = world.sampler.as_mut().unwrap();
        (sampler.per_second, sampler.price_ns) = (100_000, 10_000);
        let source = sampler.source;
        let mut tierer = tierer(&mut world, &options());
        run(&mut tierer, &mut world, 60_000);
        let sampled_ms = world.source_status(source).kernel_cpu_ns / 1_000_000;
        let share = if beside_looks { 25 } else { 50 };
        // Half a second at the full rate before anything is known.
        assert!(sampled_ms <= 60 * share + 500, "{sampled_ms} ms");
        // It is not off most of the time either.
        assert!(sampled_ms >= 60 * share / 4, "{sampled_ms} ms");
        let all = tierer.status(&mut world).tiering.unwrap().kernel_cpu;
        // 3 s are in hand for looks at the beginning.
        assert!(all.as_millis() <= 60 * 50 + 500 + 3_000, "{all:?}");
    }
}

#[test]
fn whichever_breaks_is_told_by_name_and_the_others_go_on() {
    let all = every_40th();
    let mut world = world(&all);
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 100);
    world.breaks = Some(SourceId(1));
    let told = run(&mut tierer, &mut world, 3_000);
    assert!(
        told.iter()
            .any(|text| text.starts_with("ibs: ") && text.ends_with("; DAMON goes on")),
        "{told:?}"
    );
    assert_eq!(at(&mut world, &all), 100);

    let mut world = self::world(&[]);
    let mut tierer = self::tierer(&mut world, &options());
    run(&mut tierer, &mut world, 100);
    world.breaks = Some(SourceId(0));
    let told = run(&mut tierer, &mut world, 3_000);
    assert!(
        told.iter()
            .any(|text| text.starts_with("DAMON: ") && text.ends_with("; ibs goes on")),
        "{told:?}"
    );
    assert_eq!(at(&mut world, &all), 100);
    assert_eq!(
        tierer.status(&mut world).tiering.unwrap().observing,
        "samples"
    );
    // There is no third.
    world.breaks = Some(SourceId(1));
    let ended = tierer.step(&mut world, &mut ());
    assert!(matches!(ended, Err(WorldError::Source { .. })));
}

#[test]
fn what_a_listened_source_had_cost_and_lost_stays_counted() {
    let mut world = world(&every_40th());
    world.sampler.as_mut().unwrap().loses = true;
    let mut tierer = tierer(&mut world, &options());
    let counted = |tierer: &mut Tierer, world: &mut FakeWorld| {
        let status = tierer.status(world);
        (status.tiering.unwrap().kernel_cpu, status.lost)
    };
    run(&mut tierer, &mut world, 3_000);
    let mut before = counted(&mut tierer, &mut world);
    assert!(before.1 > 0);
    world.breaks = Some(SourceId(1));
    for _ in 0..100 {
        run(&mut tierer, &mut world, 100);
        let now = counted(&mut tierer, &mut world);
        assert!(
            now.0 >= before.0 && now.1 >= before.1,
            "{now:?} after {before:?}"
        );
        before = now;
    }
}

/// Samples that are heard already take the place of looks: nothing counts twice.
#[test]
fn what_looks_had_cost_stays_counted_when_samples_go_on() {
    let mut world = world(&every_40th());
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 3_000);
    world.breaks = Some(SourceId(0));
    run(&mut tierer, &mut world, 10_000);
    tierer.finish(&mut world).unwrap();
    let both = [0, 1].map(|n| world.source_status(SourceId(n)).kernel_cpu_ns);
    let kernel_cpu = tierer.status(&mut world).tiering.unwrap().kernel_cpu;
    assert_eq!(kernel_cpu.as_nanos() as u64, both[0] + both[1]);
}

#[test]
fn lost_samples_are_told_now_and_then_and_count_for_nothing() {
    let mut world = only_samples();
    world.sampler.as_mut().unwrap().loses = true;
    let mut tierer = tierer(&mut world, &options());
    let told = run(&mut tierer, &mut world, 25_000);
    let lost = told.iter().filter(|text| text.ends_with(" lost"));
    assert_eq!(lost.count(), 3, "at 0, 10 and 20 s: {told:?}");
    assert_eq!(world.process(PID).on(FAST), 0);
    assert!(tierer.status(&mut world).lost >= 1_000);
}

/// Accessed bits see nobody touch anything; what samples name stays nevertheless.
#[test]
fn what_samples_name_is_not_idle() {
    let mut world = world(&[]);
    for node in world.process(PID).pages.values_mut() {
        *node = FAST;
    }
    world.capacity.insert(FAST, 10_000);
    let options = TierOptions {
        demote_idle: Some("10s".parse().unwrap()),
        ..options()
    };
    let mut tierer = tierer(&mut world, &options);
    run(&mut tierer, &mut world, 60_000);
    let named = every_40th();
    assert_eq!(at(&mut world, &named), named.len());
    // One of the others may be the one that commutes.
    let left = 4000 - world.process(PID).on(FAST);
    assert!(left >= 3_899, "{left}");
}

#[test]
fn samples_alone_cannot_tell_what_is_idle_and_it_is_said() {
    let mut world = only_samples();
    let options = TierOptions {
        demote_idle: Some("10s".parse().unwrap()),
        ..options()
    };
    let mut tierer = tierer(&mut world, &options);
    let told = run(&mut tierer, &mut world, 30_000);
    let wanted = "ibs cannot tell which pages are idle";
    assert_eq!(
        told.iter().filter(|text| text.starts_with(wanted)).count(),
        1
    );
    // Full fast memory stays full: nobody knows what may leave.
    let mut world = only_samples();
    let mut process = FakeProcess::new(8, 100_000, 2000, FAST);
    process.hot.clear();
    world.processes.push(process);
    let mut tierer = self::tierer(&mut world, &self::options());
    run(&mut tierer, &mut world, 10_000);
    assert_eq!(world.process(8).on(FAST), 2000);
}

/// Hint faults are told to look, complete no pass and do not sample.
#[test]
fn hint_faults_are_heard_beside_looks() {
    let all = every_40th();
    let mut world = world(&all);
    world.sources.truncate(1);
    world.sampler = None;
    world.sources.push(SourceInfo {
        name: "hint faults".to_owned(),
        kind: access::Source::HintFault,
        abilities: Abilities::default(),
    });
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 5_000);
    assert_eq!(world.process(PID).hot_on(FAST), 100);
    assert!(recorded(&tierer, access::Source::HintFault) > 0);
    assert!(recorded(&tierer, access::Source::Damon) > 0);
}

/// Processes that come later are sampled, too.
#[test]
fn those_who_come_are_listened_to_and_those_who_went_are_not() {
    let mut world = only_samples();
    let mut tierer = tierer(&mut world, &options());
    run(&mut tierer, &mut world, 1_500);
    world.processes.push(FakeProcess::new(8, 100_000, 10, SLOW));
    run(&mut tierer, &mut world, 2_000);
    let pids = |world: &FakeWorld| world.sampler.as_ref().unwrap().pids.clone();
    assert_eq!(pids(&world), [PID, 8].into());
    world.processes.remove(0);
    run(&mut tierer, &mut world, 2_000);
    assert_eq!(pids(&world), [8].into());
}
