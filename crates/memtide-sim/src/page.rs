//! A page-table entry of the simulated machine, in eight bytes.
//!
//! A *slot* is a page of a region (a mapping of an address space, or the page cache of a file); slots
//! are dense over all regions, so that a table of entries is one array. An entry says which frame
//! holds the page, on which node that frame is, what the hardware and the kernel noted, which LRU
//! list the folio is on, and what the last hint fault or scan left ([`Pte::last`]), all the kernel
//! keeps in its own entry and page flags.
//!
//! | bits | field |
//! |---|---|
//! | 0-31 | frame |
//! | 32-35 | node |
//! | 36-43 | flags |
//! | 44-46 | LRU list |
//! | 47-63 | cpupid, or time of the hint scan |

use memtide_core::units::NodeId;

/// A page of a region; an index into the table of entries.
pub type Slot = u32;
/// A page frame; nodes own contiguous ranges.
pub type Frame = u32;

/// Most nodes of a simulated machine.
pub const MAX_NODES: usize = 16;
/// Most CPUs of a machine; an entry's cpupid has nine bits for them.
pub const MAX_CPUS: usize = 512;
/// Base pages of a huge page.
pub const HUGE_PAGES: u32 = 512;
/// Bits of [`Pte::last`].
pub const LAST_BITS: u32 = 17;
/// [`Pte::last`] when nothing was noted.
pub const LAST_NONE: u32 = (1 << LAST_BITS) - 1;

const NODE_SHIFT: u32 = 32;
const FLAGS_SHIFT: u32 = 36;
const LIST_SHIFT: u32 = 44;
const LAST_SHIFT: u32 = 47;

/// A set of an entry's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// A frame stands behind the page.
    pub const PRESENT: Flags = Flags(1 << FLAGS_SHIFT);
    /// Stores need no fault.
    pub const WRITABLE: Flags = Flags(1 << (FLAGS_SHIFT + 1));
    /// A walk found the entry since the bit was cleared.
    pub const ACCESSED: Flags = Flags(1 << (FLAGS_SHIFT + 2));
    /// A store went through it since the bit was cleared.
    pub const DIRTY: Flags = Flags(1 << (FLAGS_SHIFT + 3));
    /// The next access shall fault, to be seen (`PROT_NONE`).
    pub const HINT: Flags = Flags(1 << (FLAGS_SHIFT + 4));
    /// The page is being moved; who accesses it waits.
    pub const MIGRATING: Flags = Flags(1 << (FLAGS_SHIFT + 5));
    /// Part of a huge page: the head's entry counts.
    pub const HUGE: Flags = Flags(1 << (FLAGS_SHIFT + 6));
    /// Off its LRU list, in somebody's hands.
    pub const ISOLATED: Flags = Flags(1 << (FLAGS_SHIFT + 7));

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// An entry. `Pte::default()` is an absent page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte(pub u64);

impl Default for Pte {
    fn default() -> Self {
        Pte(u64::from(LAST_NONE) << LAST_SHIFT)
    }
}

impl Pte {
    /// A present entry.
    #[must_use]
    pub fn present(frame: Frame, node: NodeId, flags: Flags) -> Pte {
        debug_assert!(node.index() < MAX_NODES);
        Pte(Pte::default().0
            | u64::from(frame)
            | (u64::from(node.0) << NODE_SHIFT)
            | Flags::PRESENT.0
            | flags.0)
    }

    /// The frame; meaningful while present or migrating.
    #[inline]
    #[must_use]
    pub fn frame(self) -> Frame {
        self.0 as u32
    }

    /// Frame and node as they lie in the entry: the frame in 32 bits, the node in four above them.
    #[inline]
    #[must_use]
    pub fn place(self) -> u64 {
        self.0 & 0xf_ffff_ffff
    }

    /// 1 if stores need neither a fault nor a mark in the entry any more, else 0.
    #[inline]
    #[must_use]
    pub fn is_dirty_and_writable(self) -> u64 {
        let bit = |flag: Flags| self.0 >> flag.0.trailing_zeros();
        bit(Flags::WRITABLE) & bit(Flags::DIRTY) & 1
    }

    /// The frame's node, as an index.
    #[inline]
    #[must_use]
    pub fn node_index(self) -> usize {
        ((self.0 >> NODE_SHIFT) & 15) as usize
    }

    /// The frame's node.
    #[inline]
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(self.node_index() as u16)
    }

    /// Whether all of `flags` are set.
    #[inline]
    #[must_use]
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    #[must_use]
    pub fn has_any(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    /// Sets `flags`.
    #[inline]
    pub fn set(&mut self, flags: Flags) {
        self.0 |= flags.0;
    }

    /// Clears `flags`.
    #[inline]
    pub fn clear(&mut self, flags: Flags) {
        self.0 &= !flags.0;
    }

    /// Puts another frame behind the page; all else stays.
    pub fn set_frame(&mut self, frame: Frame, node: NodeId) {
        self.0 = (self.0 & !(0xf_ffff_ffff)) | u64::from(frame) | (u64::from(node.0) << NODE_SHIFT);
    }

    /// The number of the LRU list, 0 to 7; 0 is none.
    #[must_use]
    pub fn list(self) -> u8 {
        ((self.0 >> LIST_SHIFT) & 7) as u8
    }

    /// Notes the LRU list.
    pub fn set_list(&mut self, list: u8) {
        debug_assert!(list < 8);
        self.0 = (self.0 & !(7 << LIST_SHIFT)) | (u64::from(list) << LIST_SHIFT);
    }

    /// The cpupid or scan time that was noted last; [`LAST_NONE`] if nothing.
    #[must_use]
    pub fn last(self) -> u32 {
        (self.0 >> LAST_SHIFT) as u32
    }

    /// Notes a cpupid or scan time, cut to [`LAST_BITS`] bits.
    pub fn set_last(&mut self, last: u32) {
        let low = self.0 & ((1 << LAST_SHIFT) - 1);
        self.0 = low | (u64::from(last & LAST_NONE) << LAST_SHIFT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let mut pte = Pte::present(0xdead_beef, NodeId(5), Flags::WRITABLE);
        pte.set_last(0x1_2345);
        pte.set_list(6);
        pte.set(Flags::ACCESSED);
        pte.set_frame(0xffff_ffff, NodeId(15));
        pte.clear(Flags::WRITABLE);
        assert_eq!(pte.frame(), 0xffff_ffff);
        assert_eq!(pte.node(), NodeId(15));
        assert_eq!(pte.list(), 6);
        assert_eq!(pte.last(), 0x1_2345);
        assert!(pte.has(Flags::PRESENT.with(Flags::ACCESSED)));
        assert!(!pte.has_any(Flags::WRITABLE.with(Flags::HINT)));
        assert_eq!(Pte::default().last(), LAST_NONE);
        assert!(!Pte::default().has(Flags::PRESENT));
    }
}
