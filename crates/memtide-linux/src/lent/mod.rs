//! What memtide changes for a while and puts back: one journal for all of it.
//!
//! Problem. DAMON's tree, the table of interleave weights and the affinity of
//! threads are the machine's or somebody else's. memtide changes them and means
//! to put them back, and it can be killed between any two steps.
//!
//! Approach. Each of them is lent by the same three rules:
//!
//! 1. *One at a time.* Who changes it holds its lock ([`Turn`]). The lock ends
//!    with its process, whatever way that goes.
//! 2. *The note comes first.* Before the first change of anything, what will be
//!    changed, from what and to what, is noted in [`FOLDER`]: an intention. It
//!    holds however far the change came.
//! 3. *The note goes last.* It is removed when all is as it was. So a note
//!    without a living holder was left by a memtide that was killed; whoever
//!    takes the lock next puts back what it speaks of.
//!
//! A note belongs to one boot: a reboot puts everything back by itself. A note
//! that makes no sense, or names what memtide never writes, was not made by
//! memtide; nothing is done in its name, and it is an error that says so.

mod journal;

pub use journal::{Journal, LentError, Turn};

/// Where notes and locks are, under the root. A reboot empties the folder, as
/// it undoes what they speak of.
pub const FOLDER: &str = "run/memtide";

/// What may be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DAMON's kdamonds, and the modules that were turned off for them.
    Damon,
    /// The weight table, changed for good by `memtide weights`.
    Weights,
    /// The weight table, changed while a `memtide run` or the service lasts.
    RunWeights,
    /// Affinities of threads.
    Affinity,
}

impl Kind {
    fn note(self) -> &'static str {
        match self {
            Kind::Damon => "damon.json",
            Kind::Weights => "weights.json",
            Kind::RunWeights => "run-weights.json",
            Kind::Affinity => "affinity.json",
        }
    }

    /// Both changes of the weight table are of one table, so they share a lock.
    fn lock(self) -> &'static str {
        match self {
            Kind::Damon => "damon.lock",
            Kind::Weights | Kind::RunWeights => "run-weights.lock",
            Kind::Affinity => "affinity.lock",
        }
    }
}
