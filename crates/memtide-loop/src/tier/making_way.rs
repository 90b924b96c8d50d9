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
//! in exchange for those of the next try.
//!
//! # Properties
//!
//! Where all is in use a try is in vain: what went comes back. So after each one the
//! wait until the next is doubled, up to [`MOST_MS`], unless two passes of a look that
//! took in all that went ends, and no more than half of it was seen in use by then. The
//! next try waits for that look; if it does not come for [`JUDGED_MS`], the try was in vain.

use memtide_core::pages::Folio;
use memtide_core::units::Millis;

/// How long hot pages wait for idle ones before others go, in ms: so long does it take
/// to see what is idle.
const PATIENCE_MS: u64 = 1500;
/// The shortest and the longest wait between two tries, in ms.
const LEAST_MS: u64 = 2000;
const MOST_MS: u64 = 128_000;
/// How often it is asked what of that was seen in use, in ms: records tell of some seconds.
const ASK_MS: u64 = 1000;
/// How long a try waits for the look that judges it, in ms.
const JUDGED_MS: u64 = 30_000;

/// What a turn knows of its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it is.
    pub now: Millis,
    /// Looks that have begun.
    pub looks: u64,
    /// The last of them of which two passes have ended.
    pub seen: u64,
}

/// The last try.
#[derive(Debug)]
struct Try {
    at: Millis,
    looks: u64,
    /// What went and was not seen in use since; nothing once it is judged.
    went: Vec<Folio>,
    /// Pages that went and were seen in use.
    used: u64,
    /// When that was last asked.
    asked: Millis,
}

/// Where one class stands.
#[derive(Debug, Default)]
pub(super) struct MakingWay {
    /// Since when hot pages wait and too few idle ones go.
    starved: Option<Millis>,
    last: Option<Try>,
    wait_ms: u64,
}

impl MakingWay {
    /// Whether a try is due, where `starving` hot pages of the class would find room now
    /// if idle ones had gone. `is_in_use` tells of a folio that went.
    pub fn is_due(&mut self, starving: u64, turn: Turn, is_in_use: impl Fn(Folio) -> bool) -> bool {
        self.judge(turn, is_in_use);
        if starving == 0 {
            self.starved = None;
            return false;
        }
        let since = |at: Millis| turn.now.since(at);
        let starved = since(*self.starved.get_or_insert(turn.now));
        let waits = |last: &Try| {
            let open = !last.went.is_empty() && since(last.at) < JUDGED_MS;
            open || since(last.at) < self.wait_ms
        };
        starved >= PATIENCE_MS && !self.last.as_ref().is_some_and(waits)
    }

    /// These folios went.
    pub fn tried(&mut self, went: Vec<Folio>, turn: Turn) {
        // Long ago there were other pages.
        let recent = |last: &Try| turn.now.since(last.at) <= 2 * MOST_MS;
        self.wait_ms = match self.last.as_ref().is_some_and(recent) {
            true => (2 * self.wait_ms).clamp(LEAST_MS, MOST_MS),
            false => LEAST_MS,
        };
        self.last = Some(Try {
            at: turn.now,
            looks: turn.looks,
            went,
            used: 0,
            asked: turn.now,
        });
    }

