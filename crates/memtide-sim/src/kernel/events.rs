//! What programs and the machine do to memory beside accessing it: mappings that are replaced, files
//! that are written without a mapping, memory that fails. Under lazy flushing each of them comes after
//! a flush of what is pending; the exception is the file that changes unseen.
//!
//! No workload of the documents does any of this. The tests of what reviewers objected to lazy flushing
//! do, and so does the swarm.

use super::{Kernel, KernelError, Who};
use crate::hardware::Hardware;
use crate::page::{Flags, Frame, Slot};
use memtide_core::lazy_flush::Cause;

impl Kernel {
    /// A mapping is replaced at its own addresses (`mmap` with `MAP_FIXED`): by new anonymous memory, or
    /// by the file of another mapping that is at least as long. Entries that are there are taken away
    /// and flushed; those that reclaim took away before are not there any more to be flushed, which is
    /// why pending flushes are forced. What it costs.
    pub fn remap(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        file_of: Option<usize>,
    ) -> u64 {
        let mut ns = self.costs.fault_ns as u64;
        let (slots, space) = {
            let own = self.regions.get(region);
            (own.slots(), own.plan.space)
        };
        let mut gone: Vec<Slot> = Vec::new();
        for slot in slots.clone() {
            if self.unmap_and_free(slot) {
                gone.push(slot);
            }
        }
        ns += hw.flush_pages(space, &gone, Some(who.cpu));
        ns += self.force_flush(hw, Cause::MappingChanged, Some(who.cpu));
        self.balance.in_flight.forget(slots.clone());
        let file = file_of.and_then(|other| self.regions.get(other).file);
        self.regions.map_anew(region, file);
        if self.regions.get(region).plan.writable {
            ns += self.force_flush(hw, Cause::WritableMapping, Some(who.cpu));
        }
        if let Some(contents) = &mut self.contents {
            match file {
                Some(file) => contents.map_file(slots, &self.regions.files()[file]),
                None => slots.for_each(|slot| contents.map_own(slot)),
            }
        }
        ns
    }

    /// A process writes a page of the file of `region` (`write`): the page cache has the new version, or
    /// storage if the page is not there. What it costs.
    pub fn write_file(&mut self, hw: &mut Hardware, who: &Who, region: usize, page: u32) -> u64 {
        let ns = self.force_flush(hw, Cause::ContentWritten, Some(who.cpu));
        self.change_file(region, page);
        ns + self.costs.fault_ns as u64
    }

    /// The same without passing the place where writes are noticed, as when a server changes the page
    /// of a network file system under a kernel that has it mapped.
    pub fn change_file(&mut self, region: usize, page: u32) {
        let Some(slot) = self.file_slot(region, page) else {
            return;
        };
        let frame = self.frame_of_page(slot);
        if frame.is_some() {
            self.ptes[slot as usize].set(Flags::DIRTY);
        }
        if let Some(contents) = &mut self.contents {
            contents.rewritten(slot, frame);
        }
    }

    /// The memory of a file's clean page fails: the page is taken out of memory and read again when it
    /// is needed. What it costs; 0 if there is no such page.
    pub fn poison_file_page(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        page: u32,
    ) -> u64 {
        let Some(slot) = self.file_slot(region, page) else {
            return 0;
        };
        let pte = self.ptes[slot as usize];
        let held = Flags::DIRTY.with(Flags::ISOLATED).with(Flags::MIGRATING);
        if !pte.has(Flags::PRESENT) || pte.has_any(held) {
            return 0;
        }
        let mut ns = self.force_flush(hw, Cause::Poison, Some(who.cpu));
        let mappers: Vec<Slot> = self.mappers(slot).collect();
        for mapper in mappers {
            let space = self.regions.get(self.regions.index_of(mapper)).plan.space;
            self.unmap(mapper);
            ns += hw.flush_pages(space, &[mapper], Some(who.cpu));
        }
        self.free_folio(slot);
        if let Some(contents) = &mut self.contents {
            contents.lost(pte.frame());
        }
        ns
    }

    /// The kernel takes a frame for itself (a page table, a slab) and writes to it; `None` if there is none
    /// left. For tests: nothing gives it back.
    pub fn take_for_kernel(&mut self, hw: &mut Hardware, who: &Who) -> Option<Frame> {
        let nodes = self.machine.fallback(who.node).to_vec();
        let frame = nodes
            .into_iter()
            .find_map(|node| self.frames.take(node, false))?;
        self.leave_free_lists(hw, frame, Some(who.cpu));
        if let Some(contents) = &mut self.contents {
            contents.lost(frame);
        }
        Some(frame)
    }

    /// A page of a region was accessed as the hardware would by `who`'s CPU: through its TLB, else by a
    /// walk and whatever faults that takes. Returns the frame. For tests that drive the kernel without
    /// an engine.
    ///
    /// # Errors
    ///
    /// See [`Kernel::fault`].
    pub fn access(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> Result<Frame, KernelError> {
        use super::Fault;
        use crate::hardware::tlb::{Found, Translation};
        hw.enter_space(who.space, who.cpu);
        for _ in 0..64 {
            let head = self.head(slot);
            let huge = self.ptes[slot as usize].has(Flags::HUGE);
            let tlb = &mut hw.cpus[who.cpu as usize].tlb;
            tlb.settle();
            let found = tlb.find(head, huge);
            if let Found::First(entry) | Found::Second(entry) = found
                && (!write || entry.stores())
            {
                return Ok(self.accessed(who, slot, entry.frame() + (slot - head), write));
            }
            let pte = &mut self.ptes[head as usize];
            let Some(why) = Fault::of(*pte, write) else {
                pte.set(Flags::ACCESSED);
                if write {
                    pte.set(Flags::DIRTY);
                }
                let stores = pte.has(Flags::WRITABLE.with(Flags::DIRTY));
                let entry = Translation::new(pte.frame(), pte.node_index(), stores);
                match found {
                    Found::Nothing => tlb.insert(head, huge, entry),
                    _ => tlb.set(head, huge, entry),
                }
                return Ok(self.accessed(who, slot, entry.frame() + (slot - head), write));
            };
            self.fault(hw, who, slot, why, write)?;
        }
        panic!(
            "slot {slot} faults without end: {:?}",
            self.ptes[slot as usize]
        );
    }

    fn accessed(&mut self, who: &Who, slot: Slot, frame: Frame, write: bool) -> Frame {
        if let Some(contents) = &mut self.contents {
            contents.access((who.thread, who.cpu), slot, frame, write);
        }
        frame
    }

    /// The slot of a file's page, as a mapping numbers it.
    fn file_slot(&self, region: usize, page: u32) -> Option<Slot> {
        let region = self.regions.get(region);
        let file = &self.regions.files()[region.file?];
        (page < file.pages).then(|| file.base + page)
    }

    fn frame_of_page(&self, slot: Slot) -> Option<Frame> {
        let pte = self.ptes[slot as usize];
        let there = pte.has_any(Flags::PRESENT.with(Flags::MIGRATING));
        there.then(|| pte.frame())
    }
}
