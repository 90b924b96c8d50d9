//! What can be told by reading: the kernel, the tiers, rights and settings.

use super::check::{Check, Finding, State};
use super::slow_memory;
use crate::shared::lent_weights::{self, Standing as TableStanding};
use crate::shared::source::damon_options;
use anyhow::anyhow;
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{HandTiers, Topology};
use memtide_core::units::NodeId;
use memtide_linux::fs::numa::{self, Capabilities, Capability};
use memtide_linux::fs::proc::status;
use memtide_linux::fs::{self, FsError, Root, topology};
use memtide_linux::lent::LentError;
use memtide_linux::live::affinity::Affinities;
use memtide_linux::probe::standing::{self, Standing, StandingError};
use memtide_linux::weight_table::WeightError;

/// The rights that managing other processes' memory takes.
const NEEDED: [Capability; 3] = [
    Capability::SysPtrace,
    Capability::SysAdmin,
    Capability::SysNice,
];

/// What was read. A part that could not be read carries the error.
pub struct Machine {
    pub root: Root,
    /// As the kernel has it.
    topology: fs::Result<Topology>,
    /// With the tiers that the user gives, if he does.
    by_hand: Option<Topology>,
    pub capabilities: fs::Result<Option<Capabilities>>,
    pub balancing: fs::Result<Option<numa::BalancingMode>>,
    pub damon: Result<Standing, StandingError>,
    pub weights: Result<TableStanding, WeightError>,
    /// The nodes that the cpuset allows; `None` without cpusets.
    allowed: fs::Result<Option<NodeMask>>,
}

/// Nodes that hot pages leave for a faster one.
fn lower_nodes(topology: &Topology) -> impl Iterator<Item = NodeId> {
    let nodes = topology.nodes().iter();
    nodes
        .filter(|node| !node.top_tier && node.has_memory() && node.promotion_target.is_some())
        .map(|node| node.id)
}

impl Machine {
    pub fn read(root: &Root) -> Machine {
        let status = root.parse("proc/self/status", status::parse);
        let allowed = |status: Option<status::Status>| {
            Some(status?.mems_allowed?.into_iter().collect::<NodeMask>())
        };
        Machine {
            topology: topology::read(root).map(|machine| machine.topology),
            by_hand: None,
            capabilities: numa::capabilities(root),
            balancing: numa::balancing(root),
            damon: standing::damon(&damon_options(root)),
            weights: lent_weights::standing(root),
            allowed: status.map(allowed),
            root: root.clone(),
        }
    }

    /// The same with the tiers that the user gives. The kernel keeps its own, and makes hint
    /// faults by those.
    ///
    /// # Errors
    /// They do not fit the nodes.
    pub fn with_tiers(mut self, tiers: &HandTiers) -> anyhow::Result<Machine> {
        if let Ok(topology) = &self.topology {
            let with = topology.with_tiers(tiers);
            self.by_hand = Some(with.map_err(|wrong| anyhow!("--tiers {tiers}: {wrong}"))?);
        }
        Ok(self)
    }

    /// With the tiers by which memtide would go.
    fn tiered(&self) -> Result<&Topology, &FsError> {
        self.by_hand.as_ref().map_or(self.topology.as_ref(), Ok)
    }

    /// Whether there is a tier to promote from and one to promote to.
    pub fn has_two_tiers(&self) -> bool {
        self.tiered()
            .is_ok_and(|topology| lower_nodes(topology).next().is_some())
    }

    /// Nodes with memory that this process may use, lower tiers first: pages
    /// for a trial are best put there.
    pub fn usable_nodes(&self) -> Vec<NodeId> {
        let Ok(topology) = &self.topology else {
            return Vec::new();
        };
        let allowed = match &self.allowed {
            Ok(Some(allowed)) => topology.memory_nodes().intersection(allowed),
            _ => topology.memory_nodes(),
        };
        let mut nodes: Vec<NodeId> = allowed.iter().collect();
        nodes.sort_by_key(|node| (topology.is_top_tier(*node), *node));
        nodes
    }

