//! Numbers of unmap generations: a few bits, for ever.
//!
//! A free page has room for 16 bits that say when it was unmapped. The numbers
//! come round, and a page may lie free for longer than a round takes. Therefore
//! the question is never which of two numbers is larger, but how many steps one
//! lies ahead of the other, and only the two steps after the last finished flush
//! mean that something is pending. A page that slept through a whole round may
//! cost a flush that was not needed; it never saves one that was.

use serde::Serialize;

/// What a free page carries: the generation in which it was unmapped, or that
/// nothing was pending then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Stamp(u16);

impl Stamp {
    /// Nothing is pending for the page.
    pub const NONE: Stamp = Stamp(0);

    /// The stamp as the 16 bits that a page keeps; 0 is [`Stamp::NONE`].
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The stamp of which a page kept these bits.
    #[must_use]
    pub fn from_bits(bits: u16) -> Stamp {
        Stamp(bits)
    }
}

/// A generation: 1 to 2^`BITS` − 1, and 1 again. Zero is never one, so that a
/// page can say that it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Generation<const BITS: u32 = 16>(u16);

impl<const BITS: u32> Generation<BITS> {
    /// How many there are. Three at least must differ: flushed, being flushed, open.
    pub const COUNT: u16 = {
        assert!(BITS >= 2 && BITS <= 16, "a generation has 2 to 16 bits");
        ((1u32 << BITS) - 1) as u16
    };

    /// The first.
    pub const FIRST: Generation<BITS> = Generation(1);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Generation<BITS> {
        match self.0 {
            last if last == Self::COUNT => Self::FIRST,
            other => Generation(other + 1),
        }
    }

    /// How many steps of [`Generation::next`] lead from `self` to `later`: 0 to
    /// [`Generation::COUNT`] − 1.
    #[must_use]
    pub fn steps_to(self, later: Generation<BITS>) -> u16 {
        match later.0 >= self.0 {
            true => later.0 - self.0,
            false => Self::COUNT - (self.0 - later.0),
        }
    }

    /// The stamp of pages unmapped in this generation.
    #[must_use]
    pub fn stamp(self) -> Stamp {
        Stamp(self.0)
    }

    /// The generation that a stamp names; `None` for [`Stamp::NONE`] and for bits
    /// that no generation has.
    #[must_use]
    pub fn of(stamp: Stamp) -> Option<Generation<BITS>> {
        (1..=Self::COUNT)
            .contains(&stamp.0)
            .then_some(Generation(stamp.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never_a_generation() {
        let mut generation = Generation::<16>::FIRST;
        for _ in 0..70_000 {
            generation = generation.next();
            assert_ne!(generation.stamp(), Stamp::NONE);
        }
        // 70,000 steps from 1 in a round of 65,535.
        assert_eq!(u32::from(generation.stamp().bits()), 1 + (70_000 - 65_535));
    }

    #[test]
    fn steps_count_across_the_end() {
        let at = |bits| Generation::<16>::of(Stamp::from_bits(bits)).unwrap();
        assert_eq!(at(5).steps_to(at(5)), 0);
        assert_eq!(at(5).steps_to(at(7)), 2);
        // 65,535 -> 1 -> 2: the zero between is not counted.
        assert_eq!(at(65_535).steps_to(at(2)), 2);
        assert_eq!(at(2).steps_to(at(65_535)), 65_533);
    }

    #[test]
    fn steps_are_what_next_takes_for_every_pair_of_a_small_ring() {
        let all = || (1..=Generation::<3>::COUNT).map(Generation::<3>);
        for from in all() {
            let mut at = from;
            for steps in 0..Generation::<3>::COUNT {
                assert_eq!(from.steps_to(at), steps);
                at = at.next();
            }
            assert_eq!(at, from);
        }
    }

    #[test]
    fn bits_that_no_generation_has_name_none() {
        assert_eq!(Generation::<3>::of(Stamp::NONE), None);
        assert_eq!(Generation::<3>::of(Stamp::from_bits(8)), None);
        assert!(Generation::<3>::of(Stamp::from_bits(7)).is_some());
    }
}
