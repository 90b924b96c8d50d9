//! Stubs of helper bal's entry points, until their own file replaces this one.

use super::migrate::{Initiator, MoveReason, Moved};
use super::{Kernel, Who};
use crate::config::Configuration;
use crate::hardware::{Hardware, Sample};
use crate::page::Slot;
use crate::spec::MachineSpec;
use crate::workload::Plan;
use memtide_core::units::NodeId;

/// Balancing's and promotion's state.
pub struct Balance;

impl Balance {
    pub(super) fn new(
        spec: &MachineSpec,
        plan: &Plan,
        configuration: &Configuration,
        scale: u32,
    ) -> Balance {
        let _ = (spec, plan, configuration, scale);
        Balance
    }
}

impl Kernel {
    /// Moves folios.
    pub fn migrate(
        &mut self,
        hw: &mut Hardware,
        folios: &[Slot],
        target: NodeId,
        why: MoveReason,
        by: Initiator,
    ) -> Moved {
        // Until helper bal's own: at once, without failures but for room.
        let mut done = Moved::default();
        for &owner in folios {
            let pages = u64::from(self.folio_pages(owner));
            let huge = pages > 1;
            if !self.frames.space(target).takes(pages) {
                done.no_memory += pages;
                continue;
            }
            if !self.isolate(owner) {
                done.busy += pages;
                continue;
            }
            let Some(new) = self.frames.take(target, huge) else {
                done.no_memory += pages;
                self.put_back(owner);
                continue;
            };
            let old = self.ptes[owner as usize].frame();
            let mappers: Vec<Slot> = self.mappers(owner).collect();
            for slot in mappers.into_iter().chain([owner]) {
                for page in 0..pages as u32 {
                    self.ptes[(slot + page) as usize].set_frame(new + page, target);
                }
            }
            self.frames.set_owner(new, owner);
            self.frames.give_back(old, huge);
            self.put_back(owner);
            done.moved += pages;
            done.ns += 1500 + hw.copy_pages(NodeId(0), target, pages);
        }
        use memtide_core::vmstat::Counter;
        let counter = match why {
            MoveReason::Balancing => Counter::NumaPagesMigrated,
            MoveReason::DemotionKswapd => Counter::PgdemoteKswapd,
            MoveReason::DemotionDirect => Counter::PgdemoteDirect,
            MoveReason::DemotionProactive => Counter::PgdemoteProactive,
        };
        self.count(counter, done.moved);
        self.count(Counter::PgmigrateSuccess, done.moved);
        let _ = by;
        done
    }

    pub(super) fn hint_fault(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> u64 {
        let _ = (hw, who, slot, write);
        0
    }

    pub(super) fn migration_wait(&mut self, hw: &mut Hardware, who: &Who, slot: Slot) -> u64 {
        let _ = (hw, who, slot);
        0
    }

    pub(super) fn numa_tick(&mut self, hw: &mut Hardware, who: &Who, ran_ns: u64) -> u64 {
        let _ = (hw, who, ran_ns);
        0
    }

    pub(super) fn record_samples(&mut self, hw: &mut Hardware, samples: &[Sample], now_ns: u64) {
        let _ = (hw, samples, now_ns);
    }

    pub(super) fn kmigrated(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        let _ = (hw, now_ns, dt_ns);
    }
}
