//! What the generator promises.

use super::super::coverage::Coverage;
use super::super::draw::STATIC;
use super::memory::HUGE_PAGE;
use super::*;
use crate::guest::agreement::calls::Answer;
use std::collections::BTreeMap;

fn machine() -> Machine {
    let text = r#"{"memory_nodes":"0-2","cpu_nodes":"0-1","possible_nodes":"0-2","kernel":"7.2",
        "cpuset":"0-2","run_on":0,"weights":{"0":1,"1":1,"2":1},"auto":true,"distances":[],"zero_page_node":0,"capable":true}"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_seed_gives_one_sequence() {
    let machine = machine();
    let of = |seed| sequence(&machine, seed, 300).calls;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert!((300..340).contains(&of(3).len()));
}

#[test]
fn ten_thousand_calls_leave_no_cell_empty() {
    let machine = machine();
    let mut coverage = Coverage::default();
    for seed in 0..40 {
        for line in sequence(&machine, seed, 250).calls {
            coverage.count(&line.call, &Answer::default());
        }
    }
    assert!(coverage.total() >= 10_000);
    assert_eq!(coverage.missing(), Vec::<String>::new());
    assert_eq!(coverage.calls.len(), 14, "{:?}", coverage.calls);
}

/// Regions lie beside each other and inside their 2 MiB, below the anchor.
#[test]
fn regions_do_not_overlap() {
    let machine = machine();
    for seed in 0..200 {
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut generator = Generator::new(&machine, seed);
        generator.lay_out();
        for region in &generator.regions {
            let end = region.address + region.pages * 4096;
            assert!(end <= region.address / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE - 4096);
            assert!(taken.iter().all(|&(a, b)| end <= a || b <= region.address));
            taken.push((region.address, end));
        }
    }
}

/// Between a counting policy and the question for its counter stands nothing that allocates, and
/// nobody asks a child.
#[test]
fn the_counter_is_asked_for_in_windows_only() {
    let machine = machine();
    for seed in 0..50 {
        let mut counters = BTreeMap::from([(None, Counter::Off)]);
        for Line { process, call } in sequence(&machine, seed, 300).calls {
            let counter = counters.get_mut(&process).unwrap();
            match call {
                Call::Fork { child } => {
                    if *counter == Counter::Known {
                        *counter = Counter::Unknown;
                    }
                    let inherited = *counter;
                    counters.insert(Some(child), inherited);
                }
                Call::Exit => drop(counters.remove(&process)),
                Call::SetMempolicy { mode, mask, .. } => {
                    let mode = mode & !(STATIC | RELATIVE);
                    *counter = match mode {
                        _ if INTERLEAVES.contains(&mode) && mask != Mask::Null => Counter::Known,
                        0 | 4 => Counter::Off,
                        _ => Counter::Unknown,
                    };
                }
                Call::GetMempolicy {
                    flags: 1, place, ..
                } if place == Place::default() => {
                    let child = process.is_some();
                    assert_ne!(*counter, Counter::Unknown, "seed {seed}");
                    assert!(!child || *counter == Counter::Off, "seed {seed}");
                }
                _ => {}
            }
        }
    }
}

/// Every second seed has processes that come and go, three at most.
#[test]
fn processes_come_and_go() {
    let machine = machine();
    let (mut forks, mut exits, mut of_children) = (0, 0, 0);
    for seed in 0..20 {
        let mut there = 1;
        for Line { process, call } in sequence(&machine, seed, 800).calls {
            of_children += u64::from(process.is_some());
            match call {
                Call::Fork { .. } => (there, forks) = (there + 1, forks + 1),
                Call::Exit => (there, exits) = (there - 1, exits + 1),
                _ => {}
            }
            assert!((1..=3).contains(&there));
            assert!(seed % 2 == 0 || there == 1);
        }
    }
    assert!(forks > 50 && exits > 25, "{forks} {exits}");
    assert!(of_children > 1000, "{of_children}");
}
