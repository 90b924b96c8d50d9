//! Which folios were used lately: the LRU lists.
//!
//! Each node has lists of anonymous and of file folios. *Classic*: an active and an inactive list; new
//! folios begin on the inactive one, and one that was accessed twice before its turn comes is active.
//! *Multigenerational*: up to four generations numbered by a sequence; folios that a fault brought in
//! begin in the youngest, and what is never found accessed grows old as younger generations are made.
//!
//! A list is a ring of links through its folios' head frames, with an end among the first frames that
//! memory never has. So any folio leaves its ring in constant time, without anybody knowing which ring
//! it is. The owner's entry has the folio's *state* in its list field; the lengths count base pages by
//! state. A walk that finds a folio accessed only changes its state: the folio changes rings when
//! reclaim meets it. So states and lengths are exact, and rings may lag behind in a generation.
//!
//! | state | classic | multigenerational |
//! |---|---|---|
//! | 0 | on no list | on no list |
//! | 1 | inactive | generation 0, modulo 4 |
//! | 2 | inactive, accessed once | generation 1 |
//! | 3 | active | generation 2 |
//! | 4 | - | generation 3 |
//! | 7 | isolated, was active | isolated, was in one of the two youngest |

use super::Kernel;
use super::frames::Frames;
use crate::config::Lru;
use crate::page::{Flags, Frame, MAX_NODES, Pte, Slot};
use memtide_core::units::NodeId;

/// States of folios.
pub(super) const NO_LIST: u8 = 0;
pub(super) const INACTIVE: u8 = 1;
pub(super) const INACTIVE_ACCESSED: u8 = 2;
pub(super) const ACTIVE: u8 = 3;
const WAS_ACTIVE: u8 = 7;

/// Most generations.
pub(super) const GENERATIONS: u64 = 4;
/// Fewest generations: the youngest two are never reclaimed.
pub(super) const YOUNG_GENERATIONS: u64 = 2;

/// Anonymous folios, as an index.
pub(super) const ANONYMOUS: usize = 0;
/// File folios.
pub(super) const FILE: usize = 1;

/// The lists' lengths and generations.
pub struct Lists {
    lru: Lru,
    pages: [[[u64; 5]; 2]; MAX_NODES],
    youngest: [u64; MAX_NODES],
    oldest: [[u64; 2]; MAX_NODES],
}

impl Lists {
    /// Empty lists.
    pub(super) fn new(lru: Lru, frames: &mut Frames) -> Lists {
        for node in 0..MAX_NODES {
            for kind in [ANONYMOUS, FILE] {
                for ring in 0..4 {
                    frames.ring(ring_end(node, kind, ring));
                }
            }
        }
        Lists {
            lru,
            pages: [[[0; 5]; 2]; MAX_NODES],
            youngest: [GENERATIONS - 1; MAX_NODES],
            oldest: [[0; 2]; MAX_NODES],
        }
    }

    /// How pages age.
    pub fn lru(&self) -> Lru {
        self.lru
    }

    /// Pages of a node in one state.
    pub fn pages(&self, node: NodeId, kind: usize, state: u8) -> u64 {
        self.pages[node.index()][kind][usize::from(state)]
    }

    /// Pages of a node on all its lists of a kind.
    pub fn all_pages(&self, node: NodeId, kind: usize) -> u64 {
        self.pages[node.index()][kind].iter().sum()
    }

    /// The sequence of a node's youngest generation.
    pub(super) fn youngest(&self, node: NodeId) -> u64 {
        self.youngest[node.index()]
    }

    /// The sequence of a node's oldest generation of a kind.
    pub(super) fn oldest(&self, node: NodeId, kind: usize) -> u64 {
        self.oldest[node.index()][kind]
    }

    /// Begins a new youngest generation.
    pub(super) fn begin_generation(&mut self, node: NodeId) {
        debug_assert!((0..2).all(|k| self.generations(node, k) < GENERATIONS));
        self.youngest[node.index()] += 1;
    }

