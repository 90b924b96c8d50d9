//! The virtual machine's memory layout, as a file that a person can read.
//!
//! A topology says which NUMA nodes the guest has, how much memory and how many CPUs each holds,
//! how far apart they are, and what the firmware's HMAT claims about latency and bandwidth. QEMU
//! does not slow the far node down; the kernel only *believes* the table, which is enough: tiers,
//! demotion targets and promotion follow from the belief. Tests therefore judge by placement and
//! counters, never by the speed of the program they move.
//!
//! Terms. *Initiator*: the node whose CPUs reach a memory-only node best. *Distance*: the SLIT's
//! dimensionless number, 10 for local.
//!
//! [`Topology::qemu_arguments`] is pure: a topology in, command-line words out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A guest's nodes; construct with [`Topology::parse`] or [`Topology::named`], which validate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// One line for lists.
    pub description: String,
    /// The nodes in node-number order.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// The SLIT.
    pub distances: Distances,
    /// The HMAT; without it the firmware publishes distances only.
    pub hmat: Option<Hmat>,
}

/// One NUMA node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// CPUs on the node, 0 for a memory-only node.
    #[serde(default)]
    pub cpus: u32,
    /// The node whose CPUs reach this memory-only node best (HMAT only).
    pub initiator: Option<usize>,
    /// Whether its memory is a module that stays offline until somebody sets it online, as that of an expander
    /// may: only the last node's, which has no CPUs.
    #[serde(default)]
    pub late: bool,
}

/// The SLIT as a square matrix, `matrix[from][to]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    /// Rows and columns in node order.
    pub matrix: Vec<Vec<u32>>,
}

/// What the HMAT claims: one row per node with CPUs (in node order), one column per node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hmat {
    /// Access latency in nanoseconds.
    pub latency_ns: Vec<Vec<u32>>,
    /// Access bandwidth in GiB/s.
    pub bandwidth_gib: Vec<Vec<u32>>,
}

/// More than there is: room to put modules where the emulator aligns them.
const SPARE_MIB: u64 = 1024;

impl Topology {
    /// Reads and validates a topology's text.
    ///
    /// # Errors
    /// When the text is no TOML of this shape, or its matrices do not fit its nodes.
    pub fn parse(text: &str) -> Result<Self> {
        let topology: Self = toml::from_str(text)?;
        topology.validate()?;
        Ok(topology)
    }

