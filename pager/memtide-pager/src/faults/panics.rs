//! What must stay true is broken on purpose: the evictor ends, the program does not.

use super::{Faulty, PAGE, builder, number_of, numbered, start, value};
use crate::Error;
use crate::board::Counts;
use std::panic::{set_hook, take_hook};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const PAGES: usize = 1024;
const WRONG_BOOKS: &str = "the pages in memory are the sum";

/// Whether a panic named [`WRONG_BOOKS`]. Such a one is not printed: in the log of a run that failed
/// elsewhere it would look like the cause.
static NAMED: AtomicBool = AtomicBool::new(false);

fn expect_the_panic() {
    let others = take_hook();
    set_hook(Box::new(move |info| {
        match info.payload().downcast_ref::<String>() {
            Some(text) if text.contains(WRONG_BOOKS) => NAMED.store(true, SeqCst),
            _ => others(info),
        }
    }));
}

#[test]
fn an_evictor_that_finds_its_books_wrong_ends_and_the_program_reads_on() {
    expect_the_panic();
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 4), Faulty::sound());
    let region = pager.open(file.path()).unwrap();
    pager.show_statistics(Counts::default, None).unwrap();
    let core = &pager.shared.core;
    let shown = || core.board.get().unwrap().read().unwrap();
    assert!(!shown().ended);
    core.file.lose_count();
    let end = Instant::now() + Duration::from_secs(60);
    while !core.stop.load(SeqCst) {
        assert!(Instant::now() < end, "the books are not looked at");
        core.bell.ring();
        std::thread::yield_now();
    }
    assert!(NAMED.load(SeqCst), "the evictor ended for another reason");
    assert!(shown().ended, "others are not told");
    for page in 0..PAGES {
        let bytes = &region.as_slice()[page * PAGE..][..PAGE];
        assert_eq!(number_of(bytes), Some(value(page)), "page {page}");
    }
    assert!(matches!(pager.open(file.path()), Err(Error::ShutDown)));
    drop(region);
}
