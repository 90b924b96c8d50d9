//! How well fast memory serves classes, in virtual time. Nothing moves but where a test says so:
//! the loop decides and reports only.

use super::*;
use crate::options::{Classes, TierOptions};
use crate::random::Random;
use crate::report::TierStatus;
use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
use crate::world::{Abilities, ClassId};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::NodeId;

fn config(world: &FakeWorld, options: &str, classes: &str) -> TierConfig {
    let options: TierOptions = toml::from_str(&format!("headroom = '0'\n{options}")).unwrap();
    let classes: Classes = toml::from_str(classes).unwrap();
    let (topology, page) = (world.topology().clone(), world.page());
    let config = TierConfig::new(&options, &topology, page, 1).unwrap();
    config.with_classes(&classes, &topology, page)
}

fn tierer(world: &mut FakeWorld, classes: &str) -> Tierer {
    let config = config(world, "dry_run = true", classes);
    Tierer::new(world, config)
}

/// Three classes: `a`, `b` and `c`.
const THREE: &str = "[a]\n[b]\n[c]";

fn run(tierer: &mut Tierer, world: &mut FakeWorld, ms: u64) -> TierStatus {
    let end = world.now().0 + ms;
    while world.now().0 < end {
        tierer.step(world, &mut ()).unwrap();
    }
    tierer.status(world).tiering.unwrap()
}

/// Adds a process of the class with this number. Of each node's pages, the first `hot` of `all`.
fn add(world: &mut FakeWorld, class: u32, parts: [(NodeId, u64, u64); 2]) {
    let pid = 10 + class;
    let all = parts.iter().map(|(_, _, all)| all).sum();
    let mut process = FakeProcess::new(pid, u64::from(pid) << 20, all, SLOW);
    process.class = Some(ClassId(class));
    let mut first = u64::from(pid) << 20;
    for (node, hot, all) in parts {
        for n in 0..all {
            let page = VirtualPage(first + n);
            process.pages.insert(page, node);
            if n < hot {
                process.hot.insert(page);
            }
        }
        first += all;
    }
    world.processes.push(process);
}

/// Fast memory with room for `fast` pages, and one source that looks at every page of all memory.
fn page_tables(fast: u64) -> FakeWorld {
    let mut world = FakeWorld::two_tiers(fast, 100_000);
    world.sources.truncate(1);
    world.sources[0].abilities.glances = false;
    (world.names_untouched, world.observes_itself) = (true, true);
    world
}

fn touched(status: &TierStatus) -> Vec<Option<u32>> {
    let classes = status.classes.iter();
    classes.map(|class| class.fast_touched_permille).collect()
}

fn accesses(status: &TierStatus) -> Vec<Option<u32>> {
    let classes = status.classes.iter();
    classes.map(|class| class.fast_access_permille).collect()
}

/// 160 of 200 touched pages are fast, 60 of 200, and nothing is touched.
/// (0.8 + 0.3)^2 / (2 * (0.64 + 0.09)) = 1.21 / 1.46 = 0.829.
#[test]
fn a_look_at_all_memory_counts_touched_pages() {
    let mut world = page_tables(5000);
    add(&mut world, 0, [(FAST, 160, 1000), (SLOW, 40, 2000)]);
    add(&mut world, 1, [(FAST, 60, 70), (SLOW, 140, 2000)]);
    add(&mut world, 2, [(FAST, 0, 500), (SLOW, 0, 500)]);
    let mut tierer = tierer(&mut world, THREE);
    let status = run(&mut tierer, &mut world, 4_000);
    assert_eq!(touched(&status), [Some(800), Some(300), None]);
    assert_eq!(accesses(&status), [None, None, None]);
    assert_eq!(status.touched_fairness_permille, Some(829));
    assert_eq!(status.access_fairness_permille, None);
}

/// Of those who are left alone or paused, and of one alone, nothing is compared.
#[test]
fn only_classes_that_are_tiered_are_compared() {
    let mut world = page_tables(5000);
    add(&mut world, 0, [(FAST, 200, 1000), (SLOW, 0, 2000)]);
    add(&mut world, 1, [(FAST, 50, 1000), (SLOW, 150, 2000)]);
    add(&mut world, 2, [(FAST, 200, 1000), (SLOW, 0, 2000)]);
    let classes = "[a]\n[b]\n[c]\nleave_alone = true";
    let mut tierer = tierer(&mut world, classes);
    let status = run(&mut tierer, &mut world, 4_000);
    assert_eq!(touched(&status), [Some(1000), Some(250), None]);
    // 1.25^2 / (2 * 1.0625) = 0.735.
    assert_eq!(status.touched_fairness_permille, Some(735));
    tierer.pause(&mut world, "b", true);
    let status = run(&mut tierer, &mut world, 1_000);
    assert_eq!(touched(&status), [Some(1000), Some(250), None]);
    assert_eq!(status.touched_fairness_permille, None);
}

