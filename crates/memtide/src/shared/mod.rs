//! What more than one subcommand needs. Nothing here knows a subcommand.

pub mod balancing;
pub mod configuration;
pub mod context;
pub mod control;
pub mod control_args;
#[cfg(test)]
pub mod failing;
pub mod firmware_weights;
pub mod foreground;
pub mod journal;
#[cfg(test)]
pub mod kept_pictures;
pub mod lent_weights;
pub mod lines;
#[cfg(test)]
pub mod markup;
pub mod metrics;
pub mod metrics_args;
pub mod nodes;
pub mod nodes_watch;
pub mod outlet;
pub mod outside;
pub mod overwriting;
pub mod pacing;
pub mod pagers;
pub mod pagers_options;
pub mod program;
pub mod report;
pub mod selection;
pub mod signals;
pub mod source;
pub mod spread;
pub mod spreading;
pub mod system_journal;
pub mod table;
pub mod tending;
pub mod tiering;
pub mod unix_socket;
pub mod users;
pub mod weights_options;
pub mod words;
