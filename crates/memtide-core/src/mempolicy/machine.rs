//! The machine and the kernel that a process runs on.
//!
//! Everything here stays as it is while the process runs. What differs between
//! kernels is a named field of [`Kernel`].
//!
//! Nodes are taken to have room enough: a page goes to another node than the
//! chosen one only because the chosen one has no memory or is not allowed.
//! Which one then is the *fallback order*: the node itself, then the others by
//! distance. Nodes before it in number count one unit farther, and among nodes
//! equally far the one that fewer nodes before it have chosen comes first.

use super::weight_rules::WeightRules;
use crate::nodemask::NodeMask;
use crate::units::{NodeId, PageSize};

/// What differs between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// How the files of the weight table behave.
    pub weight_rules: WeightRules,
    /// Booleans may also begin with e or d, as enable and disable do.
    pub knows_enable: bool,
    /// A policy with the balancing flag alone keeps the caller's mask where
    /// others keep the cpuset. So `get_mempolicy` returns that mask, and after
    /// a cpuset change the positions are counted in the wrong set.
    pub balancing_keeps_user_mask: bool,
    /// A mapping that was written to may merge into a neighbour that was not.
    pub written_merges_into_untouched: bool,
    /// The nodes with CPUs were known when the fallback orders were made (that
    /// is so after memory was plugged in), and come after those without.
    pub fallback_knows_cpus: bool,
}

impl Kernel {
    /// Kernels 6.9 to 6.15.
    pub const BEFORE_AUTO: Kernel = Kernel {
        weight_rules: WeightRules::BeforeAuto,
        knows_enable: false,
        balancing_keeps_user_mask: true,
        written_merges_into_untouched: false,
        fallback_knows_cpus: false,
    };
    /// Kernel 7.2.
    pub const WITH_AUTO: Kernel = Kernel {
        weight_rules: WeightRules::WithAuto,
        knows_enable: true,
        balancing_keeps_user_mask: false,
        written_merges_into_untouched: true,
        fallback_knows_cpus: false,
    };

    /// The parameters of a version, such as 6 and 12. Versions from 6.16 to
    /// before 7.0 have the newer table and are taken to have the older masks and
    /// booleans: in which version those changed is not known to us.
    pub fn of_version(major: u32, minor: u32) -> Kernel {
        match (major, minor) {
            (7.., _) => Kernel::WITH_AUTO,
            (6, 16..) => Kernel {
                knows_enable: false,
                balancing_keeps_user_mask: true,
                ..Kernel::WITH_AUTO
            },
            _ => Kernel::BEFORE_AUTO,
        }
    }
}

/// A machine as its owner describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineInput {
    /// The nodes that have memory.
    pub memory_nodes: NodeMask,
    /// The nodes that have CPUs.
    pub cpu_nodes: NodeMask,
    /// One more than the highest node id that can exist (`nr_node_ids`).
    pub possible_nodes: u16,
    /// The kernel.
    pub kernel: Kernel,
    /// The base page.
    pub page: PageSize,
    /// Distances by row and column, a row for each possible node; without
    /// them 10 to itself and 20 to any other.
    pub distances: Option<Vec<Vec<u32>>>,
    /// Whether the process has `CAP_SYS_NICE`.
    pub capable: bool,
    /// The node that holds the kernel's page of zeros.
    pub zero_page_node: NodeId,
}

impl MachineInput {
    /// A capable process on 4 KiB pages, with default distances.
    pub fn new(memory_nodes: NodeMask, cpu_nodes: NodeMask, kernel: Kernel) -> MachineInput {
        let last = memory_nodes.union(&cpu_nodes).iter().last();
        let first = memory_nodes.iter().next();
        MachineInput {
            memory_nodes,
            cpu_nodes,
            possible_nodes: last.map_or(1, |n| n.0 + 1),
            kernel,
            page: PageSize::KIB_4,
            distances: None,
            capable: true,
            // With the kernel's image, in the machine's first memory.
            zero_page_node: first.unwrap_or(NodeId(0)),
        }
    }
}

