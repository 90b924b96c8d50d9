//! Accesses in the order of their times.
//!
//! perf writes one CPU's ring after the other, so times go back and forth in
//! the file. After each round over all rings it writes that the round is over.
//! A record of a later round is not older than the newest of the round before
//! the last: what was written while a round went on is in the next. So at the
//! end of a round everything can go that is not newer than the newest of the
//! round before, and no more than two rounds are held. A recording without such
//! marks is held as a whole.

use crate::perf::MemoryAccess;

/// Holds accesses back until their turn.
#[derive(Debug, Default)]
pub(super) struct Order {
    held: Vec<MemoryAccess>,
    /// The newest time of all rounds before this one.
    before: u64,
    newest: u64,
    /// The time of what was handed on last.
    handed: u64,
    /// Accesses that came too late to stand where they belong.
    pub late: u64,
}

impl Order {
    pub(super) fn add(&mut self, access: MemoryAccess) {
        self.newest = self.newest.max(access.time_ns);
        self.held.push(access);
    }

    /// A round is over.
    pub(super) fn round(&mut self, sink: &mut impl FnMut(&MemoryAccess)) {
        self.hand_on(self.before, sink);
        self.before = self.newest;
    }

    /// The recording is over.
    pub(super) fn end(&mut self, sink: &mut impl FnMut(&MemoryAccess)) {
        self.hand_on(u64::MAX, sink);
    }

    fn hand_on(&mut self, until: u64, sink: &mut impl FnMut(&MemoryAccess)) {
        // Stable: the file's order among equals.
        self.held.sort_by_key(|access| access.time_ns);
        let ready = self.held.partition_point(|access| access.time_ns <= until);
        for access in self.held.drain(..ready) {
            if access.time_ns < self.handed {
                self.late += 1;
                sink(&MemoryAccess {
                    time_ns: self.handed,
                    ..access
                });
            } else {
                self.handed = access.time_ns;
                sink(&access);
            }
        }
    }
}
