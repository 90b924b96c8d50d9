//! Reading perf events: a ring's records, the fields of a sample, tracepoints.
//!
//! [`ring`] cuts bytes into records, [`sample`] cuts a record into fields,
//! [`tracepoint`] finds a tracepoint and the layout of its payload; all three
//! are pure and total: any bytes give an answer, none a panic. [`event`] ties
//! them to an open event.
//!
//! [`decoder`] makes a [`MemoryAccess`] of a sample record, whoever took it:
//! AMD's IBS ([`ibs`]), Intel's PEBS or anything else that tells a data source
//! ([`data_src`]), or a page fault. [`pmu`] reads how the kernel describes the
//! units that can do so.

pub mod access;
pub mod data_src;
pub mod decoder;
pub mod event;
#[cfg(test)]
pub mod forge;
pub mod ibs;
pub mod pmu;
pub mod recording;
pub mod ring;
pub mod sample;
pub mod tracepoint;

pub use access::{Level, MemoryAccess, Operation, Refusal, Refusals};
pub use decoder::{Decoder, Origin};
pub use event::{Event, EventError};
pub use ring::{Record, Scratch, Walk};
pub use sample::{Sample, SampleLayout};
