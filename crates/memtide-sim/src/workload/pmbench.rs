//! Many processes with memory of their own, bound to the nodes on which they run, and an eater that
//! holds most of one node until it is killed: the bound-nodes balancing series' experiment.
//!
//! Processes touch their memory first themselves, so those on the eater's node find it nearly full
//! and get the rest from the other node of the binding. When the eater is gone there is room, but only
//! balancing within the binding can use it. The score is the rate of accesses over the whole run.

use super::checks::{each_node_once, some_operations, stores_of_100};
use super::lines::Lines;
use super::random::{random_access, share_of_65536};
use super::{
    Access, Acts, Filled, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth, Wrong, pages, want,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The experiment's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmbenchSpec {
    /// How many processes, half on each node.
    pub processes: u32,
    /// The two nodes to which they are bound.
    pub nodes: [u16; 2],
    /// Memory of each.
    pub memory_per_process: Bytes,
    /// What the eater holds, on the second node.
    pub eater: Bytes,
    /// When the eater is killed.
    pub eater_until: Nanos,
    /// When the run ends.
    pub until: Nanos,
    /// Which lines of a page they go to: the first so many of 64.
    #[serde(default)]
    pub lines: Lines,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

impl PmbenchSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        each_node_once("nodes", &self.nodes)?;
        for node in self.nodes {
            places.has_cpus("nodes", node)?;
            places.has_memory("nodes", node)?;
        }
        want(
            (1..=4096).contains(&self.processes),
            "processes",
            "give 1 to 4096",
        )?;
        let all = self
            .memory_per_process
            .0
            .saturating_mul(u64::from(self.processes));
        places.fit("memory_per_process", all.saturating_add(self.eater.0))?;
        want(
            self.eater_until.0 < self.until.0,
            "eater_until",
            "the eater is killed before the run ends; make it earlier than `until`",
        )?;
        some_operations(self.ops_per_access)?;
        self.lines.check()?;
        stores_of_100(self.stores_percent)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Pmbench) {
        let count = pages(self.memory_per_process, scale, self.huge);
        let node_of = |n: u32| self.nodes[(n % 2) as usize];
        let bound = places.bind(&self.nodes, false);
        let mut eater = RegionPlan {
            policy: places.bind(&[self.nodes[1]], false),
            policy_after: None,
            freed_at_ns: Some(self.eater_until.0 as u64),
            bandwidth: false,
            ..places.region(
                "eater",
                pages(self.eater, scale, self.huge),
                self.nodes[1],
                self.nodes[1],
            )
        };
        eater.space = self.processes as u16;
        let mut regions = vec![eater.in_huge_pages(self.huge)];
        regions.extend((0..self.processes).map(|n| {
            RegionPlan {
                space: n as u16,
                policy: bound.clone(),
                policy_after: None,
                populated_from: None,
                ..places
                    .region("process", count, node_of(n), node_of(n))
                    .in_huge_pages(self.huge)
            }
        }));
        let threads = (0..self.processes)
            .map(|n| ThreadPlan {
                space: n as u16,
                group: (n % 2) as u16,
                ..ThreadPlan::on(node_of(n), Pattern::Random, self.ops_per_access, self.think)
            })
            .collect();
        let plan = Plan {
            regions,
            threads,
            ends_at_ns: Some(self.until.0 as u64),
        };
        let pmbench = Pmbench {
            bases: Vec::new(),
            pages: count,
            lines: self.lines,
            stores: share_of_65536(self.stores_percent),
            nodes: self.nodes,
            until_ns: self.until.0 as u64,
            now_ns: 0,
        };
        (plan, pmbench)
    }
}

/// The experiment, running.
#[derive(Clone, Debug)]
pub(super) struct Pmbench {
    bases: Vec<Slot>,
    pages: u32,
    lines: Lines,
    stores: u32,
    nodes: [u16; 2],
    until_ns: u64,
    now_ns: u64,
}

impl Acts for Pmbench {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots[1..].to_vec();
    }

    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        self.now_ns = self.now_ns.max(now_ns);
        if now_ns >= self.until_ns {
            return Filled::Done;
        }
        let base = self.bases[thread];
        for access in batch.iter_mut() {
            *access = random_access(rng, base, self.pages, self.lines, self.stores);
        }
        Filled::Accesses(batch.len())
    }

    fn done(&self) -> f64 {
        (self.now_ns as f64 / self.until_ns as f64).min(1.0)
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        let process = region.saturating_sub(1);
        Truth {
            rate: if region == 0 { 0.0 } else { 1.0 },
            node: self.nodes[process % 2],
        }
    }
}
