//! Arming entries for hint faults, in the threads' own time (`task_numa_work`).
//!
//! The core says when, who and which mapping; here single entries are looked at. Not armed are: armed
//! ones, absent ones, pages of a private file mapping that several processes map, dirty pages of
//! files, pages on the node of a process that has one thread only, and, where only tiering is on,
//! pages of fast memory. In tiering mode a slow page is told the time instead of its last toucher.
//!
//! *Costs.* Each entry looked at costs [`scan_pte_ns`](crate::spec::Costs), and each chunk that changed
//! anything a flush. A scan arms 1/S of the real memory but there are as many scans as on the real
//! machine, so of S flushes one is charged with its interrupts; translations go each time. What a scan
//! cost delays the thread's next one 32-fold.

use super::balance::{Balance, SpaceState};
use super::{Frames, Kernel, Regions, Who, owner_of_mapped};
use crate::hardware::Hardware;
use crate::hardware::shootdown::FULL_FLUSH_PAGES;
use crate::page::{Flags, HUGE_PAGES, Pte, Slot};
use crate::workload::Kind;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_core::vmstat::{Counter, Counters};
use std::ops::Range;

/// How often the pages of each space are counted, which decides how many scans a pass takes.
const RECOUNT_NS: u64 = 4_000_000_000;

/// What arming needs of the kernel.
struct Arming<'a> {
    ptes: &'a mut [Pte],
    frames: &'a Frames,
    regions: &'a Regions,
    topology: &'a Topology,
    counters: &'a mut Counters,
    balance: &'a mut Balance,
    hw: &'a mut Hardware,
    who: &'a Who,
    scale: u32,
    /// The node whose pages stay unarmed: that of a process with one thread.
    home: Option<NodeId>,
    ns: u64,
}

impl Kernel {
    /// A thread ran for another `ran_ns` of CPU time; what scanning costs it.
    pub(super) fn numa_tick(&mut self, hw: &mut Hardware, who: &Who, ran_ns: u64) -> u64 {
        let Some(mut balancer) = self.balance.take() else {
            return 0;
        };
        self.balance.ran(who.thread, ran_ns);
        let task = self.balance.task(who.thread);
        let clock = self.balance.clock(who.thread, who.now_ns);
        balancer.runs(task, who.cpu);
        let due = balancer.tick(task, &clock) && balancer.begin_scan(task, &clock);
        let mut ns = 0;
        if due {
            let space = usize::from(who.space);
            let SpaceState { alone, .. } = self.balance.spaces[space];
            let regions = self.balance.spaces[space].regions.clone();
            let mut arming = Arming {
                ptes: &mut self.ptes,
                frames: &self.frames,
                regions: &self.regions,
                topology: &self.topology,
                counters: &mut self.counters,
                balance: &mut self.balance,
                hw,
                who,
                scale: self.scale,
                home: alone.then_some(who.node),
                ns: 0,
            };
            balancer.scan(task, &clock, |at, pages| arming.arm(regions[at], pages));
            ns = arming.ns;
            balancer.end_scan(task, ns * u64::from(self.scale));
            self.overhead.numa_scan_ns += ns;
        }
        self.balance.balancer = Some(balancer);
        ns
    }

    /// Counts the spaces' pages from time to time.
    pub(super) fn recount_residents(&mut self, now_ns: u64) {
        if now_ns < self.balance.recount_ns {
            return;
        }
        let Some(balancer) = &mut self.balance.balancer else {
            return;
        };
        self.balance.recount_ns = now_ns + RECOUNT_NS;
        for space in &self.balance.spaces {
            let slots = space.regions.iter().map(|&at| self.regions.get(at).slots());
            let present = |range: Range<Slot>| {
                let ptes = &self.ptes[range.start as usize..range.end as usize];
                ptes.iter().filter(|p| p.has(Flags::PRESENT)).count() as u64
            };
            balancer.set_resident(space.id, slots.map(present).sum());
        }
    }
}

impl Arming<'_> {
    /// Arms pages of a region; how many changed.
    fn arm(&mut self, region: usize, pages: Range<u64>) -> u64 {
        let own = self.regions.get(region);
        if own.freed {
            return 0;
        }
        let first = own.base + (pages.start - own.plan.start_vpn) as Slot;
        let end = first + (pages.end - pages.start) as Slot;
        let private_file = own.plan.kind == Kind::PrivateFile;
        let space = own.plan.space;
        let mut slots = Vec::new();
        let (mut updates, mut looked, mut at) = (0, 0, first);
        while at < end {
            let pte = self.ptes[at as usize];
            looked += 1;
            let step = match pte.has(Flags::HUGE) {
                true => HUGE_PAGES - at % HUGE_PAGES,
                false => 1,
            };
            if self.shall(at, pte, private_file) {
                self.ptes[at as usize].set(Flags::HINT);
                updates += u64::from(step);
                if step > 1 {
                    self.counters.add(Counter::NumaHugePteUpdates, 1);
                }
                if slots.len() <= FULL_FLUSH_PAGES {
                    slots.push(at);
                }
            }
            at += step;
        }
        self.counters.add(Counter::NumaPteUpdates, updates);
        self.ns += (looked as f64 * self.hw.costs.scan_pte_ns) as u64;
        if updates > 0 {
            self.flush(space, &slots);
        }
        updates
    }

    fn shall(&mut self, slot: Slot, pte: Pte, private_file: bool) -> bool {
        if !pte.has(Flags::PRESENT) || pte.has_any(Flags::HINT) {
            return false;
        }
        if pte.has(Flags::HUGE) && !slot.is_multiple_of(HUGE_PAGES) {
            return false;
        }
        let owner = owner_of_mapped(self.regions, self.frames, slot, pte);
        if self.regions.is_file(owner) {
            if self.ptes[owner as usize].has(Flags::DIRTY) {
                return false;
            }
            if private_file && self.mapped_by_several(owner) {
                return false;
            }
        }
        let node = pte.node();
        let top = self.topology.is_top_tier(node);
        let modes = self.balance.modes;
        if self.home == Some(node) || (top && !modes.classic) {
            return false;
        }
        if modes.tiering && !top {
            let time = self.balance.format.time(self.who.now_ns / 1_000_000);
            self.ptes[owner as usize].set_last(time.0);
        }
        true
    }

    fn mapped_by_several(&self, owner: Slot) -> bool {
        let here = |slot: &Slot| self.ptes[*slot as usize].has(Flags::PRESENT);
        let space = |slot| self.regions.get(self.regions.index_of(slot)).plan.space;
        let mut spaces = self.regions.mappings(owner).filter(here).map(space);
        spaces
            .next()
            .is_some_and(|first| spaces.any(|s| s != first))
    }

    fn flush(&mut self, space: u16, slots: &[Slot]) {
        match self.balance.scan_flushes.due(1, self.scale) {
            true => self.ns += self.hw.flush_pages(space, slots, Some(self.who.cpu)),
            false => self.hw.forget_pages(space, slots),
        }
    }
}
