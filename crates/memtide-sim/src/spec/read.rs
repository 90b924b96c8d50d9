//! A machine from its TOML file: see `scenarios/machines/` for examples with comments.
//!
//! Every quantity carries its unit. What a file leaves out has the default that is written here; a
//! file says in comments where each of its figures comes from.

use super::{
    Costs, CpuSpec, LinkSpec, LoadedLatency, MachineSpec, MemorySpec, NodeSpec, StorageSpec,
};
use crate::page::{MAX_CPUS, MAX_NODES};
use crate::text::{Source, TextError};
use crate::units::{Bytes, Nanos, Rate};
use memtide_core::keys::KeysOnce;
use memtide_core::mempolicy::curve::Curve;
use memtide_core::mempolicy::measured::{Measurement, Mix};
use memtide_core::numbers;
use memtide_core::topology::{AccessFigures, NodeInput, Topology, TopologyInput};
use memtide_core::units::NodeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
    name: Spanned<String>,
    about: String,
    min_free: Option<Bytes>,
    watermark_scale_factor: Option<u64>,
    cpu: CpuText,
    #[serde(default)]
    costs: CostsText,
    storage: Option<Spanned<StorageText>>,
    #[serde(default)]
    node: Vec<Spanned<NodeText>>,
    #[serde(default)]
    link: Vec<Spanned<LinkText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuText {
    l1_tlb_4k: Spanned<u32>,
    l1_tlb_2m: Spanned<u32>,
    l2_tlb: Spanned<u32>,
    l2_tlb_ways: Spanned<u32>,
    l2_tlb_hit: Spanned<Nanos>,
    walk: Spanned<Nanos>,
    walk_huge: Spanned<Nanos>,
    llc_cpus: Spanned<u32>,
    llc: Spanned<Bytes>,
    llc_hit: Spanned<Nanos>,
    cache_to_cache: Spanned<Nanos>,
    mlp_random: Spanned<f64>,
    mlp_sequential: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageText {
    latency: Nanos,
    bandwidth: Rate,
    readahead: Option<Bytes>,
}

/// What a file that is read in order is read ahead by, unless the machine's file says otherwise: the
/// kernel's default of a block device.
const READAHEAD_BYTES: u64 = 128 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    id: Spanned<u16>,
    memory: Spanned<Bytes>,
    #[serde(default = "no_cpus")]
    cpus: Spanned<u32>,
    distances: Spanned<Vec<u32>>,
    #[serde(default)]
    seen_from: Placed<BTreeMap<String, Nanos>>,
    read: Spanned<Nanos>,
    write: Spanned<Nanos>,
    read_bandwidth: Spanned<Rate>,
    write_bandwidth: Spanned<Rate>,
    #[serde(default)]
    duplex: bool,
    loaded: Option<Spanned<LoadedText>>,
    measured: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    sides: [Vec<u16>; 2],
    bandwidth: Option<Rate>,
    to_first: Option<Rate>,
    to_second: Option<Rate>,
    loaded: Option<Spanned<LoadedText>>,
}

fn no_cpus() -> Spanned<u32> {
    Spanned::new(0..0, 0)
}

/// A value that may be absent, with its place if it is there.
#[derive(Debug)]
struct Placed<T>(Option<Spanned<T>>);

