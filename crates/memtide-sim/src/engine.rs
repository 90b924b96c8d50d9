//! (owner: hot; see the design)
