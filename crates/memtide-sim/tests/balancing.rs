//! What balancing by samples promises, on small machines.

use memtide_sim::result::RunResult;
use memtide_sim::scenario::{Comparison, Options, Quiet, run, shipped};

fn compared(name: &str, scale: u32, only: &[&str]) -> Comparison {
    let scenario = shipped(name).unwrap().read().unwrap();
    let options = Options {
        scale: Some(scale),
        only: only.iter().map(|&name| name.to_owned()).collect(),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::default()
    };
    run(&scenario, &options, &Quiet).unwrap()
}

/// Threads with memory of their own, memory that all share, half and half: balancing by batches of
/// samples, the kernel's or `memtide balance`'s, may gain, and never costs more than 2 %.
#[test]
fn batches_never_cost_more_than_two_percent() {
    let names = ["off", "samples in batches", "memtide balance"];
    let comparison = compared("sockets", 8192, &names);
    let mut cases = Vec::new();
    for rows in comparison.rows.chunks(names.len()) {
        let [off, balanced @ ..] = rows else {
            panic!("three configurations of each case")
        };
        assert_eq!(off.configuration, "off");
        for row in balanced {
            assert_eq!(row.case, off.case);
            let ratio = row.value / off.value;
            let name = &row.configuration;
            assert!(ratio < 1.02, "{name}, {}: {ratio:.3}", off.case);
            assert!(row.result.balancing.pages_moved > 0, "{name}, {}", off.case);
        }
        cases.push(off.case.as_str());
    }
    assert_eq!(cases, ["own", "shared", "half"]);
}

/// The IBS balancing series: samples take less time than hint faults; their pages move from the beginning, those of
/// hint faults late and then faster; and a page that moves costs less.
#[test]
fn document_004s_order_and_the_shape_of_its_series() {
    let names = ["NUMAB1", "IBS", "samples in batches"];
    let comparison = compared("ibs-two-node", 8192, &names);
    let [faults, each, batches] = &comparison.rows[..] else {
        panic!("three rows")
    };
    assert!(each.value < faults.value && batches.value < faults.value);
    let pages = |run: &RunResult, share: f64| {
        let series = &run.series;
        let until = run.seconds * share;
        let count = series.seconds.iter().take_while(|&&s| s <= until).count();
        series.pages_migrated[count.max(1) - 1]
    };
    let moved = |run: &RunResult| run.balancing.pages_moved;
    for row in [each, batches] {
        let run = &row.result;
        // Steadily from the start: after a fifth of the time more than a tenth of the pages.
        assert!(pages(run, 0.2) * 10 > moved(run), "{}", row.configuration);
        assert!(pages(run, 0.2) > pages(&faults.result, 0.2));
        // The run is over before all of the second set's 2,097,152 pages have moved.
        assert!(moved(run) < moved(&faults.result));
        let cost = |run: &RunResult| run.balancing.ns_a_page.unwrap();
        assert!(cost(run) < cost(&faults.result), "{}", row.configuration);
    }
    assert!(pages(&faults.result, 0.2) * 50 < moved(&faults.result));
}
