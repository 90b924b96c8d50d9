//! Sets of a region's granules and of its pages, which several threads change.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// One bit for each.
#[derive(Debug)]
pub(crate) struct Bits(Vec<AtomicU64>);

impl Bits {
    pub fn new(bits: usize) -> Bits {
        Bits((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn set(&self, index: usize) {
        self.0[index / 64].fetch_or(1 << (index % 64), SeqCst);
    }

    pub fn has(&self, index: usize) -> bool {
        self.0[index / 64].load(SeqCst) >> (index % 64) & 1 != 0
    }

    /// Clears every bit that is set, and acts on it.
    pub fn take_each(&self, mut act: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            if word.load(SeqCst) == 0 {
                continue;
            }
            let mut left = word.swap(0, SeqCst);
            while left != 0 {
                act(at * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// Sets a range; how many of them were set before.
    pub fn set_all(&self, range: Range<usize>) -> u32 {
        let set =
            |(at, mask): (usize, u64)| (self.0[at].fetch_or(mask, SeqCst) & mask).count_ones();
        masks(range).map(set).sum()
    }

    /// Clears a range; how many of them were set.
    pub fn clear_all(&self, range: Range<usize>) -> u32 {
        let clear =
            |(at, mask): (usize, u64)| (self.0[at].fetch_and(!mask, SeqCst) & mask).count_ones();
        masks(range).map(clear).sum()
    }

    /// How many of a range are set.
    pub fn count(&self, range: Range<usize>) -> u32 {
        let count = |(at, mask): (usize, u64)| (self.0[at].load(SeqCst) & mask).count_ones();
        masks(range).map(count).sum()
    }

    /// The first run of a range whose bits are all set, or all clear. Empty, and at
    /// the range's end, if there is none.
    pub fn run(&self, range: Range<usize>, set: bool) -> Range<usize> {
        let end = range.end;
        let start = range.clone().find(|at| self.has(*at) == set).unwrap_or(end);
        let stop = (start..end).find(|at| self.has(*at) != set);
        start..stop.unwrap_or(end)
    }
}

/// The words that a range lies in, each with the bits that are of the range.
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = range.start / 64..range.end.div_ceil(64).max(range.start / 64);
    words.map(move |at| {
        let from = range.start.max(at * 64) - at * 64;
        let to = range.end.min(at * 64 + 64) - at * 64;
        let below = |bit: usize| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
        (at, below(to.max(from)) & !below(from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BITS: usize = 200;

    proptest! {
        #[test]
        fn ranges_of_bits_are_as_a_row_of_flags(
            steps in prop::collection::vec((0..BITS, 0..BITS, any::<bool>()), 1..40),
        ) {
            let bits = Bits::new(BITS);
            let mut model = [false; BITS];
            for (a, b, set) in steps {
                let range = a.min(b)..a.max(b);
                let were = model[range.clone()].iter().filter(|flag| **flag).count();
                let found = match set {
                    true => bits.set_all(range.clone()),
                    false => bits.clear_all(range.clone()),
                };
                prop_assert_eq!(found as usize, were);
                model[range.clone()].fill(set);
                prop_assert_eq!(bits.count(0..BITS) as usize, model.iter().filter(|flag| **flag).count());
                for wanted in [true, false] {
                    let run = bits.run(a..BITS, wanted);
                    let start = (a..BITS).find(|at| model[*at] == wanted).unwrap_or(BITS);
                    let end = (start..BITS).find(|at| model[*at] != wanted).unwrap_or(BITS);
                    prop_assert_eq!(run, start..end);
                }
            }
            let mut taken = Vec::new();
            bits.take_each(|at| taken.push(at));
            let expected: Vec<usize> = (0..BITS).filter(|at| model[*at]).collect();
            prop_assert_eq!(taken, expected);
            prop_assert_eq!(bits.count(0..BITS), 0);
        }
    }
}
