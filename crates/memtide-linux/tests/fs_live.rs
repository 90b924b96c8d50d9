//! Every reader over the machine that runs the test, whatever it is.
//!
//! Fixtures hold what somebody thought of; a running kernel holds the rest.
//! What this user may not read, or what ended in between, is counted and
//! printed; content that is not understood fails the test.

use memtide_linux::fs::proc::{self, Process};
use memtide_linux::fs::{FsError, Root, cgroup, meminfo, node, numa, topology, vmstat, zoneinfo};
use std::collections::BTreeMap;

/// Counts what could not be had; panics at what was not understood.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn note<T>(&mut self, what: &'static str, result: Result<T, FsError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error @ (FsError::Malformed { .. } | FsError::Contradiction { .. })) => {
                panic!("{error}")
            }
            Err(FsError::Gone { .. }) => None,
            Err(_) => {
                *self.0.entry(what).or_default() += 1;
                None
            }
        }
    }
}

#[test]
fn every_process_of_this_machine_is_understood() {
    let root = Root::default();
    let mut tally = Tally::default();
    let listed = proc::list(&root).unwrap();
    for entry in &listed {
        let process = entry.process;
        tally.note("status", process.status(&root));
        tally.note("task", process.threads(&root));
        tally.note("cgroup", process.cgroup(&root));
        tally.note("maps", process.maps(&root));
        tally.note("smaps", process.smaps(&root));
        tally.note("numa_maps", process.numa_maps(&root));
    }
    println!("{} processes; not readable: {:?}", listed.len(), tally.0);
}

#[test]
fn kernel_threads_are_told_apart_in_both_ways() {
    let root = Root::default();
    for entry in proc::list(&root).unwrap() {
        let Ok(status) = entry.process.status(&root) else {
            continue;
        };
        if let Some(kernel_thread) = status.kernel_thread {
            assert_eq!(kernel_thread, entry.stat.kernel_thread, "{entry:?}");
        }
        assert!(!(entry.stat.kernel_thread && entry.stat.has_address_space()));
    }
}

#[test]
fn the_machine_itself_is_understood() {
    let root = Root::default();
    let mut tally = Tally::default();
    tally.note("vmstat", vmstat::system(&root));
    tally.note("meminfo", meminfo::system(&root));
    let zones = tally.note("zoneinfo", zoneinfo::read(&root));
    tally.note("cgroup mount", cgroup::mount(&root));
    tally.note("numa_balancing", numa::balancing(&root));
    tally.note("rate limit", numa::promote_rate_limit(&root));
    tally.note("paranoid", numa::perf_event_paranoid(&root));
    tally.note("lockdown", numa::lockdown(&root));
    assert!(numa::release(&root).unwrap().is_some());
    assert!(numa::capabilities(&root).unwrap().is_some());
    if let Some(machine) = tally.note("topology", topology::read(&root)) {
        for id in machine.topology.memory_nodes().iter() {
            assert!(vmstat::node(&root, id).unwrap().is_some());
            let sum = zones.as_ref().and_then(|zones| zones.sum(id)).unwrap();
            assert!(sum.managed.unwrap() > 0, "node {id}");
        }
        assert_eq!(
            machine.weights.is_some(),
            node::weights(&root).unwrap().is_some()
        );
    }
    println!("not readable: {:?}", tally.0);
}

/// Mapping by mapping, for the one process that cannot end meanwhile.
#[test]
fn this_process_is_on_its_allowed_nodes() {
    let root = Root::default();
    let me = Process::current(&root).unwrap();
    let Some(mappings) = me.numa_maps(&root).unwrap() else {
        println!("this kernel has no numa_maps");
        return;
    };
    let Some(allowed) = me.status(&root).unwrap().mems_allowed else {
        println!("this kernel has no cpusets");
        return;
    };
    let private = mappings.iter().filter(|m| m.file.is_none());
    for (node, pages) in private.flat_map(|mapping| &mapping.pages) {
        assert!(allowed.contains(node), "{pages} pages on node {node}");
    }
}
