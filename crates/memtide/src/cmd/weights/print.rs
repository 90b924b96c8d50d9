//! The report as text: a table of nodes, what is expected, what was changed,
//! and the measured curves.

use super::change::Action;
use super::compute::Origin;
use super::report::{AdviceReport, ChangeReport, ComputedReport, ExpectedReport, Report};
use crate::shared::outside::{message, outside};
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_core::mempolicy::measured::{MeasuredNode, Measurement, Mix};
use memtide_core::nodemask::NodeMask;
use memtide_linux::measure::PARTS;
use memtide_linux::weight_table::ResetWay;
use std::fmt::Write as _;

/// The whole of it.
pub fn text(report: &Report, styled: bool) -> String {
    let mut text = String::new();
    if let Some(measurement) = &report.measurement {
        curves(measurement, styled, &mut text);
    }
    nodes(report, styled, &mut text);
    let mut lines = vec![in_force(report)];
    if let Some(lent) = &report.lent {
        lines.push(format!("Not for good: {}.", lent.detail));
    }
    if report.measurement.is_some() {
        lines.push("Usable is what a node carries before its latency has doubled.".to_owned());
    }
    match &report.computed {
        Some(computed) => lines.extend(expectation(computed)),
        None if report.change.is_none() => lines.push(
            "Computed: nothing, the firmware tells no bandwidths; use --bandwidth or --measure."
                .to_owned(),
        ),
        None => {}
    }
    if let Some(change) = &report.change {
        lines.extend(changed(change, report));
    }
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

fn nodes(report: &Report, styled: bool, text: &mut String) {
    let computed = report.computed.is_some();
    let mut header = vec![("node", Left), ("", Left), ("in force", Right)];
    if computed {
        header.push(("computed", Right));
        header.push(("bandwidth", Right));
    }
    if report.measurement.is_some() {
        header.push(("usable", Right));
    }
    let mut table = table(&header, styled);
    for node in &report.nodes {
        let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let weight = |weight: Option<u8>| or(weight.map(|weight| weight.to_string()));
        let mut row = vec![
            node.id.to_string(),
            if node.near { "near" } else { "far" }.to_owned(),
            weight(node.weight),
        ];
        if computed {
            row.push(weight(node.computed_weight));
            row.push(or(node.peak_mbps.map(gigabytes)));
        }
        if report.measurement.is_some() {
            row.push(or(node.usable_mbps.map(gigabytes)));
        }
        table.add_row(row);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
}

fn in_force(report: &Report) -> String {
    match (&report.no_table, report.auto) {
        (Some(why), _) => format!("In force: 1 for every node; {why}."),
        (None, Some(true)) => "In force: as the kernel computes them (auto).".to_owned(),
        (None, Some(false)) => {
            "In force: as they were set; the kernel does not compute them (auto is off).".to_owned()
        }
        (None, None) => "In force: as they were set, or the default of 1.".to_owned(),
    }
}

/// What to expect, and what is best to do.
fn expectation(computed: &ComputedReport) -> Vec<String> {
    let by = match (computed.origin, computed.mix) {
        (Origin::Firmware, _) => {
            "Computed by the kernel's rule from what the firmware tells".to_owned()
        }
        (Origin::Given, _) => "Computed from the bandwidths given".to_owned(),
        (Origin::Measured | Origin::File, mix) => format!(
            "Computed from the curves at {} reads to writes",
            mix.map_or("?", Mix::name)
        ),
    };
    let mut against = Vec::new();
    if let (Some(near), AdviceReport::Interleave | AdviceReport::NearAlone) =
        (&computed.near_alone, computed.advice)
    {
        let gain = percent(computed.gain_over_near_alone);
        against.push(format!(
            "{} from the near nodes alone ({gain})",
            amount(near)
        ));
    }
    if computed.advised_nodes.len() > 1 || computed.advice == AdviceReport::NearAlone {
        let gain = percent(computed.gain_over_one_to_one);
        let one = amount(&computed.one_to_one);
        against.push(format!("{one} at equal weights ({gain})"));
    }
    let expected = amount(&computed.expected);
    let mut lines = vec![match against.is_empty() {
        true => format!("{by}: {expected}."),
        false => format!("{by}: {expected}, against {}.", against.join(" and ")),
    }];
    lines.push(advice(computed));
    lines
}

fn advice(computed: &ComputedReport) -> String {
    let nodes = &computed.advised_nodes;
    let near = computed.near_alone.as_ref();
    match (computed.advice, near) {
        (AdviceReport::Interleave, Some(near)) => format!(
            "Best: interleave over {nodes}, for programs that want more than {}; those that want \
             less are answered sooner by the near nodes alone.",
            gigabytes(near.bandwidth_mbps)
        ),
        (AdviceReport::NearAlone, _) => format!(
            "Best: the near nodes alone ({nodes}); the far ones add {}, and less than {} is noise.",
            percent(computed.gain_over_near_alone),
            percent(Some(computed.noise)).trim_start_matches('+'),
        ),
        _ if nodes.len() < 2 => {
            "Best: there is one node, and nothing to interleave over.".to_owned()
        }
        _ => format!("Best: interleave over {nodes}; no other kind of memory is compared."),
    }
}

fn changed(change: &ChangeReport, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let weights = |nodes: &NodeMask| -> String {
        let nodes = report.nodes.iter().filter(|node| nodes.contains(node.id));
        let pairs = nodes.map(|node| format!("{}={}", node.id, node.weight.unwrap_or(1)));
        pairs.collect::<Vec<_>>().join(",")
    };
    let (wrote, put_back) = match change.dry_run {
        true => ("Would write", "Would put back"),
        false => ("Wrote", "Put back"),
    };
    if change.put_back_first {
        lines.push(format!("{put_back} first what a killed memtide had left."));
    }
    lines.push(match (change.action, change.reset_way) {
        (Action::Reset, Some(ResetWay::Auto)) => {
            format!("{put_back}: the kernel computes the weights (auto).")
        }
        (Action::Reset, Some(ResetWay::OnesWithoutBandwidths)) => format!(
            "{put_back}: 1 for every node; the kernel knows no bandwidths to compute weights from, \
             so auto stays off."
        ),
        (Action::Reset, _) => format!("{put_back}: the default of 1 for every node."),
        (Action::Restore, _) => format!(
            "{put_back} what stood there before memtide: {}.",
            weights(&report.nodes.iter().map(|node| node.id).collect())
        ),
        (Action::Apply | Action::Set, _) if change.written.is_empty() => {
            "Nothing to write: the table reads so already.".to_owned()
        }
        (Action::Apply | Action::Set, _) => format!(
            "{wrote} {}; pages that are there already stay where they are.",
            weights(&change.written)
        ),
    });
    if change.auto_before == Some(true) && change.auto_after == Some(false) {
        let switches = if change.dry_run {
            "would switch"
        } else {
            "switched"
        };
        lines.push(format!(
            "This {switches} auto off: the kernel computes no weights until memtide weights --reset."
        ));
    }
    lines
}

/// One table a node: a row for each load, a pair of columns for each mix.
fn curves(measurement: &Measurement, styled: bool, text: &mut String) {
    for node in &measurement.nodes {
        let _ = writeln!(text, "{}", node_line(node));
        let mut header: Vec<(String, _)> = vec![("load".to_owned(), Left)];
        for mix in &node.mixes {
            header.push((mix.mix.name().to_owned(), Right));
            header.push(("latency".to_owned(), Right));
        }
        let header: Vec<(&str, _)> = header
            .iter()
            .map(|(name, side)| (name.as_str(), *side))
            .collect();
        let mut table = table(&header, styled);
        let row = |name: &str, cells: &dyn Fn(usize) -> (String, String)| {
            let mut row = vec![name.to_owned()];
            for mix in 0..node.mixes.len() {
                let (bandwidth, latency) = cells(mix);
                row.push(bandwidth);
                row.push(latency);
            }
            row
        };
        let idle = nanoseconds(node.idle_latency_ns);
        table.add_row(row("idle", &|_| ("-".to_owned(), idle.clone())));
        let points = node
            .mixes
            .iter()
            .map(|mix| mix.points.len())
            .max()
            .unwrap_or(0);
        for point in 0..points {
            let part = PARTS.get(point).filter(|_| points == PARTS.len() + 1);
            let name = part.map_or_else(String::new, |part| format!("{:.0} %", part * 100.0));
            let name = if point + 1 == points { "most" } else { &name };
            table.add_row(row(name, &|mix| match node.mixes[mix].points.get(point) {
                Some(point) => (
                    gigabytes(point.bandwidth_mbps),
                    nanoseconds(point.latency_ns),
                ),
                None => ("-".to_owned(), "-".to_owned()),
            }));
        }
        table.add_row(row("peak", &|mix| {
            let mix = &node.mixes[mix];
            let spread = format!("±{} %", figure(mix.spread * 50.0, 0));
            (gigabytes(mix.peak_mbps), spread)
        }));
        let _ = writeln!(text, "{}\n", table.trim_fmt());
        for note in &node.notes {
            let _ = writeln!(text, "Node {}: {}.", node.node, message(note));
        }
        if !node.notes.is_empty() {
            text.push('\n');
        }
    }
}

fn node_line(node: &MeasuredNode) -> String {
    let huge = match node.huge_bytes {
        Some(huge) if huge >= node.memory_bytes => ", in huge pages".to_owned(),
        Some(0) => ", none in huge pages".to_owned(),
        Some(huge) => format!(", {} MiB in huge pages", huge >> 20),
        None => String::new(),
    };
    format!(
        "Node {}: {} MiB{huge}, from CPUs {}, {} s",
        node.node,
        node.memory_bytes >> 20,
        outside(&node.cpus),
        figure(node.seconds, 1)
    )
}

fn gigabytes(mbps: u64) -> String {
    let gigabytes = mbps as f64 / 1000.0;
    match mbps {
        0..1000 => format!("{gigabytes:.3} GB/s"),
        _ => format!("{gigabytes:.1} GB/s"),
    }
}

fn nanoseconds(ns: f64) -> String {
    format!("{} ns", figure(ns, 0))
}

/// A figure with so many decimals; files can hold 10^308.
fn figure(value: f64, decimals: usize) -> String {
    match value.abs() < 1e15 {
        true => format!("{value:.decimals$}"),
        false => format!("{value:.1e}"),
    }
}

fn amount(expected: &ExpectedReport) -> String {
    let bandwidth = gigabytes(expected.bandwidth_mbps);
    match expected.latency_ns {
        Some(ns) => format!("{bandwidth} at {}", nanoseconds(ns)),
        None => bandwidth,
    }
}

fn percent(gain: Option<f64>) -> String {
    gain.map_or_else(|| "?".to_owned(), |gain| format!("{:+.1} %", gain * 100.0))
}
