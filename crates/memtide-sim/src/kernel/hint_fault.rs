//! Hint faults. (owner: bal)

use super::{Kernel, Who};
use crate::hardware::Hardware;
use crate::page::Slot;

impl Kernel {
    pub(super) fn fault_hint(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> u64 {
        let _ = (hw, who, slot, write);
        0
    }
}
