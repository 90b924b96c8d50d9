//! Accessed bits.

/// Aging's state.
pub struct Aging;

impl Aging {
    pub(super) fn new() -> Aging {
        Aging
    }
}

use super::Kernel;
use crate::page::Slot;

impl Kernel {
    /// Looks at the entries of `slots` (a range within one region), clears their accessed bits without
    /// a flush, tells `found` each head slot that was accessed, and returns how many entries it looked
    /// at. A huge page is one entry.
    pub fn harvest_accessed(
        &mut self,
        slots: std::ops::Range<Slot>,
        found: impl FnMut(Slot),
    ) -> u64 {
        let _ = (slots, found);
        0
    }
}