    /// A usable node of a lower tier of the kernel's.
    pub fn lower_node(&self) -> Option<NodeId> {
        let topology = self.topology.as_ref().ok()?;
        let lower: Vec<NodeId> = lower_nodes(topology).collect();
        let usable = self.usable_nodes();
        usable.into_iter().find(|node| lower.contains(node))
    }

    /// Those of `needed` that this process lacks, by name.
    pub fn lacks(&self, needed: &[Capability]) -> Vec<&'static str> {
        let Ok(Some(held)) = &self.capabilities else {
            // Nothing can be said; the kernel will.
            return Vec::new();
        };
        let missing = needed.iter().filter(|capability| !held.has(**capability));
        missing.map(|capability| capability.name()).collect()
    }

    pub fn checks(&self) -> Vec<Check> {
        let mut checks = vec![
            Check::named("kernel", self.kernel()),
            Check::named("tiers", self.tiers()),
            Check::named("privileges", self.privileges()),
            Check::named("numa_balancing", self.numa_balancing()),
            Check::named("demotion", self.demotion()),
            Check::named("damon_stat", self.damon_stat()),
            Check::named("left_over", self.left_over()),
        ];
        checks.extend(slow_memory::checks(&self.root, self.tiered().ok()));
        checks
    }

    fn kernel(&self) -> Finding {
        // Validated, then shown as it stands: distributions put more into it.
        let release = numa::release(&self.root).and_then(|release| match release {
            Some(_) => self.root.read("proc/sys/kernel/osrelease"),
            None => Ok(None),
        });
        let lockdown = match numa::lockdown(&self.root) {
            Ok(Some(mode)) if mode != numa::Lockdown::None => {
                format!(", locked down ({})", format!("{mode:?}").to_lowercase())
            }
            Err(error) => return unreadable(&error),
            _ => String::new(),
        };
        match release {
            Ok(Some(text)) => {
                let text = String::from_utf8_lossy(&text);
                Finding::new(State::Set, format!("{}{lockdown}", text.trim()))
            }
            Ok(None) => absent("proc/sys/kernel/osrelease is missing; mount procfs"),
            Err(error) => unreadable(&error),
        }
    }

    fn tiers(&self) -> Finding {
        let topology = match self.tiered() {
            Ok(topology) => topology,
            Err(error @ FsError::Missing { .. }) => return absent(&error.to_string()),
            Err(error) => return unreadable(error),
        };
        let tiers: Vec<String> = topology
            .tiers()
            .iter()
            .map(|(tier, nodes)| format!("tier {} is {}", tier.0, named_nodes(nodes)))
            .collect();
        let mut tiers = tiers.join(", ");
        if self.by_hand.is_some() {
            tiers.push_str(", as --tiers gives them");
        }
        let promotions: Vec<String> = topology
            .nodes()
            .iter()
            .filter_map(|node| {
                let to = node.promotion_target?;
                Some(format!("node {} promotes to node {to}", node.id))
            })
            .collect();
        // The kernel puts memory into the tier of DRAM if firmware says nothing of it.
        // What is in a faster one (HBM) is meant to be there.
        let nodes = topology.nodes();
        let is_tier_of_cpus =
            |tier| (nodes.iter()).any(|node| node.tier == tier && !node.cpus.is_empty());
        let bare: NodeMask = (nodes.iter())
            .filter(|node| node.has_memory() && node.cpus.is_empty())
            .filter(|node| node.top_tier && is_tier_of_cpus(node.tier))
            .map(|node| node.id)
            .collect();
        let counts = if bare.len() == 1 { "counts" } else { "count" };
        if !bare.is_empty() && self.by_hand.is_none() {
            return Finding::new(
                State::Advice,
                format!(
                    "{tiers}; {} without processors {counts} as fast; if that is wrong, say so \
                     with --tiers",
                    named_nodes(&bare)
                ),
            );
        }
        match self.has_two_tiers() {
            true => Finding::new(State::Works, format!("{tiers}; {}", promotions.join(", "))),
            false => absent(&format!("{tiers}; there is nothing to promote")),
        }
    }

    fn privileges(&self) -> Finding {
        if let Err(error) = &self.capabilities {
            return unreadable(error);
        }
        match self.lacks(&NEEDED) {
            missing if missing.is_empty() => Finding::new(
                State::Works,
                NEEDED.map(|capability| capability.name()).join(", "),
            ),
            missing => Finding::new(
                State::NotPermitted,
                format!("{} is missing; run as root", missing.join(", ")),
            ),
        }
    }

    fn numa_balancing(&self) -> Finding {
        let mode = match &self.balancing {
            Ok(Some(mode)) => mode,
            Ok(None) => return absent("this kernel has no NUMA balancing, so no hint faults"),
            Err(error) => return unreadable(error),
        };
        let (number, words) = match (mode.normal, mode.tiering) {
            (false, false) => (0, "off"),
            (true, false) => (1, "between sockets"),
            (false, true) => (2, "between tiers; the kernel promotes, too"),
            (true, true) => (3, "between sockets and tiers; the kernel promotes, too"),
        };
        Finding::new(State::Set, format!("{number}: {words}"))
    }

    fn demotion(&self) -> Finding {
        match numa::demotion_enabled(&self.root) {
            Ok(Some(true)) => Finding::new(State::Set, "on: reclaim demotes, too"),
            Ok(Some(false)) => Finding::new(State::Set, "off: only memtide demotes"),
            Ok(None) => absent("this kernel does not demote; memtide does it by itself"),
            Err(error) => unreadable(&error),
        }
    }

    fn damon_stat(&self) -> Finding {
        let switch = "sys/module/damon_stat/parameters/enabled";
        match self.root.parse(switch, numa::parse_bool) {
            Ok(Some(true)) => Finding::new(
                State::Set,
                "on: keeps others out of DAMON; memtide turns it off while it uses DAMON",
            ),
            Ok(Some(false)) => Finding::new(State::Set, "off"),
            Ok(None) => Finding::new(State::Set, "not in this kernel"),
            Err(error) => unreadable(&error),
        }
    }

    fn left_over(&self) -> Finding {
        let mut left = Vec::new();
        match &self.damon {
            Ok(Standing::LeftOver(damon)) => left.push(damon.clone()),
            Ok(_) => {}
            Err(error) => return refused(error),
        }
        match &self.weights {
            Ok(TableStanding::Left(weights)) => left.push(weights.to_string()),
            Ok(_) => {}
            Err(error) => return denied_or_broken(error.is_denied(), error.to_string()),
        }
        match Affinities::is_left(&self.root) {
            Ok(true) => left.push("memtide balance left threads with its affinity".to_owned()),
            Ok(false) => {}
            Err(error) => return unlendable(&error),
        }
        match left.is_empty() {
            true => Finding::new(State::Works, "nothing of a crashed memtide"),
            false => Finding::new(
                State::Broken,
                format!(
                    "a memtide crashed: {}; memtide doctor --restore puts it back",
                    left.join(", and ")
                ),
            ),
        }
    }
}

/// `node 2` or `nodes 0-1`.
fn named_nodes(nodes: &NodeMask) -> String {
    let plural = if nodes.len() == 1 { "" } else { "s" };
    format!("node{plural} {nodes}")
}

fn absent(why: &str) -> Finding {
    Finding::new(State::Unavailable, why)
}

/// A file that is there and makes no sense, or that may not be read.
pub fn unreadable(error: &FsError) -> Finding {
    let denied =
        error.is_errno(rustix::io::Errno::ACCESS) || error.is_errno(rustix::io::Errno::PERM);
    denied_or_broken(denied, error.to_string())
}

/// The same for what is noted.
fn unlendable(error: &LentError) -> Finding {
    denied_or_broken(error.is_denied(), error.to_string())
}

/// The same for DAMON's files.
pub fn refused(error: &StandingError) -> Finding {
    denied_or_broken(error.is_denied(), error.to_string())
}

fn denied_or_broken(denied: bool, error: String) -> Finding {
    match denied {
        true if error.ends_with("run as root") => Finding::new(State::NotPermitted, error),
        true => Finding::new(State::NotPermitted, format!("{error}; run as root")),
        false => Finding::new(State::Broken, error),
    }
}
