//! Every shipped scenario, small: it runs, and the same bytes come out at any number of jobs.

use memtide_sim::scenario::{Comparison, Options, Quiet, SHIPPED, Scenario, Unit, run};
use memtide_sim::units::{Bytes, Nanos};
use memtide_sim::workload::WorkloadSpec;

/// As small as still means something: some hundred pages.
fn small_scale(scenario: &Scenario) -> u32 {
    match scenario.name.as_str() {
        "page-count" => 1,
        // Of a machine with 8 GiB of DRAM less would leave nothing.
        "zipf-drift" | "phases" | "scan-over-hot" | "scale-4g" | "pointer-chase" => 2048,
        "bursty" => 2048,
        "bandwidth-bound" => 1024,
        "hot-larger-than-fast" | "warm-and-full" => 1024,
        "scale" | "scale-large" => 8192,
        "mlc-interleave" | "stream-interleave" => 1024,
        "two-tenants" | "noisy-neighbour" => 256,
        // Small enough for the kernel to check itself after every quantum, which takes a while.
        "burst" => 1024,
        "luf-llama" | "pghot-mode3" => 4096,
        _ => 16_384,
    }
}

/// Cases with a home are always at full size: here they are made small. What takes hundreds of seconds takes
/// some of them.
fn made_small(mut scenario: Scenario) -> Scenario {
    for case in &mut scenario.cases {
        match (case.home, &mut case.workload) {
            (Some(_), WorkloadSpec::HotSet(spec)) => {
                (spec.memory, spec.hot) = (Bytes(1 << 30), Bytes(1 << 27));
                spec.time = Nanos(2e9);
            }
            (_, WorkloadSpec::Pmbench(spec)) => {
                (spec.eater_until, spec.until) = (Nanos(10e9), Nanos(60e9));
            }
            (_, WorkloadSpec::Inference(spec)) => spec.tokens = 4,
            _ => {}
        }
    }
    scenario
}

fn compared(scenario: &Scenario, jobs: usize, seed: u64) -> Comparison {
    let scenario = &made_small(scenario.clone());
    let options = Options {
        seed,
        scale: Some(small_scale(scenario)),
        jobs,
        only: Vec::new(),
        check: false,
    };
    run(scenario, &options, &Quiet).unwrap_or_else(|error| panic!("{error}"))
}

fn json(comparison: &Comparison) -> String {
    serde_json::to_string(comparison).unwrap()
}

macro_rules! scenarios {
    ($($test:ident $name:literal,)*) => {
        $(#[test]
        fn $test() {
            let scenario = memtide_sim::scenario::shipped($name).unwrap().read().unwrap();
            let one = json(&compared(&scenario, 1, 1));
            let three = json(&compared(&scenario, 3, 1));
            assert!(one == three, "the bytes depend on the number of jobs");
        })*

        #[test]
        fn every_shipped_scenario_is_tested() {
            let tested = [$($name),*];
            assert!(SHIPPED.iter().all(|shipped| tested.contains(&shipped.name)));
        }
    };
}

scenarios! {
    zipf_drift "zipf-drift",
    phases "phases",
    scan_over_hot "scan-over-hot",
    scale "scale",
    scale_large "scale-large",
    scale_4g "scale-4g",
    hot_larger_than_fast "hot-larger-than-fast",
    warm_and_full "warm-and-full",
    bursty "bursty",
    bandwidth_bound "bandwidth-bound",
    two_tenants "two-tenants",
    noisy_neighbour "noisy-neighbour",
    burst "burst",
    pointer_chase "pointer-chase",
    page_count "page-count",
    stream_interleave "stream-interleave",
    mlc_interleave "mlc-interleave",
    xsbench_interleave "xsbench-interleave",
    pghot_mode1 "pghot-mode1",
    pghot_mode2 "pghot-mode2",
    pghot_mode3 "pghot-mode3",
    pghot_overcommit "pghot-overcommit",
    numab_bind_pmbench "numab-bind-pmbench",
    ibs_two_node "ibs-two-node",
    sockets "sockets",
    luf_llama "luf-llama",
}

#[test]
fn chance_comes_from_the_seed() {
    let scenario = memtide_sim::scenario::shipped("pghot-mode1")
        .unwrap()
        .read()
        .unwrap();
    assert_ne!(
        json(&compared(&scenario, 2, 1)),
        json(&compared(&scenario, 2, 2))
    );
}

#[test]
fn pages_land_where_the_document_saw_them_within_one_round() {
    let scenario = memtide_sim::scenario::shipped("page-count")
        .unwrap()
        .read()
        .unwrap();
    let comparison = compared(&scenario, 2, 1);
    for row in &comparison.rows {
        assert_eq!(row.unit, Unit::Pages);
        let published = &row.published.as_ref().unwrap().pages;
        assert_eq!(published.len(), 2);
        for placed in &row.result.placed {
            for (theirs, ours) in published[&placed.region].iter().zip(&placed.pages) {
                assert!(theirs.abs_diff(*ours) <= 1, "{}: {placed:?}", row.case);
            }
        }
    }
}
