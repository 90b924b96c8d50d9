//! The subcommands, a module each. None of them knows another.

pub mod balance;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod generate;
pub mod pager;
pub mod pause;
pub mod policy;
pub mod rebalance;
pub mod reload;
pub mod run;
pub mod serve;
pub mod sim;
pub mod status;
pub mod tier;
pub mod top;
pub mod topology;
pub mod trace;
pub mod weights;
