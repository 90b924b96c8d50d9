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

/// The hardware. (Signatures for the kernel until helper hot's own are merged.)
pub struct Hardware {
    /// What the kernel's work costs.
    pub costs: crate::spec::Costs,
}

impl Hardware {
    /// Hardware for tests of the kernel.
    #[must_use]
    pub fn new(spec: &crate::spec::MachineSpec) -> Hardware {
        Hardware {
            costs: spec.costs.clone(),
        }
    }

    /// Shoots down entries of `space`; what the initiator pays.
    pub fn flush_pages(&mut self, space: u16, slots: &[Slot], from_cpu: Option<u32>) -> u64 {
        let _ = (space, slots, from_cpu);
        0
    }

    /// Shoots down all entries of `space`.
    pub fn flush_space(&mut self, space: u16, from_cpu: Option<u32>) -> u64 {
        let _ = (space, from_cpu);
        0
    }

    /// The traffic of copying pages, and its time.
    pub fn copy_pages(
        &mut self,
        from: memtide_core::units::NodeId,
        to: memtide_core::units::NodeId,
        pages: u64,
    ) -> u64 {
        let _ = (from, to, pages);
        0
    }

    /// The traffic of clearing pages, and its time.
    pub fn clear_pages(&mut self, node: memtide_core::units::NodeId, pages: u64) -> u64 {
        let _ = (node, pages);
        0
    }
}
