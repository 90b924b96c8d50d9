//! Moving pages. (owner: bal)

use super::Kernel;
use crate::hardware::Hardware;
use crate::page::Slot;
use memtide_core::units::NodeId;

/// Why pages move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// Up a tier.
    Promotion,
    /// To the node that uses them.
    Balancing,
    /// Down a tier.
    Demotion,
}

/// Who moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// A thread in a fault, on this CPU.
    Fault(u32),
    /// Background reclaim of a node.
    Kswapd,
    /// A thread that reclaims for itself, on this CPU.
    Direct(u32),
    /// User space asked.
    Proactive,
    /// A promotion thread.
    Kmigrated,
}

/// What became of a batch, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Moved.
    pub moved: u64,
    /// In somebody else's hands.
    pub busy: u64,
    /// No room on the target.
    pub no_memory: u64,
    /// What it cost, before multiplication by S.
    pub ns: u64,
}

impl Kernel {
    /// Moves the folios of owners `slots` to `target`, and counts.
    pub fn migrate(
        &mut self,
        hw: &mut Hardware,
        slots: &[Slot],
        target: NodeId,
        why: MoveReason,
        by: Initiator,
    ) -> Moved {
        let _ = (hw, slots, target, why, by);
        Moved::default()
    }

    pub(super) fn fault_migrating(
        &mut self,
        hw: &mut Hardware,
        who: &super::Who,
        slot: Slot,
    ) -> u64 {
        let _ = (hw, who, slot);
        0
    }
}
