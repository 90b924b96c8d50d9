//! Faults on absent pages, and stores to entries that are not writable.
//!
//! Anonymous memory gets a cleared frame where its policy says, a whole huge folio if the region has
//! huge pages, all of the folio lies in the region, and a block is free. (A read of untouched memory
//! gets a frame too; the kernel's shared page of zeros is not simulated, since no benchmark measures
//! it.) A file's page is read into the page cache if it is not there, and mapped: read-only, unless
//! this is a store through a shared mapping. The first store through a shared mapping makes the page
//! dirty; the first through a private one copies it into an anonymous page of the mapping's own. Either
//! way translations that were not flushed yet have to go first, as where any other entry turns writable: one
//! that was protected to hear of stores.

use super::{Kernel, KernelError, Who};
use crate::hardware::Hardware;
use crate::page::{Flags, Frame, HUGE_PAGES, Pte, Slot};
use crate::workload::Kind;
use memtide_core::lazy_flush::Cause;
use memtide_core::vmstat::Counter;

impl Kernel {
    /// A fault on an absent page.
    pub(super) fn fault_not_present(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> Result<u64, KernelError> {
        self.count(Counter::Pgfault, 1);
        let mut ns = self.costs.fault_ns as u64;
        if self.ptes[slot as usize].has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
            // Somebody else's fault brought it.
            self.overhead.page_fault_ns += ns;
            return Ok(ns);
        }
        let region = self.regions.index_of(slot);
        let plan = &self.regions.get(region).plan;
        if write && !plan.writable {
            let region = plan.name.clone();
            return Err(KernelError::ReadOnly { region });
        }
        let (reclaim_ns, work_ns) = match plan.kind {
            Kind::Anonymous => self.map_anonymous(hw, who, region, slot, write)?,
            Kind::PrivateFile if write => self.map_private_copy(hw, who, region, slot)?,
            Kind::PrivateFile | Kind::SharedFile => {
                self.map_cached(hw, who, region, slot, write)?
            }
        };
        ns += work_ns;
        self.overhead.page_fault_ns += ns;
        Ok(ns + reclaim_ns)
    }

    /// A store to an entry that is not writable.
    pub(super) fn fault_write_protect(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
    ) -> Result<u64, KernelError> {
        self.count(Counter::Pgfault, 1);
        let mut ns = self.costs.fault_ns as u64;
        let mut reclaim_ns = 0;
        let head = self.head(slot);
        let pte = self.ptes[head as usize];
        let region = self.regions.index_of(slot);
        let plan = &self.regions.get(region).plan;
        let (space, kind) = (plan.space, plan.kind);
        if !plan.writable {
            let region = plan.name.clone();
            return Err(KernelError::ReadOnly { region });
        }
        if pte.has(Flags::PRESENT) && !pte.has(Flags::WRITABLE) {
            let cached = self
                .owner(slot)
                .is_some_and(|owner| self.regions.is_file(owner));
            if cached && kind == Kind::PrivateFile {
                // Other CPUs of the space may still read the shared page through their TLBs.
                self.unmap(slot);
                ns += hw.flush_pages(space, &[slot], Some(who.cpu));
                let (reclaim, work) = self.map_private_copy(hw, who, region, slot)?;
                ns += work;
                reclaim_ns = reclaim;
            } else {
                ns += self.force_flush(hw, Cause::TurnedWritable, Some(who.cpu));
                let used = Flags::WRITABLE.with(Flags::DIRTY).with(Flags::ACCESSED);
                self.ptes[head as usize].set(used);
                if let Some(owner) = self.owner(slot) {
                    self.ptes[owner as usize].set(Flags::DIRTY);
                }
            }
        }
        self.overhead.page_fault_ns += ns;
        Ok(ns + reclaim_ns)
    }

