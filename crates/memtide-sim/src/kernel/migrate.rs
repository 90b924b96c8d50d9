//! Moving folios to another node, a batch at a time.
//!
//! A batch is unmapped, flushed from the TLBs (now or, where that is on, lazily), copied and mapped again. What a hint scan
//! armed is in no TLB, so it needs no flush; that is why moves inside hint faults interrupt nobody.
//! What is left of a batch that is not full counts as that part of a flush: the pages for which its
//! pages stand would fill it.
//!
//! *Time.* Frames change hands at once. A thread that moves pages pays for it, and its pages are
//! there when it goes on; others would wait for them only for the few microseconds of one folio,
//! which is left out. A kernel thread works beside the application: until its part of the batch is
//! over, a folio is `MIGRATING`, and who accesses it waits (`Kernel::migration_wait`). Those moments
//! are of the length that they have on the real machine, since a waiting access here stands for S
//! there.
//!
//! *Failures.* Busy: absent, isolated, or being moved already. No memory: a target may not be filled
//! beyond its watermarks. A page must leave free more than the high one to be let in by balancing or
//! promotion; demotion may go down to the lowest, and wakes reclaim below the low one.

use super::lazy::Unmapped;
use super::{Kernel, Who};
use crate::hardware::Hardware;
use crate::hardware::tlb::Translation;
use crate::page::{Flags, Frame, LAST_NONE, Slot};
use memtide_core::balancing::sampled::Cause;
use memtide_core::units::{NodeId, PageNumber};
use memtide_core::vmstat::Counter;

/// Folios that a promotion thread moves with one flush.
const PROMOTION_BATCH: u64 = 512;

/// Why folios move; decides which counters count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// NUMA balancing or hot-page tracking put them where they are used: `numa_pages_migrated`,
    /// and `pgpromote_success` if they leave a slow node for a top-tier one.
    Balancing,
    /// Background reclaim sends them down: `pgdemote_kswapd`.
    DemotionKswapd,
    /// An allocation that waits sends them down: `pgdemote_direct`.
    DemotionDirect,
    /// Proactive reclaim sends them down: `pgdemote_proactive`.
    DemotionProactive,
    /// A program asked for it by `move_pages`.
    Syscall,
}

/// Who moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// The CPU of the thread that pays for it; `None` for a kernel thread.
    pub cpu: Option<u32>,
    /// When.
    pub now_ns: u64,
}

/// What became of a batch, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// On the target now.
    pub moved: u64,
    /// In somebody else's hands: absent, isolated or being moved.
    pub busy: u64,
    /// The target had no frame for them.
    pub no_memory: u64,
    /// What it took whoever moved them, in nanoseconds, unscaled.
    pub ns: u64,
}

/// A folio on its way.
struct Parcel {
    owner: Slot,
    from: NodeId,
    old: Frame,
    new: Frame,
    pages: u32,
    unmapped: Unmapped,
}

/// A folio that is being moved.
#[derive(Clone, Copy, Debug)]
struct Flight {
    owner: Slot,
    done_ns: u64,
    /// Whether it stands for S moves one after the other, behind which whole sweeps wait.
    held_up: Option<HeldUp>,
}

/// What others find who come to a folio that a sweep is moving.
#[derive(Clone, Copy, Debug)]
struct HeldUp {
    from: NodeId,
    /// Until then the entry is what it was: who comes finds it armed, and the page in another's hands.
    armed_until_ns: u64,
    /// How many can find it so.
    entries: u32,
}

/// All folios that kernel threads are moving.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Vec<Flight>);

impl InFlight {
    /// These folios are gone.
    pub(super) fn forget(&mut self, owners: std::ops::Range<Slot>) {
        self.0.retain(|flight| !owners.contains(&flight.owner));
    }
}

impl Kernel {
    /// Moves the folios of these owners, one batch, to `target`. They are on their LRU lists before and
    /// after. Counts everything.
    pub fn migrate(
        &mut self,
        hw: &mut Hardware,
        folios: &[Slot],
        target: NodeId,
        why: MoveReason,
        by: Initiator,
    ) -> Moved {
        let mut report = Moved::default();
        let free = self.frames.all_free();
        let mut parcels = Vec::with_capacity(folios.len());
        for &owner in folios {
            self.pick_up(owner, target, why, &mut parcels, &mut report);
        }
        if !parcels.is_empty() {
            let (batches, scale) = (self.real_batches(parcels.len(), why, by), self.scale);
            let cost = hw.costs.migrate_batch_ns * f64::from(batches) / f64::from(scale);
            report.ns = cost as u64;
            let at_once = matches!(why, MoveReason::Balancing | MoveReason::Syscall);
            let charged =
                (by.cpu.is_some() && at_once) || self.balance.move_flushes.due(batches, scale);
            for parcel in &parcels {
                report.ns += self.leave_free_lists(hw, parcel.new, by.cpu);
            }
            let before = hw.counters;
            let sent_ns = self.flush_parcels(hw, &mut parcels, by.cpu, charged);
            report.ns += sent_ns;
            let by_memtide = why == MoveReason::Syscall && self.configuration.balance.is_some();
            if why == MoveReason::Balancing || by_memtide {
                self.book_shootdown(hw, before, sent_ns);
            }
            self.deliver(hw, &parcels, target, by, &mut report);
        }
        self.conserved(free);
        self.count_moves(&parcels, target, why, &report);
        report
    }

