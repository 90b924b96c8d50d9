//! Which hot pages move up, when, and where.
//!
//! [`Gate`] is the kernel's rate limit with its self-adjusting threshold;
//! [`threshold_free`] is an alternative without settings to tune; [`Kmigrated`]
//! visits the ready pages, asks either, and hands out batches.

pub mod gate;
pub mod kmigrated;
pub mod recent;
pub mod threshold_free;
pub mod verdict;

pub use gate::{Gate, GateConfig, Request, StartState};
pub use kmigrated::{
    Batch, Kept, Kmigrated, KmigratedConfig, KmigratedError, PassReport, Refused, Sink, Stops,
};
pub use recent::{Moved, RecentMoves};
pub use threshold_free::{Benefit, HotSet, ThresholdFree};
pub use verdict::{Admit, Candidate, Then, Verdict};
