//! Where new pages go.

use super::error::KernelError;
use super::spaces::Regions;
use crate::config::Configuration;
use crate::spec::MachineSpec;
use memtide_core::mempolicy::{Machine, MachineInput, Weights};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;

/// Landings.
pub struct Placing;

impl Placing {
    pub(super) fn new(regions: &Regions, machine: &Machine, weights: &Weights) -> Placing {
        let _ = (regions, machine, weights);
        Placing
    }
}

/// The machine as the mempolicy model sees it.
pub fn machine(spec: &MachineSpec) -> Result<Machine, KernelError> {
    let with = |has: fn(&crate::spec::NodeSpec) -> bool| -> NodeMask {
        spec.nodes
            .iter()
            .filter(|n| has(n))
            .map(|n| NodeId(n.id))
            .collect()
    };
    let memory = with(|n| n.capacity_bytes > 0);
    let cpus = with(|n| n.cpus > 0);
    let mut input = MachineInput::new(
        memory,
        cpus,
        memtide_core::mempolicy::Kernel::of_version(6, 12),
    );
    let ids = (0..input.possible_nodes).map(NodeId);
    let row = |from: NodeId| {
        let to = (0..input.possible_nodes).map(NodeId);
        to.map(|to| match spec.topology.distance(from, to) {
            Some(distance) => distance,
            None if from == to => 10,
            None => 20,
        })
        .collect()
    };
    input.distances = Some(ids.map(row).collect());
    Machine::new(input).map_err(|error| KernelError::Machine(error.to_string()))
}

/// The weight table of a configuration.
pub fn weights(configuration: &Configuration) -> Weights {
    let mut weights = Weights::ONES;
    for &(node, weight) in configuration.interleave.iter().flat_map(|i| &i.weights) {
        weights.set(NodeId(node), weight);
    }
    weights
}

use super::{Kernel, Who};
use crate::hardware::Hardware;
use crate::page::Slot;

impl Kernel {
    /// Gives all pages of the regions that say so their frames, before time 0 and free of cost.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn populate(&mut self, hw: &mut Hardware) -> Result<(), KernelError> {
        let _ = hw;
        Ok(())
    }

    pub(super) fn free_regions(&mut self, hw: &mut Hardware, now_ns: u64) {
        let _ = (hw, now_ns);
    }

    /// The index of a page in its policy's interleave, for [`memtide_core::mempolicy::HintFault`].
    #[must_use]
    pub fn interleave_index(&self, slot: Slot) -> u64 {
        let region = self.regions.get(self.regions.index_of(slot));
        region.vpn(slot)
    }

    #[allow(dead_code)]
    fn place(&mut self, who: &Who) {
        let _ = who;
    }
}
