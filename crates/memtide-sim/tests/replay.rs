//! Recordings again: what memory takes is the simulated machine's, and time in which nothing happens
//! costs none of the host's.

#[path = "closed_forms/machine.rs"]
#[allow(dead_code)]
mod machine;

use machine::{Node, machine};
use memtide_sim::config::{Bound, Configuration};
use memtide_sim::engine;
use memtide_sim::result::RunResult;
use memtide_sim::spec::MachineSpec;
use memtide_sim::workload::{Places, TraceRow, WorkloadSpec};
use std::sync::Arc;

fn replayed(rows: Vec<TraceRow>, latency_ns: f64, recorded: &str) -> RunResult {
    let spec = machine(&[Node(4, 64, latency_ns, 300.0)]);
    let off = Configuration {
        demotion: false,
        ..Configuration::off("off")
    };
    replayed_on(&spec, rows, recorded, &off)
}

fn replayed_on(
    spec: &MachineSpec,
    rows: Vec<TraceRow>,
    recorded: &str,
    configuration: &Configuration,
) -> RunResult {
    let text = format!(
        "[trace]\nfile = \"x\"\nnode = 0\non = 0\nops_per_access = 1\nthink = \"0 ns\"\n\
         recorded = \"{recorded}\"\n"
    );
    let workload: WorkloadSpec = toml::from_str(&text).unwrap();
    let built = workload.build(&Places::new(spec), 1, &Arc::new(rows));
    engine::run_configuration(spec, built, configuration, 1, 1, &|_| ()).unwrap()
}

fn row(time_ns: u64, thread: u32, page: u64) -> TraceRow {
    TraceRow {
        time_ns,
        thread,
        address: page * 4096,
        write: false,
    }
}

#[test]
fn a_slower_machine_takes_longer() {
    // An access each microsecond, 20,000 of them, by one thread; with four misses under way at once
    // each takes a quarter of the latency. The 32 pages are walked to once each.
    let rows: Vec<TraceRow> = (0..20_000).map(|n| row(n * 1000, 0, n % 32)).collect();
    for latency_ns in [100.0, 400.0, 2000.0] {
        let result = replayed(rows.clone(), latency_ns, "0 ns");
        let expected = (19_999.0 * 1000.0 + 20_032.0 * latency_ns / 4.0) * 1e-9;
        assert!(
            (result.seconds / expected - 1.0).abs() < 1e-6,
            "{latency_ns} ns: {} s, not {expected}",
            result.seconds
        );
        // Of a recording whose memory took 100 ns an access, that is no time of the thread's own.
        let result = replayed(rows.clone(), latency_ns, "100 ns");
        let expected = expected - 19_999.0 * 100e-9;
        assert!(
            (result.seconds / expected - 1.0).abs() < 1e-6,
            "{}",
            result.seconds
        );
    }
}

#[test]
fn months_in_which_nothing_happens_are_over_at_once() {
    const MONTH_NS: u64 = 30 * 86_400 * 1_000_000_000;
    // Two threads, and one that sleeps through most of it.
    let rows = vec![
        row(0, 0, 1),
        row(10, 1, 2),
        row(MONTH_NS, 0, 1),
        row(MONTH_NS + 1_000, 1, 2),
        row(3 * MONTH_NS, 0, 3),
    ];
    let result = replayed(rows, 100.0, "0 ns");
    let months = result.seconds / (MONTH_NS as f64 * 1e-9);
    assert!((months - 3.0).abs() < 1e-6, "{months} months");
    assert_eq!(result.accesses, 5);
}

#[test]
fn a_sleeper_leaves_its_processor_to_others() {
    // Five threads on four CPUs: the one that shares a CPU with a sleeper is not held up by it.
    let mut rows: Vec<TraceRow> = (0..5).map(|thread| row(0, thread, 1)).collect();
    rows.push(row(50_000_000_000, 0, 1));
    rows.push(row(50_000_000_000, 4, 1));
    for n in 1..1000 {
        rows.extend((1..4).map(|thread| row(n * 1000, thread, 1)));
    }
    let result = replayed(rows, 100.0, "0 ns");
    assert!((result.seconds - 50.0).abs() < 0.01, "{}", result.seconds);
}

#[test]
fn the_oracle_follows_a_recording_and_calls_that_an_estimate() {
    // An access each 10 us for a second; each quarter of it goes to one of two sets of 2048 pages in turn. The
    // fast node holds one of them. By counts of the whole second it would serve half of the accesses; by
    // windows of 100 ms nearly all. A set that changes within a window is half in it: 2 of 10 windows.
    let spec = machine(&[Node(4, 8, 100.0, 300.0), Node(0, 64, 250.0, 300.0)]);
    let page = |n: u64| (n / 25_000 % 2) * 4096 + n * 7 % 2048;
    let rows: Vec<TraceRow> = (0..100_000).map(|n| row(n * 10_000, 0, page(n))).collect();
    let oracle = Configuration {
        bound: Some(Bound::Oracle),
        ..Configuration::off("oracle")
    };
    let result = replayed_on(&spec, rows, "0 ns", &oracle);
    assert!(result.fast_share > 0.85, "{}", result.fast_share);
    let why = result.estimate.expect("an estimate");
    assert!(why.contains("recording"), "{why}");
}
