//! No wrong byte, ever: each page holds its own number, and every read is checked
//! across eviction and refill.

#[path = "truth/mod.rs"]
mod data;

use data::{Numbers, numbered_file, page_number, seconds};
use memtide_pager::{Mode, Pager, Policy, ReadAhead, Unmapping};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// One pager with random settings over one or two files, read by several threads
/// in three ways at once. Returns the reads.
fn one_case(seed: u64, mode: Mode, length: Duration) -> u64 {
    let mut choice = Numbers::new(seed);
    let pages = 2048 + choice.below(6144) as usize;
    let granule = [4 << 10, 16 << 10, 64 << 10, 64 << 10, 256 << 10][choice.below(5) as usize];
    let share = 2 + choice.below(7);
    let budget = ((pages * PAGE) as u64 / share).max(16 * granule as u64);
    let threads = 1 + choice.below(8);
    let unmapping = match choice.below(8) {
        0 => Unmapping::EagerGranules,
        1 => Unmapping::EagerPages,
        _ => Unmapping::Lazy,
    };
    let policy = match choice.below(4) {
        0 => Policy::Fifo,
        _ => Policy::ScanResistant,
    };
    let read_ahead = ReadAhead {
        bytes: [0, 256 << 10, 2 << 20][choice.below(3) as usize],
        threads: 1 + choice.below(2) as usize,
    };
    let shown = format!(
        "seed {seed}: {mode:?}, {pages} pages, granule {granule}, budget {budget}, \
         {threads} threads, {unmapping:?}, {policy:?}, {read_ahead:?}"
    );
    let file = numbered_file(pages, seed);
    let pager = Pager::builder()
        .budget(budget)
        .granule(granule)
        .mode(mode)
        .policy(policy)
        .unmapping(unmapping)
        .read_ahead(read_ahead)
        .start()
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
    let region = pager.open(file.path()).unwrap();
    let reads = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (region, reads, stop, shown) = (&region, &reads, &stop, &shown);
            scope.spawn(move || {
                let mut number = Numbers::new(seed * 1000 + thread);
                let mut page = number.below(pages as u64) as usize;
                let mut done = 0u64;
                while !stop.load(Relaxed) {
                    for _ in 0..64 {
                        page = match thread % 3 {
                            0 => number.below(pages as u64) as usize,
                            1 => (page + 1) % pages,
                            _ if number.below(50) > 0 => number.below(pages as u64 / 10) as usize,
                            _ => number.below(pages as u64) as usize,
                        };
                        let found = match number.below(200) {
                            0 => {
                                let mut bytes = [0; PAGE];
                                region.read_at(&mut bytes, (page * PAGE) as u64).unwrap();
                                page_number(&bytes)
                            }
                            _ => page_number(&region.as_slice()[page * PAGE..][..PAGE]),
                        };
                        assert_eq!(found, Ok(data::value(page, seed)), "page {page}; {shown}");
                        done += 1;
                    }
                }
                reads.fetch_add(done, Relaxed);
            });
        }
        let _stop = data::SetOnDrop(&stop);
        let until = Instant::now() + length;
        // Until something had to leave, however slow the disk is.
        let at_last = until + Duration::from_secs(60);
        let mut evicted = false;
        while Instant::now() < until || !evicted && Instant::now() < at_last {
            std::thread::sleep(Duration::from_millis(20));
            let now = pager.statistics();
            evicted = now.dropped_pages > 0;
            if mode == Mode::Strict {
                assert!(now.peak_resident_bytes <= budget, "{now:?}; {shown}");
                assert_eq!(now.budget_overruns, 0, "{now:?}; {shown}");
            }
        }
    });
    drop(region);
    let statistics = pager.shutdown().unwrap();
    assert!(
        statistics.dropped_pages > 0,
        "nothing was evicted: {statistics:?}; {shown}"
    );
    assert_eq!(statistics.read_errors, 0, "{shown}");
    println!("{} reads, {shown}: {statistics:?}", reads.load(Relaxed));
    reads.load(Relaxed)
}

/// `MEMTIDE_PAGER_SECONDS` (15) for both modes together, from
/// `MEMTIDE_PAGER_SEED` (1) on.
#[test]
fn every_page_holds_its_number() {
    let until = Instant::now() + Duration::from_secs(seconds(15));
    let first: u64 = std::env::var("MEMTIDE_PAGER_SEED").map_or(1, |text| text.parse().unwrap());
    let (mut seed, mut reads) = (first, 0);
    while seed == first || Instant::now() < until {
        for mode in [Mode::File, Mode::Strict] {
            reads += one_case(seed, mode, Duration::from_millis(1200));
        }
        seed += 1;
    }
    println!("{} cases, {reads} reads, none wrong", 2 * (seed - first));
}
