//! What the core's promotion asks about pages, answered from the page tables.
//!
//! A page's number is the slot of its folio's owner. Slots stay when pages move, so records need not
//! be carried along; on a real machine they belong to frames, and a page that is demoted starts with
//! an empty one. So does it here: demotion forgets the record.

use super::balance::policy_in_force;
use super::{Frames, Regions};
use crate::page::{Flags, HUGE_PAGES, Pte, Slot};
use memtide_core::mempolicy::Mode;
use memtide_core::pages::{Folio, Immovable, NodeSpace, Pages};
use memtide_core::units::{NodeId, PageNumber};

/// The kernel's pages, while its counters are in other hands.
pub(super) struct PageView<'a> {
    pub(super) ptes: &'a [Pte],
    pub(super) frames: &'a Frames,
    pub(super) regions: &'a Regions,
}

impl PageView<'_> {
    fn pte(&self, page: PageNumber) -> Option<Pte> {
        let pte = *self.ptes.get(page.0 as usize)?;
        pte.has(Flags::PRESENT).then_some(pte)
    }
}

impl Pages for PageView<'_> {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        Some(self.pte(page)?.node())
    }

    fn folio(&self, page: PageNumber) -> Folio {
        let huge = self.pte(page).is_some_and(|p| p.has(Flags::HUGE));
        let pages = if huge { HUGE_PAGES } else { 1 };
        let first = PageNumber(page.0 - page.0 % u64::from(pages));
        Folio { first, pages }
    }

    /// The address space of anonymous memory; a file of its own.
    fn group(&self, page: PageNumber) -> u64 {
        let slot = page.0 as Slot;
        match self.regions.is_file(slot) {
            true => 1 << 32 | self.regions.file_index_of(slot) as u64,
            false => {
                let region = self.regions.get(self.regions.index_of(slot));
                u64::from(region.plan.space)
            }
        }
    }

    /// A binding keeps a page in its nodes; what others hold, and what must be written out first,
    /// stays as well.
    fn may_move(&self, page: PageNumber, target: NodeId) -> Result<(), Immovable> {
        let slot = page.0 as Slot;
        let pte = self.ptes[page.0 as usize];
        if pte.has_any(Flags::ISOLATED.with(Flags::MIGRATING)) {
            return Err(Immovable::Pinned);
        }
        if self.regions.is_file(slot) {
            return match pte.has(Flags::DIRTY) {
                true => Err(Immovable::Other("a dirty page of a file")),
                false => Ok(()),
            };
        }
        let region = self.regions.get(self.regions.index_of(slot));
        let policy = policy_in_force(&region.plan);
        match policy.mode == Mode::Bind && !policy.nodes.contains(target) {
            true => Err(Immovable::Mempolicy),
            false => Ok(()),
        }
    }

    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        (self.frames.present(node) > 0).then(|| self.frames.space(node))
    }
}
