//! Strict regions bring in what is needed, and never more than the budget.

use super::{Faulty, Op, PAGE, builder, number_of, numbered, start, value};
use crate::builder::{Mode, ReadAhead};
use crate::region::Region;
use crate::source::Source;
use crate::sys::Errno;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PAGES: usize = 1024;
const NOTHING_AHEAD: ReadAhead = ReadAhead {
    bytes: 0,
    threads: 1,
};

fn read(region: &Region, page: usize) {
    let bytes = &region.as_slice()[page * PAGE..][..PAGE];
    assert_eq!(number_of(bytes), Some(value(page)), "page {page}");
}

#[test]
fn pages_here_and_there_come_alone_and_a_stream_in_granules() {
    let file = numbered(PAGES);
    // Granules of 16 pages, and room for all of the file.
    let settings = builder(PAGES, 1).mode(Mode::Strict).granule(64 << 10);
    let pager = start(settings.read_ahead(NOTHING_AHEAD), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    let filled = || pager.statistics().filled_pages;
    for page in (0..PAGES / 2).step_by(9) {
        read(&region, page);
    }
    // 512 / 9 = 56.9.
    assert_eq!(filled(), 57);
    // A stream: 1 page, then 4, then the 11 to the granule's end, then granules.
    let stream = PAGES / 2;
    for (page, pages) in [(0, 1), (1, 4), (5, 11), (16, 16), (32, 16)] {
        let before = filled();
        read(&region, stream + page);
        assert_eq!(filled() - before, pages, "at page {page} of the stream");
    }
    // A read of eight pages brings in what is missing of them: 9 is here.
    let before = filled();
    let mut bytes = [0; 8 * PAGE];
    region.read_at(&mut bytes, 3 * PAGE as u64).unwrap();
    assert_eq!(filled() - before, 7);
    for (at, bytes) in bytes.chunks(PAGE).enumerate() {
        assert_eq!(number_of(bytes), Some(value(3 + at)));
    }
    // Exactly what came is in memory.
    let now = pager.statistics();
    assert_eq!(now.resident_bytes.max(now.peak_resident_bytes) % 4096, 0);
    assert_eq!(
        pager.state().regions[0].resident_bytes,
        now.filled_pages * PAGE as u64
    );
}

#[test]
fn a_source_that_is_no_file_is_read_in_granules() {
    struct Numbers;
    impl Source for Numbers {
        fn len(&self) -> u64 {
            (PAGES * PAGE) as u64
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            assert_eq!((buffer.len(), offset % (16 << 10)), (16 << 10, 0));
            for (at, page) in buffer.chunks_mut(PAGE).enumerate() {
                let number = value(offset as usize / PAGE + at).to_le_bytes();
                page.chunks_mut(8)
                    .for_each(|word| word.copy_from_slice(&number));
            }
            Ok(buffer.len())
        }
    }
    let settings = builder(PAGES, 4).mode(Mode::Strict);
    let pager = start(settings.read_ahead(NOTHING_AHEAD), Faulty::sound());
    let region = pager.open_source(Numbers).unwrap();
    for page in (0..PAGES).map(|n| n * 389 % PAGES) {
        read(&region, page);
    }
    let now = pager.statistics();
    assert!(now.filled_pages.is_multiple_of(4) && now.filled_pages > PAGES as u64);
    assert!(now.peak_resident_bytes <= now.budget_bytes, "{now:?}");
    assert_eq!(now.budget_overruns, 0);
}

#[test]
fn many_that_want_the_last_pages_stay_within_the_budget() {
    // Sixteen granules of sixteen pages may be here, the file has seventeen, and 48
    // threads want pages of granules that are here in part: nobody waits until the
    // budget is overrun for him, which it is after a second.
    const PAGES: usize = 17 * 16;
    let file = numbered(PAGES);
    let settings = crate::Pager::builder()
        .budget(16 * (64 << 10))
        .granule(64 << 10)
        .batch(1)
        .mode(Mode::Strict)
        .read_ahead(NOTHING_AHEAD);
    let pager = start(settings, Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for thread in 0..48usize {
            let region = &region;
            scope.spawn(move || {
                let mut number = thread as u64;
                while Instant::now() < until {
                    number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    read(region, (number >> 33) as usize % PAGES);
                }
            });
        }
    });
    let now = pager.statistics();
    assert_eq!(now.budget_overruns, 0, "{now:?}");
    assert!(now.peak_resident_bytes <= now.budget_bytes, "{now:?}");
    assert!(now.dropped_pages > 0, "{now:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Touch(usize),
    Read { page: usize, pages: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let touch = (0..PAGES).prop_map(Step::Touch);
    let read = (0..PAGES, 1..40usize).prop_map(|(page, pages)| Step::Read { page, pages });
    prop::collection::vec(prop_oneof![4 => touch, 1 => read], 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    })]

    /// The model: what was read is in memory, everything that is has its credit, and
    /// what came equals what is here and what left.
    #[test]
    fn what_comes_is_counted_page_by_page(
        steps in steps(),
        granule in prop::sample::select(vec![4usize << 10, 16 << 10, 64 << 10]),
        small in any::<bool>(),
        fails in prop::option::of(0u64..300),
    ) {
        let file = numbered(PAGES);
        let budget = if small { 16 * granule } else { PAGES * PAGE + 16 * granule };
        let settings = crate::Pager::builder()
            .budget(budget as u64)
            .granule(granule)
            .batch(1)
            .mode(Mode::Strict)
            .read_ahead(NOTHING_AHEAD);
        let count = u64::from(fails.is_some());
        let pager = start(settings, Faulty::new(Op::Read, fails.unwrap_or(0), count, Errno::IO));
        let region = pager.open(file.path()).unwrap();
        let mut touched = BTreeSet::new();
        for step in steps {
            let (page, pages) = match step {
                // A read by address of what cannot be read is a SIGBUS.
                Step::Touch(page) if fails.is_none() => {
                    read(&region, page);
                    (page, 1)
                }
                Step::Touch(page) => (page, 1),
                Step::Read { page, pages } => (page, pages.min(PAGES - page)),
            };
            let mut bytes = vec![0; pages * PAGE];
            if region.read_at(&mut bytes, (page * PAGE) as u64).is_ok() {
                touched.extend(page..page + pages);
                for (at, bytes) in bytes.chunks(PAGE).enumerate() {
                    prop_assert_eq!(number_of(bytes), Some(value(page + at)));
                }
            }
            let here = pager.state().regions[0].resident_bytes;
            prop_assert!(here <= budget as u64, "{} of {}", here, budget);
        }
        let now = pager.statistics();
        let here = pager.state().regions[0].resident_bytes / PAGE as u64;
        prop_assert!(now.peak_resident_bytes <= budget as u64);
        prop_assert_eq!(now.budget_overruns, 0);
        prop_assert!(now.filled_pages >= touched.len() as u64);
        prop_assert!(now.filled_pages - now.refilled_pages <= PAGES as u64);
        if !small {
            prop_assert_eq!((now.dropped_pages, now.refilled_pages), (0, 0));
        }
        // The evictor may be at work.
        let settled = pager.settle();
        let now = pager.statistics();
        prop_assert!(settled);
        if !small {
            prop_assert_eq!(now.filled_pages, here);
        }
        prop_assert_eq!(
            pager.state().regions[0].resident_bytes / PAGE as u64,
            now.filled_pages - now.dropped_pages
        );
        drop(region);
        prop_assert_eq!(pager.state().regions.len(), 0);
        pager.settle();
        prop_assert_eq!(pager.statistics().resident_bytes, 0);
    }
}
