//! `docs/reproduction.md` shows what the simulator prints today, and what it promises.
//!
//! Its tables take minutes of an optimised build (`cargo run --release -p xtask -- reproduction --check`),
//! so the same experiments are made again on machines a quarter as fine, whose ratios the document
//! holds too: whatever changes the tables changes these. The same runs show that no row of any shipped
//! scenario beats its oracle.

use memtide_sim::scenario::reproduction::{Tally, out_of_order, tally};
use memtide_sim::scenario::{Comparison, Options, Quiet, SHIPPED, Scenario, coarse, run};
use std::collections::BTreeMap;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");

/// Percent by which rows of coarse runs may change places with those of the tables.
const NEARLY_ALIKE: f64 = 2.0;

fn document() -> String {
    std::fs::read_to_string(PATH).unwrap()
}

fn coarsely(scenario: &Scenario) -> Comparison {
    let options = Options {
        scale: Some(coarse::scale(scenario)),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::default()
    };
    run(scenario, &options, &Quiet).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn coarse_runs_are_as_the_document_says_and_none_beats_its_oracle() {
    let read = SHIPPED.iter().map(|shipped| shipped.read().unwrap());
    let all: BTreeMap<String, Comparison> = read
        .map(|scenario| (scenario.name.clone(), coarsely(&scenario)))
        .collect();

    let better = all.values().flat_map(|comparison| {
        let rows = coarse::beaten(comparison).into_iter();
        rows.map(|(row, by)| {
            let (name, case, row) = (&comparison.scenario, &row.case, &row.configuration);
            format!("{name} {case} {row}: {:.2} %", by * 100.0)
        })
    });
    let better: Vec<String> = better.collect();
    assert!(better.is_empty(), "better than the oracle: {better:#?}");

    let document = document();
    let mut sum = Tally::default();
    for comparison in all.values() {
        sum.add(tally(comparison));
        for (pair, ours) in out_of_order(comparison) {
            assert!(
                ours > -NEARLY_ALIKE || document.contains(&format!("- {pair}")),
                "not in the published order, and docs/reproduction.md does not say so: {pair}"
            );
        }
    }
    assert!(
        3 * sum.near >= 2 * sum.rows,
        "two thirds of the ratios are to be within 10 points: {sum:?}"
    );

    let fresh = coarse::render(&document, &mut |scenario| Ok(all[&scenario.name].clone()));
    assert!(
        fresh.unwrap() == document,
        "docs/reproduction.md is not current: run cargo run --release -p xtask -- reproduction"
    );
}

#[test]
fn every_scenario_with_published_figures_has_its_table() {
    let document = document();
    for shipped in SHIPPED {
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
