//! A scale changes no answer: ratios stay within two points, with DRAM full from the start and without.
//! Where they do not, `memtide sim run` says that they are not valid, or moved by chance.

use memtide_sim::scenario::confidence::{Confidence, MOST_SCALE_ERROR, run_surely};
use memtide_sim::scenario::{Options, Quiet, Row, Scenario, shipped};
use memtide_sim::workload::WorkloadSpec;

/// Of a Zipf distribution a part of the accesses will do: all of them would take too long.
const SHORTER: u64 = 4;

/// The names of all rows and their ratios: with several seeds, the medians.
fn ratios(name: &str, scale: u32, seeds: u32, only: &[&str]) -> Vec<(String, f64)> {
    let mut scenario: Scenario = shipped(name).unwrap().read().unwrap();
    for case in &mut scenario.cases {
        if let WorkloadSpec::Zipf(spec) = &mut case.workload {
            spec.accesses /= SHORTER;
        }
    }
    let options = Options {
        scale: Some(scale),
        jobs: 1,
        only: only.iter().map(|&row| row.to_owned()).collect(),
        ..Options::default()
    };
    let ran = run_surely(&scenario, &options, seeds, false, &Quiet).unwrap();
    let named = |(row, sure): (&Row, &Confidence)| {
        let median = sure.ratio.map(|ratio| ratio.median);
        Some((row.configuration.clone(), median.or(row.ratio)?))
    };
    let rows = ran.comparison.rows.iter().zip(&ran.confidence);
    rows.filter_map(named).collect()
}

/// Holds the ratios of each scale to those of the first.
fn agree(name: &str, scales: &[u32], seeds: u32, only: &[&str]) {
    let of = |&scale: &u32| ratios(name, scale, seeds, only);
    let all: Vec<_> = scales.iter().map(of).collect();
    for (scale, of) in scales.iter().zip(&all) {
        println!("{name} at 1/{scale}: {of:.3?}");
    }
    for (scale, of) in scales.iter().zip(&all) {
        for ((row, ratio), (_, first)) in of.iter().zip(&all[0]) {
            let by = (ratio - first).abs();
            assert!(
                by <= MOST_SCALE_ERROR,
                "{name}, {row}: {ratio:.3} at 1/{scale}, {first:.3} at 1/{}",
                scales[0]
            );
        }
    }
}

#[test]
fn with_dram_full_from_the_start() {
    agree("warm-and-full", &[64, 256], 3, &[]);
}

#[test]
fn with_room_for_all_that_is_hot() {
    agree("pghot-mode1", &[1024, 4096], 1, &[]);
}

#[test]
fn with_a_scan_beside_a_hot_set() {
    agree("scan-over-hot", &[128, 256], 1, &[]);
}

/// One seed moves NUMAB2's ratio by 0.03 here.
#[test]
fn with_a_hot_set_that_changes() {
    let rows = ["NUMAB0", "NUMAB2", "memtide tier"];
    agree("phases", &[256, 1024], 7, &rows);
}

/// At 1/1 a row takes minutes for each seed.
#[test]
#[ignore = "46 minutes of a processor"]
fn with_dram_full_and_nothing_left_out() {
    agree("warm-and-full", &[1, 16, 64, 256], 3, &[]);
}
