//! Reading perf events: a ring's records, the fields of a sample, tracepoints.
//!
//! [`ring`] cuts bytes into records, [`sample`] cuts a record into fields,
//! [`tracepoint`] finds a tracepoint and the layout of its payload; all three
//! are pure and total: any bytes give an answer, none a panic. [`event`] ties
//! them to an open event.

pub mod event;
pub mod ring;
pub mod sample;
pub mod tracepoint;

pub use event::{Event, EventError};
pub use ring::{Record, Scratch, Walk};
pub use sample::{Sample, SampleLayout};
