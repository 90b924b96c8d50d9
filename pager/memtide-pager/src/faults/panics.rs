//! What must stay true is broken on purpose: the evictor ends, the program does not.

use super::{Faulty, PAGE, builder, number_of, numbered, start, value};
use crate::Error;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const PAGES: usize = 1024;

#[test]
fn an_evictor_that_finds_its_books_wrong_ends_and_the_program_reads_on() {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    let core = &pager.shared.core;
    core.file.lose_count();
    let end = Instant::now() + Duration::from_secs(60);
    while !core.stop.load(SeqCst) {
        assert!(Instant::now() < end, "the books are not looked at");
        core.bell.ring();
        std::thread::yield_now();
    }
    for page in 0..PAGES {
        let bytes = &region.as_slice()[page * PAGE..][..PAGE];
        assert_eq!(number_of(bytes), Some(value(page)), "page {page}");
    }
    assert!(matches!(pager.open(file.path()), Err(Error::ShutDown)));
    drop(region);
}
