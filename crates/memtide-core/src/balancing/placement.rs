//! Which node a task should run on.
//!
//! The node with most memory faults, its own if it is alone, its group's if it
//! has one; of equals the lowest id. If that node has no CPUs, the nearest that
//! has. A group then looks beyond the one node, by how the machine is connected:
//!
//! - direct: nothing more to say;
//! - mesh: each node also counts its neighbours' faults, the less the farther
//!   they are, and the best sum wins;
//! - backplane: the nodes are parted into clusters of those closer to each other
//!   than the largest distance, the cluster with most faults is parted again by
//!   the next smaller distance, and so on until one node is left.

use super::group::Group;
use super::machine::{Connection, Machine};
use crate::topology::LOCAL_DISTANCE;
use crate::units::NodeId;

/// The preferred node of a group whose busiest node (with CPUs) is `busiest`.
#[must_use]
pub fn group_node(group: &Group, busiest: NodeId, machine: &Machine) -> NodeId {
    match machine.connection() {
        Connection::Direct => busiest,
        Connection::Mesh => mesh(group, busiest, machine),
        Connection::Backplane => backplane(group, busiest, machine),
    }
}

/// How much a node of a mesh weighs in its group, in thousandths of all faults.
#[must_use]
pub fn mesh_weight(group: &Group, node: NodeId, machine: &Machine) -> u64 {
    let total = group.total();
    if total == 0 {
        return 0;
    }
    let far = machine.max_distance();
    let mem = &group.sums().mem;
    let near = machine.online().iter().map(|&other| {
        let distance = machine.distance(node, other);
        match other != node && distance < far {
            true => {
                mem.of(other) * u64::from(far - distance) / u64::from((far - LOCAL_DISTANCE).max(1))
            }
            false => 0,
        }
    });
    1000 * (mem.of(node) + near.sum::<u64>()) / total
}

fn mesh(group: &Group, busiest: NodeId, machine: &Machine) -> NodeId {
    let mut best = (0, busiest);
    for &node in machine.with_cpus() {
        let weight = mesh_weight(group, node, machine);
        if weight > best.0 {
            best = (weight, node);
        }
    }
    best.1
}

fn backplane(group: &Group, busiest: NodeId, machine: &Machine) -> NodeId {
    let mem = &group.sums().mem;
    let mut nodes = machine.with_cpus().to_vec();
    let mut preferred = busiest;
    let exists = |distance| {
        let cpus = machine.with_cpus();
        cpus.iter()
            .any(|&a| cpus.iter().any(|&b| machine.distance(a, b) == distance))
    };
    let distances = (LOCAL_DISTANCE + 1..=machine.max_distance()).rev();
    for distance in distances.filter(|&d| exists(d)) {
        let mut heaviest = (0, Vec::new());
        let mut left = nodes.clone();
        while let Some(&first) = left.first() {
            let close = |&n: &NodeId| machine.distance(first, n) < distance;
            let (cluster, others): (Vec<_>, Vec<_>) = left.iter().partition(|&n| close(n));
            let faults = cluster.iter().map(|&n| mem.of(n)).sum();
            if faults > heaviest.0 {
                heaviest = (faults, cluster);
                preferred = first;
            }
            left = others;
        }
        if heaviest.0 == 0 {
            break;
        }
        nodes = heaviest.1;
    }
    preferred
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Averages, Counted, Faults, Ran};
    use super::super::group::Groups;
    use super::super::machine::tests::{clusters, pair, ring};
    use super::*;

    /// A group with these memory faults by node.
    fn group(mem: [u64; 4]) -> Group {
        let mut faults = Faults::new(4);
        for (node, pages) in mem.into_iter().enumerate() {
            faults.count(&Counted {
                pages,
                mem: NodeId(node as u16),
                cpu: NodeId(0),
                private: true,
                local: false,
                failed: false,
            });
        }
        faults.fold(Ran::ALWAYS);
        let mut groups = Groups::new();
        let averages: &Averages = faults.averages();
        let id = groups.found(averages);
        groups.get(id).unwrap().clone()
    }

    #[test]
    fn direct_takes_the_busiest() {
        assert_eq!(
            group_node(&group([1, 9, 0, 0]), NodeId(1), &pair()),
            NodeId(1)
        );
    }

    #[test]
    fn a_mesh_counts_neighbours() {
        // Ring: neighbours at 20 of 30 count (30 - 20) / (30 - 10) = half,
        // opposite nodes not at all. Faults 0, 40, 0, 50 and 10 on node 2:
        // node 0: (40 + 50) / 2 = 45 of 100: 450. Node 1: 40 + 10 / 2 = 45: 450.
        // Node 2: 10 + 45 = 55: 550. Node 3: 50 + 5 = 55: 550. The lower wins.
        let shared = group([0, 40, 10, 50]);
        let weights: Vec<u64> = (0..4)
            .map(|n| mesh_weight(&shared, NodeId(n), &ring()))
            .collect();
        assert_eq!(weights, [450, 450, 550, 550]);
        assert_eq!(group_node(&shared, NodeId(3), &ring()), NodeId(2));
        // Without faults the busiest stays.
        assert_eq!(group_node(&group([0; 4]), NodeId(3), &ring()), NodeId(3));
    }

    #[test]
    fn a_backplane_descends_into_the_heaviest_cluster() {
        // Clusters {0, 1} with 30 + 25 and {2, 3} with 0 + 50: the first wins at
        // distance 40, and node 0 in it at distance 15, although 3 is busiest.
        let shared = group([30, 25, 0, 50]);
        assert_eq!(group_node(&shared, NodeId(3), &clusters()), NodeId(0));
        // {2, 3} heavier, and in it node 3.
        let shared = group([30, 10, 0, 50]);
        assert_eq!(group_node(&shared, NodeId(3), &clusters()), NodeId(3));
        assert_eq!(
            group_node(&group([0; 4]), NodeId(2), &clusters()),
            NodeId(2)
        );
    }

    #[test]
    fn a_mesh_weight_of_nothing_is_nothing() {
        assert_eq!(mesh_weight(&group([0; 4]), NodeId(0), &ring()), 0);
    }
}
