//! The machine of an experiment: what its nodes hold, how late they answer, what they carry.

use super::{card, escape, tables};
use crate::cmd::sim::comparison::Comparison;
use crate::cmd::sim::words::bytes;
use memtide_sim::spec::{LoadedLatency, MachineSpec, NodeSpec};
use std::fmt::Write as _;

const GUIDE: &str = "Latencies are those of an idle machine, seen from the node's nearest CPUs; bandwidths are \
     the most that a node sustains. Under load a node answers later.";

/// The card.
pub fn html(comparison: &Comparison, page: &mut String) {
    let Some(machine) = &comparison.machine else {
        return;
    };
    let mut head = [
        "node",
        "tier",
        "CPUs",
        "memory",
        "read latency",
        "write latency",
        "reads",
        "writes",
    ]
    .map(str::to_owned)
    .to_vec();
    // Seen from a node of the machine that has CPUs, where that is another.
    let viewers: Vec<(usize, &NodeSpec)> = (machine.nodes.iter().enumerate())
        .filter(|(_, node)| node.cpus > 0)
        .collect();
    let apart = viewers.len() > 1;
    if apart {
        let seen = viewers
            .iter()
            .map(|(_, node)| format!("read from node {}", node.id));
        head.extend(seen);
    }
    let rows = machine.nodes.iter().map(|node| {
        let line = comparison.nodes.iter().find(|line| line.id == node.id);
        let fast = line.is_some_and(|line| line.top_tier);
        let memory = &node.memory;
        let mut cells = vec![
            format!("node {}", node.id),
            if fast { "fast" } else { "slow" }.to_owned(),
            node.cpus.to_string(),
            bytes(node.capacity_bytes),
            ns(memory.read_ns),
            ns(memory.write_ns),
            rate(memory.read_bytes_per_s),
            rate(memory.write_bytes_per_s),
        ];
        if apart {
            let seen = viewers.iter().map(|(at, _)| {
                let factor = node.seen_from.get(*at).copied();
                factor.map_or("-".to_owned(), |factor| ns(memory.read_ns * factor))
            });
            cells.extend(seen);
        }
        tables::Row::plain(cells)
    });
    let mut content = String::new();
    if !machine.about.is_empty() {
        let _ = writeln!(content, "<p class=\"soft\">{}</p>", escape(&machine.about));
    }
    content.push_str(&tables::table("The machine's nodes", 2, &head, rows));
    content.push_str(&links(machine));
    let _ = writeln!(content, "<p class=\"soft\">{}</p>", escape(&laws(machine)));
    card(
        page,
        &format!("The machine: {}", machine.name),
        GUIDE,
        &content,
    );
}

/// How late nodes answer under load: a sentence for all that have the same law.
fn laws(machine: &MachineSpec) -> String {
    let mut laws: Vec<(String, Vec<String>)> = Vec::new();
    for node in &machine.nodes {
        let shared = match node.memory.duplex {
            true => "; reads and writes have a channel each",
            false => "; reads and writes share the bandwidth",
        };
        let law = format!("{}{shared}", loaded(&node.memory.loaded));
        let id = node.id.to_string();
        match laws.iter_mut().find(|known| known.0 == law) {
            Some((_, nodes)) => nodes.push(id),
            None => laws.push((law, vec![id])),
        }
    }
    let said = laws.iter().map(|(law, nodes)| {
        let of = if nodes.len() == 1 { "node" } else { "nodes" };
        format!("Latency of {of} {} under load: {law}.", nodes.join(", "))
    });
    said.collect::<Vec<_>>().join(" ")
}

fn links(machine: &MachineSpec) -> String {
    if machine.links.is_empty() {
        return String::new();
    }
    let head = [
        "link between",
        "and",
        "towards the first",
        "towards the second",
        "under load",
    ];
    let side = |ids: &[u16]| {
        let ids: Vec<String> = ids.iter().map(|id| format!("node {id}")).collect();
        ids.join(", ")
    };
    let rows = machine.links.iter().map(|link| {
        let [first, second] = link.bytes_per_s.map(rate);
        let (first, second) = match link.duplex {
            true => (first, second),
            false => (format!("{first} for both together"), "-".to_owned()),
        };
        let ([one, other], load) = (&link.sides, loaded(&link.loaded));
        tables::Row::plain(vec![side(one), side(other), first, second, load])
    });
    tables::table("The machine's links", 2, &head, rows)
}

fn ns(ns: f64) -> String {
    format!("{ns:.0} ns")
}

fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}

fn loaded(loaded: &LoadedLatency) -> String {
    match loaded {
        LoadedLatency::Measured(_) => "a measured curve".to_owned(),
        LoadedLatency::Regions {
            flat_until,
            linear_until,
            linear_factor,
            peak_factor,
        } => format!(
            "constant up to {:.0} % of the bandwidth, {linear_factor:.2} times at {:.0} %, {peak_factor:.2} \
             times at all of it",
            flat_until * 100.0,
            linear_until * 100.0
        ),
    }
}
