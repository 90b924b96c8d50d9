//! How much of fast memory one class uses, where what is told of it comes late.
//!
//! # Problem
//!
//! The kernel adds up each processor's counts of a cgroup every two seconds only (Linux,
//! `mm/memcontrol.c`). What it tells right after the loop moved pages may lack these moves. A class
//! above its bound would lose as much once more, and one below it would be filled beyond it.
//!
//! # Approach
//!
//! The loop's own moves of late are known. What is told may lack them, and nothing else, so that
//! the class uses so much at least and so much at most. Pages leave by the one, and others come up
//! by the other.

use crate::report::Direction;
use memtide_core::units::Millis;
use std::collections::VecDeque;

/// How long after a move what is told may lack it, in ms.
const LAG_MS: u64 = 2500;

/// Pages that a class uses at least and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub least: u64,
    pub most: u64,
}

impl Range {
    /// Just so many.
    pub fn exactly(pages: u64) -> Range {
        Range {
            least: pages,
            most: pages,
        }
    }

    /// After so many moved.
    pub fn after(self, direction: Direction, pages: u64) -> Range {
        let moved = |from: u64| match direction {
            Direction::Promotion => from.saturating_add(pages),
            Direction::Demotion => from.saturating_sub(pages),
        };
        Range {
            least: moved(self.least),
            most: moved(self.most),
        }
    }
}

/// The loop's own moves of late.
#[derive(Debug, Default)]
pub(super) struct OwnMoves {
    /// When, and how many pages went up and down.
    recent: VecDeque<(Millis, [u64; 2])>,
}

impl OwnMoves {
    /// So many pages moved.
    pub fn note(&mut self, direction: Direction, pages: u64, now: Millis) {
        self.forget(now);
        match self.recent.back_mut() {
            Some((last, _)) if *last == now => {}
            _ => self.recent.push_back((now, [0; 2])),
        }
        let at = usize::from(direction == Direction::Demotion);
        if let Some((_, moved)) = self.recent.back_mut() {
            moved[at] += pages;
        }
    }

    /// How much it is if the world `told` so much, where so much was `known`: of what may be so,
    /// what is nearest to that, or what was told.
    pub fn range(&mut self, known: Option<Range>, told: u64, now: Millis) -> Range {
        self.forget(now);
        let sum = |n: usize| self.recent.iter().map(|(_, moved)| moved[n]).sum::<u64>();
        let (least, most) = (told.saturating_sub(sum(1)), told.saturating_add(sum(0)));
        let known = known.unwrap_or(Range::exactly(told));
        Range {
            least: known.least.clamp(least, most).min(told),
            most: known.most.clamp(least, most).max(told),
        }
    }

    fn forget(&mut self, now: Millis) {
        let late = |(at, _): &(Millis, [u64; 2])| now.since(*at) >= LAG_MS;
        while self.recent.front().is_some_and(late) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was 1,000, and is 750 if nobody else does anything.
    #[test]
    fn what_is_known_and_what_is_told_say_how_much_it_may_be() {
        let mut own = OwnMoves::default();
        own.note(Direction::Demotion, 300, Millis(100));
        own.note(Direction::Promotion, 50, Millis(200));
        let known = Some(Range::exactly(750));
        let mut range = |told, now| {
            let range = own.range(known, told, Millis(now));
            (range.least, range.most)
        };
        let ranges = [750, 1000, 700].map(|told| range(told, 300));
        assert_eq!(ranges, [(750, 750), (750, 1000), (700, 750)]);
        // At least 100 came from elsewhere; at least 50 went.
        assert_eq!(
            [1150, 650].map(|told| range(told, 300)),
            [(850, 1150), (650, 700)]
        );
        // The first move is counted by now, then the second, too.
        assert_eq!(
            [1000, 700].map(|told| range(told, 2600)),
            [(1000, 1000), (700, 750)]
        );
        assert_eq!(
            [1000, 700].map(|told| range(told, 2700)),
            [(1000, 1000), (700, 700)]
        );
    }
}
