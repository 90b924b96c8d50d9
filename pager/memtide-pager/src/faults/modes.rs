//! The nth call of each kind fails, in both modes.

use super::{Faulty, OPS, Op, PAGE, builder, number_of, numbered, start, value};
use crate::builder::Mode;
use crate::error::Error;
use crate::sys::Errno;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGES: usize = 1024;

/// Reads every page twice through `read_at`, and once more by address where no
/// read can fail. Returns the errors.
fn read_all(pager: &crate::Pager, path: &std::path::Path, by_address: bool) -> Vec<Error> {
    let region = match pager.open(path) {
        Ok(region) => region,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    for round in 0..2 {
        for page in 0..PAGES {
            let page = if round == 0 { page } else { page * 389 % PAGES };
            let mut bytes = [0u8; PAGE];
            match region.read_at(&mut bytes, (page * PAGE) as u64) {
                Ok(_) => assert_eq!(number_of(&bytes), Some(value(page)), "page {page}"),
                Err(error) => errors.push(error),
            }
            if by_address {
                let bytes = &region.as_slice()[page * PAGE..][..PAGE];
                assert_eq!(number_of(bytes), Some(value(page)), "page {page}");
            }
        }
    }
    errors
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_call_that_fails_makes_no_wrong_byte(
        op in 0..OPS.len(),
        from in 0u64..200,
        count in prop_oneof![Just(1u64), Just(3), Just(u64::MAX)],
        errno in prop_oneof![
            Just(Errno::IO), Just(Errno::NOMEM), Just(Errno::INVAL), Just(Errno::AGAIN),
            Just(Errno::INTR), Just(Errno::PERM)
        ],
        strict in any::<bool>(),
    ) {
        let op = OPS[op];
        // An interruption is tried again: for ever would be for ever. A page that the
        // kernel puts off is tried a thousand times: for every page is too long.
        let waits = errno == Errno::INTR || (op, errno) == (Op::Fill, Errno::AGAIN);
        prop_assume!(count < u64::MAX || !waits);
        let file = numbered(PAGES);
        let mode = if strict { Mode::Strict } else { Mode::File };
        let began = Instant::now();
        let pager = start(builder(PAGES, 4).mode(mode), Faulty::new(op, from, count, errno));
        // In strict mode a read by address of what cannot be read is a SIGBUS.
        let may_fail = matches!(op, Op::Read | Op::Fill | Op::Facts)
            || strict && matches!(op, Op::ZapOne | Op::Zap | Op::Mapped);
        let errors = read_all(&pager, file.path(), !may_fail);
        prop_assert!(may_fail || errors.is_empty(), "{op:?}: {errors:?}");
        if strict && !matches!(op, Op::Zap | Op::ZapOne) {
            let now = pager.statistics();
            prop_assert!(now.peak_resident_bytes <= now.budget_bytes, "{now:?}");
        }
        drop(pager);
        prop_assert!(began.elapsed() < Duration::from_secs(30), "{op:?} took too long");
    }
}

#[test]
fn what_the_kernel_puts_off_for_ever_is_an_error() {
    let file = numbered(PAGES);
    let kernel = Faulty::new(Op::Fill, 0, u64::MAX, Errno::AGAIN);
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), kernel);
    let region = pager.open(file.path()).unwrap();
    for page in 0..8 {
        let read = region.read_at(&mut [0; PAGE], (page * PAGE) as u64);
        assert!(matches!(read, Err(Error::Read { .. })), "{read:?}");
    }
}

#[test]
fn without_the_batched_call_the_fallback_serves_and_says_so() {
    let file = numbered(PAGES);
    for mode in [Mode::File, Mode::Strict] {
        let kernel = Faulty::new(Op::Zap, 0, u64::MAX, Errno::INVAL);
        let pager = start(builder(PAGES, 4).mode(mode), kernel);
        let state = pager.state();
        assert!(!state.unmap.best);
        assert!(
            state.unmap.to_string().contains("needs Linux 6.13"),
            "{}",
            state.unmap
        );
        assert!(read_all(&pager, file.path(), true).is_empty());
        let region = pager.open(file.path()).unwrap();
        for page in region.as_slice().chunks(PAGE) {
            assert!(number_of(page).is_some());
        }
        let settled = pager.settle();
        let now = pager.statistics();
        assert!(settled && now.resident_bytes <= now.budget_bytes, "{now:?}");
    }
}

