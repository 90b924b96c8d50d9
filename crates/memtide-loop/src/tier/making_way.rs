//! Pages of a class at its bound that make way for hot ones although nobody knows
//! whether they are idle.
//!
//! # Problem
//!
//! Whether fast memory is idle is seen by stretches. Where hot pages are scattered,
//! each stretch has one of them, and no page is known to be idle: hot pages of the
//! class would wait on slow memory for ever.
//!
//! # Approach
//!
//! A *try*: some pages go, drawn at random, of which nothing says that they are in use.
//! Most are cold. The hot ones among them are found by the next look, and come back
//! in exchange for those of the next try. How many wait is known for some seconds after
//! a look: without, there is one before the try.
//!
//! # Properties
//!
//! Where all is in use a try is in vain: as many wait afterwards as before. So after
//! each one the wait until the next is doubled, up to [`MOST_MS`], unless two passes of
//! a look that began later show that at least half of what went was cold. What no look
//! has shown is no success.

use memtide_core::units::Millis;

/// How long hot pages wait for idle ones before others go, in ms: so long does it take
/// to see what is idle.
const PATIENCE_MS: u64 = 1500;
/// The longest wait between two tries, in ms.
const MOST_MS: u64 = 128_000;
/// How long it is known how many wait, in ms.
const KNOWN_MS: u64 = 3000;

/// What a turn knows of its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it is.
    pub now: Millis,
    /// Looks that began, and which of them was the last of which two passes have ended.
    pub looks: u64,
    pub seen: u64,
    /// When that one's second pass ended.
    pub seen_at: Millis,
    /// The shortest wait between two tries, in ms: so long does it take to find what
    /// should not have gone.
    pub least_ms: u64,
}

/// What is to be done for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A look should show how many wait.
    Look,
    /// A try.
    Now,
}

/// The last try.
#[derive(Clone, Copy, Debug)]
struct Try {
    at: Millis,
    looks: u64,
    waiting: u64,
    went: u64,
}

/// Where one class stands.
#[derive(Debug, Default)]
pub(super) struct MakingWay {
    /// Since when hot pages wait and too few idle ones go.
    starved: Option<Millis>,
    last: Option<Try>,
    judged: bool,
    wait_ms: u64,
    /// When a look was asked for.
    asked: Option<Millis>,
}

impl MakingWay {
    /// What is due, where `waiting` hot pages of the class wait and `starving` of them
    /// would find room now if idle ones had gone.
    pub fn due(&mut self, starving: u64, waiting: u64, turn: Turn) -> Due {
        self.judge(waiting, turn);
        if starving == 0 {
            self.starved = None;
            return Due::Nothing;
        }
        let since = |at: Millis| turn.now.since(at);
        let starved = since(*self.starved.get_or_insert(turn.now));
        let wait_ms = self.wait_ms.max(turn.least_ms);
        let tried = self.last.map(|last| since(last.at));
        if starved < PATIENCE_MS || tried.is_some_and(|since| since < wait_ms) {
            return Due::Nothing;
        }
        if since(turn.seen_at) <= KNOWN_MS {
            return Due::Now;
        }
        if self.asked.is_some_and(|at| since(at) < turn.least_ms) {
            return Due::Nothing;
        }
        self.asked = Some(turn.now);
        Due::Look
    }

    /// So many pages went, while so many waited.
    pub fn tried(&mut self, went: u64, waiting: u64, turn: Turn) {
        // Long ago there were other pages.
        let recent = |last: Try| turn.now.since(last.at) <= 2 * MOST_MS;
        self.wait_ms = match self.last.is_some_and(recent) {
            true => (2 * self.wait_ms).clamp(turn.least_ms, MOST_MS.max(turn.least_ms)),
            false => turn.least_ms,
        };
        self.last = Some(Try {
            at: turn.now,
            looks: turn.looks,
            waiting,
            went,
        });
        self.judged = false;
    }

