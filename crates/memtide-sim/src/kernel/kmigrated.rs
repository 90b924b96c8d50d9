//! Promotion threads over the hotness store. (owner: bal)

use super::Kernel;
use crate::config::Configuration;
use crate::hardware::{Hardware, Sample};
use crate::spec::MachineSpec;
use crate::workload::Plan;

/// Promotion's state.
pub struct Promotion;

impl Promotion {
    pub(super) fn new(
        spec: &MachineSpec,
        plan: &Plan,
        configuration: &Configuration,
        scale: u32,
    ) -> Promotion {
        let _ = (spec, plan, configuration, scale);
        Promotion
    }
}

impl Kernel {
    pub(super) fn background_promotion(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        let _ = (hw, now_ns, dt_ns);
    }

    pub(super) fn background_samples(
        &mut self,
        hw: &mut Hardware,
        samples: &[Sample],
        now_ns: u64,
    ) {
        let _ = (hw, samples, now_ns);
    }
}
