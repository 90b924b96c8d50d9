//! Unmaps in generations, and when a flush is due.
//!
//! All unmaps since the last flush belong to the *open* generation and pile up in
//! one batch. When a page of it is about to be used, the batch is closed: it is
//! flushed as a whole, and the next generation is open. So at any time there are
//! three kinds of stamps: of the open generation (a flush is due before use), of
//! the one being flushed (wait for its end), and all others (done).
//!
//! ```text
//! done        in flight      open
//! ... n-1        n           n+1        flush of n under way
//! ... n                      n+1        over: n is done
//! ```
//!
//! A caller with one thread uses [`LazyFlush::take`] and [`LazyFlush::force`]. One
//! that holds a lock around this state, and does not want to hold it while
//! flushing, uses [`LazyFlush::begin`] and [`LazyFlush::end`]. There is one flush
//! at a time: what is due meanwhile waits for the end, which costs less than a
//! second flush.

use super::generation::{Generation, Stamp};
use serde::Serialize;

/// What has to be flushed for the unmaps of a generation.
pub trait Pending: Default {
    /// Adds what another unmap needs.
    fn fold(&mut self, other: Self);
    /// Whether there is nothing to flush.
    fn is_empty(&self) -> bool;
}

/// Events before which everything pending is flushed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Cause {
    /// A fault makes an entry writable.
    TurnedWritable,
    /// A mapping that allows stores is created.
    WritableMapping,
    /// A mapping ends, moves or is replaced: another file at the same address.
    MappingChanged,
    /// Content of a file is written.
    ContentWritten,
    /// A page with a memory error is taken out.
    Poison,
    /// A huge page is wanted, and too much of the free memory waits for one to be whole.
    HugePage,
    /// Memory is so short that deferring stops.
    Pressure,
}

impl Cause {
    /// Every cause, in the order of [`Tally::forced`].
    pub const ALL: [Cause; 7] = [
        Cause::TurnedWritable,
        Cause::WritableMapping,
        Cause::MappingChanged,
        Cause::ContentWritten,
        Cause::Poison,
        Cause::HugePage,
        Cause::Pressure,
    ];

    /// The name in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::TurnedWritable => "turned_writable",
            Cause::WritableMapping => "writable_mapping",
            Cause::MappingChanged => "mapping_changed",
            Cause::ContentWritten => "content_written",
            Cause::Poison => "poison",
            Cause::HugePage => "huge_page",
            Cause::Pressure => "pressure",
        }
    }
}

/// What a page must wait for before its memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// For nothing.
    Nothing,
    /// For the end of the flush that is under way.
    Wait,
    /// For a flush of what is pending, which nobody has begun.
    Flush,
}

/// What was done, in events since the start or the last [`LazyFlush::take_tally`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Tally {
    /// Unmaps whose flush was deferred.
    pub deferred: u64,
    /// Unmaps that had to be flushed at once, as deferring was paused.
    pub refused: u64,
    /// Flushes because memory was about to be used.
    pub at_use: u64,
    /// Pages used for which the flush was done already.
    pub satisfied: u64,
    /// Generations that flushes of others satisfied as a whole.
    pub covered: u64,
    /// Flushes that events forced, by [`Cause::ALL`].
    pub forced: [u64; Cause::ALL.len()],
}

impl Tally {
    /// All flushes.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.at_use + self.forced.iter().sum::<u64>()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.deferred += other.deferred;
        self.refused += other.refused;
        self.at_use += other.at_use;
        self.satisfied += other.satisfied;
        self.covered += other.covered;
        for (mine, others) in self.forced.iter_mut().zip(other.forced) {
            *mine += others;
        }
    }
}

/// A flush that has begun; [`LazyFlush::end`] takes it back.
#[derive(Debug)]
#[must_use = "a flush that does not end blocks all later ones"]
pub struct Round<const BITS: u32 = 16>(Generation<BITS>);

/// Unmaps that wait for their flush. `BITS`: size of a stamp; fewer than 16 make
/// numbers come round soon enough for an exhaustive test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LazyFlush<B, const BITS: u32 = 16> {
    /// Everything up to here is flushed.
    done: Generation<BITS>,
    /// The one after `done` is being flushed.
    in_flight: bool,
    /// Of the open generation.
    pending: B,
    /// Pages may carry the open generation's stamp.
    stamped: bool,
    paused: u32,
    tally: Tally,
}

impl<B: Pending, const BITS: u32> Default for LazyFlush<B, BITS> {
    fn default() -> Self {
        LazyFlush::new()
    }
}

impl<B: Pending, const BITS: u32> LazyFlush<B, BITS> {
    /// With nothing pending.
    #[must_use]
    pub fn new() -> Self {
        LazyFlush {
            done: Generation::FIRST,
            in_flight: false,
            pending: B::default(),
            stamped: false,
            paused: 0,
            tally: Tally::default(),
        }
    }