/// The pages that are in use are others from 30 s on.
#[test]
fn shares_are_of_the_last_half_minute() {
    let mut world = page_tables(5000);
    add(&mut world, 0, [(FAST, 200, 1000), (SLOW, 0, 2000)]);
    let mut tierer = tierer(&mut world, "[a]");
    let status = run(&mut tierer, &mut world, 30_000);
    assert_eq!(touched(&status), [Some(1000)]);
    let process = world.process(10);
    process.hot = process.pages.keys().skip(2000).take(200).copied().collect();
    // Some looks saw the ones, some the others.
    let status = run(&mut tierer, &mut world, 10_000);
    let share = touched(&status)[0].unwrap();
    assert!((1..1000).contains(&share), "{share}");
    let status = run(&mut tierer, &mut world, 30_000);
    assert_eq!(touched(&status), [Some(0)]);
    // And nothing is known of one that touches nothing.
    world.process(10).hot.clear();
    let status = run(&mut tierer, &mut world, 40_000);
    assert_eq!(touched(&status), [None]);
}

/// Three of four pages that are sampled are fast, one of four, one of one.
/// 2^2 / (3 * (0.5625 + 0.0625 + 1)) = 4 / 4.875 = 0.821.
#[test]
fn samples_count_accesses() {
    let mut world = FakeWorld::two_tiers(5000, 100_000);
    world.sources.clear();
    let mut sampled = Vec::new();
    for (class, fast, slow) in [(0, 3, 1), (1, 1, 3), (2, 1, 0)] {
        add(&mut world, class, [(FAST, 0, 100), (SLOW, 0, 100)]);
        let (pid, first) = (10 + class, u64::from(10 + class) << 20);
        let pages = (0..fast).chain(100..100 + slow);
        sampled.extend(pages.map(|n| (pid, VirtualPage(first + n))));
    }
    world.add_sampler(900, sampled);
    let mut tierer = tierer(&mut world, THREE);
    // Less than 100 of the last one: nothing is known yet.
    let early = run(&mut tierer, &mut world, 500);
    assert_eq!(accesses(&early)[2], None);
    let status = run(&mut tierer, &mut world, 20_000);
    // Turns end somewhere among the nine.
    let shares = accesses(&status);
    for (share, wanted) in shares.iter().zip([750, 250, 1000]) {
        assert!(share.unwrap().abs_diff(wanted) <= 1, "{shares:?}");
    }
    assert!(status.access_fairness_permille.unwrap().abs_diff(821) <= 1);
    assert_eq!(touched(&status), [None, None, None]);
    assert_eq!(status.touched_fairness_permille, None);
}

/// Of a class 2,048 of 4,096 fast pages are in use, and 1,024 of 4,096 slow ones; of the other all
/// of 2,048 and none of 8,192. Glances draw pages: a stretch answers rightly on average, of single
/// pages each stands for as many.
#[test]
fn a_glance_estimates_touched_pages_where_room_is_scarce() {
    let mut world = FakeWorld::two_tiers(6_400, 100_000);
    world.sources.truncate(1);
    world.sampled = Some(Random::new(3));
    add(&mut world, 0, [(FAST, 2048, 4096), (SLOW, 1024, 4096)]);
    add(&mut world, 1, [(FAST, 2048, 2048), (SLOW, 0, 8192)]);
    let mut tierer = tierer(&mut world, "[a]\n[b]");
    let status = run(&mut tierer, &mut world, 30_000);
    // 2048 / 3072. A single page stands for 12,288 / 256 = 48, so that a border is at most one
    // page off: 48 of 3,072 on either side are 11 thousandths.
    let shares = touched(&status);
    assert!(shares[0].unwrap().abs_diff(667) <= 11, "{shares:?}");
    assert_eq!(shares[1], Some(1000));
    assert_eq!(accesses(&status), [None, None]);
}

