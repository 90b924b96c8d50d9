//! Memory that comes before the measured time, and memory that goes during it.
//!
//! Regions are populated in the order of the plan, pages ascending, by a thread on a CPU of the node
//! that the plan names. It costs the run no time, but a clock runs meanwhile, so that background
//! reclaim does what it would do beside a program that sets up its memory.

use super::lazy::Unmapped;
use super::{Kernel, KernelError, Who};
use crate::hardware::Hardware;
use crate::page::{Flags, HUGE_PAGES, Pte, Slot};
use crate::workload::Kind;
use memtide_core::units::NodeId;
use memtide_core::vmstat::Counter;

/// How often background reclaim runs meanwhile.
const STEP_NS: u64 = 1_000_000;

impl Kernel {
    /// Gives all pages of the regions that say so their frames, before time 0 and free of cost.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn populate(&mut self, hw: &mut Hardware) -> Result<(), KernelError> {
        let mut clock = 0;
        let overhead = self.overhead.clone();
        for region in 0..self.regions.len() {
            let plan = &self.regions.get(region).plan;
            let Some(node) = plan.populated_from else {
                continue;
            };
            let who = Who {
                thread: 0,
                cpu: self.first_cpu(NodeId(node)),
                node: NodeId(node),
                space: plan.space,
                now_ns: 0,
            };
            // A file is populated by reading it: nothing of it is dirty.
            let write = plan.writable && plan.kind == Kind::Anonymous;
            self.populate_region(hw, who, region, write, &mut clock)?;
        }
        // The run's own clock begins at 0.
        self.finish_moves(u64::MAX);
        self.storage.reset();
        self.overhead = overhead;
        Ok(())
    }

    fn populate_region(
        &mut self,
        hw: &mut Hardware,
        mut who: Who,
        region: usize,
        write: bool,
        clock: &mut u64,
    ) -> Result<(), KernelError> {
        let mut reclaimed = *clock;
        for slot in self.regions.get(region).slots() {
            if self.ptes[slot as usize].has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
                continue;
            }
            who.now_ns = *clock;
            let ns = self.fault_not_present(hw, &who, slot, write)?;
            *clock += ns * u64::from(self.scale);
            if *clock - reclaimed >= STEP_NS {
                self.finish_moves(*clock);
                self.background_reclaim(hw, *clock, *clock - reclaimed);
                reclaimed = *clock;
            }
        }
        self.check_now_and_then();
        Ok(())
    }

    /// A CPU of a node; CPUs are numbered node by node in the topology.
    fn first_cpu(&self, node: NodeId) -> u32 {
        let node = self.topology.node(node);
        node.and_then(|n| n.cpus.first().copied()).unwrap_or(0)
    }

    /// Whether the region of a page was given back.
    #[must_use]
    pub fn is_given_back(&self, slot: Slot) -> bool {
        self.regions.get(self.regions.index_of(slot)).freed
    }

    /// Gives back the regions whose time has come.
    pub(super) fn free_regions(&mut self, hw: &mut Hardware, now_ns: u64) {
        for at in 0..self.regions.len() {
            let region = self.regions.get(at);
            let due = region.plan.freed_at_ns.is_some_and(|t| t <= now_ns);
            if region.freed || !due {
                continue;
            }
            let (slots, space) = (region.slots(), region.plan.space);
            self.regions.get_mut(at).freed = true;
            for slot in slots {
                self.unmap_and_free(slot);
            }
            hw.flush_space(space, None);
        }
    }

    /// Takes a mapping's entry away; its folio is freed if the mapping owned it. A page of a file stays
    /// in the page cache. Whether there was an entry.
    pub(super) fn unmap_and_free(&mut self, slot: Slot) -> bool {
        let pte = self.ptes[slot as usize];
        if !pte.has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
            return false;
        }
        if self.owner(slot) == Some(slot) {
            self.free_folio(slot);
            self.show_file_again(slot);
        } else if !pte.has(Flags::HUGE) {
            self.unmap(slot);
        }
        true
    }

    /// A private copy is gone: who accesses the page again finds the file's.
    fn show_file_again(&mut self, slot: Slot) {
        let region = self.regions.get(self.regions.index_of(slot));
        if let (Some(contents), Some(file)) = (&mut self.contents, region.file) {
            let page = self.regions.files()[file].base + (slot - region.base);
            contents.show(slot, page);
        }
    }

    /// Forgets one entry.
    pub(super) fn unmap(&mut self, slot: Slot) {
        self.ptes[slot as usize] = Pte::default();
    }

    /// Frees the folio of `owner`, which nothing else maps any more; its own entries go too.
    pub(super) fn free_folio(&mut self, owner: Slot) {
        self.free_folio_as(owner, Unmapped::Now);
    }

    /// The same for one whose translations may not be flushed yet.
    pub(super) fn free_folio_as(&mut self, owner: Slot, unmapped: Unmapped) {
        let pte = self.ptes[owner as usize];
        if !pte.has(Flags::ISOLATED) {
            self.remove_from_list(owner);
        }
        let huge = pte.has(Flags::HUGE);
        let pages = if huge { HUGE_PAGES } else { 1 };
        match unmapped {
            Unmapped::Now => self.frames.give_back(pte.frame(), huge),
            Unmapped::Later(stamp) => self.frames.give_back_stamped(pte.frame(), stamp),
        }
        for page in 0..pages {
            self.unmap(owner + page);
        }
        self.count(Counter::Pgfree, u64::from(pages));
        self.had_progress(pte.node());
    }
}
