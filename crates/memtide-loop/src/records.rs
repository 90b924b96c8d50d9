//! What is remembered of pages: how hot they are, how long they were idle, and
//! which way they moved of late.

use memtide_core::demotion::{IdleRounds, IdleStore};
use memtide_core::hotness::{self, Store};
use memtide_core::promotion::RecentMoves;
use memtide_core::units::Millis;

/// Moves that are remembered, so that pages do not go to and fro.
const RECENT_MOVES: usize = 1 << 17;

/// The longest window that follows passes, in ms: records tell 16,383, and are emptied
/// of what is beyond the window every three seconds, or five where turns take long.
const LONGEST_MS: u32 = 10_000;

/// The records of all pages of a ledger.
#[derive(Debug)]
pub struct Records {
    /// Accesses of late, and which pages are ready.
    pub store: Store,
    /// How many observations in a row found a page untouched.
    pub idle: IdleStore,
    /// For how many long rounds pages were seen untouched, if that is asked for.
    pub rounds: Option<IdleRounds>,
    /// Moves of late.
    pub recent: RecentMoves,
}

impl Records {
    /// Empty records of `pages` dense pages.
    pub fn new(config: hotness::Config, pages: u64) -> Records {
        Records {
            store: Store::new(config, pages),
            idle: IdleStore::new(pages),
            rounds: None,
            recent: RecentMoves::new(RECENT_MOVES),
        }
    }

    /// Counts accesses by a window in which one pass of `pass_ms` more fits than a page must
    /// be seen in, and three at least, but not by a shorter one than `least_ms`: where passes
    /// become longer, the touches of a page still come within the window, and a slow or
    /// busy machine is slower and not blind. No window is longer than records tell.
    pub fn follow(&mut self, pass_ms: u64, least_ms: u32) {
        let passes = u64::from(self.store.config().threshold()) + 1;
        let wanted = passes.max(3) * pass_ms;
        let window_ms = u32::try_from(wanted).unwrap_or(u32::MAX);
        let window_ms = window_ms.min(LONGEST_MS).max(least_ms);
        if window_ms != self.store.config().window_ms() {
            // Both ends were windows of this layout, so this one is.
            let _ = self.store.set_window_ms(window_ms);
        }
    }

    /// Forgets a section whose owner is gone.
    pub fn remove_section(&mut self, section: u32) {
        self.store.remove_section(section as usize);
        self.idle.remove_section(section as usize);
        if let Some(rounds) = &mut self.rounds {
            rounds.remove_section(section as usize);
        }
    }

    /// Empties records that are so old that their time would begin anew.
    pub fn expire(&mut self, now: Millis) {
        self.store.tidy(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::hotness::{Config, Layout, Recorded};
    use memtide_core::units::PageNumber;

    #[test]
    fn two_touches_count_however_long_passes_take() {
        let mut records = Records::new(Config::new(Layout::Precise), 1 << 16);
        let touch = |records: &Records, page, s: u64| {
            records
                .store
                .record(PageNumber(page), None, Millis(s * 1000))
        };
        // 6 s apart is too late for a window of 5 s.
        touch(&records, 1, 10);
        assert_eq!(touch(&records, 1, 16), Recorded::Counted);
        // Passes take 3 s: 9 s.
        records.follow(3_000, 5_000);
        assert_eq!(records.store.config().window_ms(), 9_000);
        assert_eq!(touch(&records, 1, 24), Recorded::BecameReady);
        // As long as records can tell, and no shorter than was asked for.
        records.follow(60_000, 5_000);
        assert_eq!(records.store.config().window_ms(), LONGEST_MS);
        records.follow(10, 5_000);
        assert_eq!(records.store.config().window_ms(), 5_000);
        touch(&records, 2, 30);
        assert_eq!(touch(&records, 2, 36), Recorded::Counted);
    }

    #[test]
    fn a_window_holds_as_many_passes_as_are_asked_for_and_one_more() {
        let config = Config::new(Layout::Precise).with_threshold(4).unwrap();
        let mut records = Records::new(config, 1 << 16);
        records.follow(1_500, 5_000);
        assert_eq!(records.store.config().window_ms(), 7_500);
    }
}
