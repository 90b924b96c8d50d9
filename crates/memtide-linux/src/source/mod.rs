//! Where access samples come from.
//!
//! [`observe`] says what every source offers. Each source is a mechanism of its
//! own ([`damon`], [`hint_faults`], [`page_table`]) and an adapter that makes it a source
//! (`from_*`). [`samples`] is for whoever wants to know which thread made an
//! access: balancing does, tiering does not.

pub mod damon;
pub mod from_damon;
pub mod from_hint_faults;
pub mod from_page_table;
pub mod hint_faults;
pub mod observe;
pub mod page_table;
pub mod samples;
pub mod write_faults;
