//! Arming entries for hint faults. (owner: bal)

use super::{Kernel, Who};
use crate::config::Configuration;
use crate::hardware::Hardware;
use crate::spec::MachineSpec;
use crate::workload::Plan;

/// NUMA balancing's state.
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
    pub(super) fn tick_hint_scan(&mut self, hw: &mut Hardware, who: &Who, ran_ns: u64) -> u64 {
        let _ = (hw, who, ran_ns);
        0
    }

    pub(super) fn background_balance(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        let _ = (hw, now_ns, dt_ns);
    }
}
