//! Which addresses are kept, readable without a lock.
//!
//! Every `munmap` of the program asks this, also one that an allocator makes
//! while it holds its own locks. If the answer took a lock whose holder may
//! allocate, the two would wait for each other for ever. So readers take none:
//! the table is an array of atomics under a sequence number that is odd while
//! it is being written, and a reader that met a writer is told so and may look
//! again. A writer changes a few words and calls nobody in between, so looking
//! again takes no longer than that, but in a process that was copied in the middle
//! of a change, where the writer does not run: such a reader must not look again.
//!
//! Writers exclude each other by the lock around [`crate::sys::state`].

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Ranges that can be kept at a time; further mappings are left to the kernel.
pub const MOST: usize = 1024;

/// A set of address ranges. An empty slot is one that ends at 0.
#[derive(Debug)]
pub struct Ranges {
    /// Odd while somebody writes.
    sequence: AtomicUsize,
    /// Slots in use are below this.
    used: AtomicUsize,
    slots: [(AtomicUsize, AtomicUsize); MOST],
}

impl Ranges {
    /// No ranges.
    pub const fn new() -> Ranges {
        Ranges {
            sequence: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            slots: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MOST],
        }
    }

    /// Whether any of `range` is kept; `None` while somebody writes.
    pub fn overlap(&self, range: &Range<usize>) -> Option<bool> {
        let before = self.sequence.load(Ordering::Acquire);
        let used = self.used.load(Ordering::Relaxed).min(MOST);
        let found = self.slots[..used].iter().any(|(start, end)| {
            let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
            start < range.end && range.start < end
        });
        fence(Ordering::Acquire);
        let whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        whole.then_some(found)
    }

    /// Replaces the whole set. One caller at a time. `false` and no change if
    /// they are more than [`MOST`].
    pub fn set<'a>(&self, ranges: impl ExactSizeIterator<Item = &'a Range<usize>>) -> bool {
        if ranges.len() > MOST {
            return false;
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.used.store(ranges.len(), Ordering::Relaxed);
        for ((start, end), range) in self.slots.iter().zip(ranges) {
            start.store(range.start, Ordering::Relaxed);
            end.store(range.end, Ordering::Relaxed);
        }
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps() {
        let ranges = Ranges::new();
        assert_eq!(ranges.overlap(&(0..usize::MAX)), Some(false));
        assert!(ranges.set([0x1000..0x3000, 0x8000..0x9000].iter()));
        for (range, kept) in [
            (0..0x1000, false),
            (0..0x1001, true),
            (0x2fff..0x3000, true),
            (0x3000..0x8000, false),
            (0x3000..0x8001, true),
            (0x9000..0xa000, false),
        ] {
            assert_eq!(ranges.overlap(&range), Some(kept), "{range:x?}");
        }
        assert!(ranges.set(std::iter::once(&(0x5000..0x6000))));
        assert_eq!(ranges.overlap(&(0x8000..0x9000)), Some(false));
    }

    #[test]
    fn too_many_change_nothing() {
        let ranges = Ranges::new();
        let many: Vec<_> = (1..=MOST + 1).map(|n| n * 10..n * 10 + 1).collect();
        assert!(ranges.set(many[..MOST].iter()));
        assert!(!ranges.set(many.iter()));
        assert_eq!(ranges.overlap(&(10..11)), Some(true));
        assert_eq!(
            ranges.overlap(&((MOST + 1) * 10..(MOST + 1) * 10 + 1)),
            Some(false)
        );
    }

    /// A writer swaps two sets, both of which hold page 7. A reader that mixed
    /// them could miss it.
    #[test]
    fn a_reader_never_sees_half_a_change() {
        let ranges = Ranges::new();
        let sets = [vec![7..8, 20..30], vec![1..2, 3..4, 5..9]];
        assert!(ranges.set(sets[0].iter()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..20_000 {
                    assert!(ranges.set(sets[turn % 2].iter()));
                }
            });
            for _ in 0..20_000 {
                assert_ne!(ranges.overlap(&(7..8)), Some(false));
                assert_ne!(ranges.overlap(&(9..20)), Some(true));
            }
        });
    }

    /// What a child sees that was copied in the middle of a change.
    #[test]
    fn a_change_that_never_ends_is_told() {
        let ranges = Ranges::new();
        assert!(ranges.set(std::iter::once(&(5..6))));
        ranges.sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(ranges.overlap(&(5..6)), None);
    }
}
