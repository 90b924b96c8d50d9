//! How soon hot memory is home, by the sizes that a test can afford: each within its promise, with few
//! cold pages moved and within the budget. `memtide sim run scale` and `scale-large` have the others.

use memtide_sim::result::Home;
use memtide_sim::scenario::{Options, Quiet, Scenario, run, shipped};

fn scale() -> Scenario {
    shipped("scale").unwrap().read().unwrap()
}

/// The row of `memtide tier` in a case.
fn home(case: &str) -> Home {
    let mut scenario = scale();
    scenario.cases.retain(|of| of.name == case);
    assert_eq!(scenario.cases.len(), 1, "{case}");
    let options = Options {
        only: vec!["memtide tier".to_owned()],
        ..Options::default()
    };
    let comparison = run(&scenario, &options, &Quiet).unwrap();
    comparison.rows[0].result.home.unwrap()
}

#[track_caller]
fn keeps_its_promise(case: &str) {
    let home = home(case);
    let promise_s = home.promise_s.unwrap();
    let seconds = home.seconds.unwrap_or(f64::INFINITY);
    assert!(
        seconds <= promise_s,
        "{case}: {seconds} s, promised {promise_s} s"
    );
    assert!(home.cold_share.unwrap() <= 0.01, "{case}: {home:?}");
    assert!(home.minute_share.unwrap() <= 0.055, "{case}: {home:?}");
}

#[test]
fn ranges_in_4_gib() {
    keeps_its_promise("ranges of 64 MiB, 4 GiB");
}

#[test]
fn ranges_in_64_gib() {
    keeps_its_promise("ranges of 64 MiB, 64 GiB");
}

#[test]
fn pieces_of_2_mib_in_4_gib() {
    keeps_its_promise("pieces of 2 MiB, 4 GiB");
}

#[test]
fn scattered_pages_in_4_gib() {
    keeps_its_promise("page by page, 4 GiB");
}

/// Memory that one look takes in is not searched: the cadence looks at all of it, and may spend at once
/// what a minute earns, and owe as much again.
#[test]
#[ignore = "a promise that is not kept yet: the first minute takes 10 % of a CPU, and 5.5 % are promised"]
fn scattered_pages_in_1_gib() {
    keeps_its_promise("page by page, 1 GiB");
}

/// Two passes over 262,144 pages at 1 us and 5 % of a CPU.
#[test]
fn the_bound_by_hand() {
    let bound_s = home("page by page, 1 GiB").bound_s.unwrap();
    assert!(
        (bound_s - 262_144.0 * 2.0 * 1e-6 / 0.05).abs() < 1e-9,
        "{bound_s}"
    );
}
