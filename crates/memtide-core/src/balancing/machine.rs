//! What placement asks of the machine: its nodes, and how they are connected.
//!
//! Only nodes with CPUs make the connection's kind, because only between them
//! can tasks choose:
//!
//! - *direct*: no more than one distance besides the local one;
//! - *mesh*: two nodes farthest apart have some third node closer to both;
//! - *backplane*: they have not, so nodes come in clusters.

use crate::nodemask::NodeMask;
use crate::topology::{LOCAL_DISTANCE, Topology};
use crate::units::NodeId;
use serde::Serialize;

/// How the nodes with CPUs are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// Everybody with everybody.
    Direct,
    /// Through nodes in between.
    Mesh,
    /// In clusters.
    Backplane,
}

/// The nodes as balancing sees them.
#[derive(Clone, Debug)]
pub struct Machine {
    slots: usize,
    with_cpus: Vec<NodeId>,
    online: Vec<NodeId>,
    memory: NodeMask,
    top_tier: NodeMask,
    /// Row-major over node ids; 0 where a node is not online.
    distances: Vec<u32>,
    connection: Connection,
    max_distance: u32,
}

impl Machine {
    /// The machine of a validated topology.
    #[must_use]
    pub fn new(topology: &Topology) -> Machine {
        let ids = |keep: &dyn Fn(&crate::topology::Node) -> bool| {
            let nodes = topology.nodes().iter().filter(|n| keep(n));
            nodes.map(|n| n.id).collect::<Vec<_>>()
        };
        let slots = topology.nodes().last().map_or(0, |n| n.id.index() + 1);
        let all = (0..slots as u16).map(NodeId);
        let distances = all
            .clone()
            .flat_map(|a| all.clone().map(move |b| (a, b)))
            .map(|(a, b)| topology.distance(a, b).unwrap_or(0))
            .collect();
        let mut machine = Machine {
            slots,
            with_cpus: ids(&|n| n.has_cpus()),
            online: ids(&|n| n.online),
            memory: topology.memory_nodes(),
            top_tier: ids(&|n| n.top_tier).into_iter().collect(),
            distances,
            connection: Connection::Direct,
            max_distance: LOCAL_DISTANCE,
        };
        machine.connect();
        machine
    }

    /// One more than the largest node id.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The nodes with CPUs, ascending.
    #[must_use]
    pub fn with_cpus(&self) -> &[NodeId] {
        &self.with_cpus
    }

    /// Whether pages can live on `node`.
    #[must_use]
    pub fn has_memory(&self, node: NodeId) -> bool {
        self.memory.contains(node)
    }

    /// Whether `node` needs no promotion.
    #[must_use]
    pub fn is_top_tier(&self, node: NodeId) -> bool {
        self.top_tier.contains(node)
    }

    /// How the nodes with CPUs are connected.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// The largest distance between nodes with CPUs.
    #[must_use]
    pub fn max_distance(&self) -> u32 {
        self.max_distance
    }

    /// The distance between two online nodes; 0 if either is not.
    #[must_use]
    pub fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        match a.index() < self.slots && b.index() < self.slots {
            true => self.distances[a.index() * self.slots + b.index()],
            false => 0,
        }
    }

    /// The online nodes, ascending.
    #[must_use]
    pub fn online(&self) -> &[NodeId] {
        &self.online
    }

    /// `node`, or the nearest with CPUs if it has none: the lowest id among
    /// equals. `node` itself on a machine without CPUs.
    #[must_use]
    pub fn nearest_with_cpus(&self, node: NodeId) -> NodeId {
        let near = |&n: &NodeId| (n != node, self.distance(node, n), n);
        self.with_cpus
            .iter()
            .copied()
            .min_by_key(near)
            .unwrap_or(node)
    }

    fn connect(&mut self) {
        let cpus = &self.with_cpus;
        let pairs = || cpus.iter().flat_map(|&a| cpus.iter().map(move |&b| (a, b)));
        let mut levels: Vec<u32> = pairs().map(|(a, b)| self.distance(a, b)).collect();
        levels.sort_unstable();
        levels.dedup();
        let max = levels.last().copied().unwrap_or(LOCAL_DISTANCE);
        let far = pairs().find(|&(a, b)| self.distance(a, b) >= max);
        let connection = match far {
            Some((a, b)) if levels.len() > 2 => {
                let between =
                    |&&c: &&NodeId| self.distance(a, c) < max && self.distance(b, c) < max;
                match cpus.iter().find(between) {
                    Some(_) => Connection::Mesh,
                    None => Connection::Backplane,
                }
            }
            _ => Connection::Direct,
        };
        self.connection = connection;
        self.max_distance = max;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::topology::{NodeInput, TopologyInput};

    /// A machine with one CPU a node for each row but those in `memory_only`.
    pub(in super::super) fn machine(rows: &[&[u32]], memory_only: &[u16]) -> Machine {
        let node = |(id, row): (usize, &&[u32])| NodeInput {
            id: NodeId(id as u16),
            online: true,
            memory_bytes: 1 << 30,
            cpus: match memory_only.contains(&(id as u16)) {
                true => vec![],
                false => vec![id as u32],
            },
            distances: Some(row.to_vec()),
            figures: Default::default(),
            tier: None,
        };
        let nodes = rows.iter().enumerate().map(node).collect();
        Machine::new(&Topology::try_from(TopologyInput::new(nodes)).unwrap())
    }

    /// Two sockets.
    pub(in super::super) fn pair() -> Machine {
        machine(&[&[10, 20], &[20, 10]], &[])
    }

    /// A ring of four: opposite nodes are 30 apart.
    pub(in super::super) fn ring() -> Machine {
        machine(
            &[
                &[10, 20, 30, 20],
                &[20, 10, 20, 30],
                &[30, 20, 10, 20],
                &[20, 30, 20, 10],
            ],
            &[],
        )
    }

    /// Two clusters of two: 15 within, 40 between.
    pub(in super::super) fn clusters() -> Machine {
        machine(
            &[
                &[10, 15, 40, 40],
                &[15, 10, 40, 40],
                &[40, 40, 10, 15],
                &[40, 40, 15, 10],
            ],
            &[],
        )
    }

    #[test]
    fn kinds_of_connection() {
        assert_eq!(pair().connection(), Connection::Direct);
        // From 0 to 2 (30) there is node 1, 20 from both.
        assert_eq!(ring().connection(), Connection::Mesh);
        // From 0 to 2 (40) every node is 40 from one of them.
        assert_eq!(clusters().connection(), Connection::Backplane);
        assert_eq!(clusters().max_distance(), 40);
        // Distances to memory without CPUs do not count.
        let cxl = machine(&[&[10, 20, 50], &[20, 10, 60], &[255, 255, 10]], &[2]);
        assert_eq!(cxl.connection(), Connection::Direct);
        assert_eq!(cxl.max_distance(), 20);
    }

    #[test]
    fn a_node_without_cpus_stands_for_its_nearest_with() {
        let cxl = machine(&[&[10, 20, 50], &[20, 10, 60], &[60, 50, 10]], &[2]);
        assert_eq!(cxl.nearest_with_cpus(NodeId(2)), NodeId(1));
        assert_eq!(cxl.nearest_with_cpus(NodeId(0)), NodeId(0));
        assert!(!cxl.is_top_tier(NodeId(2)) && cxl.has_memory(NodeId(2)));
    }
}
