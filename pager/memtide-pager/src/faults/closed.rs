//! What a program does to all that it has: closes every descriptor, locks all of its memory.

use super::{Faulty, PAGE, builder, number_of, numbered, start, value};
use crate::builder::Mode;
use crate::error::Error;
use crate::sys::child;

const PAGES: usize = 256;

/// Memory of which nobody is asked for absent pages would read as zeros.
#[test]
fn who_closes_everything_reads_right_bytes_or_none() {
    let file = numbered(PAGES);
    let status = child::run(|| {
        child::alarm(60);
        let pager = start(builder(PAGES, 2).mode(Mode::Strict), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        assert_eq!(number_of(&region.as_slice()[..PAGE]), Some(value(0)));
        child::close_all();
        // What is in memory is there; what is not cannot be had.
        assert_eq!(number_of(&region.as_slice()[..PAGE]), Some(value(0)));
        let bytes = &region.as_slice()[(PAGES - 1) * PAGE..];
        match number_of(&bytes[..PAGE]) == Some(value(PAGES - 1)) {
            true => 0,
            false => 1,
        }
    });
    assert!(matches!(status, Ok(0) | Err(libc::SIGBUS)), "{status:?}");
}

#[test]
fn who_locks_all_memory_to_come_reads_right_bytes() {
    let file = numbered(PAGES);
    let status = child::run(|| {
        child::alarm(60);
        if !child::lock_all_to_come() {
            return 2;
        }
        let pager = start(builder(PAGES, 2).mode(Mode::Strict), Faulty::sound());
        let region = pager.open(file.path()).unwrap();
        for page in 0..PAGES {
            let bytes = &region.as_slice()[page * PAGE..][..PAGE];
            assert_eq!(number_of(bytes), Some(value(page)), "page {page}");
            let mut copy = [0; PAGE];
            region.read_at(&mut copy, (page * PAGE) as u64).unwrap();
            assert_eq!(number_of(&copy), Some(value(page)), "page {page}");
        }
        let now = pager.statistics();
        assert!(pager.settle() && now.dropped_pages > 0, "{now:?}");
        0
    });
    match status {
        Ok(2) => println!("skipped: memory may not be locked here"),
        status => assert_eq!(status, Ok(0)),
    }
}

/// The evictor, which stayed with the parent, may have had any lock.
#[test]
fn a_child_is_told_that_it_has_no_pager() {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 2), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    let status = child::run(|| {
        child::alarm(20);
        assert!(matches!(region.check(), Err(Error::Forked)));
        assert!(pager.state().regions.is_empty() && !pager.settle());
        0
    });
    assert_eq!(status, Ok(0));
}
