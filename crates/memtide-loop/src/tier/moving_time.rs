//! How long pages may be moved before the loop looks up.
//!
//! A source goes on observing meanwhile. The pass that was to be a look's last is followed by another one and
//! yet another, all of them paid for and read by nobody: on a busy machine 64 MiB take seconds to move, and
//! what the look overspent was missing from the next one for minutes. So moves end after a while, and what is
//! left waits for the next turn.

use memtide_core::units::Millis;

/// The least time for one reason to move, and the most, in ms: people wait for answers, and others for room.
pub(super) const TIMES_MS: (u64, u64) = (100, 1_000);
/// The least that is moved at once, in pages; and how many are before it is known what that takes.
const LEAST_PAGES: u64 = 512;
/// Of what moving took, that of about so many pages is remembered.
const REMEMBERED_PAGES: u64 = 1 << 15;
/// And no more than so much time, in ms: what does not move takes its time, too.
const REMEMBERED_MS: u64 = 60_000;

/// See the module's essay.
#[derive(Debug, Default)]
pub(super) struct MovingTime {
    /// None before it [begins](MovingTime::begin) first.
    limit_ms: Option<u64>,
    /// When the first page was moved.
    began: Option<Millis>,
    is_cut: bool,
    /// How many were to move, and how many did.
    tried: u64,
    moved: u64,
    /// Whether the next turn should begin at once.
    more: bool,
    /// So many pages took so long.
    pages: u64,
    took_ms: u64,
}

impl MovingTime {
    /// Pages are about to be moved for one reason, for so long. Each reason has time of its own.
    pub fn begin(&mut self, limit_ms: u64) {
        self.begin_again();
        self.limit_ms = Some(limit_ms);
    }

    /// Others are, for as long; where those before were too many already, for the least time.
    pub fn begin_again(&mut self) {
        if self.is_cut {
            self.more |= self.moved * 2 >= self.tried;
            self.limit_ms = self.limit_ms.map(|ms| ms.min(TIMES_MS.0));
        }
        (self.began, self.is_cut) = (None, false);
        (self.tried, self.moved) = (0, 0);
    }

    /// Whether pages are left for which there was no time.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether there is no reason to wait with the next turn: pages were left for which there was no time,
    /// and of those before them most did move.
    pub fn take_more(&mut self) -> bool {
        self.begin_again();
        std::mem::take(&mut self.more)
    }

    /// Whether it is known how long moves take.
    pub fn is_known(&self) -> bool {
        self.pages > 0
    }

    /// How many pages there is time for, as far as that is known.
    pub fn affords(&self) -> u64 {
        self.worth(self.limit_ms.unwrap_or(u64::MAX))
    }

    /// How many pages may be moved at once; none if time is over.
    pub fn next(&mut self, now: Millis) -> Option<u64> {
        let spent_ms = now.since(*self.began.get_or_insert(now));
        let limit_ms = self.limit_ms.unwrap_or(u64::MAX);
        if spent_ms > 0 && spent_ms >= limit_ms {
            self.is_cut = true;
            return None;
        }
        Some(match self.is_known() {
            true => self.worth(limit_ms - spent_ms),
            false => LEAST_PAGES,
        })
    }

    /// So many pages were to move and so many did, and it took so long.
    pub fn moved(&mut self, tried: u64, moved: u64, took_ms: u64) {
        self.tried += tried;
        self.moved += moved;
        self.pages += moved;
        self.took_ms += took_ms;
        while self.pages > REMEMBERED_PAGES || self.took_ms > REMEMBERED_MS {
            (self.pages, self.took_ms) = (self.pages / 2, self.took_ms / 2);
        }
    }

    /// How many pages `ms` are worth: any number where they take no time that could be measured.
    fn worth(&self, ms: u64) -> u64 {
        let by_rate = self.pages.saturating_mul(ms).checked_div(self.took_ms);
        by_rate.unwrap_or(u64::MAX).max(LEAST_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pages are moved in `limit_ms` at this price, in how many parts, and how long that takes.
    fn moved(time: &mut MovingTime, limit_ms: u64, wanted: u64, us_a_page: u64) -> (u64, u64, u64) {
        time.begin(limit_ms);
        let (mut us, mut all, mut parts) = (7_000_000, 0, 0);
        while all < wanted {
            let before = Millis(us / 1000);
            let Some(most) = time.next(before) else {
                assert!(time.is_cut() && time.take_more());
                break;
            };
            let pages = most.min(wanted - all);
            us += pages * us_a_page;
            time.moved(pages, pages, us / 1000 - before.0);
            (all, parts) = (all + pages, parts + 1);
        }
        assert!(!time.take_more());
        (all, parts, us / 1000 - 7_000)
    }

    #[test]
    fn what_is_quick_is_moved_at_once_when_that_is_known() {
        let time = &mut MovingTime::default();
        assert_eq!(moved(time, 100, 16_384, 5), (16_384, 2, 81));
        assert_eq!(moved(time, 100, 16_384, 5), (16_384, 1, 81));
        assert_eq!(moved(time, 100, 500, 5), (500, 1, 2));
        assert_eq!(moved(time, u64::MAX, 1 << 20, 5), (1 << 20, 1, 5_242));
    }

    #[test]
    fn what_is_slow_ends_in_time_or_after_the_least_that_is_moved() {
        for us_a_page in [10, 20, 60, 100, 400, 5_000] {
            let time = &mut MovingTime::default();
            let least_ms = LEAST_PAGES * us_a_page / 1000;
            for _ in 0..3 {
                let (all, _, ms) = moved(time, 100, 16_384, us_a_page);
                assert!((LEAST_PAGES..16_384).contains(&all), "{all} at {us_a_page}");
                assert!((99..=102 + least_ms).contains(&ms), "{ms} at {us_a_page}");
            }
        }
    }

    #[test]
    fn a_machine_that_becomes_faster_or_slower_is_soon_known() {
        let time = &mut MovingTime::default();
        moved(time, 100, 16_384, 400);
        let all = |time: &mut MovingTime, us| (0..40).map(|_| moved(time, 100, 16_384, us).0).max();
        assert_eq!(all(time, 4), Some(16_384));
        moved(time, 100, 16_384, 400);
        assert!(moved(time, 100, 16_384, 400).2 < 2 * 100 + 205);
    }

    #[test]
    fn a_clock_that_stands_still_keeps_nothing_back() {
        let mut time = MovingTime::default();
        time.begin(100);
        assert_eq!(time.next(Millis(5)), Some(LEAST_PAGES));
        time.moved(LEAST_PAGES, LEAST_PAGES, 0);
        assert_eq!(time.next(Millis(5)), Some(u64::MAX));
    }

    /// Whoever tries again at once what does not move would never do anything else.
    #[test]
    fn what_does_not_move_is_no_reason_for_haste() {
        let mut time = MovingTime::default();
        time.begin(100);
        time.next(Millis(5));
        time.moved(LEAST_PAGES, LEAST_PAGES / 4, 200);
        assert_eq!(time.next(Millis(205)), None);
        assert!(time.is_cut());
        assert!(!time.take_more());
        time.begin_again();
        assert!(!time.is_cut());
        // Time that went by for nothing counts as well.
        assert_eq!(time.affords(), LEAST_PAGES);
    }
}
