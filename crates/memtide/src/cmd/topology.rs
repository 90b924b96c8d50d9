//! `memtide topology`: the nodes of this machine, how fast each is, and where
//! its pages go.
//!
//! First a [`Report`] is made of what was read; then it is printed, as JSON
//! as it stands or as tables. A field that the kernel does not offer is
//! `null` there and `?` here; `-` is what cannot be.

use crate::shared::context::Context;
use crate::shared::table::table;
use anyhow::anyhow;
use comfy_table::CellAlignment::{Left, Right};
use comfy_table::Table;
use memtide_core::nodemask::NodeMask;
use memtide_core::topology::{AccessFigures, HandTiers, Node, TierOrigin, Topology};
use memtide_core::units::NodeId;
use memtide_linux::fs::{list, topology};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Show nodes, tiers, distances, latency, bandwidth and weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show what these tiers of nodes come to, from fast to slow, as in 0,1/2/3
    #[arg(long, value_name = "NODES/NODES...")]
    tiers: Option<HandTiers>,
}

/// What the command says; the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    tier_origin: TierOrigin,
    demotion_enabled: Option<bool>,
    weights_auto: Option<bool>,
    possible_nodes: Option<String>,
    nodes: Vec<NodeReport>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    id: NodeId,
    kind: Kind,
    tier: Option<u32>,
    top_tier: bool,
    cpus: String,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    #[serde(flatten)]
    figures: AccessFigures,
    weight: Option<u8>,
    promotion_target: Option<NodeId>,
    demotion_targets: Targets,
    distances: Vec<DistanceReport>,
}

#[derive(Debug, Serialize)]
struct Targets {
    preferred: NodeMask,
    fallback: NodeMask,
}

#[derive(Debug, Serialize)]
struct DistanceReport {
    node: NodeId,
    distance: u32,
}

/// What a node's memory probably is. The kernel knows speeds, not parts: it
/// cannot tell DRAM behind CXL from persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Memory beside CPUs.
    Dram,
    /// Memory without CPUs, in a faster tier than any with CPUs: HBM.
    Faster,
    /// Memory without CPUs, in a slower tier than any with CPUs: CXL, PMEM.
    Slower,
    /// Memory without CPUs, among the tiers with CPUs.
    Equal,
    /// Memory without CPUs that is in no tier.
    Unknown,
    /// CPUs without memory.
    CpusOnly,
    /// Neither.
    Empty,
}

