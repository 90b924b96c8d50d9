//! (owner: hot; see the design)

pub mod access;
