//! `docs/reproduction.md` shows what the simulator prints today.
//!
//! It takes a minute or two of an optimised build, so a debug build leaves it out: run
//! `cargo test --release -p memtide-sim --test reproduction`. `cargo xtask reproduction` rewrites it.

use memtide_sim::scenario::{Options, Quiet, reproduction::render, run, shipped};

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes an hour unoptimised; run with --release"
)]
fn the_tables_are_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");
    let document = std::fs::read_to_string(path).unwrap();
    let options = Options {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::default()
    };
    let fresh = render(&document, &mut |name| {
        let scenario = shipped(name).ok_or_else(|| format!("no scenario {name}"))?;
        let scenario = scenario.read().map_err(|error| error.to_string())?;
        run(&scenario, &options, &Quiet).map_err(|error| error.to_string())
    });
    assert!(
        fresh.unwrap() == document,
        "docs/reproduction.md is not current: run `cargo xtask reproduction`"
    );
}

#[test]
fn every_scenario_with_published_figures_has_its_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");
    let document = std::fs::read_to_string(path).unwrap();
    for shipped in memtide_sim::scenario::SHIPPED {
        let scenario = shipped.read().unwrap();
        let line = format!("<!-- table {} -->", shipped.name);
        assert_eq!(
            document.contains(&line),
            !scenario.published.is_empty(),
            "{}",
            shipped.name
        );
    }
}