    /// A folio that moves takes a frame and gives one back: as many are free as before.
    pub(super) fn conserved(&self, free: u64) {
        let now = self.frames.all_free();
        assert_eq!(now, free, "a batch of moves made or lost frames");
    }

    /// How many of S real machines' batches of this kind `folios` make: what each of them stands for
    /// moves in as few full batches as it can, each with one flush.
    fn real_batches(&self, folios: usize, why: MoveReason, by: Initiator) -> u32 {
        let full = match (why, by.cpu) {
            (MoveReason::Balancing, Some(_)) => 1,
            (MoveReason::Balancing, None) | (MoveReason::Syscall, _) => PROMOTION_BATCH,
            _ => self.batch(),
        };
        let real = folios as u64 * u64::from(self.scale);
        real.div_ceil(full).min(u64::from(self.scale)) as u32
    }

    /// Isolates a folio and takes a frame for it.
    fn pick_up(
        &mut self,
        owner: Slot,
        target: NodeId,
        why: MoveReason,
        parcels: &mut Vec<Parcel>,
        report: &mut Moved,
    ) {
        let pte = self.ptes[owner as usize];
        let pages = self.folio_pages(owner);
        if !pte.has(Flags::PRESENT) || pte.node() == target || !self.isolate(owner) {
            report.busy += u64::from(pages);
            return;
        }
        let huge = pte.has(Flags::HUGE);
        let frame = self.make_room(target, pages, why);
        let Some(new) = frame.then(|| self.frames.take(target, huge)).flatten() else {
            self.put_back(owner);
            report.no_memory += u64::from(pages);
            return;
        };
        parcels.push(Parcel {
            owner,
            from: pte.node(),
            old: pte.frame(),
            new,
            pages,
            unmapped: Unmapped::Now,
        });
    }

    /// Whether `target` may take `pages`; wakes its reclaim if that is what is missing.
    fn make_room(&mut self, target: NodeId, pages: u32, why: MoveReason) -> bool {
        let pages = u64::from(pages);
        match why {
            MoveReason::Balancing => {
                let takes = self.frames.space(target).takes(pages);
                if !takes && self.balance.makes_room {
                    self.wake_kswapd(target);
                }
                takes
            }
            _ => {
                let (free, marks) = (self.frames.free(target), self.frames.marks(target));
                if free < marks.low() + pages {
                    self.wake_kswapd(target);
                }
                free >= marks.min() + pages
            }
        }
    }