    fn map_anonymous(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        slot: Slot,
        write: bool,
    ) -> Result<(u64, u64), KernelError> {
        if let Some(head) = self.huge_head(region, slot) {
            let index = self.regions.get(region).vpn(head) / u64::from(HUGE_PAGES);
            let (frame, ns) = self.place_by_index(hw, who, region, index, true)?;
            if let Some(frame) = frame {
                self.count(Counter::ThpFaultAlloc, 1);
                self.map_huge(region, head, frame, write);
                self.note_cleared(frame, head, HUGE_PAGES);
                return Ok((ns, self.clear(hw, frame, HUGE_PAGES)));
            }
            self.count(Counter::ThpFaultFallback, 1);
        }
        let index = self.regions.get(region).vpn(slot);
        let (frame, ns) = self.place_by_index(hw, who, region, index, false)?;
        let frame = frame.expect("a base page or an error");
        self.map_own(region, slot, frame, write);
        self.note_cleared(frame, slot, 1);
        Ok((ns, self.clear(hw, frame, 1)))
    }

    /// The first slot of the huge folio around `slot`, if one may be there and nothing is yet.
    fn huge_head(&self, region: usize, slot: Slot) -> Option<Slot> {
        let region = self.regions.get(region);
        let head = slot & !(HUGE_PAGES - 1);
        let all = head..head + HUGE_PAGES;
        let inside = region.plan.huge && all.end <= region.slots().end;
        let absent =
            |s: Slot| !self.ptes[s as usize].has_any(Flags::PRESENT.with(Flags::MIGRATING));
        (inside && all.into_iter().all(absent)).then_some(head)
    }

    fn map_huge(&mut self, region: usize, head: Slot, frame: Frame, write: bool) {
        let node = self.frames.node_of(frame);
        let flags = self.anonymous_flags(region, write).with(Flags::HUGE);
        for page in 0..HUGE_PAGES {
            self.ptes[(head + page) as usize] = Pte::present(frame + page, node, flags);
        }
        self.frames.set_owner(frame, head);
        self.add_new(head);
    }

    fn map_own(&mut self, region: usize, slot: Slot, frame: Frame, write: bool) {
        let node = self.frames.node_of(frame);
        self.ptes[slot as usize] = Pte::present(frame, node, self.anonymous_flags(region, write));
        self.frames.set_owner(frame, slot);
        self.add_new(slot);
    }

    fn anonymous_flags(&self, region: usize, write: bool) -> Flags {
        let mut flags = Flags::ACCESSED;
        if self.regions.get(region).plan.writable {
            flags = flags.with(Flags::WRITABLE);
        }
        if write {
            flags = flags.with(Flags::DIRTY);
        }
        flags
    }

    /// An anonymous copy of a private file page, in the mapping's own name. CPUs that still read the
    /// file's page where it was, through translations that were not flushed, would miss the store.
    fn map_private_copy(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        slot: Slot,
    ) -> Result<(u64, u64), KernelError> {
        let (cached, mut reclaim_ns, mut ns) = self.cache(hw, who, region, slot)?;
        ns += self.force_flush(hw, Cause::TurnedWritable, Some(who.cpu));
        let index = self.interleave_index(slot);
        let (frame, more_ns) = self.place_by_index(hw, who, region, index, false)?;
        let frame = frame.expect("a base page or an error");
        reclaim_ns += more_ns;
        self.map_own(region, slot, frame, true);
        if let Some(contents) = &mut self.contents {
            let from = self.ptes[cached as usize];
            let there = from.has_any(Flags::PRESENT.with(Flags::MIGRATING));
            contents.copied_own(there.then(|| from.frame()), frame, slot);
        }
        let from = self.ptes[cached as usize].node();
        ns += hw.copy_pages(from, self.ptes[slot as usize].node(), 1);
        Ok((reclaim_ns, ns))
    }

