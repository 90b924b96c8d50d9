//! Interleave weights by the kernel's own rule, from the bandwidths that the firmware tells.

use memtide_core::mempolicy::tune;
use memtide_core::units::NodeId;
use memtide_linux::fs::topology::Machine;
use std::collections::BTreeMap;

/// The bandwidth of each node with memory in MB/s, where the firmware tells it.
pub fn bandwidths(machine: &Machine) -> BTreeMap<NodeId, Option<u32>> {
    let figures = |id: NodeId| {
        let access1 = machine.node(id).and_then(|node| node.access1);
        access1.as_ref().and_then(tune::bandwidth)
    };
    let nodes = machine.topology.memory_nodes();
    nodes.iter().map(|id| (id, figures(id))).collect()
}

/// The weight of each node with memory; `None` if the firmware tells no bandwidth.
pub fn weights(machine: &Machine) -> Option<BTreeMap<NodeId, u8>> {
    let bandwidths = bandwidths(machine);
    let known = bandwidths.values().flatten().any(|mbps| *mbps > 0);
    known.then(|| tune::kernel_weights(&bandwidths))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::{Root, topology};

    /// 200, 200 and 40 GB/s.
    #[test]
    fn weights_are_the_kernels_where_the_firmware_tells_bandwidths() {
        let of = |fixture: &str| {
            let root = format!(
                "{}/../memtide-linux/tests/fixtures/{fixture}",
                env!("CARGO_MANIFEST_DIR")
            );
            weights(&topology::read(&Root::new(root)).unwrap())
        };
        let cxl = [(NodeId(0), 7), (NodeId(1), 7), (NodeId(2), 1)];
        assert_eq!(of("two-sockets-cxl-hmat"), Some(BTreeMap::from(cxl)));
        assert_eq!(of("cxl-no-hmat"), None);
    }
}
