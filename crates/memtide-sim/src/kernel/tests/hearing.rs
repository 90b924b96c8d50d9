//! Page faults that somebody listens to.

use crate::config::Configuration;
use crate::kernel::heard::HeardFault;
use crate::kernel::testing::{Bench, machine, region};
use crate::page::{Flags, Slot};
use crate::workload::{Kind, RegionPlan};

fn bench(regions: Vec<RegionPlan>) -> Bench {
    let machine = machine(&[(4096, 1), (4096, 1)], 0);
    Bench::new(&machine, regions, &Configuration::off("test"))
}

fn heard(bench: &mut Bench) -> Vec<Slot> {
    let slot = |fault: HeardFault| fault.slot;
    bench.kernel.heard.take().map(slot).collect()
}

/// What each costs in nanoseconds, with what perf adds.
#[test]
fn each_minor_fault_of_who_is_listened_to_is_heard_and_costs_more() {
    let mut bench = bench(vec![region(10)]);
    let slot = bench.slot(0, 3);
    let unheard = bench.touch(0, bench.slot(0, 2), false).unwrap();
    assert!(heard(&mut bench).is_empty());
    bench.kernel.heard.listen_to(vec![0]);
    assert_eq!(bench.touch(0, slot, false).unwrap(), unheard + 400);
    assert_eq!(heard(&mut bench), [slot]);
    // It is there: no fault.
    assert_eq!(bench.touch(0, slot, false).unwrap(), 0);
    bench.kernel.ptes[slot as usize].set(Flags::HINT);
    assert_eq!(bench.touch(0, slot, false).unwrap(), 1400);
    assert_eq!(heard(&mut bench), [slot]);
    assert!(heard(&mut bench).is_empty());
    bench.kernel.heard.listen_to(vec![1]);
    bench.kernel.ptes[slot as usize].set(Flags::HINT);
    assert_eq!(bench.touch(0, slot, false).unwrap(), 1000);
    assert!(heard(&mut bench).is_empty());
}

/// The first touch of a file's page reads it from storage: a major fault. The second mapping's is minor.
#[test]
fn a_fault_that_waits_for_storage_is_a_major_one() {
    let file = || RegionPlan {
        kind: Kind::SharedFile,
        file: Some(7),
        ..region(10)
    };
    let mut bench = bench(vec![file(), file()]);
    bench.kernel.heard.listen_to(vec![0]);
    let (first, second) = (bench.slot(0, 3), bench.slot(1, 3));
    bench.touch(0, first, false).unwrap();
    assert!(heard(&mut bench).is_empty());
    bench.touch(0, second, false).unwrap();
    assert_eq!(heard(&mut bench), [second]);
}

/// A store to each page faults once after it was protected, a load does not; shared files are left alone.
#[test]
fn protected_pages_fault_once_when_they_are_written() {
    let shared = RegionPlan {
        kind: Kind::SharedFile,
        file: Some(7),
        ..region(2)
    };
    let mut bench = bench(vec![region(4), shared]);
    let slots = [0, 1, 2].map(|page| bench.slot(0, page));
    let of_file = bench.slot(1, 0);
    for slot in slots.into_iter().chain([of_file]) {
        bench.touch(0, slot, true).unwrap();
    }
    bench.kernel.heard.listen_to(vec![0]);
    let (kernel, hw) = (&mut bench.kernel, &mut bench.hw);
    // Two other CPUs may run the space: 300 and 30 each.
    assert_eq!(kernel.protect_written(hw, 0).0, 3);
    assert_eq!(bench.touch(0, slots[0], false).unwrap(), 0);
    assert_eq!(bench.touch(0, of_file, true).unwrap(), 0);
    for slot in [slots[0], slots[1]] {
        assert_eq!(bench.touch(0, slot, true).unwrap(), 900);
        assert_eq!(bench.touch(0, slot, true).unwrap(), 0);
    }
    assert_eq!(heard(&mut bench), slots[..2]);
    bench.check();
}
