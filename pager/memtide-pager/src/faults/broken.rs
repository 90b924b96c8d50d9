//! Deliberately broken variants, and that they are found.
//!
//! - The unmap is skipped and said to be done. In file mode the kernel then frees
//!   nothing, since it frees no mapped page: found by what stays in memory. In
//!   strict mode the books say that memory is free that is not: found by counting.
//! - Memory is reused without the flush. The kernel does not let a pager do that
//!   to anonymous memory or to the page cache, so the variant serves the data from
//!   a pool of frames that it maps itself: a frame whose old mapping is still there
//!   when it is filled anew shows the wrong page. With the unmap in its place the
//!   same test passes.

use super::{Faulty, Op, PAGE, builder, number_of, numbered, start, value};
use crate::builder::Mode;
use crate::sys::{Errno, frames::Frames};
use crate::unmap::Ranges;
use memtide_core::lazy_flush::{Due, LazyFlush, Stamp};
use memtide_linux::sys::pagemap::PagemapEntry;
use std::collections::VecDeque;
use std::time::Duration;

const PAGES: usize = 2048;

fn liar(op: Op) -> Faulty {
    // The first call is the probe of what the kernel can do.
    let mut kernel = Faulty::new(op, 1, u64::MAX, Errno::IO);
    kernel.lie = true;
    kernel
}

/// Pages of the region that are really in memory, by the kernel's own word.
fn really_mapped(address: usize, pages: usize) -> usize {
    let map = memtide_linux::sys::pagemap::Pagemap::open("/proc".as_ref(), std::process::id());
    let mut entries = vec![PagemapEntry::default(); pages];
    map.unwrap()
        .read((address / PAGE) as u64, &mut entries)
        .unwrap();
    entries.iter().filter(|entry| entry.present()).count()
}

fn mapped_after_a_sweep(mode: Mode, kernel: Faulty) -> usize {
    let file = numbered(PAGES);
    let pager = start(builder(PAGES, 4).mode(mode), kernel);
    let region = pager.open(file.path()).unwrap();
    for page in 0..PAGES {
        let bytes = &region.as_slice()[page * PAGE..][..PAGE];
        assert_eq!(number_of(bytes), Some(value(page)));
        if page % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    pager.settle();
    really_mapped(region.address(), PAGES)
}

#[test]
fn a_skipped_unmap_is_found_by_counting() {
    for mode in [Mode::File, Mode::Strict] {
        // A quarter of the pages is the budget.
        let sound = mapped_after_a_sweep(mode, Faulty::sound());
        assert!(sound <= PAGES / 4, "{mode:?}: {sound} pages");
        let broken = mapped_after_a_sweep(mode, liar(Op::Zap));
        assert!(
            broken > PAGES / 4,
            "{mode:?}: the broken variant passes: {broken} pages"
        );
    }
}

/// A pager in miniature over frames of its own: what strict mode would be if it
/// managed frames itself, with the same generations. Returns the wrong reads.
fn wrong_reads_of_frames(flush: bool) -> usize {
    const FRAMES: usize = 32;
    let mut frames = Frames::new(64, FRAMES).unwrap();
    let mut lazy = LazyFlush::<Ranges>::new();
    // Frames that are free, with the stamp of their last unmap.
    let mut free: VecDeque<(usize, Stamp)> = (0..FRAMES).map(|f| (f, Stamp::NONE)).collect();
    let mut held: VecDeque<(usize, usize)> = VecDeque::new();
    let mut wrong = 0;
    for step in 0..2000usize {
        let page = step * 29 % 64;
        if !held.iter().any(|(of, _)| *of == page) {
            while free.is_empty() {
                // Eight leave: still mapped and readable, pending.
                for (page, frame) in held.drain(..8) {
                    let stamp = lazy.defer(Ranges(vec![frames.span_of(page)])).unwrap();
                    free.push_back((frame, stamp));
                }
            }
            let (frame, stamp) = free.pop_front().unwrap();
            assert!(!flush || lazy.due(stamp) != Due::Wait);
            lazy.take(stamp, |ranges| {
                if flush {
                    ranges
                        .0
                        .iter()
                        .for_each(|range| frames.unmap(*range).unwrap());
                }
            });
            frames.fill(frame, value(page)).unwrap();
            frames.map(page, frame).unwrap();
            held.push_back((page, frame));
        }
        // Every page that can be read holds its number, pending ones too.
        for page in 0..64 {
            if let Some(found) = frames.read(page) {
                wrong += usize::from(found != value(page));
            }
        }
    }
    wrong
}

#[test]
fn a_frame_that_is_reused_while_mapped_shows_a_wrong_page() {
    assert_eq!(wrong_reads_of_frames(true), 0);
    assert!(
        wrong_reads_of_frames(false) > 0,
        "the broken variant passes"
    );
}
