use crate::config::{Configuration, Lru};
use crate::kernel::KernelError;
use crate::kernel::testing::{Bench, machine, region};
use crate::page::Flags;
use crate::workload::{Kind, RegionPlan};
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

fn bench(regions: Vec<RegionPlan>) -> Bench {
    let configuration = Configuration::off("test");
    Bench::new(
        &machine(&[(4096, 1), (4096, 1)], 0),
        regions,
        &configuration,
    )
}

fn file(kind: Kind, number: u16, pages: u32) -> RegionPlan {
    RegionPlan {
        kind,
        file: Some(number),
        ..region(pages)
    }
}

#[test]
fn mappings_of_a_file_share_its_pages() {
    let mut bench = bench(vec![
        file(Kind::SharedFile, 7, 10),
        file(Kind::SharedFile, 7, 20),
    ]);
    let (a, b) = (bench.slot(0, 3), bench.slot(1, 3));
    bench.touch(0, a, false).unwrap();
    bench.touch(1, b, false).unwrap();
    let kernel = &bench.kernel;
    assert_eq!(
        kernel.ptes[a as usize].frame(),
        kernel.ptes[b as usize].frame()
    );
    let owner = kernel.owner(a).unwrap();
    assert!(kernel.regions.is_file(owner));
    assert_eq!(kernel.mappers(owner).collect::<Vec<_>>(), [a, b]);
    assert_eq!(kernel.counters.get(Counter::Pgmajfault), 1);
    // Read-only until the first store, so that the kernel learns of it.
    bench.touch(1, b, true).unwrap();
    let dirty = |slot: u32| bench.kernel.ptes[slot as usize].has(Flags::DIRTY);
    assert!(dirty(owner) && dirty(b) && !dirty(a));
    bench.check();
}

#[test]
fn a_store_to_a_private_page_copies_it() {
    let mut bench = bench(vec![
        file(Kind::PrivateFile, 1, 4),
        file(Kind::PrivateFile, 1, 4),
    ]);
    let (a, b) = (bench.slot(0, 0), bench.slot(1, 0));
    bench.touch(0, a, false).unwrap();
    bench.touch(0, b, false).unwrap();
    let cached = bench.kernel.owner(b).unwrap();
    bench.touch(0, a, true).unwrap();
    assert_eq!(bench.kernel.owner(a), Some(a));
    assert_eq!(bench.kernel.owner(b), Some(cached));
    assert_eq!(bench.kernel.mappers(cached).collect::<Vec<_>>(), [b]);
    // A store first: the page is read and copied at once.
    let c = bench.slot(0, 1);
    bench.touch(0, c, true).unwrap();
    assert_eq!(bench.kernel.owner(c), Some(c));
    bench.check();
}

#[test]
fn files_without_a_number_are_their_own() {
    let own = |pages| RegionPlan {
        file: None,
        ..file(Kind::SharedFile, 0, pages)
    };
    let mut bench = bench(vec![own(4), own(4)]);
    let (a, b) = (bench.slot(0, 0), bench.slot(1, 0));
    bench.touch(0, a, false).unwrap();
    bench.touch(0, b, false).unwrap();
    assert_ne!(bench.kernel.owner(a), bench.kernel.owner(b));
}

#[test]
fn a_store_to_a_read_only_region_is_an_error() {
    let fixed = RegionPlan {
        writable: false,
        ..region(4)
    };
    let mut bench = bench(vec![fixed]);
    let expected = KernelError::ReadOnly {
        region: "data".into(),
    };
    assert_eq!(bench.touch(0, 0, true), Err(expected.clone()));
    bench.touch(0, 0, false).unwrap();
    assert_eq!(bench.touch(0, 0, true), Err(expected));
}

#[test]
fn a_region_goes_when_its_time_has_come() {
    for lru in [Lru::Classic, Lru::Multigenerational] {
        let eater = RegionPlan {
            freed_at_ns: Some(3_000_000),
            huge: true,
            ..region(1100)
        };
        let configuration = Configuration {
            lru,
            ..Configuration::off("test")
        };
        let regions = vec![eater, file(Kind::SharedFile, 0, 10)];
        let mut bench = Bench::new(&machine(&[(4096, 1)], 0), regions, &configuration);
        for region in 0..2 {
            for slot in bench.kernel.regions.get(region).slots() {
                bench.touch(0, slot, true).unwrap();
            }
        }
        bench.pass(2);
        assert_eq!(bench.pages(0), [1100]);
        bench.pass(1);
        assert_eq!((bench.pages(0), bench.pages(1)), (vec![0], vec![10]));
        let frames = &bench.kernel.frames;
        let free = frames.free(NodeId(0)) + frames.on_cpu_lists(NodeId(0));
        assert_eq!(free, 4096 - 10);
        bench.check();
    }
}

#[test]
fn huge_mappings_that_cannot_be_are_refused() {
    let plan = |region| crate::workload::Plan {
        regions: vec![region],
        threads: vec![],
        ends_at_ns: None,
    };
    let refuse = |plan| {
        let spec = machine(&[(4096, 1)], 0);
        let configuration = Configuration::off("test");
        let made = crate::kernel::Kernel::new(&spec, &plan, &configuration, 1, 1);
        made.err().unwrap().to_string()
    };
    let of_file = RegionPlan {
        huge: true,
        ..file(Kind::SharedFile, 0, 1024)
    };
    assert!(refuse(plan(of_file)).contains("huge pages of files"));
    let crooked = RegionPlan {
        huge: true,
        start_vpn: 5,
        ..region(1024)
    };
    assert!(refuse(plan(crooked)).contains("multiple of 512"));
}
