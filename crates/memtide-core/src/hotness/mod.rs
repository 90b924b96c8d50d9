//! Which pages are hot: a few bits a page, updated at every reported access.
//!
//! The idea, the record layouts and the rules are those of the pghot series
//! (*mm: Hot page tracking and promotion infrastructure* and its later versions): a page is *hot* when
//! it was seen `threshold` times with no pause longer than `window`. Its record
//! holds a small frequency, the low bits of the time of the last access, perhaps
//! the accessing node, and a *ready* bit that asks for a promotion.
//!
//! What it costs, on a two-core EPYC virtual machine (`benches/hotness.rs`):
//!
//! | | compact | precise |
//! |---|---|---|
//! | bytes a page, marks and directory included | 1.004 | 4.004 |
//! | an access to a random page of two million | 10 ns | 12 ns |
//! | the same with two threads on the same pages | 5 ns | 6 ns |
//! | a pass over 1 TiB with 1000 ready pages | 41 us | 37 us |
//! | that pass with every cache emptied before | 190 us | 230 us |
//!
//! [`Config`] is validated once, [`Store`] holds the records, [`Intake`] decides
//! which accesses may reach it.

mod config;
mod drain;
mod histogram;
mod intake;
mod record;
mod section;
mod store;
mod table;

pub use config::{Config, ConfigError, Layout};
pub use histogram::{AGE_BINS, Cut, Heat, Histogram};
pub use intake::{Intake, Intook, RunIntook};
pub use record::Hotness;
pub use store::{Disposition, DrainReport, MemoryUse, Recorded, RunRecorded, Store, Taken};

pub use crate::dense::SECTION_PAGES;
