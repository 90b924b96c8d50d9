//! What the evictor's thread learns from a turn, whatever the mode.

use std::time::Duration;

/// What a round found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// When the next one should be.
    pub wait: Duration,
    /// Memory is within the budget.
    pub within: bool,
    /// It is, and nothing is left to look at for who asked for that.
    pub settled: bool,
    /// Nothing came into memory since the last round.
    pub idle: bool,
}