/// What is wrong with a machine's description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MachineError {
    #[error("no node has memory; name at least one memory node")]
    NoMemory,
    #[error("node {node} is not below the {possible} possible nodes; raise their number")]
    BeyondPossible { node: NodeId, possible: u16 },
    #[error("distances: need {possible} rows of {possible} numbers below 256")]
    Distances { possible: u16 },
}

/// A machine that can exist.
#[derive(Clone, Debug)]
pub struct Machine {
    input: MachineInput,
    /// For each possible node the memory nodes, nearest first.
    fallback: Vec<Vec<NodeId>>,
}

impl Machine {
    /// Checks the description and makes the fallback orders.
    pub fn new(input: MachineInput) -> Result<Machine, MachineError> {
        let possible = input.possible_nodes;
        if input.memory_nodes.is_empty() {
            return Err(MachineError::NoMemory);
        }
        let beyond = |n: &NodeId| n.0 >= possible || possible > NodeId::LIMIT;
        if let Some(node) = input.online().iter().find(beyond) {
            return Err(MachineError::BeyondPossible { node, possible });
        }
        let n = usize::from(possible);
        let good_row = |row: &Vec<u32>| row.len() == n && row.iter().all(|&d| d < 256);
        if let Some(rows) = &input.distances
            && !(rows.len() == n && rows.iter().all(good_row))
        {
            return Err(MachineError::Distances { possible });
        }
        let fallback = fallback_orders(&input);
        Ok(Machine { input, fallback })
    }

    /// The description.
    pub fn input(&self) -> &MachineInput {
        &self.input
    }

    /// The nodes that have memory.
    pub fn memory_nodes(&self) -> &NodeMask {
        &self.input.memory_nodes
    }

    /// The kernel's parameters.
    pub fn kernel(&self) -> &Kernel {
        &self.input.kernel
    }

    /// The base page.
    pub fn page(&self) -> PageSize {
        self.input.page
    }

    /// Whether the node is there, with CPUs or memory.
    pub fn is_online(&self, node: NodeId) -> bool {
        self.input.online().contains(node)
    }

