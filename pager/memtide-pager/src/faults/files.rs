//! What happens to the data: cut short, replaced, written to, locked, with holes,
//! not readable; and to the process: forked, limited.

use super::{Faulty, Intruder, Op, PAGE, builder, number_of, numbered, start, value};
use crate::builder::Mode;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::source::Source;
use crate::sys::{Errno, child};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tempfile::NamedTempFile;

const PAGES: usize = 1024;
const MODES: [Mode; 2] = [Mode::File, Mode::Strict];

fn page_at(region: &crate::Region, page: usize) -> Result<Option<u64>, Error> {
    let mut bytes = [0u8; PAGE];
    region.read_at(&mut bytes, (page * PAGE) as u64)?;
    Ok(number_of(&bytes))
}

#[test]
fn a_file_that_is_cut_short_is_an_error_and_no_wrong_byte() {
    for mode in MODES {
        let file = numbered(PAGES);
        let pager = start(builder(PAGES, 4).mode(mode), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        assert_eq!(page_at(&region, 3).unwrap(), Some(value(3)));
        file.as_file().set_len((PAGES / 2 * PAGE) as u64).unwrap();
        assert_eq!(page_at(&region, 7).unwrap(), Some(value(7)));
        let error = page_at(&region, PAGES - 1).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{mode:?}: {error}");
        let error = region.check().unwrap_err().to_string();
        assert!(
            error.contains("cut from 4194304 to 2097152 bytes"),
            "{error}"
        );
    }
}

/// Drops what of a file is in the page cache, and counts what is from then on. Says
/// so where that cannot be done.
fn count_from_nothing(file: &NamedTempFile) -> Option<impl Fn() -> u64> {
    let kernel = crate::kernel::Linux::new().unwrap();
    let bytes = (PAGES * PAGE) as u64;
    let file = file.as_file();
    let cached = move || kernel.count_cached(file.as_fd(), 0, bytes);
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if cached() != Ok(0) {
        println!(
            "skipped: files here stay in memory, or there is no cachestat: {:?}",
            cached()
        );
        return None;
    }
    Some(move || cached().unwrap())
}

#[test]
fn strict_reads_leave_no_second_copy_in_the_page_cache() {
    let file = numbered(PAGES);
    let Some(cached) = count_from_nothing(&file) else {
        return;
    };
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    for page in 0..PAGES {
        assert_eq!(page_at(&region, page).unwrap(), Some(value(page)));
    }
    // An eviction that is under way ends first.
    assert!(pager.settle(), "{:?}", pager.statistics());
    // What was in somebody's hands when it was to go may be left, for as long as its
    // granule is in memory: a quarter of all.
    let left = cached();
    assert!(left <= PAGES as u64 / 4, "{left} of {PAGES} pages");
}

#[test]
fn strict_reads_bring_in_nothing_that_was_not_asked_for() {
    let file = numbered(PAGES);
    let Some(cached) = count_from_nothing(&file) else {
        return;
    };
    // Room for all: nothing is evicted, with what a read of it left.
    let settings = builder(PAGES, 1).mode(Mode::Strict).granule(64 << 10);
    let pager = start(settings, Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    // Two pages of every 23: 45 runs of a page, and four behind it. To the kernel the
    // four look like a stream, of which it would read ahead.
    for page in (0..PAGES).step_by(23) {
        for page in [page, page + 1] {
            assert_eq!(page_at(&region, page).unwrap(), Some(value(page)));
        }
    }
    let left = cached();
    assert!(left <= 45, "{left} pages are left of 45 runs");
}

#[test]
fn a_file_that_is_replaced_stays_what_was_opened() {
    for mode in MODES {
        let file = numbered(PAGES);
        let pager = start(builder(PAGES, 4).mode(mode), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        let other = numbered(4);
        std::fs::rename(other.path(), file.path()).unwrap();
        for page in 0..PAGES {
            let bytes = &region.as_slice()[page * PAGE..][..PAGE];
            assert_eq!(number_of(bytes), Some(value(page)), "{mode:?}");
        }
        std::mem::forget(other.into_temp_path());
    }
}

#[test]
fn a_file_that_is_written_to_is_noticed() {
    for mode in MODES {
        let file = numbered(PAGES);
        let pager = start(builder(PAGES, 4).mode(mode), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        region.check().unwrap();
        rustix::io::pwrite(file.as_file(), b"x", 0).unwrap();
        let error = region.check().unwrap_err().to_string();
        assert!(error.contains("written to since it was opened"), "{error}");
    }
}

/// Data without a file, of which one granule cannot be read for a while.
struct Computed {
    fails: AtomicUsize,
}

impl Source for Computed {
    fn len(&self) -> u64 {
        (PAGES * PAGE - 100) as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset == 5 * 16384 && self.fails.load(SeqCst) > 0 {
            self.fails.fetch_sub(1, SeqCst);
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        // A few bytes at a time, as a socket would.
        let n = buffer.len().min(5000);
        for (at, byte) in buffer[..n].iter_mut().enumerate() {
            let place = offset as usize + at;
            *byte = value(place / PAGE).to_le_bytes()[place % 8];
        }
        Ok(n)
    }
}

#[test]
fn data_that_is_no_file_is_served_and_its_errors_are_told() {
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
    let fails = AtomicUsize::new(2);
    let region = pager.open_source(Computed { fails }).unwrap();
    for _ in 0..2 {
        let error = page_at(&region, 20).unwrap_err().to_string();
        assert!(
            error.contains("source: reading 4096 bytes at 81920: "),
            "{error}"
        );
    }
    // It can be read again by now, by address too.
    for page in (0..PAGES - 1).chain(0..PAGES - 1) {
        let bytes = &region.as_slice()[page * PAGE..][..PAGE];
        assert_eq!(number_of(bytes), Some(value(page)));
    }
    assert_eq!(pager.statistics().read_errors, 2);
    let error = start(builder(PAGES, 4), Faulty::sound())
        .open_source(Computed { fails: 0.into() })
        .unwrap_err();
    assert!(error.to_string().contains("Mode::Strict"), "{error}");
}

#[test]
fn a_forked_child_reads_the_right_data() {
    for mode in MODES {
        let file = numbered(PAGES);
        let pager = start(builder(PAGES, 4).mode(mode), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        let sum = |region: &crate::Region| {
            (0..PAGES).all(|page| {
                let bytes = &region.as_slice()[page * PAGE..][..PAGE];
                number_of(bytes) == Some(value(page))
            })
        };
        assert!(sum(&region));
        let status = child::run(|| match sum(&region) && page_at(&region, 9).is_ok() {
            true => 0,
            false => 1,
        });
        assert_eq!(status, Ok(0), "{mode:?}");
        let status = child::run(|| match pager.open(file.path()) {
            Err(Error::Forked) => 0,
            _ => 1,
        });
        assert_eq!(status, Ok(0), "{mode:?}");
        let address = region.as_slice().as_ptr() as usize;
        let adopt = || pager.adopt(address, PAGES * PAGE, file.as_file(), 0);
        let status = child::run(|| match adopt() {
            Err(Error::Forked) => 0,
            _ => 1,
        });
        assert_eq!(status, Ok(0), "{mode:?}");
        assert!(sum(&region));
    }
}

#[test]
fn a_read_that_cannot_be_served_ends_like_any_other_bad_read() {
    // Every read fails: by address, the child dies of SIGBUS.
    let file = numbered(PAGES);
    let status = child::run(|| {
        let kernel = Faulty::new(Op::Read, 0, u64::MAX, Errno::IO);
        let pager = start(builder(PAGES, 4).mode(Mode::Strict).granule(4096), kernel);
        let region = pager.open(file.path()).unwrap();
        i32::from(region.as_slice()[0])
    });
    assert_eq!(status, Err(libc::SIGBUS));
}

#[test]
fn somebody_elses_handler_gets_what_is_not_ours() {
    let status = child::run_with_handler(|| {
        // Of no region: a file that was cut.
        let file = numbered(4);
        let mapping =
            crate::sys::mapping::Mapping::of_file(file.as_file().as_fd(), 0, 4 * PAGE).unwrap();
        let data = numbered(PAGES);
        let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
        let region = pager.open(data.path()).unwrap();
        // Ours is served, and never reaches the other handler.
        assert_eq!(number_of(&region.as_slice()[..PAGE]), Some(value(0)));
        file.as_file().set_len(0).unwrap();
        i32::from(mapping.as_slice(4 * PAGE)[0])
    });
    assert_eq!(status, Ok(child::HANDLER_SAW_IT));
}

#[test]
fn locked_pages_and_holes_do_not_stop_the_rest() {
    let file = numbered(PAGES);
    for mode in MODES {
        let pager = start(builder(PAGES, 2).mode(mode), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        let locked = 64;
        if let Err(errno) = child::lock(region.address(), locked * PAGE) {
            eprintln!("not tested: mlock of {locked} pages: {errno}");
            return;
        }
        for page in (0..PAGES).chain(0..PAGES) {
            let bytes = &region.as_slice()[page * PAGE..][..PAGE];
            assert_eq!(number_of(bytes), Some(value(page)), "{mode:?}");
        }
        assert!(pager.settle(), "{mode:?}: {:?}", pager.statistics());
        assert!(pager.statistics().dropped_pages > 0);
    }
}

#[test]
fn what_was_taken_out_of_care_is_touched_no_more() {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let mapping =
        crate::sys::mapping::Mapping::of_file(file.as_file().as_fd(), 0, PAGES * PAGE).unwrap();
    let adopted = pager
        .adopt(mapping.address(), PAGES * PAGE, file.as_file(), 0)
        .unwrap();
    let sweep = || {
        for page in 0..PAGES {
            let bytes = &mapping.as_slice(PAGES * PAGE)[page * PAGE..][..PAGE];
            assert_eq!(number_of(bytes), Some(value(page)));
        }
    };
    sweep();
    assert!(pager.settle());
    assert!(!pager.forget(mapping.address() + PAGES * PAGE, PAGE));
    // The first half becomes private memory of the program's.
    assert!(pager.forget(mapping.address(), PAGES / 2 * PAGE));
    child::overwrite(mapping.address(), PAGES / 2 * PAGE, 7);
    for _ in 0..4 {
        let half = &mapping.as_slice(PAGES * PAGE)[PAGES / 2 * PAGE..];
        half.chunks(PAGE)
            .for_each(|page| assert!(number_of(page).is_some()));
        pager.settle();
    }
    let mine = &mapping.as_slice(PAGES * PAGE)[..PAGES / 2 * PAGE];
    assert!(
        mine.iter().all(|byte| *byte == 7),
        "the pager took memory that was not its own"
    );
    drop(adopted);
    let error = pager.adopt(mapping.address(), PAGES * PAGE, file.as_file(), 0);
    assert!(matches!(error, Err(Error::NotAdoptable { .. })));
}

/// A page of the program's own in each of 16 blocks, put there behind everybody's
/// back, on a kernel without the batched call, which unmaps whole blocks.
#[test]
fn the_fallback_leaves_pages_of_others_in_its_blocks_alone() {
    const BLOCKS: usize = 16;
    const BLOCK: usize = 512;
    let file = numbered(BLOCKS * BLOCK);
    let kernel = Faulty::new(Op::Zap, 0, u64::MAX, Errno::INVAL);
    let pager = start(builder(BLOCKS * BLOCK, 8), kernel);
    assert!(!pager.state().unmap.best);
    let bytes = BLOCKS * BLOCK * PAGE;
    let mapping = crate::sys::mapping::Mapping::of_file(file.as_file().as_fd(), 0, bytes).unwrap();
    let _adopted = pager
        .adopt(mapping.address(), bytes, file.as_file(), 0)
        .unwrap();
    let own = |block: usize| block * BLOCK + 37 * (block + 1) % BLOCK;
    for block in 0..BLOCKS {
        child::overwrite(mapping.address() + own(block) * PAGE, PAGE, 0xa5);
    }
    for _ in 0..3 {
        for page in 0..BLOCKS * BLOCK {
            let bytes = &mapping.as_slice(bytes)[page * PAGE..][..PAGE];
            match own(page / BLOCK) == page {
                true => assert!(
                    bytes.iter().all(|byte| *byte == 0xa5),
                    "page {page} is lost"
                ),
                false => assert_eq!(number_of(bytes), Some(value(page))),
            }
        }
        pager.settle();
    }
    assert!(pager.statistics().dropped_pages > 0);
}

/// Pieces that are unmapped one by one take long enough for a program to put memory of its
/// own where the next ones were, and to write to it.
#[test]
fn what_is_put_there_between_two_pieces_is_not_lost() {
    intrude(Faulty::sound(), crate::Unmapping::EagerPages);
}

/// So does a batch that stops short: at a mapping, perhaps, that is being replaced. The first
/// call is the one that tries whether there are batches.
#[test]
fn what_is_put_there_behind_the_end_of_a_short_call_is_not_lost() {
    for call in 1..8 {
        let kernel = Faulty::new(Op::Zap, call, 1, Errno::NOMEM);
        intrude(kernel, crate::Unmapping::Lazy);
    }
}

fn intrude(mut kernel: Faulty, unmapping: crate::Unmapping) {
    let file = numbered(PAGES);
    let intruder = Arc::new(Intruder::default());
    kernel.intruder = Some(intruder.clone());
    let pager = start(builder(PAGES, 4).unmapping(unmapping), kernel);
    let bytes = PAGES * PAGE;
    let mapping = crate::sys::mapping::Mapping::of_file(file.as_file().as_fd(), 0, bytes).unwrap();
    let _adopted = pager
        .adopt(mapping.address(), bytes, file.as_file(), 0)
        .unwrap();
    intruder.end.store(mapping.address() + bytes, SeqCst);
    let place = || intruder.place.load(SeqCst);
    let own = || (place().max(mapping.address()) - mapping.address()) / PAGE;
    for _ in 0..3 {
        for page in 0..PAGES {
            let bytes = &mapping.as_slice(bytes)[page * PAGE..][..PAGE];
            // Page 0 is never the one behind another.
            let is_own = intruder.done.load(SeqCst) && own() == page && page > 0;
            let found = number_of(bytes);
            match is_own {
                true => assert_eq!(found, Some(0xa5a5_a5a5_a5a5_a5a5), "page {page} is lost"),
                // It may be put there while the page is read.
                false => assert!(found == Some(value(page)) || own() == page),
            }
        }
        pager.settle();
    }
    assert!(own() > 0 && pager.statistics().dropped_pages > 0);
}

/// Part of a block goes by a call that nobody saw, before anything of it was seen: the
/// kernel answers no question about mapped pages that has a hole in it.
#[test]
fn what_lies_beside_an_unseen_hole_leaves_too() {
    const HOLE: std::ops::Range<usize> = 101..199;
    let file = numbered(PAGES);
    // In a child, where nobody else maps anything into the hole.
    let status = child::run(|| {
        let pager = start(builder(PAGES, 4), Faulty::sound());
        let bytes = PAGES * PAGE;
        let mapping =
            crate::sys::mapping::Mapping::of_file(file.as_file().as_fd(), 0, bytes).unwrap();
        let _adopted = pager
            .adopt(mapping.address(), bytes, file.as_file(), 0)
            .unwrap();
        mapping.cut_out(HOLE.start * PAGE, HOLE.len() * PAGE);
        for _ in 0..3 {
            for page in (0..PAGES).filter(|page| !HOLE.contains(page)) {
                let bytes = &mapping.as_slice(bytes)[page * PAGE..][..PAGE];
                assert_eq!(number_of(bytes), Some(value(page)));
            }
            assert!(pager.settle(), "{:?}", pager.statistics());
        }
        // Nothing but the hole was given up.
        let regions = pager.state().regions;
        let cared_for: u64 = regions.iter().map(|region| region.bytes).sum();
        assert_eq!(cared_for, ((PAGES - HOLE.len()) * PAGE) as u64);
        0
    });
    assert_eq!(status, Ok(0));
}

/// A view of the part by which a file grew does not hide that older ones grew with it.
#[test]
fn what_a_file_grows_by_is_seen_in_older_mappings_too() {
    let file = numbered(PAGES / 2);
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let map = |from: usize, pages: usize| {
        let file = file.as_file().as_fd();
        let offset = (from * PAGE) as u64;
        crate::sys::mapping::Mapping::of_file(file, offset, pages * PAGE).unwrap()
    };
    let all = map(0, PAGES);
    let tail = map(PAGES - 16, 16);
    let adopt = |mapping: &crate::sys::mapping::Mapping, from: usize| {
        let offset = (from * PAGE) as u64;
        pager
            .adopt(mapping.address(), mapping.bytes(), file.as_file(), offset)
            .unwrap()
    };
    let _all = adopt(&all, 0);
    file.as_file().set_len((PAGES * PAGE) as u64).unwrap();
    let _tail = adopt(&tail, PAGES - 16);
    let mut sum = 0;
    for page in all.as_slice(PAGES * PAGE).chunks(PAGE) {
        sum += u64::from(page[0]);
    }
    assert!(sum > 0);
    let settled = pager.settle();
    let bytes = (PAGES * PAGE) as u64;
    let kernel = crate::kernel::Linux::new().unwrap();
    let cached = kernel.count_cached(file.as_file().as_fd(), 0, bytes);
    if cached == Ok(PAGES as u64) && pager.statistics().dropped_pages == 0 {
        println!("skipped: files here stay in memory");
        return;
    }
    assert!(settled, "{:?}", pager.statistics());
    assert!(
        cached.is_ok_and(|pages| pages <= PAGES as u64 / 4),
        "{cached:?}"
    );
}

/// Pages of holes are read from no device: only a look at everything finds them.
#[test]
fn to_settle_is_to_look_at_everything() {
    const BLOCK_PAGES: usize = 512;
    const BLOCKS: usize = 32;
    let file = NamedTempFile::new().unwrap();
    let bytes = BLOCKS * BLOCK_PAGES * PAGE;
    file.as_file().set_len(bytes as u64).unwrap();
    let pager = start(builder(PAGES, 8), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    let kernel = crate::kernel::Linux::new().unwrap();
    for round in 0..8 {
        for page in (round..BLOCKS * BLOCK_PAGES).step_by(64) {
            assert_eq!(region.as_slice()[page * PAGE], 0);
        }
        let settled = pager.settle();
        match kernel.count_cached(file.as_file().as_fd(), 0, bytes as u64) {
            Ok(cached) if pager.statistics().dropped_pages > 0 => {
                assert!(settled, "{:?}", pager.statistics());
                assert!(cached <= PAGES as u64 / 8, "{cached} in round {round}");
            }
            cached => {
                println!("skipped: files here stay in memory, or cannot be counted: {cached:?}");
                return;
            }
        }
    }
}

/// A thread waits in a fault while another forks: the child must not wait for it.
#[test]
fn a_child_closes_a_region_in_which_a_thread_of_the_parent_faults() {
    struct Stalled(AtomicUsize);
    impl Source for &'static Stalled {
        fn len(&self) -> u64 {
            (PAGES * PAGE) as u64
        }
        fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
            self.0.fetch_add(1, SeqCst);
            while self.0.load(SeqCst) < 100 {
                std::thread::yield_now();
            }
            buffer.fill(7);
            Ok(buffer.len())
        }
    }
    let stalled: &'static Stalled = Box::leak(Box::new(Stalled(0.into())));
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
    let region = std::sync::Arc::new(pager.open_source(stalled).unwrap());
    let reader = region.clone();
    let reads = std::thread::spawn(move || reader.as_slice()[0]);
    while stalled.0.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let status = child::run(|| {
        child::alarm(20);
        child::drop_last(region.clone());
        0
    });
    stalled.0.store(100, SeqCst);
    assert_eq!(reads.join().unwrap(), 7);
    assert_eq!(status, Ok(0), "14 is SIGALRM: it waited for ever");
}

/// Where a child has the file itself, or nothing, nobody brings in pages any more.
#[test]
fn a_child_waits_for_nobody_to_bring_in_pages() {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
    let of_file = pager.open(file.path()).unwrap();
    let fails = AtomicUsize::new(0);
    let of_none = pager.open_source(Computed { fails }).unwrap();
    file.as_file().set_len(0).unwrap();
    let status = child::run(|| {
        child::alarm(20);
        i32::from(of_file.as_slice()[0])
    });
    assert_eq!(status, Err(libc::SIGBUS), "14 is SIGALRM: it waited");
    // What a child maps does not come to lie where closing a region would unmap it.
    let status = child::run(|| {
        let free = crate::sys::mapping::reserve_in_child(of_none.address(), PAGE);
        i32::from(free)
    });
    assert_eq!(status, Ok(0));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let error = pager.open("/nowhere/at/all").unwrap_err().to_string();
    assert_eq!(
        error,
        "/nowhere/at/all: cannot open: No such file or directory (os error 2)"
    );
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(pager.open(empty.path()), Err(Error::Empty(_))));
    pager.clone().shutdown().unwrap();
    assert!(matches!(pager.open(empty.path()), Err(Error::ShutDown)));
}

#[test]
fn descriptors_that_run_out_are_an_error() {
    let status = child::run(|| {
        child::limit_descriptors(3);
        match crate::Pager::builder().budget(1 << 20).start() {
            Err(error) if error.to_string().contains("RLIMIT_NOFILE") => 0,
            Err(_) => 1,
            Ok(_) => 2,
        }
    });
    assert_eq!(status, Ok(0));
}

#[test]
fn address_space_that_runs_out_is_an_error() {
    struct Endless;
    impl Source for Endless {
        fn len(&self) -> u64 {
            1 << 50
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }
    }
    let pager = start(builder(PAGES, 4).mode(Mode::Strict), Faulty::sound());
    let error = pager.open_source(Endless).unwrap_err();
    assert!(error.to_string().contains("raise RLIMIT_AS"), "{error}");
}

#[test]
fn a_budget_above_the_memory_limit_is_lowered_or_refused() {
    let kernel = std::sync::Arc::new(Faulty::sound());
    // 4 MiB asked for; a limit of 2 MiB leaves 1.75 MiB for data.
    let settings = builder(PAGES, 1).check().unwrap();
    let pager = crate::Pager::start_within(settings, kernel.clone(), Some(2 << 20)).unwrap();
    assert_eq!(pager.statistics().budget_bytes, 7 << 18);
    assert!(
        pager
            .state()
            .memory
            .to_string()
            .contains("allows 2097152 bytes")
    );
    let settings = builder(PAGES, 1).mode(Mode::Strict).check().unwrap();
    let error = crate::Pager::start_within(settings, kernel, Some(2 << 20)).unwrap_err();
    assert!(
        error.to_string().ends_with("give at most 1835008"),
        "{error}"
    );
}

#[test]
fn pages_that_were_written_to_are_not_adopted() {
    let file = numbered(16);
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let mapping = child::Private::of(file.as_file().as_fd(), 16 * PAGE);
    let adopt = || pager.adopt(mapping.address(), 16 * PAGE, file.as_file(), 0);
    drop(adopt().unwrap());
    mapping.write_once(3 * PAGE);
    let error = adopt().unwrap_err().to_string();
    assert!(error.contains("written to"), "{error}");
}

#[test]
fn a_failed_read_is_explained_where_asked() {
    let file = numbered(16);
    let (said, status) = child::stderr_of(|| {
        let pager = start(builder(PAGES, 4).explain_faults(true), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        file.as_file().set_len(0).unwrap();
        i32::from(region.as_slice()[0])
    });
    assert_eq!(status, Err(libc::SIGBUS));
    assert!(
        said.contains("a read of the mapped file failed: the file was cut short"),
        "{said}"
    );
}

#[test]
fn pages_that_somebody_else_unmapped_come_back() {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 1).mode(Mode::Strict), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    for page in (0..PAGES / 2).step_by(3) {
        assert_eq!(
            number_of(&region.as_slice()[page * PAGE..][..PAGE]),
            Some(value(page))
        );
        let range = crate::kernel::Range {
            start: region.address() + page * PAGE,
            bytes: PAGE,
        };
        crate::sys::zap::one(range).unwrap();
        // By address, and in the middle of a copy, which pins the granule.
        match page % 2 {
            0 => assert_eq!(
                number_of(&region.as_slice()[page * PAGE..][..PAGE]),
                Some(value(page))
            ),
            _ => assert_eq!(page_at(&region, page).unwrap(), Some(value(page))),
        }
    }
    let now = pager.statistics();
    assert!(now.peak_resident_bytes <= now.budget_bytes, "{now:?}");
}

#[test]
fn memory_comes_from_where_the_policy_says() {
    use memtide_linux::sys::mempolicy;
    let Ok(allowed) = mempolicy::get_allowed() else {
        eprintln!("not tested: the kernel tells no memory policy here");
        return;
    };
    let node = allowed.iter().position(|word| *word != 0).unwrap() * 64
        + allowed
            .iter()
            .find(|word| **word != 0)
            .unwrap()
            .trailing_zeros() as usize;
    let file = numbered(PAGES);
    for mode in MODES {
        let policy = format!("bind:{node}").parse().unwrap();
        let pager = start(
            builder(PAGES, 4).mode(mode).memory_policy(policy),
            Faulty::sound(),
        );
        let region = pager.open(file.path()).unwrap();
        assert_eq!(number_of(&region.as_slice()[..PAGE]), Some(value(0)));
        if mode == Mode::Strict {
            // MPOL_BIND
            assert_eq!(mempolicy::get_policy_at(region.address()).unwrap().0, 2);
            assert_eq!(
                mempolicy::get_node_of(region.address()).unwrap() as usize,
                node
            );
        }
        region.read_ahead(0, 1 << 20);
    }
    let nowhere = builder(PAGES, 4).memory_policy("bind:1023".parse().unwrap());
    let error = nowhere.start().unwrap_err().to_string();
    assert!(error.starts_with("memory policy bind:1023: "), "{error}");
}