impl Kind {
    fn of(node: &Node, topology: &Topology) -> Kind {
        match (node.has_memory(), node.has_cpus()) {
            (true, true) => return Kind::Dram,
            (false, true) => return Kind::CpusOnly,
            (false, false) => return Kind::Empty,
            (true, false) => {}
        }
        let with_cpus = topology.nodes().iter().filter(|node| node.has_cpus());
        let tiers = || with_cpus.clone().filter_map(|node| node.tier);
        match (node.tier, tiers().min(), tiers().max()) {
            (Some(tier), Some(fastest), _) if tier < fastest => Kind::Faster,
            (Some(tier), _, Some(slowest)) if tier > slowest => Kind::Slower,
            (Some(_), Some(_), _) => Kind::Equal,
            _ => Kind::Unknown,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Dram => "DRAM",
            Kind::Faster => "CPU-less, faster",
            Kind::Slower => "CPU-less, slower",
            Kind::Equal => "CPU-less, equal",
            Kind::Unknown => "CPU-less",
            Kind::CpusOnly => "CPUs only",
            Kind::Empty => "empty",
        }
    }
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let mut machine = topology::read(&context.root)?;
    if let Some(tiers) = &args.tiers {
        let with = machine.topology.with_tiers(tiers);
        machine.topology = with.map_err(|wrong| anyhow!("--tiers {tiers}: {wrong}"))?;
    }
    let report = report(&machine);
    if context.json {
        context.print_json(&report)?;
    } else {
        context.print(&text(&report, context.styled))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report(machine: &topology::Machine) -> Report {
    let topology = &machine.topology;
    let weights = machine.weights.as_ref();
    let node = |node: &Node| NodeReport {
        id: node.id,
        kind: Kind::of(node, topology),
        tier: node.tier.map(|tier| tier.0),
        top_tier: node.top_tier,
        cpus: list::format(node.cpus.iter().copied()),
        memory_bytes: node.memory_bytes,
        free_bytes: machine.node(node.id).and_then(|node| node.memory.free()),
        figures: node.figures,
        weight: weights.and_then(|table| table.weights.get(&node.id).copied()),
        promotion_target: node.promotion_target,
        demotion_targets: Targets {
            preferred: node.demotion_targets.preferred,
            fallback: node.demotion_targets.fallback,
        },
        distances: distances(node, topology),
    };
    Report {
        tier_origin: topology.tier_origin(),
        demotion_enabled: machine.demotion_enabled,
        weights_auto: weights.and_then(|table| table.auto),
        possible_nodes: machine
            .sets
            .possible
            .as_ref()
            .map(|nodes| list::format(nodes.iter().map(|node| node.0.into()))),
        nodes: topology.nodes().iter().map(node).collect(),
    }
}

fn distances(from: &Node, topology: &Topology) -> Vec<DistanceReport> {
    let to = topology.nodes().iter().map(|node| node.id);
    to.filter_map(|node| {
        let distance = topology.distance(from.id, node)?;
        Some(DistanceReport { node, distance })
    })
    .collect()
}

fn text(report: &Report, styled: bool) -> String {
    let mut text = format!(
        "{}\n\nDistances\n{}\n\n",
        nodes_table(&report.nodes, styled).trim_fmt(),
        distances_table(&report.nodes, styled).trim_fmt()
    );
    for line in notes(report) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

fn nodes_table(nodes: &[NodeReport], styled: bool) -> Table {
    let mut table = table(
        &[
            ("node", Left),
            ("kind", Left),
            ("tier", Right),
            ("CPUs", Left),
            ("memory", Right),
            ("free", Right),
            ("latency", Right),
            ("bandwidth", Right),
            ("weight", Right),
            ("demotes to", Left),
            ("promotes to", Left),
        ],
        styled,
    );
    for node in nodes {
        let no_tier = if node.memory_bytes == 0 { "-" } else { "?" };
        let no_cpus = if node.cpus.is_empty() { "-" } else { "" };
        table.add_row([
            node.id.to_string(),
            node.kind.words().to_owned(),
            or(node.tier, no_tier),
            format!("{}{no_cpus}", node.cpus),
            gib(node.memory_bytes),
            or(node.free_bytes.map(gib), "?"),
            latency(&node.figures),
            bandwidth(&node.figures),
            or(node.weight, "?"),
            targets(&node.demotion_targets),
            or(node.promotion_target, "-"),
        ]);
    }
    table
}

fn distances_table(nodes: &[NodeReport], styled: bool) -> Table {
    let ids: Vec<String> = nodes.iter().map(|node| format!("to {}", node.id)).collect();
    let mut header = vec![("from", Left)];
    header.extend(ids.iter().map(|id| (id.as_str(), Right)));
    let mut table = table(&header, styled);
    for node in nodes {
        let mut row = vec![node.id.to_string()];
        row.extend(node.distances.iter().map(|to| to.distance.to_string()));
        table.add_row(row);
    }
    table
}

/// What holds for the whole machine, a sentence a line.
fn notes(report: &Report) -> Vec<String> {
    let tiers = match report.tier_origin {
        TierOrigin::Kernel => "as the kernel has them",
        TierOrigin::Figures => "computed from latency and bandwidth; this kernel has none",
        TierOrigin::ByHand => "as --tiers gives them",
        TierOrigin::Assumed => "assumed from where the CPUs are; this kernel has none",
    };
    let demotion = match report.demotion_enabled {
        Some(true) => "on",
        Some(false) => "off",
        None => "not offered by this kernel",
    };
    let has_weights = report.nodes.iter().any(|node| node.weight.is_some());
    let weights = match (has_weights, report.weights_auto) {
        (false, _) => "not offered by this kernel",
        (true, Some(true)) => "computed by the kernel",
        (true, Some(false)) => "set by hand",
        (true, None) => "set by hand, or the default of 1",
    };
    let mut notes = vec![
        format!("Tiers: {tiers}; a smaller number is faster."),
        format!("Demotion by the kernel: {demotion}."),
        format!("Interleave weights: {weights}."),
    ];
    let online = list::format(report.nodes.iter().map(|node| node.id.0.into()));
    if let Some(possible) = report.possible_nodes.as_ref().filter(|p| **p != online) {
        notes.push(format!("Nodes online: {online}, possible: {possible}."));
    }
    if report
        .nodes
        .iter()
        .any(|node| latency(&node.figures) == "?")
    {
        notes.push("Latency and bandwidth: ? where the firmware does not say.".to_owned());
    }
    notes
}

fn or(value: Option<impl ToString>, otherwise: &str) -> String {
    value.map_or_else(|| otherwise.to_owned(), |value| value.to_string())
}

/// Bytes in GiB, with one decimal.
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn latency(figures: &AccessFigures) -> String {
    let pair = pair(figures.read_latency_ns, figures.write_latency_ns, |ns| {
        ns.to_string()
    });
    pair.map_or_else(|| "?".to_owned(), |pair| format!("{pair} ns"))
}

fn bandwidth(figures: &AccessFigures) -> String {
    let gigabytes = |mb: u32| format!("{:.1}", f64::from(mb) / 1000.0);
    let pair = pair(
        figures.read_bandwidth_mbps,
        figures.write_bandwidth_mbps,
        gigabytes,
    );
    pair.map_or_else(|| "?".to_owned(), |pair| format!("{pair} GB/s"))
}

/// `read/write`, one number if they are equal, `None` if both are unknown.
fn pair(read: Option<u32>, write: Option<u32>, show: impl Fn(u32) -> String) -> Option<String> {
    match (read, write) {
        (None, None) => None,
        (Some(read), Some(write)) if read == write => Some(show(read)),
        _ => Some(format!(
            "{}/{}",
            or(read.map(&show), "?"),
            or(write.map(&show), "?")
        )),
    }
}

/// The nearest nodes, and in parentheses those that stand in for them.
fn targets(targets: &Targets) -> String {
    let rest: NodeMask = targets
        .fallback
        .iter()
        .filter(|node| !targets.preferred.contains(*node))
        .collect();
    match (targets.preferred.is_empty(), rest.is_empty()) {
        (true, _) => "-".to_owned(),
        (false, true) => targets.preferred.to_string(),
        (false, false) => format!("{} ({rest})", targets.preferred),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_as_read_and_write() {
        let mut figures = AccessFigures::default();
        assert_eq!(latency(&figures), "?");
        figures.read_latency_ns = Some(100);
        assert_eq!(latency(&figures), "100/? ns");
        figures.write_latency_ns = Some(120);
        assert_eq!(latency(&figures), "100/120 ns");
        figures.read_bandwidth_mbps = Some(22_500);
        figures.write_bandwidth_mbps = Some(22_500);
        // 22,500 MB/s are 22.5 GB/s.
        assert_eq!(bandwidth(&figures), "22.5 GB/s");
    }

    #[test]
    fn stand_in_targets_are_in_parentheses() {
        let mask = |ids: &[u16]| ids.iter().copied().map(NodeId).collect::<NodeMask>();
        let show = |preferred: &[u16], fallback: &[u16]| {
            targets(&Targets {
                preferred: mask(preferred),
                fallback: mask(fallback),
            })
        };
        assert_eq!(show(&[], &[]), "-");
        assert_eq!(show(&[2], &[2]), "2");
        assert_eq!(show(&[2], &[2, 3, 4]), "2 (3-4)");
    }
}