    /// Ends the oldest generation of a kind, which is empty.
    pub(super) fn end_oldest(&mut self, node: NodeId, kind: usize) {
        self.oldest[node.index()][kind] += 1;
    }

    /// How many generations of a kind there are.
    pub(super) fn generations(&self, node: NodeId, kind: usize) -> u64 {
        self.youngest(node) + 1 - self.oldest(node, kind)
    }

    /// The state of a folio in generation `sequence`.
    pub(super) fn state_of(sequence: u64) -> u8 {
        (sequence % GENERATIONS) as u8 + 1
    }

    /// The generation of a folio in a state.
    pub(super) fn sequence_of(&self, node: NodeId, kind: usize, state: u8) -> u64 {
        let oldest = self.oldest(node, kind);
        let ahead = (u64::from(state) - 1 + GENERATIONS - oldest % GENERATIONS) % GENERATIONS;
        oldest + ahead
    }

    /// Whether a folio in that state counts as active.
    fn is_active(&self, node: NodeId, kind: usize, state: u8) -> bool {
        match self.lru {
            Lru::Classic => state == ACTIVE,
            Lru::Multigenerational => {
                self.sequence_of(node, kind, state) + YOUNG_GENERATIONS > self.youngest(node)
            }
        }
    }

    /// The ring that belongs to a state.
    pub(super) fn ring_of(&self, state: u8) -> usize {
        match self.lru {
            Lru::Classic => usize::from(state == ACTIVE),
            Lru::Multigenerational => usize::from(state) - 1,
        }
    }

    fn count(&mut self, node: NodeId, kind: usize, state: u8, pages: u32) {
        self.pages[node.index()][kind][usize::from(state)] += u64::from(pages);
    }

    fn discount(&mut self, node: NodeId, kind: usize, state: u8, pages: u32) {
        let length = &mut self.pages[node.index()][kind][usize::from(state)];
        *length = length
            .checked_sub(u64::from(pages))
            .expect("a folio leaves a list that it is on");
    }
}

/// The end of a ring: next is its newest folio, previous its oldest.
pub(super) fn ring_end(node: usize, kind: usize, ring: usize) -> Frame {
    1 + ((node * 2 + kind) * 4 + ring) as Frame
}

impl Kernel {
    /// Anonymous or file, as an index into lists.
    #[inline]
    pub(super) fn kind_of(&self, owner: Slot) -> usize {
        usize::from(self.regions.is_file(owner))
    }

    /// Takes the folio of `owner` off its list, to be moved: then its entry is `ISOLATED`, and nobody
    /// else may take it. `false` if somebody has it already or it is on no list.
    pub fn isolate(&mut self, owner: Slot) -> bool {
        let pte = self.ptes[owner as usize];
        if pte.has(Flags::ISOLATED) || !pte.has(Flags::PRESENT) || pte.list() == NO_LIST {
            return false;
        }
        let kind = self.kind_of(owner);
        let active = self.lists.is_active(pte.node(), kind, pte.list());
        self.remove_from_list(owner);
        let pte = &mut self.ptes[owner as usize];
        pte.set(Flags::ISOLATED);
        pte.set_list(if active { WAS_ACTIVE } else { NO_LIST });
        true
    }

    /// Puts an isolated folio on a list of the node on which it is now; one that was active stays so.
    pub fn put_back(&mut self, owner: Slot) {
        let pte = &mut self.ptes[owner as usize];
        debug_assert!(pte.has(Flags::ISOLATED));
        let active = pte.list() == WAS_ACTIVE;
        pte.clear(Flags::ISOLATED);
        let node = pte.node();
        let kind = self.kind_of(owner);
        let state = match (self.lists.lru, active) {
            (Lru::Classic, true) => ACTIVE,
            (Lru::Classic, false) => INACTIVE,
            (Lru::Multigenerational, true) => Lists::state_of(self.lists.youngest(node)),
            // What cannot be dropped at once waits in the second youngest.
            (Lru::Multigenerational, false) if kind == ANONYMOUS => {
                Lists::state_of(self.lists.youngest(node) - 1)
            }
            (Lru::Multigenerational, false) => {
                let oldest = self.lists.oldest(node, kind);
                let roomy = oldest + YOUNG_GENERATIONS < self.lists.youngest(node);
                Lists::state_of(oldest + u64::from(roomy))
            }
        };
        self.add_to_list(owner, state);
    }