    /// The memory nodes in the order in which an allocation that prefers
    /// `node` tries them; empty for a node that cannot exist.
    pub fn fallback(&self, node: NodeId) -> &[NodeId] {
        self.fallback.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// The first node in `node`'s fallback order that is in `among`.
    pub fn nearest(&self, node: NodeId, among: &NodeMask) -> Option<NodeId> {
        let order = self.fallback(node).iter();
        order.copied().find(|&n| among.contains(n))
    }
}

impl MachineInput {
    fn online(&self) -> NodeMask {
        self.memory_nodes.union(&self.cpu_nodes)
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        match &self.distances {
            Some(rows) => rows[from.index()][to.index()],
            None if from == to => 10,
            None => 20,
        }
    }
}

/// Every possible node's fallback order. The order of one depends on those
/// made before it, since being first at a distance is a load. Loads that an
/// order adds fall on nodes that it has taken already, so it is one sort.
fn fallback_orders(machine: &MachineInput) -> Vec<Vec<NodeId>> {
    let mut load = vec![0u32; usize::from(machine.possible_nodes)];
    let mut orders = Vec::new();
    for node in (0..machine.possible_nodes).map(NodeId) {
        let cost = |&n: &NodeId| {
            let headful = machine.kernel.fallback_knows_cpus && machine.cpu_nodes.contains(n);
            let far = machine.distance(node, n) + u32::from(n < node) + u32::from(headful);
            (n != node, far, load[n.index()], n)
        };
        let mut order: Vec<NodeId> = machine.memory_nodes.iter().collect();
        order.sort_unstable_by_key(cost);
        let mut previous = node;
        for &best in &order {
            if machine.distance(node, best) != machine.distance(node, previous) {
                load[best.index()] += 1;
            }
            previous = best;
        }
        orders.push(order);
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory: &str, cpus: &str, distances: Option<Vec<Vec<u32>>>) -> Machine {
        let (memory, cpus) = (memory.parse().unwrap(), cpus.parse().unwrap());
        let input = MachineInput::new(memory, cpus, Kernel::BEFORE_AUTO);
        Machine::new(MachineInput { distances, ..input }).unwrap()
    }

    fn order(machine: &Machine, node: u16) -> Vec<u16> {
        machine.fallback(NodeId(node)).iter().map(|n| n.0).collect()
    }

    #[test]
    fn nodes_fall_back_by_distance() {
        let rows = vec![vec![10, 20, 30], vec![20, 10, 15], vec![30, 15, 10]];
        let m = machine("0-2", "0-1", Some(rows));
        assert_eq!(order(&m, 0), [0, 1, 2]);
        assert_eq!(order(&m, 1), [1, 2, 0]);
        assert_eq!(order(&m, 2), [2, 1, 0]);
    }

    #[test]
    fn a_node_without_memory_has_an_order_without_itself() {
        let m = machine("0,2", "0-2", None);
        // From 1, node 0 costs 20 + 1 because it lies before, node 2 costs 20.
        assert_eq!(order(&m, 1), [2, 0]);
        assert_eq!(m.nearest(NodeId(1), &"0".parse().unwrap()), Some(NodeId(0)));
    }

    #[test]
    fn equal_distances_are_spread_by_load() {
        // Node 0 takes 1 first (load 1), then 2; so does each its successor.
        let m = machine("0-3", "0-3", None);
        assert_eq!(order(&m, 0), [0, 1, 2, 3]);
        assert_eq!(order(&m, 1), [1, 2, 3, 0]);
        assert_eq!(order(&m, 2), [2, 3, 0, 1]);
        // From 3 all cost 21: node 0 has load 0, the others 1 each.
        assert_eq!(order(&m, 3), [3, 0, 1, 2]);
    }

    /// One node after the other, as the kernel takes them.
    fn one_by_one(machine: &MachineInput) -> Vec<Vec<NodeId>> {
        let mut load = vec![0u32; usize::from(machine.possible_nodes)];
        let one = |node: NodeId| {
            let mut left: Vec<NodeId> = machine.memory_nodes.iter().collect();
            let (mut order, mut previous) = (Vec::new(), node);
            while !left.is_empty() {
                let cost = |&n: &NodeId| {
                    let headful = machine.kernel.fallback_knows_cpus;
                    let headful = headful && machine.cpu_nodes.contains(n);
                    let far = machine.distance(node, n) + u32::from(n < node);
                    (n != node, far + u32::from(headful), load[n.index()], n)
                };
                let best = left.iter().copied().min_by_key(cost).unwrap();
                left.retain(|&n| n != best);
                if machine.distance(node, best) != machine.distance(node, previous) {
                    load[best.index()] += 1;
                }
                order.push(best);
                previous = best;
            }
            order
        };
        (0..machine.possible_nodes).map(NodeId).map(one).collect()
    }

    #[test]
    fn one_sort_gives_what_taking_one_by_one_gives() {
        // Any numbers do; these are of a small generator.
        let mut state = 7u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for case in 0..40u16 {
            let nodes = 1 + next(20) as u16;
            let among = |next: &mut dyn FnMut(u32) -> u32| -> NodeMask {
                let some = (0..nodes).filter(|_| next(3) > 0).map(NodeId);
                some.chain([NodeId(0)]).collect()
            };
            let kernel = Kernel {
                fallback_knows_cpus: case % 2 == 1,
                ..Kernel::WITH_AUTO
            };
            let (memory, cpus) = (among(&mut next), among(&mut next));
            let row = |_| (0..nodes).map(|_| 10 + next(3)).collect();
            let input = MachineInput {
                possible_nodes: nodes,
                distances: Some((0..nodes).map(row).collect()),
                ..MachineInput::new(memory, cpus, kernel)
            };
            assert_eq!(fallback_orders(&input), one_by_one(&input), "case {case}");
        }
    }

    #[test]
    fn impossible_machines_are_refused() {
        let input = |f: fn(&mut MachineInput)| {
            let nodes: NodeMask = "0-1".parse().unwrap();
            let mut input = MachineInput::new(nodes, nodes, Kernel::WITH_AUTO);
            f(&mut input);
            Machine::new(input).unwrap_err().to_string()
        };
        assert!(input(|m| m.memory_nodes = NodeMask::EMPTY).starts_with("no node"));
        assert!(input(|m| m.possible_nodes = 1).starts_with("node 1 "));
        assert!(input(|m| m.distances = Some(vec![])).starts_with("distances"));
    }
}
