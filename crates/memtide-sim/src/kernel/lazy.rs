//! Lazy unmap flush: reclaim and migration take pages away without a flush, which comes when their
//! memory is about to be used again, or when something happens that cannot wait.
//!
//! The core decides ([`memtide_core::lazy_flush`]); here are those who ask it. What is pending is a set
//! of CPUs: those that ran a space of the page's mappings when it was unmapped, and may still have its
//! translation. CPUs that only kept translations of the space drop them when they come back to it, as
//! for any other flush.
//!
//! *Who defers*: `shrink.rs` for files' pages that are dropped, `migrate.rs` for every move. Frames
//! wait on a list of their node's, behind all other free ones, and carry the stamp.
//! *Who asks before use*: whoever takes a frame ([`Kernel::leave_free_lists`]).
//! *Who forces*: faults that make a file's entry writable, and the calls in `events.rs`.
//! *Who does it for nothing*: any flush that empties a CPU's TLB; the hardware keeps a list of them.
//!
//! An allocation that has to reclaim stops the deferring, as then unmapped memory is used at once: what
//! is pending is flushed, and until the node is above its low watermark all unmaps are flushed as usual.

use super::balance::Portion;
use super::{Frame, Kernel};
use crate::hardware::Hardware;
use crate::hardware::shootdown::CpuSet;
use crate::page::{Flags, HUGE_PAGES, MAX_NODES, Slot};
use memtide_core::lazy_flush::{
    Backing, Cause, Generation, PageFacts, Pending, Refusal, Stamp, Tally, Zoned, eligible,
};
use memtide_core::units::NodeId;

/// CPUs that may have old translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus(pub CpuSet);

impl Pending for Cpus {
    fn fold(&mut self, other: Cpus) {
        self.0.add(&other.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A flush that a broken kernel leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// The one before a frame is used.
    AtUse,
    /// Those that events force.
    Forced,
}

/// What is pending, and what was done.
#[derive(Debug)]
pub struct Lazy {
    zoned: Zoned<Cpus>,
    /// Each node has generations of its own.
    by_zone: bool,
    /// The nodes that are short of memory.
    short: [bool; MAX_NODES],
    refused: [u64; REFUSALS.len()],
    omit: Option<Omit>,
    /// Of the flushes that come once for all that is pending, those to charge: a zone's before use, and those
    /// under pressure.
    at_use: [Portion; MAX_NODES],
    under_pressure: Portion,
}

const REFUSALS: [Refusal; 7] = [
    Refusal::Writable,
    Refusal::Large,
    Refusal::Hugetlb,
    Refusal::Device,
    Refusal::ClearedOnFree,
    Refusal::Foreign,
    Refusal::Unknown,
];

impl Lazy {
    pub(super) fn new(by_zone: bool) -> Lazy {
        let zones = if by_zone { MAX_NODES } else { 1 };
        Lazy {
            zoned: Zoned::new(zones),
            by_zone,
            short: [false; MAX_NODES],
            refused: [0; REFUSALS.len()],
            omit: None,
            at_use: [Portion::default(); MAX_NODES],
            under_pressure: Portion::default(),
        }
    }

    fn zone(&self, node: NodeId) -> usize {
        if self.by_zone { node.index() } else { 0 }
    }

    /// What other flushes did meanwhile is done.
    fn note_flushes(&mut self, hw: &mut Hardware) {
        let emptied = hw.take_emptied();
        if !emptied.is_empty() {
            self.zoned.covered(|pending| pending.0.subtract(&emptied));
        }
    }

    /// What was done so far, in simulated events.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.zoned.tally()
    }

    /// Unmaps that were flushed at once because their page was not fit, with why.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        REFUSALS.into_iter().zip(self.refused)
    }

    /// Whether a node is short of memory, so that nothing is deferred.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.short.contains(&true)
    }
}

/// Whether the S real machines that a simulated event stands for flush once together, because it is about the
/// state of memory and not about a page.
#[must_use]
pub fn counts_once(cause: Cause) -> bool {
    cause == Cause::Pressure
}

/// What became of the translations of a page that is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmapped {
    /// They stay until the frame is used.
    Later(Stamp),
    /// They must be flushed now.
    Now,
}

impl Kernel {
    /// Breaks lazy flushing, to see that it is noticed.
    pub fn omit_flushes(&mut self, omit: Omit) {
        if let Some(lazy) = &mut self.lazy {
            lazy.omit = Some(omit);
        }
    }

    /// Moves the generations of lazy flushing so close before their end that they soon begin anew, by
    /// as many unmaps and flushes.
    pub fn wear_generations(&mut self, left: u16) {
        let Some(lazy) = &mut self.lazy else { return };
        let mut cpu = CpuSet::default();
        cpu.insert(0);
        for zone in 0..if lazy.by_zone { MAX_NODES } else { 1 } {
            let zone = lazy.zoned.zone(zone);
            for _ in 0..Generation::<16>::COUNT - left {
                if let Ok(stamp) = zone.defer(Cpus(cpu)) {
                    zone.take(stamp, |_| {});
                }
            }
            zone.take_tally();
        }
    }

