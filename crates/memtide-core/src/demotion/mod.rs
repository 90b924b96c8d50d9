//! Making room: how much, which pages, and whereto.

pub mod idle;
pub mod rounds;
pub mod targets;
pub mod victims;
pub mod watermarks;

pub use idle::IdleStore;
pub use rounds::IdleRounds;
pub use targets::{Chosen, choose_target};
pub use victims::{Coldest, Coldness, Cursor, Evidence, Limits, Victim, Victims};
pub use watermarks::Watermarks;
