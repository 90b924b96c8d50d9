//! Making room.

use super::Kernel;
use crate::hardware::Hardware;
use memtide_core::units::NodeId;

/// Reclaim's state.
pub struct Reclaim;

impl Reclaim {
    pub(super) fn new() -> Reclaim {
        Reclaim
    }
}

impl Kernel {
    /// Wakes a node's kswapd: somebody found too little room there (an allocation, or a promotion
    /// that was refused).
    pub fn wake_kswapd(&mut self, node: NodeId) {
        let _ = node;
    }

    pub(super) fn background_reclaim(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        let _ = (hw, now_ns, dt_ns);
    }
}
