//! Managing the pages of a running machine.
//!
//! [`Tierer`] is the loop; [`processes`] knows whom it manages and what their
//! owners allow, [`survey`] where their pages are, [`subjects`] what a source
//! is asked to observe, [`view`] shows all that to the core's decisions,
//! [`carry_out`] does what they say, and [`report`] tells of it.
//!
//! [`balance`] is the other loop: pages to the nodes that use them.

pub mod balance;
pub mod carry_out;
pub mod kernel;
pub mod processes;
pub mod report;
pub mod subjects;
pub mod survey;
mod tierer;
pub mod view;

pub use tierer::{Options, Tierer, TiererError};
