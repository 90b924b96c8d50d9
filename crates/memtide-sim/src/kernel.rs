//! The simulated kernel: address spaces, frames, faults, reclaim, balancing, migration.
//! (owners: mem and bal; see the design)

pub mod migrate;

use memtide_core::units::NodeId;

/// Who makes an access or a call.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The thread.
    pub thread: u32,
    /// Its CPU.
    pub cpu: u32,
    /// That CPU's node.
    pub node: NodeId,
    /// Its address space.
    pub space: u16,
    /// Its clock.
    pub now_ns: u64,
}

/// Why the hardware called the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No frame behind the page.
    NotPresent,
    /// A hint-protected entry.
    Hint,
    /// A store to an entry that is not writable.
    WriteProtect,
    /// The page is being moved.
    Migrating,
}
