//! Where access samples come from.
//!
//! [`observe`] says what every source offers. Each source is a mechanism of its
//! own ([`damon`], [`hint_faults`], [`page_table`]) and an adapter that makes it a source
//! (`from_*`). [`samples`] tells of single accesses, and which thread made them:
//! balancing needs the thread, and tiering takes the page alone.

pub mod damon;
pub mod from_damon;
pub mod from_hint_faults;
pub mod from_page_table;
pub mod hint_faults;
pub mod observe;
pub mod page_table;
pub mod samples;
pub mod write_faults;
