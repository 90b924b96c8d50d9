//! Page faults that perf tells of.
//!
//! Whoever listens to a process's minor faults (`PERF_COUNT_SW_PAGE_FAULTS_MIN`, each of them) hears of
//! hint faults, of first touches, of stores to entries that are not writable, and of waits for pages on
//! the move; a huge page gives one fault for all of it. Each costs the thread a little more than unheard.

use super::{Fault, Kernel, Who};
use crate::hardware::Hardware;
use crate::page::{Flags, Slot};
use crate::workload::Kind;
use memtide_core::balancing::sampled::Cause;
use memtide_loop::options::BalanceSource;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardFault {
    /// The thread.
    pub thread: u32,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// The page that it touched.
    pub slot: Slot,
}

/// Faults that were heard.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Whose, ascending.
    spaces: Vec<u16>,
    faults: Vec<HeardFault>,
}

impl Heard {
    /// From now on those of these spaces, which ascend, and of no others.
    pub fn listen_to(&mut self, spaces: Vec<u16>) {
        self.spaces = spaces;
    }

    /// Those since the last time, in the order of time of each thread.
    pub fn take(&mut self) -> std::vec::Drain<'_, HeardFault> {
        self.faults.drain(..)
    }
}

impl Kernel {
    /// Notes a fault if somebody listens; what that costs the thread.
    pub(super) fn hear(&mut self, who: &Who, slot: Slot, why: Fault) -> u64 {
        if self.heard.spaces.binary_search(&who.space).is_err() {
            return 0;
        }
        self.heard.faults.push(HeardFault {
            thread: who.thread,
            cpu: who.cpu,
            slot,
        });
        let ns = self.costs.fault_record_ns as u64;
        match why {
            Fault::Hint => self.overhead.hint_fault_ns += ns,
            Fault::Migrating => self.overhead.migration_wait_ns += ns,
            _ => self.overhead.page_fault_ns += ns,
        }
        let balance = self.configuration.balance.as_ref();
        let (faults, fault_ns) = match (balance.map(|options| options.source), why) {
            (None, _) => return ns,
            // Next to all entries that are read-only are so to hear of stores.
            (Some(BalanceSource::Writes), Fault::WriteProtect) => (1, self.costs.fault_ns as u64),
            _ => (0, 0),
        };
        (self.balance.account).add(Cause::Fault, faults, fault_ns + ns);
        ns
    }

    /// Write-protects all pages of `space` that may be written, so that the next store to each faults
    /// (`/proc/PID/clear_refs`, 4). Entries that were looked at, and what the flush after it took whoever
    /// asked for it, in nanoseconds.
    pub fn protect_written(&mut self, hw: &mut Hardware, space: u16) -> (u64, u64) {
        let regions = self.regions.iter();
        let own = regions.filter(|region| region.plan.space == space && !region.freed);
        // A file's page that is shared turns read-only for its own reasons, too; those are left alone.
        let written = own.filter(|region| region.plan.kind != Kind::SharedFile);
        let slots: Vec<_> = written.map(super::Region::slots).collect();
        let mut looked_at = 0;
        for slot in slots.into_iter().flatten() {
            // A huge page has one entry.
            if self.head(slot) == slot && self.ptes[slot as usize].has(Flags::PRESENT) {
                looked_at += 1;
                self.ptes[slot as usize].clear(Flags::WRITABLE);
            }
        }
        if !self.balance.protect_flushes.due(1, self.scale) {
            hw.forget_space(space);
            return (looked_at, 0);
        }
        let before = hw.counters;
        let sent_ns = hw.flush_space(space, None);
        let received = hw.counters.tlb_shootdowns - before.tlb_shootdowns;
        let ns = hw.counters.shootdown_ns - before.shootdown_ns;
        let account = &mut self.balance.account;
        account.add(Cause::Shootdown, received, ns.saturating_sub(sent_ns));
        (looked_at, sent_ns)
    }
}