    /// What lazy flushing asks about the folio of `owner`.
    fn facts(&self, owner: Slot) -> PageFacts {
        let file = self.regions.is_file(owner);
        let own = self.ptes[owner as usize];
        let writable = |slot: Slot| self.ptes[slot as usize].has(Flags::WRITABLE);
        PageFacts {
            writable: own.has(Flags::DIRTY) || self.mappers(owner).any(writable),
            order: match own.has(Flags::HUGE) {
                true => HUGE_PAGES.ilog2() as u8,
                false => 0,
            },
            backing: match (file, file && self.is_foreign(owner)) {
                (false, _) => Backing::Anonymous,
                (true, false) => Backing::File,
                (true, true) => Backing::ForeignFile,
            },
            ..PageFacts::READ_ONLY_FILE
        }
    }

    /// Whether a mapping is of a file that changes without this kernel taking part.
    #[must_use]
    pub fn is_foreign_region(&self, region: usize) -> bool {
        let file = self.regions.get(region).file;
        file.is_some_and(|file| self.is_foreign(self.regions.files()[file].base))
    }

    /// Whether a file's page changes without this kernel taking part.
    fn is_foreign(&self, page: Slot) -> bool {
        let file = &self.regions.files()[self.regions.file_index_of(page)];
        let mut mappings = file.mappings.iter();
        mappings.any(|&at| self.regions.get(at).plan.foreign)
    }

    /// The folio of `owner`, on `node`, is about to lose its entries in these spaces: may their flush
    /// wait?
    pub(super) fn defer_flush(
        &mut self,
        hw: &mut Hardware,
        owner: Slot,
        spaces: impl Iterator<Item = u16>,
    ) -> Unmapped {
        if self.lazy.is_none() {
            return Unmapped::Now;
        }
        let facts = self.facts(owner);
        let node = self.ptes[owner as usize].node();
        let lazy = self.lazy.as_mut().expect("looked at above");
        if let Err(refusal) = eligible(&facts) {
            let at = REFUSALS.iter().position(|&other| other == refusal);
            lazy.refused[at.expect("all are listed")] += 1;
            return Unmapped::Now;
        }
        lazy.note_flushes(hw);
        let mut cpus = Cpus::default();
        let mut last = None;
        for space in spaces {
            if last.replace(space) != Some(space) {
                cpus.0.add(&hw.reach(space));
            }
        }
        // CPUs that just dropped what they kept have nothing of what was pending before either.
        lazy.note_flushes(hw);
        let zone = lazy.zone(node);
        match lazy.zoned.zone(zone).defer(cpus) {
            Ok(stamp) => Unmapped::Later(stamp),
            Err(_) => Unmapped::Now,
        }
    }

    /// To be called for each frame that was taken from the free lists, before anything is done with it:
    /// what the flush costs, if one is due.
    pub(super) fn leave_free_lists(
        &mut self,
        hw: &mut Hardware,
        frame: Frame,
        cpu: Option<u32>,
    ) -> u64 {
        let Some(lazy) = &mut self.lazy else { return 0 };
        let stamp = self.frames.take_stamp(frame);
        if stamp == Stamp::NONE {
            return 0;
        }
        lazy.note_flushes(hw);
        let zone = lazy.zone(self.frames.node_of(frame));
        let omit = lazy.omit == Some(Omit::AtUse);
        let (charged, scale) = (&mut lazy.at_use[zone], self.scale);
        let mut ns = 0;
        lazy.zoned.zone(zone).take(stamp, |Cpus(cpus)| {
            if omit {
                return;
            }
            match charged.due(1, scale) {
                true => ns = hw.flush_cpus(cpus, cpu),
                false => hw.empty_cpus(cpus),
            }
        });
        // The other zones have something of it too.
        lazy.note_flushes(hw);
        self.overhead.lazy_flush_ns += ns;
        ns
    }

    /// Something is about to happen that cannot wait for translations that are pending; what that costs.
    pub(super) fn force_flush(&mut self, hw: &mut Hardware, cause: Cause, cpu: Option<u32>) -> u64 {
        let Some(lazy) = &mut self.lazy else { return 0 };
        lazy.note_flushes(hw);
        let omit = lazy.omit == Some(Omit::Forced);
        let (under_pressure, scale) = (&mut lazy.under_pressure, self.scale);
        let mut ns = 0;
        lazy.zoned.force(cause, |Cpus(cpus)| {
            if omit {
                return;
            }
            match !counts_once(cause) || under_pressure.due(1, scale) {
                true => ns = hw.flush_cpus(cpus, cpu),
                false => hw.empty_cpus(cpus),
            }
        });
        lazy.note_flushes(hw);
        self.overhead.lazy_flush_ns += ns;
        ns
    }

    /// An allocation on `node` has to reclaim: no deferring until there is room again.
    pub(super) fn pause_lazy_flushes(
        &mut self,
        hw: &mut Hardware,
        node: NodeId,
        cpu: Option<u32>,
    ) -> u64 {
        let Some(lazy) = &mut self.lazy else { return 0 };
        if !std::mem::replace(&mut lazy.short[node.index()], true) {
            for zone in 0..if lazy.by_zone { MAX_NODES } else { 1 } {
                lazy.zoned.zone(zone).pause();
            }
            return self.force_flush(hw, Cause::Pressure, cpu);
        }
        0
    }

    /// Ends the pauses of nodes that have room again.
    pub(super) fn resume_lazy_flushes(&mut self) {
        let Some(lazy) = &mut self.lazy else { return };
        for node in (0..MAX_NODES as u16).map(NodeId) {
            let room = self.frames.free(node) > self.frames.marks(node).low();
            if lazy.short[node.index()] && room {
                lazy.short[node.index()] = false;
                for zone in 0..if lazy.by_zone { MAX_NODES } else { 1 } {
                    lazy.zoned.zone(zone).resume();
                }
            }
        }
    }
}