    /// Maps a page of the page cache.
    fn map_cached(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        slot: Slot,
        write: bool,
    ) -> Result<(u64, u64), KernelError> {
        let (cached, reclaim_ns, mut ns) = self.cache(hw, who, region, slot)?;
        if write {
            ns += self.force_flush(hw, Cause::TurnedWritable, Some(who.cpu));
        }
        let page = self.ptes[cached as usize];
        let mut flags = Flags::ACCESSED;
        if write {
            flags = flags.with(Flags::WRITABLE).with(Flags::DIRTY);
            self.ptes[cached as usize].set(Flags::DIRTY);
        }
        let mut entry = Pte::present(page.frame(), page.node(), flags);
        if page.has(Flags::MIGRATING) {
            entry.clear(Flags::PRESENT);
            entry.set(Flags::MIGRATING);
        }
        self.ptes[slot as usize] = entry;
        Ok((reclaim_ns, ns))
    }

    /// Makes sure that the file page behind `slot` is in memory: its own slot, and times.
    fn cache(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        region: usize,
        slot: Slot,
    ) -> Result<(Slot, u64, u64), KernelError> {
        let mapping = self.regions.get(region);
        let file = mapping.file.expect("a mapping of a file");
        let own = self.regions.files()[file].base + (slot - mapping.base);
        if self.ptes[own as usize].has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
            return Ok((own, 0, 0));
        }
        self.count(Counter::Pgmajfault, 1);
        let (frame, reclaim_ns) = self.place_by_turn(hw, who, region)?;
        let frame = frame.expect("a base page or an error");
        let ns = self.read_page(hw, own, frame);
        let (ahead, flush_ns) = self.read_ahead(hw, who, region, own);
        let wait_ns = self.storage.read(who.now_ns, 1 + ahead, self.scale);
        self.overhead.storage_ns += wait_ns;
        Ok((own, reclaim_ns + flush_ns + wait_ns, ns))
    }

    /// Fills a frame with a file's page; what that costs the reader beside waiting for storage.
    fn read_page(&mut self, hw: &mut Hardware, own: Slot, frame: Frame) -> u64 {
        let node = self.frames.node_of(frame);
        self.ptes[own as usize] = Pte::present(frame, node, Flags(0));
        self.frames.set_owner(frame, own);
        self.add_new(own);
        if let Some(contents) = &mut self.contents {
            contents.read(frame, own);
        }
        match self.storage.exists() {
            // The device writes to memory, beside the CPU.
            true => {
                hw.clear_pages(node, 1);
                self.costs.clear_page_ns as u64
            }
            false => self.clear(hw, frame, 1),
        }
    }

    /// Reads the pages behind `own` too, as far as the device's window reaches and there is room without
    /// reclaim; how many, and what flushes for their frames cost.
    fn read_ahead(&mut self, hw: &mut Hardware, who: &Who, region: usize, own: Slot) -> (u64, u64) {
        let more = self.storage.readahead_pages() / self.scale;
        if more <= 1 {
            return (0, 0);
        }
        let file = self.regions.get(region).file.expect("a mapping of a file");
        let file = &self.regions.files()[file];
        let end = (own + more).min(file.base + file.pages);
        let (mut read, mut ns) = (0, 0);
        for page in own + 1..end {
            if self.ptes[page as usize].has_any(Flags::PRESENT.with(Flags::MIGRATING)) {
                break;
            }
            let Some((frame, flush_ns)) = self.place_if_room(hw, who, region) else {
                break;
            };
            self.read_page(hw, page, frame);
            read += 1;
            ns += flush_ns;
        }
        (read, ns)
    }

    fn note_cleared(&mut self, frame: Frame, slot: Slot, pages: u32) {
        if let Some(contents) = &mut self.contents {
            (0..pages).for_each(|page| contents.cleared(frame + page, slot + page));
        }
    }

    /// What filling new pages costs.
    fn clear(&mut self, hw: &mut Hardware, frame: Frame, pages: u32) -> u64 {
        let node = self.frames.node_of(frame);
        hw.clear_pages(node, u64::from(pages))
            + (self.costs.clear_page_ns * f64::from(pages)) as u64
    }
}