    /// Puts the folio of a new owner where a fault's folios begin.
    pub(super) fn add_new(&mut self, owner: Slot) {
        let node = self.ptes[owner as usize].node();
        let state = match self.lists.lru {
            Lru::Classic => INACTIVE,
            Lru::Multigenerational => Lists::state_of(self.lists.youngest(node)),
        };
        self.add_to_list(owner, state);
    }

    /// Puts a folio that is on no list on the new side of the list of `state`.
    pub(super) fn add_to_list(&mut self, owner: Slot, state: u8) {
        let (node, kind) = (self.ptes[owner as usize].node(), self.kind_of(owner));
        let end = ring_end(node.index(), kind, self.lists.ring_of(state));
        let pte: &mut Pte = &mut self.ptes[owner as usize];
        pte.set_list(state);
        let frame = pte.frame();
        self.frames.link_after(end, frame);
        self.lists.count(node, kind, state, self.folio_pages(owner));
    }

    /// Takes a folio off its list.
    pub(super) fn remove_from_list(&mut self, owner: Slot) {
        let pte = self.ptes[owner as usize];
        let (kind, pages) = (self.kind_of(owner), self.folio_pages(owner));
        self.frames.unlink(pte.frame());
        self.lists.discount(pte.node(), kind, pte.list(), pages);
        self.ptes[owner as usize].set_list(NO_LIST);
    }

    /// Changes a listed folio's state; its ring stays.
    pub(super) fn restate(&mut self, owner: Slot, state: u8) {
        let (pte, kind) = (self.ptes[owner as usize], self.kind_of(owner));
        let pages = self.folio_pages(owner);
        self.lists.discount(pte.node(), kind, pte.list(), pages);
        self.lists.count(pte.node(), kind, state, pages);
        self.ptes[owner as usize].set_list(state);
    }

    /// Moves a listed folio to the new side of the list of `state`.
    pub(super) fn relist(&mut self, owner: Slot, state: u8) {
        let (kind, pages) = (self.kind_of(owner), self.folio_pages(owner));
        let pte = &mut self.ptes[owner as usize];
        let (node, frame) = (pte.node(), pte.frame());
        self.lists.discount(node, kind, pte.list(), pages);
        self.lists.count(node, kind, state, pages);
        pte.set_list(state);
        let end = ring_end(node.index(), kind, self.lists.ring_of(state));
        self.frames.unlink(frame);
        self.frames.link_after(end, frame);
    }

    /// Base pages of anonymous memory on `node` changed their states without changing their rings: how
    /// many left each state for `state`.
    pub(super) fn restated(&mut self, node: NodeId, left: [u32; 8], state: u8) {
        for (old, &pages) in left.iter().enumerate().filter(|(_, pages)| **pages > 0) {
            self.lists.discount(node, ANONYMOUS, old as u8, pages);
            self.lists.count(node, ANONYMOUS, state, pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::machine;

    #[test]
    #[should_panic(expected = "a folio leaves a list that it is on")]
    fn a_folio_that_leaves_twice_is_noticed() {
        let mut frames = Frames::new(&machine(&[(1024, 0)], 0), 1).unwrap();
        let mut lists = Lists::new(Lru::Classic, &mut frames);
        lists.count(NodeId(0), ANONYMOUS, ACTIVE, 1);
        lists.discount(NodeId(0), ANONYMOUS, ACTIVE, 1);
        lists.discount(NodeId(0), ANONYMOUS, ACTIVE, 1);
    }
}