#[test]
fn without_cachestat_mincore_serves_and_says_so() {
    let file = numbered(PAGES);
    let kernel = Faulty::new(Op::CountCached, 0, u64::MAX, Errno::NOSYS);
    let pager = start(builder(PAGES, 4), kernel);
    let region = pager.open(file.path()).unwrap();
    let sight = pager.state().sight;
    assert!(
        !sight.best && sight.to_string().contains("Linux 6.5"),
        "{sight}"
    );
    let sum: u64 = region
        .as_slice()
        .chunks(PAGE)
        .map(|page| u64::from(page[0]))
        .sum();
    assert!(sum > 0);
    assert!(pager.settle(), "{:?}", pager.statistics());
}

#[test]
fn who_may_not_see_the_page_cache_counts_what_is_mapped() {
    #[derive(Debug)]
    struct Blind(crate::kernel::Linux);
    impl crate::kernel::Kernel for Blind {
        fn query(&self, address: usize) -> Result<crate::sys::vma::Vma, Errno> {
            self.0.query(address)
        }
        fn vmas(&self) -> Result<Vec<crate::sys::vma::Vma>, Errno> {
            self.0.vmas()
        }
        fn zap(&self, ranges: &[crate::kernel::Range]) -> Result<usize, Errno> {
            self.0.zap(ranges)
        }
        fn zap_one(&self, range: crate::kernel::Range) -> Result<(), Errno> {
            self.0.zap_one(range)
        }
        fn drop_cached(&self, f: std::os::fd::BorrowedFd<'_>, o: u64, b: u64) -> Result<(), Errno> {
            self.0.drop_cached(f, o, b)
        }
        fn count_cached(
            &self,
            _: std::os::fd::BorrowedFd<'_>,
            _: u64,
            _: u64,
        ) -> Result<u64, Errno> {
            Err(Errno::PERM)
        }
        fn in_core(&self, _: usize, out: &mut [u8]) -> Result<(), Errno> {
            out.fill(1);
            Ok(())
        }
        fn mapped(&self, a: usize, out: &mut [super::PagemapEntry]) -> Result<(), Errno> {
            self.0.mapped(a, out)
        }
        fn may_see(&self, _: std::os::fd::BorrowedFd<'_>) -> bool {
            false
        }
        fn facts(&self, f: std::os::fd::BorrowedFd<'_>) -> Result<super::FileFacts, Errno> {
            self.0.facts(f)
        }
        fn read(
            &self,
            f: std::os::fd::BorrowedFd<'_>,
            b: &mut [u8],
            o: u64,
        ) -> Result<usize, Errno> {
            self.0.read(f, b, o)
        }
        fn read_ahead(&self, f: std::os::fd::BorrowedFd<'_>, o: u64, b: u64) -> Result<(), Errno> {
            self.0.read_ahead(f, o, b)
        }
        fn advise(&self, r: crate::kernel::Range, o: crate::ReadOrder) -> Result<(), Errno> {
            self.0.advise(r, o)
        }
        fn read_bytes(&self) -> Option<u64> {
            None
        }
        fn read_around(&self, d: u64) -> Option<u64> {
            self.0.read_around(d)
        }
        fn fill(
            &self,
            f: std::os::fd::BorrowedFd<'_>,
            t: usize,
            b: &[u8],
        ) -> (usize, Option<Errno>) {
            self.0.fill(f, t, b)
        }
    }
    let file = numbered(PAGES);
    let kernel = Arc::new(Blind(crate::kernel::Linux::new().unwrap()));
    let pager = crate::Pager::start_on(builder(PAGES, 4).check().unwrap(), kernel).unwrap();
    assert!(read_all(&pager, file.path(), true).is_empty());
    let region = pager.open(file.path()).unwrap();
    region
        .as_slice()
        .chunks(PAGE)
        .for_each(|page| assert!(number_of(page).is_some()));
    assert!(pager.settle(), "{:?}", pager.statistics());
    assert!(!pager.state().sight.best);
    assert!(pager.statistics().dropped_pages > 0);
}
