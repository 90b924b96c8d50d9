//! The kernel on small machines.

mod balancing;
mod by_samples;
mod faulting;
mod hearing;
mod lazy;
mod memory;
mod migrating;
mod placing;
mod promoting;
mod reclaiming;