    /// Makes the CPUs forget the entries of all parcels, or puts that off; what the caller pays.
    /// Interrupts nobody unless it is `charged`.
    fn flush_parcels(
        &mut self,
        hw: &mut Hardware,
        parcels: &mut [Parcel],
        cpu: Option<u32>,
        charged: bool,
    ) -> u64 {
        let mut entries: Vec<(u16, Slot)> = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let before = entries.len();
            for slot in self.mappers(parcel.owner) {
                // An armed entry is in no TLB.
                if !self.ptes[slot as usize].has(Flags::HINT) {
                    let region = self.regions.get(self.regions.index_of(slot));
                    entries.push((region.plan.space, slot));
                }
            }
            if entries.len() > before {
                let spaces = entries[before..].iter().map(|&(space, _)| space);
                parcel.unmapped = self.defer_flush(hw, parcel.owner, spaces);
                if parcel.unmapped != Unmapped::Now {
                    entries.truncate(before);
                }
            }
        }
        self.flush_unmapped(hw, &mut entries, cpu, charged)
    }

    /// Copies, maps anew, and puts the folios back on lists or lets them travel.
    fn deliver(
        &mut self,
        hw: &mut Hardware,
        parcels: &[Parcel],
        target: NodeId,
        by: Initiator,
        report: &mut Moved,
    ) {
        let slow = !self.topology.is_top_tier(target);
        for parcel in parcels {
            let copy = hw.copy_pages(parcel.from, target, u64::from(parcel.pages));
            report.ns += hw.costs.migrate_page_ns as u64 + copy;
            report.moved += u64::from(parcel.pages);
            if let Some(contents) = &mut self.contents {
                contents.copied(parcel.old, parcel.new, parcel.pages);
            }
            let owner = self.frames.owner(parcel.old);
            assert_eq!(
                owner,
                Some(parcel.owner),
                "frame {} is given back by whoever has it",
                parcel.old
            );
            self.map_moved(parcel, target, by.cpu.is_none());
            match parcel.unmapped {
                Unmapped::Now => self.frames.give_back(parcel.old, parcel.pages > 1),
                Unmapped::Later(stamp) => self.frames.give_back_stamped(parcel.old, stamp),
            }
            if self.topology.is_top_tier(parcel.from) == slow {
                // A toucher in fast memory, a time in slow: neither means anything in the other.
                self.ptes[parcel.owner as usize].set_last(LAST_NONE);
            }
            if let Some(pghot) = &self.balance.pghot
                && slow
            {
                pghot.store.forget(PageNumber(u64::from(parcel.owner)));
            }
            match by.cpu {
                Some(_) => self.put_back(parcel.owner),
                None => self.balance.in_flight.0.push(Flight {
                    owner: parcel.owner,
                    done_ns: by.now_ns + report.ns,
                    held_up: None,
                }),
            }
        }
    }

    /// Puts the new frame behind the owner and all that map it.
    fn map_moved(&mut self, parcel: &Parcel, target: NodeId, travels: bool) {
        let mappers: Vec<Slot> = self.mappers(parcel.owner).collect();
        for head in mappers {
            for page in 0..parcel.pages {
                let pte = &mut self.ptes[(head + page) as usize];
                pte.set_frame(parcel.new + page, target);
                if travels {
                    pte.clear(Flags::PRESENT);
                    pte.set(Flags::MIGRATING);
                }
            }
            self.ptes[head as usize].clear(Flags::HINT);
        }
        // A file's page may be mapped by nobody.
        self.ptes[parcel.owner as usize].set_frame(parcel.new, target);
        self.frames.set_owner(parcel.new, parcel.owner);
    }

    fn count_moves(&mut self, parcels: &[Parcel], target: NodeId, why: MoveReason, done: &Moved) {
        self.count(Counter::PgmigrateSuccess, done.moved);
        if why != MoveReason::Balancing {
            // Balancing asks for room and isolates before its move begins: those refusals are not moves.
            self.count(Counter::PgmigrateFail, done.busy + done.no_memory);
        }
        match why {
            MoveReason::Balancing => {
                self.count(Counter::NumaPagesMigrated, done.moved);
                let up = |p: &&Parcel| !self.topology.is_top_tier(p.from);
                if self.balance.promotes() && self.topology.is_top_tier(target) {
                    let pages = parcels.iter().filter(up).map(|p| u64::from(p.pages)).sum();
                    self.count(Counter::PgpromoteSuccess, pages);
                }
            }
            MoveReason::Syscall => {}
            MoveReason::DemotionKswapd => self.count(Counter::PgdemoteKswapd, done.moved),
            MoveReason::DemotionDirect => self.count(Counter::PgdemoteDirect, done.moved),
            MoveReason::DemotionProactive => self.count(Counter::PgdemoteProactive, done.moved),
        }
    }

    /// A thread accessed a page that is being moved: it waits until the page's part of the batch is
    /// over; what that costs it.
    pub(super) fn migration_wait(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> u64 {
        let mut ns = hw.costs.fault_ns as u64;
        let owner = self.owner(slot);
        let flights = &mut self.balance.in_flight.0;
        match flights.iter().position(|f| Some(f.owner) == owner) {
            // A store to a page that may not be written waits and goes the long way.
            Some(at) if flights[at].held_up.is_some() => {
                let writable = self.ptes[self.head(slot) as usize].has(Flags::WRITABLE);
                if !write || writable {
                    return self.wait_behind(hw, who, slot, at, write);
                }
                let flight = self.balance.in_flight.0.swap_remove(at);
                ns += flight.done_ns.saturating_sub(who.now_ns) / u64::from(self.scale);
                self.arrive(flight.owner);
            }
            Some(at) => {
                let flight = flights.swap_remove(at);
                ns += flight.done_ns.saturating_sub(who.now_ns);
                self.arrive(flight.owner);
            }
            // Over already as far as the kernel is concerned.
            None => self.settle(self.head(slot)),
        }
        self.overhead.migration_wait_ns += ns;
        if self.balance.batches.is_some() || self.configuration.balance.is_some() {
            self.balance.account.add(Cause::Wait, 1, ns);
        }
        ns
    }

    /// A thread that goes over its memory page after page moved a folio inside a fault, in `ns`. Others
    /// that do the same come to the same pages in the same order and wait for each. The page is the
    /// mover's at once: its CPU has the translation that the fault ends with.
    pub(super) fn hold_up(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        owner: Slot,
        from: NodeId,
        write: bool,
        ns: u64,
    ) {
        if !self.isolate(owner) {
            return;
        }
        let scale = u64::from(self.scale);
        let heads: Vec<Slot> = self.mappers(owner).collect();
        for head in heads {
            for page in 0..self.folio_pages(head) {
                let pte = &mut self.ptes[(head + page) as usize];
                pte.clear(Flags::PRESENT);
                pte.set(Flags::MIGRATING);
            }
            self.let_through(hw, who, head, write);
        }
        // The page is found, isolated and given a frame before its entry changes. Whoever takes the
        // page table's lock meanwhile finds it armed; the lock passes from one to the next no faster
        // than a cache line does.
        let armed_ns = hw.costs.hint_fault_ns + hw.costs.migrate_page_ns / 2.0;
        self.balance.in_flight.0.push(Flight {
            owner,
            done_ns: who.now_ns + ns * scale,
            held_up: Some(HeldUp {
                from,
                armed_until_ns: who.now_ns + armed_ns as u64 * scale,
                entries: (armed_ns / hw.cpu_spec.cache_to_cache_ns.max(1.0)) as u32,
            }),
        });
    }

    /// Waits for a folio that another sweep is moving, until it is there. Who comes early takes a hint
    /// fault first, whose move fails as the page is in another's hands.
    fn wait_behind(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        at: usize,
        write: bool,
    ) -> u64 {
        let flight = self.balance.in_flight.0[at];
        let left_ns = flight.done_ns.saturating_sub(who.now_ns) / u64::from(self.scale);
        let (mut ns, mut told_ns) = (left_ns, 0);
        if left_ns > 0 {
            ns += hw.costs.sleep_ns as u64;
        }
        if let Some(held) = &mut self.balance.in_flight.0[at].held_up
            && who.now_ns < held.armed_until_ns
            && held.entries > 0
        {
            held.entries -= 1;
            let from = held.from;
            told_ns = self.fail_to_move(hw, who, slot, flight.owner, from);
        }
        self.overhead.migration_wait_ns += ns;
        self.balance.account.add(Cause::Wait, 1, ns);
        let head = self.head(slot);
        self.let_through(hw, who, head, write);
        ns + told_ns
    }

    /// Gives a CPU the translation of a page on the move, which is where it will be.
    fn let_through(&mut self, hw: &mut Hardware, who: &Who, head: Slot, write: bool) {
        let pte = &mut self.ptes[head as usize];
        let writes = write && pte.has(Flags::WRITABLE);
        pte.set(Flags::ACCESSED);
        if writes {
            pte.set(Flags::DIRTY);
        }
        let huge = pte.has(Flags::HUGE);
        let stores = pte.has(Flags::WRITABLE.with(Flags::DIRTY));
        let entry = Translation::new(pte.frame(), pte.node_index(), stores);
        let tlb = &mut hw.cpus[who.cpu as usize].tlb;
        tlb.settle();
        tlb.flush_page(head);
        tlb.insert(head, huge, entry);
    }

    /// Ends the moves that are over at `now_ns`.
    pub(super) fn finish_moves(&mut self, now_ns: u64) {
        let flights = std::mem::take(&mut self.balance.in_flight.0);
        let (over, left) = flights.into_iter().partition(|f| f.done_ns <= now_ns);
        self.balance.in_flight.0 = left;
        let over: Vec<Flight> = over;
        for flight in over {
            self.arrive(flight.owner);
        }
    }

    /// A folio is where it was going; unless it was freed on the way.
    fn arrive(&mut self, owner: Slot) {
        let pte = self.ptes[owner as usize];
        if !pte.has(Flags::ISOLATED) {
            return;
        }
        let mappers: Vec<Slot> = self.mappers(owner).collect();
        for head in mappers {
            self.settle(head);
        }
        self.put_back(owner);
    }

    /// A folio's entries are present again.
    fn settle(&mut self, head: Slot) {
        for page in 0..self.folio_pages(head) {
            let pte = &mut self.ptes[(head + page) as usize];
            if pte.has(Flags::MIGRATING) {
                pte.clear(Flags::MIGRATING);
                pte.set(Flags::PRESENT);
            }
        }
    }
}
