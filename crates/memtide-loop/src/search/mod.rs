//! Where to look for hot pages, and how closely.
