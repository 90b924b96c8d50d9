use crate::config::Configuration;
use crate::kernel::Kernel;
use crate::kernel::testing::{machine, region};
use crate::workload::Plan;

fn heap(machine_pages: u64, workload_pages: u32) -> usize {
    let plan = Plan {
        regions: vec![region(workload_pages)],
        threads: vec![],
        ends_at_ns: None,
    };
    let spec = machine(
        &[(machine_pages / 4, 64), (machine_pages / 4 * 3, 0)],
        1 << 14,
    );
    let kernel = Kernel::new(&spec, &plan, &Configuration::off("test"), 1, 1);
    kernel.unwrap().heap_bytes()
}

#[test]
fn a_page_takes_20_bytes_and_a_tebibyte_fits_in_8_gib() {
    // 8 bytes of entry and 12 of frame a page; blocks of 512 frames take 20 more, CPUs' lists and
    // policies a constant.
    let pages = 4 << 20;
    let small = heap(1 << 20, 1 << 20);
    let large = heap(pages, pages as u32);
    let per_page = (large - small) as f64 / (pages - (1 << 20)) as f64;
    assert!((20.0..20.1).contains(&per_page), "{per_page} bytes a page");
    // With the precise hotness store's 4 bytes, on 2^28 pages: 24.04 * 2^28 = 6.0 GiB.
    let constant = small as f64 - per_page * f64::from(1 << 20);
    let tebibyte = (per_page + 4.0) * f64::from(1 << 28) + constant;
    assert!(tebibyte < 8.0 * f64::from(1 << 30), "{tebibyte} bytes");
    assert!(constant < 65_536.0, "{constant} bytes beside pages");
}
