//! The machine as workloads see it: which nodes there are, how much they hold, and policies on them.

use super::{RegionPlan, Wrong, want};
use crate::spec::MachineSpec;
use memtide_core::mempolicy::{Kernel, Machine, MachineInput, Mode, ModeFlags, Policy, Request};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;

/// Nodes and policies of a machine.
#[derive(Clone, Debug)]
pub struct Places {
    machine: Machine,
    memory: NodeMask,
    cpus: NodeMask,
    bytes: Vec<(u16, u64)>,
}

impl Places {
    /// Those of `spec`.
    ///
    /// # Panics
    ///
    /// Never for a spec that was loaded: it has memory.
    #[must_use]
    pub fn new(spec: &MachineSpec) -> Places {
        let memory: NodeMask = spec.topology.memory_nodes();
        let with_cpus = spec.nodes.iter().filter(|node| node.cpus > 0);
        let cpus: NodeMask = with_cpus.map(|node| NodeId(node.id)).collect();
        let input = MachineInput::new(memory, cpus, Kernel::of_version(6, 12));
        Places {
            machine: Machine::new(input).expect("a checked machine has memory"),
            memory,
            cpus,
            bytes: spec
                .nodes
                .iter()
                .map(|n| (n.id, n.capacity_bytes))
                .collect(),
        }
    }

    /// That memory can lie on `node`.
    pub(super) fn has_memory(&self, key: &'static str, node: u16) -> Result<(), Wrong> {
        let good = self.memory.contains(NodeId(node));
        let nodes = &self.memory;
        want(
            good,
            key,
            format!("node {node} has no memory; choose one of {nodes}"),
        )
    }

    /// That threads can run on `node`.
    pub(super) fn has_cpus(&self, key: &'static str, node: u16) -> Result<(), Wrong> {
        let good = self.cpus.contains(NodeId(node));
        let nodes = &self.cpus;
        want(
            good,
            key,
            format!("node {node} has no CPUs; choose one of {nodes}"),
        )
    }

    /// That `bytes` fit into the memory of the whole machine.
    pub(super) fn fit(&self, key: &'static str, bytes: u64) -> Result<(), Wrong> {
        let all: u64 = self.bytes.iter().map(|(_, bytes)| bytes).sum();
        want(bytes > 0, key, "0 bytes are nothing to access; give more")?;
        let size = |bytes: u64| super::about::size(crate::units::Bytes(bytes));
        let why = format!(
            "{} are more than the machine's {}; make it smaller",
            size(bytes),
            size(all)
        );
        want(bytes <= all, key, why)
    }

    /// No policy of its own: the CPU that touches decides, and hint faults move pages to it.
    #[must_use]
    pub fn default_policy(&self) -> Policy {
        let mut policy = self.policy(Mode::Local, ModeFlags::default(), NodeMask::EMPTY);
        policy.on_fault = true;
        policy.to_accessor = true;
        policy
    }

    /// Only these nodes; `balancing` lets hint faults move pages among them.
    #[must_use]
    pub fn bind(&self, nodes: &[u16], balancing: bool) -> Policy {
        let flags = ModeFlags {
            numa_balancing: balancing,
            ..ModeFlags::default()
        };
        self.policy(Mode::Bind, flags, mask(nodes))
    }

    /// This node first.
    #[must_use]
    pub fn prefer(&self, node: u16) -> Policy {
        self.policy(Mode::Preferred, ModeFlags::default(), mask(&[node]))
    }

    /// These nodes in turn.
    #[must_use]
    pub fn interleave(&self, nodes: &[u16], weighted: bool) -> Policy {
        let mode = match weighted {
            true => Mode::WeightedInterleave,
            false => Mode::Interleave,
        };
        self.policy(mode, ModeFlags::default(), mask(nodes))
    }

    fn policy(&self, mode: Mode, flags: ModeFlags, nodes: NodeMask) -> Policy {
        Request::new(mode, flags, nodes)
            .ok()
            .flatten()
            .and_then(|request| Policy::new(request, &NodeMask::ALL, &self.machine).ok())
            .expect("nodes of a policy were checked")
    }

    /// An ordinary anonymous mapping of address space 0, populated before the start from `from` onto
    /// node `on` and used under the default policy.
    pub(super) fn region(&self, name: &str, pages: u32, from: u16, on: u16) -> RegionPlan {
        RegionPlan {
            name: name.to_owned(),
            space: 0,
            kind: super::Kind::Anonymous,
            file: None,
            writable: true,
            huge: false,
            pages,
            start_vpn: START_VPN,
            policy: self.prefer(on),
            policy_after: Some(self.default_policy()),
            populated_from: Some(from),
            bandwidth: true,
            freed_at_ns: None,
            foreign: false,
        }
    }
}

/// Where programs map memory unless a document says otherwise; a multiple of a huge page.
pub(super) const START_VPN: u64 = 0x7_f000_0000;

fn mask(nodes: &[u16]) -> NodeMask {
    nodes.iter().map(|&node| NodeId(node)).collect()
}
