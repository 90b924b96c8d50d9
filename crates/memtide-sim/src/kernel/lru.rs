//! LRU lists.

use crate::config::Lru;

/// The lists' lengths.
pub struct Lists {
    _lru: Lru,
}

impl Lists {
    pub(super) fn new(lru: Lru) -> Lists {
        Lists { _lru: lru }
    }
}

use super::Kernel;
use crate::page::Slot;

impl Kernel {
    /// Takes the folio of `owner` off its list, to be moved or freed: then its entry is `ISOLATED`, and
    /// nobody else may take it. `false` if somebody has it already or it is on no list.
    pub fn isolate(&mut self, owner: Slot) -> bool {
        let _ = owner;
        false
    }

    /// Puts an isolated folio on a list of the node on which it is now; one that was active stays so.
    pub fn put_back(&mut self, owner: Slot) {
        let _ = owner;
    }
}
