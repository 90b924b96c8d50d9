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
        let _ = (hw, folios, target, why, by);
        Moved::default()
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
