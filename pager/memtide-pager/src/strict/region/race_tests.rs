//! What others do between a look and a step, in the order that once went wrong.
//! No evictor and no reader thread runs here: a test does their part.

use super::*;
use crate::builder::Mode;
use crate::faults::{Faulty, Op, PAGE, builder, numbered};
use crate::strict::{Open, StrictMode};
use tempfile::NamedTempFile;

/// In granules of four.
const PAGES: usize = 64;

fn mode(kernel: Faulty) -> StrictMode {
    let settings = builder(PAGES, 1).mode(Mode::Strict).check().unwrap();
    StrictMode::new(settings, Arc::new(kernel), Arc::default(), Arc::default()).unwrap()
}

fn opened(mode: &StrictMode, file: &NamedTempFile) -> Open {
    let own = crate::sys::known_file::KnownFile::new(file.reopen().unwrap().into());
    let facts = mode.kernel.facts(own.as_fd()).unwrap();
    mode.open_file(file.path().to_owned(), own, facts).unwrap()
}

#[test]
fn a_page_that_left_is_brought_into_a_granule_that_somebody_pinned() {
    let file = numbered(PAGES);
    let mode = mode(Faulty::sound());
    let open = opened(&mode, &file);
    let region = &open.region;
    assert!(region.bring(1, 1));
    assert!(region.words[0].pin());
    // A fault saw page 0 here; since then the granule left and page 1 came.
    assert!(region.mend(0));
    region.words[0].unpin();
    assert_eq!((region.held(0), mode.gate.in_use()), (2, 2));
}

#[test]
fn a_granule_of_a_source_that_came_meanwhile_is_there() {
    struct Zeros;
    impl Source for Zeros {
        fn len(&self) -> u64 {
            (PAGES * PAGE) as u64
        }
        fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
            buffer.fill(0);
            Ok(buffer.len())
        }
    }
    // The first look at the page comes too early; the second is under the pin.
    for (looks, there) in [(1, true), (2, false)] {
        let mode = mode(Faulty::new(Op::Mapped, 0, looks, Errno::IO));
        let open = mode.open(Box::new(Zeros)).unwrap();
        let region = &open.region;
        assert!(region.words[0].step(Stage::Absent, Stage::Loading));
        assert_eq!(region.load_rest(0, true), 4);
        assert!(region.words[0].pin());
        assert_eq!(region.mend(0), there, "{looks} looks fail");
        region.words[0].unpin();
    }
}

#[test]
fn who_waited_for_a_load_that_failed_tries_his_own_page() {
    let file = numbered(PAGES);
    let mode = mode(Faulty::sound());
    let open = opened(&mode, &file);
    let region = &open.region;
    file.as_file().set_len(PAGE as u64).unwrap();
    let word = &region.words[0];
    assert!(word.step(Stage::Absent, Stage::Loading));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| region.bring(0, 1));
        // The highest bit says that somebody waits.
        while word.word().load(SeqCst) >> 31 == 0 {
            std::thread::yield_now();
        }
        let mut credits = 0;
        assert!(region.load(0, 1, 1, 1, &mut credits).is_err());
        region.gate.give(credits);
        assert!(reader.join().unwrap());
    });
    assert!(!region.bring(1, 1));
    assert!(region.bring(0, 1));
    assert_eq!((region.held(0), mode.gate.in_use()), (1, 1));
}

#[test]
fn a_page_before_one_that_cannot_be_read_comes_alone() {
    let file = numbered(PAGES);
    let mode = mode(Faulty::sound());
    let open = opened(&mode, &file);
    let region = &open.region;
    file.as_file().set_len(3 * PAGE as u64).unwrap();
    // Page 1 goes on with a stream, and so do the two behind it; the last of those
    // is cut off.
    assert!(region.bring(0, 1) && region.bring(1, 1));
    assert_eq!((region.held(0), mode.gate.in_use()), (2, 2));
    assert!(region.bring(2, 1));
    assert!(!region.bring(3, 1));
    assert_eq!((region.held(0), mode.gate.in_use()), (3, 3));
}
