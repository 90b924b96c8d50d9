//! How much a miss brings in.
//!
//! *Problem.* A granule read for a single page costs the disk sixteen times what
//! was asked for, and takes the place of fifteen pages that were. A granule read
//! page by page costs a stream sixteen waits.
//!
//! *Approach.* A miss on its own brings in its page. A miss where an earlier one
//! ended goes on with that one: it is a *stream*, and its *window* is four times
//! as large as the last, up to a granule. A stream whose window is a granule has
//! the granules behind it read ahead by the reader threads.
//!
//! *What stays true.* What a miss brings in starts with its page and lies in its
//! granule. What is known of streams is a guess: threads may overwrite each
//! other's, and a wrong guess costs a read, never a byte.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Streams that a region tells apart.
const STREAMS: usize = 8;
/// By how much a window grows.
const GROWTH: u32 = 4;

/// What misses of a region bring in. Sizes and places are in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// The least that a miss brings in: 1, or a granule where only whole ones come.
    pub least: u32,
    pub granule: u32,
    /// How far ahead of a stream is read; 0 for not at all.
    pub ahead: u64,
}

/// What a miss brings in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// From the missing page on.
    pub pages: usize,
    /// What the reader threads are to read: whole granules, perhaps beyond the
    /// region's end. Empty for nothing.
    pub ahead: Range<usize>,
}

/// Where a reader is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    end: u64,
    window: u32,
    /// The reader threads are asked for what lies before the end.
    ahead: bool,
}

impl Stream {
    /// In one word, so that a thread sees all of it or none.
    fn to_word(self) -> u64 {
        self.end << 16 | u64::from(self.window) << 1 | u64::from(self.ahead)
    }

    fn of_word(word: u64) -> Stream {
        Stream {
            end: word >> 16,
            window: (word >> 1) as u32 & 0x7fff,
            ahead: word & 1 != 0,
        }
    }

    /// Whether a miss goes on with this stream. What is in memory already is not
    /// missed, so the miss may lie a little behind the end.
    fn goes_on(self, page: u64) -> bool {
        self.window > 0 && (self.end..self.end + 2 * u64::from(self.window)).contains(&page)
    }
}

impl Needs {
    /// What a miss brings in of which at least `want` pages are asked for, and the
    /// stream as it is afterwards.
    fn choose(self, page: u64, want: u32, known: Option<Stream>) -> (Stream, Choice) {
        let granule = u64::from(self.granule);
        let next = page - page % granule + granule;
        let window = known.map_or(self.least, |stream| {
            (stream.window * GROWTH).min(self.granule)
        });
        let pages = u64::from(window.max(want)).min(next - page);
        let ahead = match known.is_some() && window == self.granule {
            true => next..next + self.ahead,
            false => next..next,
        };
        let stream = Stream {
            end: if ahead.is_empty() {
                page + pages
            } else {
                ahead.end
            },
            window,
            ahead: !ahead.is_empty(),
        };
        let choice = Choice {
            pages: pages as usize,
            ahead: ahead.start as usize..ahead.end as usize,
        };
        (stream, choice)
    }

    /// Whether a page is one that the reader threads were asked for and have not
    /// brought in: the stream came there first, and takes all of its granule.
    fn is_awaited(self, page: u64, stream: Stream) -> bool {
        stream.ahead && page < stream.end && page + self.ahead >= stream.end
    }

    fn rest_of_granule(self, page: u64) -> Choice {
        let left = u64::from(self.granule) - page % u64::from(self.granule);
        Choice {
            pages: left as usize,
            ahead: 0..0,
        }
    }
}

/// The streams of a region. Asked in signal handlers: atomics only.
#[derive(Debug)]
pub(super) struct Streams {
    needs: Needs,
    known: [AtomicU64; STREAMS],
    /// Which one gives way next.
    next: AtomicU32,
}

impl Streams {
    pub fn new(needs: Needs) -> Streams {
        Streams {
            needs,
            known: [const { AtomicU64::new(0) }; STREAMS],
            next: AtomicU32::new(0),
        }
    }