/// There is more slow memory than a look takes in. Of a class 2,048 of 4,096 fast pages are in use, and 4,096 of
/// 32,768 slow ones; of the other all of 2,048 and none of 8,192. With room for all there are no stretches, and
/// single pages say how it is.
#[test]
fn a_search_estimates_touched_pages() {
    for fast in [6_400, 100_000] {
        let mut world = FakeWorld::two_tiers(fast, 100_000);
        world.sources.truncate(1);
        world.sampled = Some(Random::new(3));
        add(&mut world, 0, [(FAST, 2048, 4096), (SLOW, 4096, 32_768)]);
        add(&mut world, 1, [(FAST, 2048, 2048), (SLOW, 0, 8192)]);
        let mut config = config(&world, "dry_run = true", "[a]\n[b]");
        config.look_pages = 4096;
        let mut tierer = Tierer::new(&mut world, config);
        let status = run(&mut tierer, &mut world, 60_000);
        let shares = touched(&status);
        // 2048 / 6144. In half a minute 32 fast pages are drawn five times: the error of their half is 0.04,
        // that of the share 0.017, and three times that is allowed.
        assert!(shares[0].unwrap().abs_diff(333) <= 50, "{fast}: {shares:?}");
        assert_eq!(shares[1], Some(1000));
    }
}

/// With room for all, nobody looks at fast pages; a class that keeps them is not looked at,
/// either.
#[test]
fn a_side_that_is_not_seen_is_unknown() {
    let absent = |fast, classes: &str| {
        let mut world = FakeWorld::two_tiers(fast, 100_000);
        world.sources.truncate(1);
        add(&mut world, 0, [(FAST, 2048, 4096), (SLOW, 1024, 4096)]);
        add(&mut world, 1, [(FAST, 2048, 2048), (SLOW, 0, 8192)]);
        let config = config(&world, "dry_run = true", classes);
        let mut tierer = Tierer::new(&mut world, config);
        let status = run(&mut tierer, &mut world, 30_000);
        assert_eq!(status.touched_fairness_permille, None);
        touched(&status)
    };
    assert_eq!(absent(50_000, "[a]\n[b]"), [None, None]);
    let keeps = absent(6_400, "[a]\ndemote = false\n[b]");
    assert_eq!((keeps[0], keeps[1]), (None, Some(1000)));
}

/// Hint faults name pages, and never say what was not touched; on some kernels no fast page.
#[test]
fn hint_faults_say_nothing_of_shares() {
    let mut world = FakeWorld::two_tiers(5000, 100_000);
    world.sources.truncate(1);
    world.sources[0].abilities = Abilities::default();
    world.sources[0].kind = access::Source::HintFault;
    add(&mut world, 0, [(FAST, 200, 1000), (SLOW, 100, 2000)]);
    let mut tierer = tierer(&mut world, "[a]");
    let status = run(&mut tierer, &mut world, 20_000);
    assert!(status.pghot_recorded_accesses > 0);
    assert_eq!(touched(&status), [None]);
    assert_eq!(accesses(&status), [None]);
}

/// Pages that came up are fast from then on, and the share follows.
#[test]
fn shares_follow_what_moves() {
    let mut world = page_tables(5000);
    add(&mut world, 0, [(FAST, 100, 1000), (SLOW, 300, 2000)]);
    let config = config(&world, "", "[a]");
    let mut tierer = Tierer::new(&mut world, config);
    let status = run(&mut tierer, &mut world, 60_000);
    assert_eq!(world.process(10).hot_on(FAST), 400);
    assert_eq!(touched(&status), [Some(1000)]);
}

/// A reload may count classes anew.
#[test]
fn a_reload_keeps_shares_by_name() {
    let mut world = page_tables(5000);
    add(&mut world, 0, [(FAST, 160, 1000), (SLOW, 40, 2000)]);
    add(&mut world, 1, [(FAST, 60, 70), (SLOW, 140, 2000)]);
    let mut tierer = tierer(&mut world, "[a]\n[c]");
    let status = run(&mut tierer, &mut world, 4_000);
    assert_eq!(touched(&status), [Some(800), Some(300)]);
    let next = config(&world, "dry_run = true", "[b]\n[c]");
    world.processes[0].class = None;
    tierer.follow(&mut world, next);
    let status = tierer.status(&mut world).tiering.unwrap();
    assert_eq!(touched(&status), [None, Some(300)]);
}
