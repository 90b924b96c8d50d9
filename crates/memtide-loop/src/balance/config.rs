//! From what users chose to what the parts of balancing want to know.

use crate::options::{BalanceOptions, BalanceTasks, Classes};
use crate::world::ClassId;
use memtide_core::balancing::sampled::SampledConfig;
use memtide_core::balancing::{
    self, BalancerConfig, CpupidFormat, Modes, Pacing, SampleSettings, Settings,
};
use memtide_core::hotness::{self, Layout};
use memtide_core::topology::Topology;
use memtide_core::units::{NodeId, PageSize};
use std::collections::BTreeSet;

/// 4 GiB/s in pages of 4 KiB.
const PAGES_PER_SECOND: u64 = 1 << 20;
/// Pages that one turn may move, so that signals are heard.
const TURN_PAGES: u64 = 16_384;
/// Pages between two sampled ones that are asked about along with them: a range
/// more costs about as much.
const GAP_PAGES: u64 = 32;

/// What happens to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// Nothing.
    Leave,
    /// It is said where they should run.
    Propose,
    /// They get an affinity, until the end.
    Set,
}

/// How balancing works. [`BalanceConfig::new`] makes it of the options.
#[derive(Clone, Debug)]
pub struct BalanceConfig {
    /// Whether threads are placed.
    pub tasks: Tasks,
    /// How often a page must be seen within which window before it moves.
    pub hotness: hotness::Config,
    /// Pages that stay free on each node beyond its high watermark.
    pub headroom: u64,
    /// Most pages a second, in the long run.
    pub pages_per_s: u64,
    /// Most pages of a turn.
    pub turn_pages: u64,
    /// Sampled pages with so many between them, or fewer, are one range to ask about.
    pub gap_pages: u64,
    /// Share of one CPU that the loop may take in the long run, in thousandths.
    pub cpu_permille: u32,
    /// Decide and report, but move nothing.
    pub dry_run: bool,
    /// Report of each run of pages.
    pub explain: bool,
    /// Whether somebody else moves pages between tiers: then pages and CPUs of slow
    /// nodes are none of balancing's business.
    pub beside_tiering: bool,
    /// Classes of processes that are not balanced.
    pub left_alone: BTreeSet<ClassId>,
    /// Whether processes of no class are not, either.
    pub classless_left_alone: bool,
}

impl BalanceConfig {
    /// `options` on a machine with pages of this size. `by_rounds`: the source
    /// tells of each page once in a round or scan, so that how often it was seen
    /// says nothing.
    ///
    /// # Errors
    ///
    /// None with options that were read from text.
    pub fn new(
        options: &BalanceOptions,
        page: PageSize,
        by_rounds: bool,
    ) -> Result<BalanceConfig, hotness::ConfigError> {
        // In rounds no page comes twice: the gate, which wants two from one node,
        // is all that can be asked for.
        let threshold = if by_rounds { 1 } else { 2 };
        Ok(BalanceConfig {
            tasks: tasks(options),
            hotness: hotness::Config::new(Layout::Precise).with_threshold(threshold)?,
            headroom: page.pages(options.headroom.0),
            pages_per_s: PAGES_PER_SECOND,
            turn_pages: TURN_PAGES,
            gap_pages: GAP_PAGES,
            cpu_permille: options.cpu_limit.permille(),
            dry_run: options.dry_run,
            explain: options.explain,
            beside_tiering: false,
            left_alone: BTreeSet::new(),
            classless_left_alone: false,
        })
    }

    /// The same beside tiering, which has `headroom` pages free on fast nodes: what is
    /// filled beyond that would be demoted. Only processes of the classes that say so are
    /// balanced, and all `others` if these are.
    #[must_use]
    pub fn beside_tiering(self, classes: &Classes, others: bool, headroom: u64) -> BalanceConfig {
        let classes = (0..).map(ClassId).zip(classes.values());
        let left_alone = classes.filter(|(_, class)| !class.is_balanced(others));
        BalanceConfig {
            headroom: self.headroom.max(headroom),
            beside_tiering: true,
            left_alone: left_alone.map(|(id, _)| id).collect(),
            classless_left_alone: !others,
            ..self
        }
    }

    pub(super) fn sampled(&self, topology: &Topology) -> SampledConfig {
        let pages = crate::ledger::MOST_PAGES;
        SampledConfig {
            hotness: self.hotness,
            batch_pages: self.turn_pages,
            pages_per_s: self.pages_per_s,
            tasks: self.tasks != Tasks::Leave,
            ..SampledConfig::new(balancer_config(topology), pages)
        }
    }
}

/// Whether `topology` has nodes to choose from: two with both CPUs and memory.
pub fn has_choice(topology: &Topology) -> bool {
    let nodes = topology.nodes().iter();
    let choice = nodes.filter(|node| node.has_cpus() && node.has_memory());
    choice.count() >= 2
}

/// The same beside tiering: among the fast nodes.
pub fn has_fast_choice(topology: &Topology) -> bool {
    let nodes = topology.nodes().iter();
    let choice = nodes.filter(|node| node.top_tier && node.has_cpus() && node.has_memory());
    choice.count() >= 2
}

/// What `options` want of threads: a run that changes nothing only proposes.
pub fn tasks(options: &BalanceOptions) -> Tasks {
    match options.tasks {
        None => Tasks::Leave,
        Some(BalanceTasks::Set) if !options.dry_run => Tasks::Set,
        Some(_) => Tasks::Propose,
    }
}

/// The kernel's defaults on this machine, fed by samples.
fn balancer_config(topology: &Topology) -> BalancerConfig {
    let machine = balancing::Machine::new(topology);
    let mut node_of_cpu: Vec<NodeId> = Vec::new();
    for node in topology.nodes() {
        for &cpu in &node.cpus {
            let cpus = cpu as usize + 1;
            node_of_cpu.resize(node_of_cpu.len().max(cpus), node.id);
            node_of_cpu[cpu as usize] = node.id;
        }
    }
    let cpus = (node_of_cpu.len() as u32).max(1);
    // One more than the CPUs need, so that "none" is no CPU.
    let cpu_bits = (u32::BITS - cpus.leading_zeros()).max(1);
    let format = CpupidFormat::new(cpu_bits, 31 - cpu_bits, cpus);
    BalancerConfig {
        settings: Settings::default(),
        scan_pages: 1 << 16,
        chunk_pages: 512,
        modes: Modes::from_bits(1),
        format: format.expect("31 bits hold any machine's CPUs"),
        machine,
        node_of_cpu,
        pacing: Pacing::Samples(SampleSettings::default()),
    }
}