    /// Reads `testbed/topologies/NAME.toml` under `workspace`.
    ///
    /// # Errors
    /// When there is no such file (the error lists those there are), or it does not parse.
    pub fn named(workspace: &Path, name: &str) -> Result<Self> {
        let directory = workspace.join("testbed/topologies");
        let path = directory.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "no topology {name:?}: there are {}",
                Self::names(workspace).join(", ")
            )
        })?;
        Self::parse(&text).with_context(|| format!("topology {}", path.display()))
    }

    /// The names of all topologies, sorted.
    #[must_use]
    pub fn names(workspace: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(workspace.join("testbed/topologies"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                Some(
                    entry
                        .file_name()
                        .to_str()?
                        .strip_suffix(".toml")?
                        .to_owned(),
                )
            })
            .collect();
        names.sort();
        names
    }

    fn validate(&self) -> Result<()> {
        let count = self.nodes.len();
        ensure!(count > 0, "a topology needs at least one [[node]]");
        ensure!(self.cpus() > 0, "no node has CPUs");
        ensure!(
            self.distances.matrix.len() == count
                && self.distances.matrix.iter().all(|row| row.len() == count),
            "distances.matrix must be {count} x {count}"
        );
        if let Some(hmat) = &self.hmat {
            let rows = self.nodes.iter().filter(|node| node.cpus > 0).count();
            for (name, table) in [
                ("latency_ns", &hmat.latency_ns),
                ("bandwidth_gib", &hmat.bandwidth_gib),
            ] {
                ensure!(
                    table.len() == rows && table.iter().all(|row| row.len() == count),
                    "hmat.{name} must have {rows} rows (nodes with CPUs) of {count} columns"
                );
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if let Some(initiator) = node.initiator {
                ensure!(
                    self.nodes
                        .get(initiator)
                        .is_some_and(|other| other.cpus > 0),
                    "node {number}: initiator {initiator} has no CPUs"
                );
            }
            // The firmware's table gives all memory that may come to the last node.
            ensure!(
                !node.late || (number + 1 == count && number > 0 && node.cpus == 0),
                "node {number}: only the last node's memory can be late, and only without CPUs"
            );
        }
        Ok(())
    }

    /// CPUs of the whole machine.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus).sum()
    }

    /// Memory of the whole machine in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }

    /// Of that, what is offline at the boot.
    fn late_mib(&self) -> u64 {
        let late = self.nodes.iter().filter(|node| node.late);
        late.map(|node| node.memory_mib).sum()
    }

    /// Words for the kernel's command line.
    #[must_use]
    pub fn kernel_words(&self) -> &'static str {
        match self.late_mib() {
            0 => "",
            _ => "memhp_default_state=offline",
        }
    }

    /// QEMU's words for machine, CPUs and memory.
    #[must_use]
    pub fn qemu_arguments(&self) -> Vec<String> {
        let hmat = if self.hmat.is_some() { "on" } else { "off" };
        let cpus = self.cpus();
        let sockets = self.nodes.iter().filter(|node| node.cpus > 0).count() as u32;
        let mut words = vec![
            "-machine".to_owned(),
            format!("q35,hmat={hmat}"),
            "-m".to_owned(),
            match self.late_mib() {
                0 => format!("{}M", self.memory_mib()),
                late => {
                    let all = self.memory_mib();
                    format!("{}M,slots=1,maxmem={}M", all - late, all + SPARE_MIB)
                }
            },
            "-smp".to_owned(),
            if cpus.is_multiple_of(sockets) {
                format!("{cpus},sockets={sockets},cores={}", cpus / sockets)
            } else {
                cpus.to_string()
            },
        ];
        let mut first_cpu = 0;
        for (number, node) in self.nodes.iter().enumerate() {
            words.push("-object".to_owned());
            words.push(format!(
                "memory-backend-ram,id=m{number},size={}M",
                node.memory_mib
            ));
            let mut numa = format!("node,nodeid={number}");
            if node.late {
                let module = format!("pc-dimm,id=d{number},memdev=m{number},node={number}");
                words.extend(["-device".to_owned(), module]);
            } else {
                numa += &format!(",memdev=m{number}");
            }
            if node.cpus > 0 {
                numa += &format!(",cpus={first_cpu}-{}", first_cpu + node.cpus - 1);
                first_cpu += node.cpus;
                if self.hmat.is_some() {
                    numa += &format!(",initiator={number}");
                }
            } else if let (Some(initiator), true) = (node.initiator, self.hmat.is_some()) {
                numa += &format!(",initiator={initiator}");
            }
            words.extend(["-numa".to_owned(), numa]);
        }
        for (from, row) in self.distances.matrix.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                words.extend([
                    "-numa".to_owned(),
                    format!("dist,src={from},dst={to},val={distance}"),
                ]);
            }
        }
        if let Some(hmat) = &self.hmat {
            let initiators = self
                .nodes
                .iter()
                .enumerate()
                .filter(|(_, node)| node.cpus > 0);
            for (row, (initiator, _)) in initiators.enumerate() {
                for target in 0..self.nodes.len() {
                    let place = format!(
                        "hmat-lb,initiator={initiator},target={target},hierarchy=memory,data-type"
                    );
                    words.extend([
                        "-numa".to_owned(),
                        format!(
                            "{place}=access-latency,latency={}",
                            hmat.latency_ns[row][target]
                        ),
                        "-numa".to_owned(),
                        format!(
                            "{place}=access-bandwidth,bandwidth={}G",
                            hmat.bandwidth_gib[row][target]
                        ),
                    ]);
                }
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "description = 'd'
[[node]]
memory_mib = 512
cpus = 3
[[node]]
memory_mib = 1024
initiator = 0
[distances]
matrix = [[10, 24], [24, 10]]
[hmat]
latency_ns = [[80, 250]]
bandwidth_gib = [[200, 22]]
";

    /// 3 CPUs on one node are one socket of three cores; 512 + 1024 = 1536 MiB.
    #[test]
    fn words_follow_the_nodes() {
        let words = Topology::parse(TWO).unwrap().qemu_arguments().join(" ");
        assert!(
            words.contains("-m 1536M -smp 3,sockets=1,cores=3"),
            "{words}"
        );
        assert!(
            words.contains("node,nodeid=0,memdev=m0,cpus=0-2,initiator=0"),
            "{words}"
        );
        assert!(
            words.contains("node,nodeid=1,memdev=m1,initiator=0"),
            "{words}"
        );
        assert!(
            words.contains("target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=22G")
        );
    }

    #[test]
    fn matrices_must_fit() {
        let error = Topology::parse(&TWO.replace("[[10, 24], [24, 10]]", "[[10]]")).unwrap_err();
        assert_eq!(error.to_string(), "distances.matrix must be 2 x 2");
        let error = Topology::parse(&TWO.replace("initiator = 0", "initiator = 1")).unwrap_err();
        assert_eq!(error.to_string(), "node 1: initiator 1 has no CPUs");
    }

    /// A module is no part of the memory of the boot.
    #[test]
    fn late_memory_is_a_module() {
        let text = TWO.replace("memory_mib = 1024", "memory_mib = 1024\nlate = true");
        let topology = Topology::parse(&text).unwrap();
        let words = topology.qemu_arguments().join(" ");
        for part in [
            "-m 512M,slots=1,maxmem=2560M ",
            "-device pc-dimm,id=d1,memdev=m1,node=1 -numa node,nodeid=1,initiator=0 ",
        ] {
            assert!(words.contains(part), "{words}");
        }
        assert_eq!(topology.kernel_words(), "memhp_default_state=offline");
        assert_eq!(Topology::parse(TWO).unwrap().kernel_words(), "");
        let early = TWO.replace("memory_mib = 512", "memory_mib = 512\nlate = true");
        let error = Topology::parse(&early).unwrap_err();
        assert!(error.to_string().starts_with("node 0: "), "{error}");
    }

    #[test]
    fn every_shipped_topology_is_valid() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names = Topology::names(workspace);
        assert!(names.iter().any(|name| name == "cxl"), "{names:?}");
        for name in names {
            Topology::named(workspace, &name).unwrap();
        }
    }
}