    /// The generation to which unmaps belong now.
    fn open(&self) -> Generation<BITS> {
        match self.in_flight {
            true => self.done.next().next(),
            false => self.done.next(),
        }
    }

    /// Notes an unmap of an eligible page that is not flushed; `what` will be. The
    /// stamp has to stay with the page as long as it is free.
    ///
    /// # Errors
    ///
    /// Gives `what` back while deferring is paused: the caller flushes it.
    pub fn defer(&mut self, what: B) -> Result<Stamp, B> {
        if self.paused > 0 {
            self.tally.refused += 1;
            return Err(what);
        }
        self.tally.deferred += 1;
        self.pending.fold(what);
        self.stamped = true;
        Ok(self.open().stamp())
    }

    /// What a page with this stamp must wait for before its memory is used.
    #[must_use]
    pub fn due(&self, stamp: Stamp) -> Due {
        let Some(generation) = Generation::of(stamp) else {
            return Due::Nothing;
        };
        match (self.done.steps_to(generation), self.in_flight) {
            (1, true) => Due::Wait,
            (1, false) | (2, true) if self.stamped => Due::Flush,
            _ => Due::Nothing,
        }
    }

    /// The stamp of a block that two free pages make together: the one that has to
    /// wait longer.
    #[must_use]
    pub fn merge(&self, a: Stamp, b: Stamp) -> Stamp {
        let rank = |stamp| match self.due(stamp) {
            Due::Nothing => 0,
            Due::Wait => 1,
            Due::Flush => 2,
        };
        match rank(a).max(rank(b)) {
            0 => Stamp::NONE,
            longest if longest == rank(a) => a,
            _ => b,
        }
    }

    /// To be called before a page with this stamp leaves the free lists: flushes all
    /// that is pending if it must be. Returns whether it did.
    ///
    /// # Panics
    ///
    /// If a flush begun by [`LazyFlush::begin`] is under way.
    pub fn take(&mut self, stamp: Stamp, flush: impl FnOnce(B)) -> bool {
        match self.due(stamp) {
            Due::Flush => {
                let flushed = self.flush_all(flush);
                self.tally.at_use += u64::from(flushed);
                flushed
            }
            Due::Nothing => {
                self.tally.satisfied += u64::from(stamp != Stamp::NONE);
                false
            }
            Due::Wait => panic!("a flush is under way: wait for its end"),
        }
    }

    /// To be called before something happens that cannot wait: flushes all that is
    /// pending. Returns whether there was anything.
    ///
    /// # Panics
    ///
    /// If a flush begun by [`LazyFlush::begin`] is under way.
    pub fn force(&mut self, cause: Cause, flush: impl FnOnce(B)) -> bool {
        let flushed = self.flush_all(flush);
        self.tally.forced[cause as usize] += u64::from(flushed);
        flushed
    }

    fn flush_all(&mut self, flush: impl FnOnce(B)) -> bool {
        assert!(!self.in_flight, "a flush is under way: wait for its end");
        let Some((round, what)) = self.begin() else {
            return false;
        };
        flush(what);
        self.end(round);
        true
    }

    /// A flush of somebody else did part of what is pending: `drop` takes that part
    /// out. If nothing is left, all that is pending is done.
    pub fn covered(&mut self, drop: impl FnOnce(&mut B)) {
        drop(&mut self.pending);
        if self.stamped && self.pending.is_empty() && !self.in_flight {
            self.done = self.open();
            self.stamped = false;
            self.tally.covered += 1;
        }
    }

    /// Closes the open generation: the caller flushes what it is given, then calls
    /// [`LazyFlush::end`]. `None` if nothing is pending, or a flush is under way.
    pub fn begin(&mut self) -> Option<(Round<BITS>, B)> {
        if self.in_flight || !self.stamped {
            return None;
        }
        if self.pending.is_empty() {
            self.done = self.open();
            self.stamped = false;
            self.tally.covered += 1;
            return None;
        }
        let round = Round(self.open());
        self.in_flight = true;
        self.stamped = false;
        Some((round, std::mem::take(&mut self.pending)))
    }

    /// The flush is over: pages of its generation may be used.
    pub fn end(&mut self, round: Round<BITS>) {
        self.done = round.0;
        self.in_flight = false;
    }

    /// Whether a flush is under way.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// What is pending.
    #[must_use]
    pub fn pending(&self) -> &B {
        &self.pending
    }

    /// Stops deferring, for instance while memory is short. Pauses add up. What is
    /// pending stays so: see [`Cause::Pressure`].
    pub fn pause(&mut self) {
        self.paused += 1;
    }

    /// Ends a pause.
    ///
    /// # Panics
    ///
    /// If there was none.
    pub fn resume(&mut self) {
        self.paused = self.paused.checked_sub(1).expect("resumed, not paused");
    }

    /// Whether deferring is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused > 0
    }

    /// What was done so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The same, beginning anew.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
