//! What policies of ours do when what is hot changes while fast memory is full from the start.
//!
//! `phases` has another hot set in each phase, `zipf-drift` moves its hot pages a little all the time. Both
//! begin with DRAM full of pages that are as good as cold, so every hot page needs another one's room. A
//! policy that adapts does at the end of the last phase what it did in the first, and does not fall from one
//! to the next.

use memtide_sim::scenario::{Options, Quiet, Row, Scenario, run, shipped};
use memtide_sim::workload::WorkloadSpec;

/// As coarse as leaves DRAM some hundred pages.
const SCALE: u32 = 512;
/// A share that is near another one: a tenth of all accesses.
const NEAR: f64 = 0.10;
/// What moving wins at the end at least: nothing that moves nothing adapts.
const GAIN: f64 = 0.20;

/// Phases in all. Of eight hot sets of 2 GiB the first four begin in DRAM and the others do not, so what moves
/// nothing has next to nothing of the last one in DRAM.
const PHASES: usize = 8;
/// How much longer than the scenario's a phase is: some forty seconds, of which the last ten count. In what
/// time a hot set is found is another question.
const LONGER: u64 = 4;
/// Parts of the work in which what is hot drifts all the time.
const PARTS: usize = 3;

/// The rows of a scenario whose memory is populated from DRAM on, until that is full.
fn rows(name: &str, only: &[&str]) -> Vec<Row> {
    let mut scenario: Scenario = shipped(name).unwrap().read().unwrap();
    for case in &mut scenario.cases {
        match &mut case.workload {
            WorkloadSpec::Phases(spec) => {
                (spec.on, spec.phases) = (0, PHASES as u32);
                spec.accesses_per_phase *= LONGER;
            }
            WorkloadSpec::Zipf(spec) => spec.on = 0,
            other => panic!("{other:?}"),
        }
    }
    let options = Options {
        scale: Some(SCALE),
        jobs: 1,
        only: only.iter().map(|&name| name.to_owned()).collect(),
        ..Options::default()
    };
    run(&scenario, &options, &Quiet).unwrap().rows
}

/// The share of accesses that fast memory served at the end of each of so many parts of the work: in the last
/// of so many pieces of it.
fn ends(row: &Row, count: usize, pieces: usize) -> Vec<f64> {
    let series = &row.result.series;
    let (mut fast, mut all) = (vec![0.0; count], vec![0.0; count]);
    let mut before = 0.0;
    for (&done, &share) in series.done.iter().zip(&series.fast_share) {
        let piece = ((before + done) / 2.0 * (count * pieces) as f64) as usize;
        let part = (piece / pieces).min(count - 1);
        if piece % pieces == pieces - 1 {
            fast[part] += share * (done - before);
            all[part] += done - before;
        }
        before = done;
    }
    fast.iter().zip(all).map(|(fast, all)| fast / all).collect()
}

/// Holds the end of each part to that of the first one and of the one before it.
fn adapts(name: &str, configuration: &str, count: usize, pieces: usize) {
    let rows = rows(name, &["NUMAB0", configuration]);
    let of = |name: &str| {
        let row = rows.iter().find(|row| row.configuration == name);
        ends(row.unwrap(), count, pieces)
    };
    let (still, shares) = (of("NUMAB0"), of(configuration));
    println!("{name}, {configuration}: {shares:.3?}, and {still:.3?} without moves");
    let (last, without) = (shares[count - 1], still[count - 1]);
    assert!(
        last > without + GAIN,
        "{last} at the end, {without} without moves"
    );
    for part in 1..count {
        for before in [0, part - 1] {
            assert!(
                shares[part] >= shares[before] - NEAR,
                "{name}, {configuration}: the fast share falls, {shares:.3?}"
            );
        }
    }
}

#[test]
fn the_gate_alone_adapts_to_phases() {
    adapts("phases", "threshold-free", PHASES, 4);
}

#[test]
fn the_gate_alone_adapts_to_drift() {
    adapts("zipf-drift", "threshold-free", PARTS, 1);
}

#[test]
fn tiering_adapts_to_phases() {
    adapts("phases", "memtide tier", PHASES, 4);
}

#[test]
fn tiering_adapts_to_drift() {
    adapts("zipf-drift", "memtide tier", PARTS, 1);
}

/// All of memory is in use, no page is idle, and DRAM is full from the start. Who knew the hottest pages would
/// have 0.9 of the accesses served by DRAM. Looking at the pages takes a minute or more of what observing may
/// cost. At the scenario's own scale: at 1/256 a third less is won.
#[test]
fn tiering_exchanges_warm_pages_for_hot_ones() {
    let scenario: Scenario = shipped("warm-and-full").unwrap().read().unwrap();
    let options = Options {
        jobs: 1,
        only: vec!["NUMAB0".to_owned(), "memtide tier".to_owned()],
        ..Options::default()
    };
    let rows = run(&scenario, &options, &Quiet).unwrap().rows;
    let of = |name: &str| rows.iter().find(|row| row.configuration == name).unwrap();
    let (still, tier) = (of("NUMAB0"), of("memtide tier"));
    let shares = |row| ends(row, PARTS, 1);
    let (without, with) = (shares(still), shares(tier));
    println!("warm-and-full: {with:.3?}, and {without:.3?} without moves");
    assert!(with[PARTS - 1] > without[PARTS - 1] + GAIN, "{with:?}");
    assert!(tier.result.seconds < 0.98 * still.result.seconds);
    // Who exchanges for ever wins nothing by most of it.
    let moved = *tier.result.series.pages_migrated.last().unwrap();
    assert!(moved < (2 << 30) >> 12, "{moved} pages, more than DRAM has");
}