    /// A page is missing, and at least `want` from there on are asked for.
    pub fn missed(&self, page: usize, want: usize) -> Choice {
        let page = page as u64;
        let want = u32::try_from(want).unwrap_or(self.needs.granule);
        let known = || {
            let of = |word: &AtomicU64| Stream::of_word(word.load(SeqCst));
            self.known.iter().map(of).enumerate()
        };
        let on = known().find(|(_, stream)| stream.goes_on(page));
        if on.is_none() && known().any(|(_, stream)| self.needs.is_awaited(page, stream)) {
            return self.needs.rest_of_granule(page);
        }
        let (stream, choice) = self.needs.choose(page, want, on.map(|(_, stream)| stream));
        let at = on.map_or_else(
            || self.next.fetch_add(1, SeqCst) as usize % STREAMS,
            |(at, _)| at,
        );
        self.known[at].store(stream.to_word(), SeqCst);
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Granules of 16 pages, and 32 pages ahead.
    const BY_NEED: Needs = Needs {
        least: 1,
        granule: 16,
        ahead: 32,
    };

    fn chosen(pages: usize, ahead: Range<usize>) -> Choice {
        Choice { pages, ahead }
    }

    #[test]
    fn a_page_alone_comes_alone_and_a_stream_comes_in_granules() {
        let streams = Streams::new(BY_NEED);
        assert_eq!(streams.missed(500, 1).pages, 1);
        // 0, then 1 to 4, then 5 to the granule's end at 16; by then it is a
        // stream, and the two granules behind are read ahead.
        assert_eq!(streams.missed(0, 1), chosen(1, 16..16));
        assert_eq!(streams.missed(1, 1), chosen(4, 16..16));
        assert_eq!(streams.missed(5, 1), chosen(11, 16..48));
        // The reader is faster than the thread that reads ahead.
        assert_eq!(streams.missed(20, 1), chosen(12, 0..0));
        // It goes on where the last ended.
        assert_eq!(streams.missed(48, 1), chosen(16, 64..96));
        // Elsewhere nothing has changed.
        assert_eq!(streams.missed(900, 1), chosen(1, 912..912));
    }

    #[test]
    fn what_is_asked_for_comes_at_once() {
        let streams = Streams::new(BY_NEED);
        assert_eq!(streams.missed(3, 7).pages, 7);
        // 16 from page 3 on reach to the end of the granule: 13.
        assert_eq!(Streams::new(BY_NEED).missed(3, 16).pages, 13);
    }

    #[test]
    fn where_only_granules_come_the_second_is_a_stream() {
        let whole = Needs {
            least: 16,
            ..BY_NEED
        };
        let streams = Streams::new(whole);
        assert_eq!(streams.missed(0, 1), chosen(16, 16..16));
        assert_eq!(streams.missed(16, 1), chosen(16, 32..64));
    }

    #[test]
    fn eight_streams_at_a_time_are_told_apart() {
        let streams = Streams::new(BY_NEED);
        for (page, pages) in [(0, 1), (1, 4), (5, 11)] {
            for stream in 0..STREAMS {
                assert_eq!(streams.missed(stream * 1000 * 16 + page, 1).pages, pages);
            }
        }
    }

    proptest! {
        #[test]
        fn a_miss_brings_in_its_page_and_stays_in_its_granule(
            misses in prop::collection::vec((0usize..300, 1usize..40), 1..200),
            granule in prop::sample::select(vec![1u32, 4, 16, 512]),
            whole in any::<bool>(),
            ahead in 0u64..4,
        ) {
            let least = if whole { granule } else { 1 };
            let needs = Needs { least, granule, ahead: ahead * u64::from(granule) };
            let streams = Streams::new(needs);
            let granule = granule as usize;
            for (page, want) in misses {
                let choice = streams.missed(page, want);
                let left = granule - page % granule;
                prop_assert!((1..=left).contains(&choice.pages));
                prop_assert!(choice.pages >= want.min(left));
                prop_assert_eq!(choice.ahead.start % granule, 0);
                prop_assert_eq!(choice.ahead.len() % granule, 0);
                prop_assert!(choice.ahead.len() as u64 <= needs.ahead);
            }
        }

        #[test]
        fn a_stream_survives_its_word(end in 0u64..1 << 48, window in 0u32..=512, ahead in any::<bool>()) {
            let stream = Stream { end, window, ahead };
            prop_assert_eq!(Stream::of_word(stream.to_word()), stream);
        }
    }
}
