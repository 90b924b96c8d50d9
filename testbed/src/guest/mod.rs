//! The guest's side: init, victim, measurements and the tests themselves.
//!
//! One static program plays every part, told by its first argument; the kernel starts it as `/init`
//! without any. See `src/bin/guest.rs`.

pub mod agreement;
pub mod contain;
pub mod damon_regions;
pub mod demo;
pub mod demo_sets;
mod hot_set;
pub mod init;
mod kernel_log;
pub mod kill_at;
pub mod late;
pub mod measure;
pub mod mechanism;
pub mod memtide;
pub mod pace;
pub mod patches;
pub mod pins;
pub mod procfs;
pub mod random;
pub mod redis;
pub mod sets;
pub mod subject;
pub mod sys;
pub mod tests;
pub mod victim;