    fn judge(&mut self, waiting: u64, turn: Turn) {
        let Some(last) = self.last.filter(|_| !self.judged) else {
            return;
        };
        if turn.seen > last.looks {
            self.judged = true;
            if waiting + last.went / 2 <= last.waiting {
                self.wait_ms = turn.least_ms;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of as many looks as began the last so many have not ended.
    fn at(now: u64, looks: u64, open: u64) -> Turn {
        Turn {
            now: Millis(now),
            looks,
            seen: looks - open,
            seen_at: Millis(now),
            least_ms: 2000,
        }
    }

    /// When the next try is made, where 300 wait.
    fn next(way: &mut MakingWay, from: u64, looks: u64) -> u64 {
        let mut due = (from..).step_by(100);
        let due = due.find(|now| way.due(100, 300, at(*now, looks, 0)) == Due::Now);
        let due = due.unwrap();
        way.tried(100, 300, at(due, looks, 0));
        due
    }

    #[test]
    fn how_many_wait_is_known_before_a_try() {
        let mut way = MakingWay::default();
        let mut due = |now, seen_at| {
            let seen_at = Millis(seen_at);
            way.due(
                100,
                300,
                Turn {
                    seen_at,
                    ..at(now, 1, 0)
                },
            )
        };
        assert_eq!(due(10_000, 9_000), Due::Nothing);
        assert_eq!(due(12_001, 9_000), Due::Look);
        assert_eq!(due(14_000, 9_000), Due::Nothing);
        assert_eq!(due(14_001, 9_000), Due::Look);
        assert_eq!(due(14_100, 14_100), Due::Now);
    }

    #[test]
    fn what_helped_is_soon_done_again() {
        let mut way = MakingWay::default();
        assert_eq!(next(&mut way, 1000, 1), 2500);
        // Ten of the hundred were hot.
        assert_eq!(way.due(100, 210, at(2800, 2, 0)), Due::Nothing);
        assert_eq!(next(&mut way, 2900, 2), 4500);
        // And once more, later.
        assert_eq!(way.due(0, 110, at(4700, 3, 0)), Due::Nothing);
        assert_eq!(next(&mut way, 9000, 3), 10_500);
    }

    #[test]
    fn what_did_not_help_or_is_not_known_to_is_done_ever_more_rarely() {
        for looks in [false, true] {
            let mut way = MakingWay::default();
            let (mut last, mut waits) = (next(&mut way, 0, 1), Vec::new());
            for look in 2..10 {
                // Where nobody looks, all may seem to be well.
                let (waiting, looks) = if looks { (300, look) } else { (200, 1) };
                assert_eq!(
                    way.due(100, waiting, at(last + 300, looks, 0)),
                    Due::Nothing
                );
                let then = next(&mut way, last + 400, looks);
                waits.push((then - last) / 1000);
                last = then;
            }
            assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128]);
        }
    }

    /// A look that began before the try does not look at what went.
    #[test]
    fn only_later_looks_judge() {
        for helped in [false, true] {
            let mut way = MakingWay::default();
            let first = next(&mut way, 0, 1);
            // The second look began before the second try, and ends after it.
            assert_eq!(way.due(100, 300, at(first + 2000, 2, 1)), Due::Now);
            way.tried(100, 300, at(first + 2000, 2, 1));
            assert_eq!(way.due(100, 200, at(first + 2100, 2, 0)), Due::Nothing);
            if helped {
                assert_eq!(way.due(100, 200, at(first + 2200, 3, 0)), Due::Nothing);
            }
            let wait = next(&mut way, first + 2300, 3) - (first + 2000);
            assert_eq!(wait, if helped { 2000 } else { 4000 });
        }
    }

    /// Idle pages that go in between end the patience, but not the wait.
    #[test]
    fn idle_pages_do_not_begin_the_wait_again() {
        let mut way = MakingWay::default();
        let first = next(&mut way, 0, 1);
        let second = next(&mut way, first, 1);
        assert_eq!(way.due(0, 300, at(second + 1000, 1, 0)), Due::Nothing);
        assert_eq!(next(&mut way, second + 1100, 1), second + 4000);
    }

    #[test]
    fn long_ago_is_forgotten() {
        let mut way = MakingWay::default();
        let mut last = next(&mut way, 0, 1);
        for _ in 0..6 {
            last = next(&mut way, last, 1);
        }
        let late = next(&mut way, last + 300_000, 1);
        assert_eq!(next(&mut way, late, 1) - late, 2000);
    }
}
