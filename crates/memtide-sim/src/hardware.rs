//! The simulated hardware: CPUs with TLBs and caches, memory with load, a sampler.
//! (owner: hot; see the design)

use crate::page::Slot;

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// A cache of this or another CPU.
    Cache,
    /// DRAM of the CPU's own node.
    LocalDram,
    /// DRAM of another node with CPUs.
    RemoteDram,
    /// A node without CPUs.
    Extension,
}

/// A hardware sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The page.
    pub slot: Slot,
    /// The CPU.
    pub cpu: u32,
    /// The thread that ran there.
    pub thread: u32,
    /// Whether it stored.
    pub write: bool,
    /// What it took.
    pub latency_ns: u32,
    /// Who served it.
    pub served: ServedBy,
}