impl<T> Default for Placed<T> {
    fn default() -> Self {
        Placed(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(|value| Placed(Some(value)))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadedText {
    flat_until: f64,
    linear_until: f64,
    linear_factor: f64,
    peak_factor: f64,
}

macro_rules! costs {
    ($($key:ident => $field:ident,)*) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct CostsText { $($key: Option<Nanos>,)* }

        impl CostsText {
            fn costs(&self) -> Costs {
                let mut costs = Costs::default();
                $(if let Some(Nanos(ns)) = self.$key { costs.$field = ns; })*
                costs
            }
        }
    };
}

costs! {
    fault => fault_ns,
    clear_page => clear_page_ns,
    hint_fault => hint_fault_ns,
    fault_record => fault_record_ns,
    scan_pte => scan_pte_ns,
    age_pte => age_pte_ns,
    migrate_page => migrate_page_ns,
    migrate_batch => migrate_batch_ns,
    ipi_send => ipi_send_ns,
    ipi_each => ipi_each_ns,
    ipi_receive => ipi_receive_ns,
    sample_interrupt => sample_interrupt_ns,
    sample_work => sample_work_ns,
    sampler_switch => sampler_switch_ns,
    sleep => sleep_ns,
    record => record_ns,
    reclaim_page => reclaim_page_ns,
}

/// How files beside the machine's are read: by their path relative to it.
pub type ReadFile<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

impl MachineSpec {
    /// Reads a machine. `other` reads files that it names (measured curves).
    ///
    /// # Errors
    ///
    /// The first thing that cannot be, with its line.
    pub fn read(source: Source<'_>, other: ReadFile<'_>) -> Result<MachineSpec, TextError> {
        let text: MachineText = source.read()?;
        let name = text.name.span();
        if text.node.is_empty() {
            return Err(source.error(name, "a machine needs nodes; add a [[node]]"));
        }
        if let Some(extra) = text.node.get(MAX_NODES) {
            let what = format!("node: more than {MAX_NODES} nodes; leave some out");
            return Err(source.error(extra.span(), &what));
        }
        within_limits(source, &text)?;
        let cpu = cpu(source, &text.cpu)?;
        let mut nodes: Vec<&NodeText> = text.node.iter().map(Spanned::get_ref).collect();
        nodes.sort_by_key(|node| *node.id.get_ref());
        let topology = topology(source, name, &nodes)?;
        let specs = nodes
            .iter()
            .map(|node| read_node(source, node, &nodes, other));
        Ok(MachineSpec {
            name: text.name.into_inner(),
            about: text.about,
            nodes: specs.collect::<Result<_, _>>()?,
            topology,
            cpu,
            costs: text.costs.costs(),
            min_free_bytes: text.min_free.map_or(64 << 20, |bytes| bytes.0),
            watermark_scale_factor: text.watermark_scale_factor.unwrap_or(10),
            storage: text
                .storage
                .map(|text| storage(source, &text))
                .transpose()?,
            links: links(source, &text.link, &nodes)?,
        })
    }
}

fn cpu(source: Source<'_>, cpu: &CpuText) -> Result<CpuSpec, TextError> {
    for (key, value) in [
        ("mlp_random", &cpu.mlp_random),
        ("mlp_sequential", &cpu.mlp_sequential),
    ] {
        if !(1.0..=1000.0).contains(value.get_ref()) {
            let what = format!("{key}: give 1 (misses one after another) to 1000");
            return Err(source.error(value.span(), &what));
        }
    }
    for (key, value) in [
        ("l2_tlb_ways", &cpu.l2_tlb_ways),
        ("llc_cpus", &cpu.llc_cpus),
    ] {
        if *value.get_ref() == 0 {
            return Err(source.error(value.span(), &format!("{key}: give at least 1")));
        }
    }
    Ok(CpuSpec {
        l1_tlb_4k: *cpu.l1_tlb_4k.get_ref(),
        l1_tlb_2m: *cpu.l1_tlb_2m.get_ref(),
        l2_tlb: *cpu.l2_tlb.get_ref(),
        l2_tlb_ways: *cpu.l2_tlb_ways.get_ref(),
        l2_tlb_ns: cpu.l2_tlb_hit.get_ref().0,
        walk_ns: cpu.walk.get_ref().0,
        walk_huge_ns: cpu.walk_huge.get_ref().0,
        llc_cpus: *cpu.llc_cpus.get_ref(),
        llc_bytes: cpu.llc.get_ref().0,
        llc_ns: cpu.llc_hit.get_ref().0,
        cache_to_cache_ns: cpu.cache_to_cache.get_ref().0,
        mlp_dependent: 1.0,
        mlp_random: *cpu.mlp_random.get_ref(),
        mlp_sequential: *cpu.mlp_sequential.get_ref(),
    })
}

/// Most entries of a level of the TLB.
pub const MAX_TLB: u32 = 1 << 20;
/// The largest cache; and all caches of a machine together, as its tags are held in memory.
pub const MAX_CACHE_BYTES: u64 = 64 << 30;
/// The largest node.
pub const MAX_NODE_BYTES: u64 = 1 << 50;
/// The longest that anything of the hardware takes.
const MAX_NS: f64 = 1e9;

/// That a machine's sizes are such as can be simulated.
fn within_limits(source: Source<'_>, text: &MachineText) -> Result<(), TextError> {
    let cpu = &text.cpu;
    for (key, entries) in [
        ("l1_tlb_4k", &cpu.l1_tlb_4k),
        ("l1_tlb_2m", &cpu.l1_tlb_2m),
        ("l2_tlb", &cpu.l2_tlb),
    ] {
        if *entries.get_ref() > MAX_TLB {
            let what = format!(
                "{key}: {} entries; give {MAX_TLB} at most",
                entries.get_ref()
            );
            return Err(source.error(entries.span(), &what));
        }
    }
    for (key, time) in [
        ("l2_tlb_hit", &cpu.l2_tlb_hit),
        ("walk", &cpu.walk),
        ("walk_huge", &cpu.walk_huge),
        ("llc_hit", &cpu.llc_hit),
        ("cache_to_cache", &cpu.cache_to_cache),
    ] {
        if time.get_ref().0 > MAX_NS {
            return Err(source.error(time.span(), &format!("{key}: give 1 s at most")));
        }
    }
    let mut cpus = 0u64;
    let mut caches = 0u64;
    for node in text.node.iter().map(Spanned::get_ref) {
        let own = u64::from(*node.cpus.get_ref());
        cpus += own;
        caches += own.div_ceil(u64::from((*cpu.llc_cpus.get_ref()).max(1)));
        if cpus > MAX_CPUS as u64 {
            let what = format!("cpus: more than {MAX_CPUS} CPUs in all; give fewer");
            return Err(source.error(node.cpus.span(), &what));
        }
        if node.memory.get_ref().0 > MAX_NODE_BYTES {
            return Err(source.error(node.memory.span(), "memory: give 1024 TiB at most"));
        }
        for (key, time) in [("read", &node.read), ("write", &node.write)] {
            if time.get_ref().0 > MAX_NS {
                return Err(source.error(time.span(), &format!("{key}: give 1 s at most")));
            }
        }
    }
    let bytes = cpu.llc.get_ref().0.saturating_mul(caches.max(1));
    if bytes > MAX_CACHE_BYTES {
        let what = format!("llc: {caches} caches of this size are more than 64 GiB; give less");
        return Err(source.error(cpu.llc.span(), &what));
    }
    Ok(())
}

fn storage(source: Source<'_>, text: &Spanned<StorageText>) -> Result<StorageSpec, TextError> {
    let own = text.get_ref();
    if own.bandwidth.0 <= 0.0 {
        return Err(source.error(text.span(), "storage: bandwidth: give more than 0"));
    }
    Ok(StorageSpec {
        latency_ns: own.latency.0,
        bytes_per_s: own.bandwidth.0,
        readahead_bytes: own
            .readahead
            .as_ref()
            .map_or(READAHEAD_BYTES, |bytes| bytes.0),
    })
}

/// Links between nodes of the machine; a pair of nodes has one at most.
fn links(
    source: Source<'_>,
    texts: &[Spanned<LinkText>],
    nodes: &[&NodeText],
) -> Result<Vec<LinkSpec>, TextError> {
    let mut carried = [[false; MAX_NODES]; MAX_NODES];
    let mut links = Vec::new();
    for text in texts {
        let error = |what: &str| Err(source.error(text.span(), &format!("link: {what}")));
        let LinkText {
            sides,
            bandwidth,
            to_first,
            to_second,
            loaded,
        } = text.get_ref();
        for id in sides.iter().flatten() {
            if !nodes.iter().any(|node| node.id.get_ref() == id) {
                return error(&format!(
                    "sides: there is no node {id}; name nodes of the machine"
                ));
            }
        }
        if sides.iter().any(Vec::is_empty) {
            return error("sides: give each side a node, as in `[[0], [1]]`");
        }
        for &first in &sides[0] {
            for &second in &sides[1] {
                let (a, b) = (usize::from(first), usize::from(second));
                if a == b {
                    return error(&format!("sides: node {first} is on both; leave it on one"));
                }
                if carried[a][b] {
                    let pair = format!("sides: a link carries nodes {first} and {second} already");
                    return error(&format!("{pair}; give each pair one link"));
                }
                (carried[a][b], carried[b][a]) = (true, true);
            }
        }
        let (rates, duplex) = match (bandwidth, to_first, to_second) {
            (Some(both), None, None) => ([both.0, both.0], false),
            (None, Some(first), Some(second)) => ([first.0, second.0], true),
            _ => {
                return error("give `bandwidth` for one pipe, or `to_first` and `to_second`");
            }
        };
        if rates.iter().any(|&rate| rate <= 0.0) {
            return error("give a bandwidth above 0");
        }
        links.push(LinkSpec {
            sides: sides.clone(),
            bytes_per_s: rates,
            duplex,
            loaded: regions(source, loaded.as_ref())?,
        });
    }
    Ok(links)
}

/// Nodes, distances and tiers as the decisions see them; CPUs are numbered node by node.
fn topology(
    source: Source<'_>,
    name: std::ops::Range<usize>,
    nodes: &[&NodeText],
) -> Result<Topology, TextError> {
    let mut next_cpu = 0;
    let mut inputs = Vec::new();
    for node in nodes {
        let id = *node.id.get_ref();
        if usize::from(id) >= MAX_NODES {
            let what = format!("id: node {id} is not below {MAX_NODES}; number nodes from 0");
            return Err(source.error(node.id.span(), &what));
        }
        if nodes
            .iter()
            .filter(|other| *other.id.get_ref() == id)
            .count()
            > 1
        {
            let what = format!("id: node {id} is given twice; give it once");
            return Err(source.error(node.id.span(), &what));
        }
        if node.distances.get_ref().len() != nodes.len() {
            let what = format!(
                "distances: {} numbers for {} nodes; give one for each node by ascending id",
                node.distances.get_ref().len(),
                nodes.len()
            );
            return Err(source.error(node.distances.span(), &what));
        }
        let figure = |value: f64| Some(value.round() as u32);
        inputs.push(NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: node.memory.get_ref().0,
            cpus: (next_cpu..next_cpu + node.cpus.get_ref()).collect(),
            distances: Some(node.distances.get_ref().clone()),
            figures: AccessFigures {
                read_latency_ns: figure(node.read.get_ref().0),
                write_latency_ns: figure(node.write.get_ref().0),
                read_bandwidth_mbps: figure(node.read_bandwidth.get_ref().0 / 1e6),
                write_bandwidth_mbps: figure(node.write_bandwidth.get_ref().0 / 1e6),
            },
            tier: None,
        });
        next_cpu += node.cpus.get_ref();
    }
    if next_cpu == 0 {
        return Err(source.error(name, "node: no node has CPUs; give one `cpus = 8`"));
    }
    Topology::try_from(TopologyInput::new(inputs))
        .map_err(|error| source.error(name, &error.to_string()))
}

fn read_node(
    source: Source<'_>,
    node: &NodeText,
    nodes: &[&NodeText],
    other: ReadFile<'_>,
) -> Result<NodeSpec, TextError> {
    let id = *node.id.get_ref();
    for (key, good, span) in [
        ("read", node.read.get_ref().0 > 0.0, node.read.span()),
        ("write", node.write.get_ref().0 > 0.0, node.write.span()),
        (
            "read_bandwidth",
            node.read_bandwidth.get_ref().0 > 0.0,
            node.read_bandwidth.span(),
        ),
        (
            "write_bandwidth",
            node.write_bandwidth.get_ref().0 > 0.0,
            node.write_bandwidth.span(),
        ),
    ] {
        if !good {
            return Err(source.error(span, &format!("{key}: give more than 0")));
        }
    }
    Ok(NodeSpec {
        id,
        capacity_bytes: node.memory.get_ref().0,
        cpus: *node.cpus.get_ref(),
        memory: MemorySpec {
            read_ns: node.read.get_ref().0,
            write_ns: node.write.get_ref().0,
            read_bytes_per_s: node.read_bandwidth.get_ref().0,
            write_bytes_per_s: node.write_bandwidth.get_ref().0,
            duplex: node.duplex,
            loaded: loaded(source, node, other)?,
        },
        seen_from: seen_from(source, node, nodes)?,
    })
}

/// Latency factors by position of the node that looks. A node with CPUs that the file does not name
/// sees what its distance says, in proportion to the nearest one's.
fn seen_from(
    source: Source<'_>,
    node: &NodeText,
    nodes: &[&NodeText],
) -> Result<Vec<f64>, TextError> {
    let at = |id: u16| nodes.iter().position(|node| *node.id.get_ref() == id);
    let own = at(*node.id.get_ref()).unwrap_or(0);
    let distance = |from: usize| f64::from(nodes[from].distances.get_ref()[own]);
    let with_cpus = (0..nodes.len()).filter(|&n| *nodes[n].cpus.get_ref() > 0);
    let nearest = with_cpus.map(distance).fold(f64::INFINITY, f64::min);
    let mut factors: Vec<f64> = (0..nodes.len())
        .map(|from| match nodes[from].cpus.get_ref() {
            0 => 1.0,
            _ => distance(from) / nearest,
        })
        .collect();
    if let Some(given) = &node.seen_from.0 {
        let mut seen = vec![false; nodes.len()];
        for (from, Nanos(ns)) in given.get_ref() {
            let Some(from) = numbers::decimal(from).and_then(at) else {
                let what = format!("seen_from: there is no node {from}; name nodes by their ids");
                return Err(source.error(given.span(), &what));
            };
            if *ns <= 0.0 {
                let what = format!(
                    "seen_from: {ns} ns from node {}; give more than 0",
                    nodes[from].id.get_ref()
                );
                return Err(source.error(given.span(), &what));
            }
            // `0` and `00` are two keys to TOML.
            if std::mem::replace(&mut seen[from], true) {
                let what = format!(
                    "seen_from: two values for node {}; give one",
                    nodes[from].id.get_ref()
                );
                return Err(source.error(given.span(), &what));
            }
            factors[from] = ns / node.read.get_ref().0;
        }
    }
    Ok(factors)
}

fn loaded(
    source: Source<'_>,
    node: &NodeText,
    other: ReadFile<'_>,
) -> Result<LoadedLatency, TextError> {
    if let Some(file) = &node.measured {
        let error = |what: String| source.error(file.span(), &format!("measured: {what}"));
        let text = other(file.get_ref()).map_err(error)?;
        return measured(&text, *node.id.get_ref())
            .map(LoadedLatency::Measured)
            .map_err(|what| error(format!("{}: {what}", file.get_ref())));
    }
    regions(source, node.loaded.as_ref())
}

/// The three regions that a file gives, or the usual ones.
fn regions(
    source: Source<'_>,
    text: Option<&Spanned<LoadedText>>,
) -> Result<LoadedLatency, TextError> {
    let Some(text) = text else {
        return Ok(LoadedLatency::Regions {
            flat_until: 0.4,
            linear_until: 0.8,
            linear_factor: 1.5,
            peak_factor: 2.5,
        });
    };
    let LoadedText {
        flat_until,
        linear_until,
        linear_factor,
        peak_factor,
    } = *text.get_ref();
    let good = (0.0..linear_until).contains(&flat_until)
        && linear_until < 0.995
        && (1.0..=peak_factor).contains(&linear_factor);
    if !good {
        return Err(source.error(
            text.span(),
            "loaded: needs 0 <= flat_until < linear_until < 0.995 and \
             1 <= linear_factor <= peak_factor",
        ));
    }
    Ok(LoadedLatency::Regions {
        flat_until,
        linear_until,
        linear_factor,
        peak_factor,
    })
}

/// A node's read curve out of what `memtide weights --measure --json` printed.
fn measured(text: &str, node: u16) -> Result<Curve, String> {
    let value: serde_json::Value = serde_json::from_str::<KeysOnce>(text)
        .and_then(|KeysOnce| serde_json::from_str(text))
        .map_err(|error| format!("no JSON that can be used: {error}"))?;
    let value = value.get("measurement").cloned().unwrap_or(value);
    let measurement: Measurement = serde_json::from_value(value)
        .map_err(|error| format!("not what `memtide weights --measure --json` prints: {error}"))?;
    measurement.once().map_err(|error| error.to_string())?;
    let found = measurement.nodes.iter().find(|n| n.node == NodeId(node));
    let found = found.ok_or_else(|| format!("node {node} was not measured"))?;
    found
        .curve(Mix::Read)
        .filter(|curve| curve.idle_ns().is_some())
        .ok_or_else(|| format!("node {node} has no latencies under load for reads"))
}
