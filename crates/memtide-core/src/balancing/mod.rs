//! Automatic NUMA balancing: tasks to their memory, memory to its tasks.
//!
//! Somebody touched a page: task t, on a CPU of node c, a page on node m that
//! says who touched it before. From many such reports follow, for each task,
//! the node where it should run ([`placement`]), which tasks belong together
//! ([`group`]), whether a page should move to the task ([`gate`]), and how much
//! more reporting is worth its price ([`timing`], [`sample_rate`]). Where the reports come from
//! does not matter: the kernel's come from hint faults, which scans provoke
//! ([`scan`] picks what to arm); a hardware sampler's are reports as well, and
//! [`pacing`] says what differs. [`sampled`] makes batches of them.
//!
//! [`Balancer`] keeps the state of all tasks and puts the parts together. The
//! way of a touch:
//!
//! 1. [`Balancer::should_move`]: the gate's verdict, and what to note on the page;
//! 2. the backend moves the page, or fails to;
//! 3. [`Balancer::record`]: counted; now and then the task is placed, and the
//!    answer may ask to run it elsewhere.
//!
//! And that of a scan: [`Balancer::tick`] says that one is due,
//! [`Balancer::begin_scan`] who makes it, [`scan::pass`] what it arms, and
//! [`Balancer::end_scan`] takes its cost into account.
//!
//! Everything is integers, as in the kernel, fractions dropped where it drops
//! them. There is no clock and no chance in it.

mod balancer;
mod cpupid;
pub mod faults;
pub mod gate;
pub mod group;
pub mod machine;
pub mod pacing;
pub mod placement;
pub mod sample_rate;
pub mod sampled;
pub mod scan;
mod task;
pub mod timing;

pub use balancer::{
    Balancer, BalancerConfig, Clock, Modes, Outcome, Recorded, SpaceId, TaskId, Touch,
};
pub use cpupid::{Cpupid, CpupidError, CpupidFormat};
pub use machine::{Connection, Machine};
pub use pacing::{Counting, Pacing, SampleSettings, SampleSettingsError};
pub use task::Task;
pub use timing::{FaultSums, Feedback, Periods, Settings};
