//! (owner: scen; see the design)