    fn judge(&mut self, turn: Turn, is_in_use: impl Fn(Folio) -> bool) {
        let Some(last) = &mut self.last else {
            return;
        };
        let is_over = turn.seen > last.looks;
        if last.went.is_empty() || (!is_over && turn.now.since(last.asked) < ASK_MS) {
            return;
        }
        // What one look saw in use is forgotten before the last one ends, where they take long.
        last.asked = turn.now;
        let used = &mut last.used;
        last.went.retain(|folio| {
            let in_use = is_in_use(*folio);
            *used += if in_use { u64::from(folio.pages) } else { 0 };
            !in_use
        });
        if is_over {
            let went = std::mem::take(&mut last.went);
            let unused: u64 = went.iter().map(|folio| u64::from(folio.pages)).sum();
            if last.used <= unused {
                self.wait_ms = LEAST_MS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::units::PageNumber;

    /// Of as many looks as began the last so many have not ended.
    fn at(now: u64, looks: u64, open: u64) -> Turn {
        Turn {
            now: Millis(now),
            looks,
            seen: looks - open,
        }
    }

    fn hundred() -> Vec<Folio> {
        let folio = |first| Folio {
            first: PageNumber(first),
            pages: 1,
        };
        (0..100).map(folio).collect()
    }

    /// Whether a try is due, where `hot` of the hundred that went are in use.
    fn due(way: &mut MakingWay, starving: u64, hot: u64, turn: Turn) -> bool {
        way.is_due(starving, turn, |folio| folio.first.0 < hot)
    }

    /// When the next try is made, where `hot` of the hundred are in use.
    fn next(way: &mut MakingWay, from: u64, looks: u64, hot: u64) -> u64 {
        let mut when = (from..).step_by(100);
        let when = when.find(|now| due(way, 100, hot, at(*now, looks, 0)));
        let when = when.unwrap();
        way.tried(hundred(), at(when, looks, 0));
        when
    }

    #[test]
    fn what_helped_is_soon_done_again() {
        let mut way = MakingWay::default();
        assert_eq!(next(&mut way, 1000, 1, 0), 2500);
        // Ten of the hundred were hot.
        assert!(!due(&mut way, 100, 10, at(2800, 2, 0)));
        assert_eq!(next(&mut way, 2900, 2, 10), 4500);
        // And once more, later.
        assert!(!due(&mut way, 0, 50, at(4700, 3, 0)));
        assert_eq!(next(&mut way, 9000, 3, 10), 10_500);
    }

    #[test]
    fn what_did_not_help_is_done_ever_more_rarely() {
        let mut way = MakingWay::default();
        let (mut last, mut waits) = (next(&mut way, 0, 1, 51), Vec::new());
        for look in 2..10 {
            assert!(!due(&mut way, 100, 51, at(last + 300, look, 0)));
            let then = next(&mut way, last + 400, look, 51);
            waits.push((then - last) / 1000);
            last = then;
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128]);
    }

    /// Where nobody looks, all may seem to be well.
    #[test]
    fn what_nobody_has_looked_at_did_not_help() {
        let mut way = MakingWay::default();
        let (mut last, mut waits) = (next(&mut way, 0, 1, 0), Vec::new());
        for _ in 0..8 {
            let then = next(&mut way, last + 400, 1, 0);
            waits.push((then - last) / 1000);
            last = then;
        }
        assert_eq!(waits, [30, 30, 30, 30, 32, 64, 128, 128]);
    }

    /// Looks take long: what the first saw in use is not known to be when the last ends.
    #[test]
    fn what_was_seen_in_use_is_remembered_until_it_is_judged() {
        let mut way = MakingWay::default();
        let first = next(&mut way, 0, 1, 0);
        let second = next(&mut way, first + 1000, 2, 100);
        assert_eq!(second - first, 2000);
        // 60 are in use, then nobody knows.
        assert!(!due(&mut way, 100, 60, at(second + 1500, 3, 1)));
        assert!(!due(&mut way, 100, 0, at(second + 3000, 3, 0)));
        assert_eq!(next(&mut way, second + 3100, 3, 0) - second, 4000);
    }

    /// A look that began before the try does not look at what went.
    #[test]
    fn only_later_looks_judge() {
        let mut way = MakingWay::default();
        // The second look began before the try, and ends after it.
        assert!(!due(&mut way, 100, 0, at(0, 2, 1)));
        assert!(due(&mut way, 100, 0, at(1500, 2, 1)));
        way.tried(hundred(), at(1500, 2, 1));
        assert!(!due(&mut way, 100, 0, at(4000, 2, 0)));
        assert!(due(&mut way, 100, 0, at(4100, 3, 0)));
    }

    /// Idle pages that go in between end the patience, but not the wait.
    #[test]
    fn idle_pages_do_not_begin_the_wait_again() {
        let mut way = MakingWay::default();
        let first = next(&mut way, 0, 1, 100);
        let second = next(&mut way, first, 2, 100);
        assert!(!due(&mut way, 0, 100, at(second + 1000, 3, 0)));
        assert_eq!(next(&mut way, second + 1100, 3, 100), second + 4000);
    }

    #[test]
    fn long_ago_is_forgotten() {
        let mut way = MakingWay::default();
        let mut last = next(&mut way, 0, 1, 100);
        for look in 2..8 {
            last = next(&mut way, last, look, 100);
        }
        let late = next(&mut way, last + 300_000, 8, 100);
        assert_eq!(next(&mut way, late, 9, 100) - late, 2000);
    }
}
