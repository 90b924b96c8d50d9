//! What is remembered of pages: how hot they are, how long they were idle, and
//! which way they moved of late.

use memtide_core::demotion::IdleStore;
use memtide_core::hotness::{self, Store};
use memtide_core::promotion::RecentMoves;
use memtide_core::units::Millis;

/// Moves that are remembered, so that pages do not go to and fro.
const RECENT_MOVES: usize = 1 << 17;

/// The records of all pages of a ledger.
#[derive(Debug)]
pub struct Records {
    /// Accesses of late, and which pages are ready.
    pub store: Store,
    /// How many observations in a row found a page untouched.
    pub idle: IdleStore,
    /// Moves of late.
    pub recent: RecentMoves,
}

impl Records {
    /// Empty records of `pages` dense pages.
    pub fn new(config: hotness::Config, pages: u64) -> Records {
        Records {
            store: Store::new(config, pages),
            idle: IdleStore::new(pages),
            recent: RecentMoves::new(RECENT_MOVES),
        }
    }

    /// Forgets a section whose owner is gone.
    pub fn remove_section(&mut self, section: u32) {
        self.store.remove_section(section as usize);
        self.idle.remove_section(section as usize);
    }

    /// Empties records that are so old that their time would begin anew.
    pub fn expire(&mut self, now: Millis) {
        self.store.tidy(now);
    }
}
