//! Charts of one configuration: bandwidth and latency by node, programs, and which pages were hot when.

use super::charts::{self, Line, Scale};
use super::{escape, heat, theme};
use crate::cmd::sim::comparison::{Case, NodeLine, Outcome};
use std::fmt::Write as _;

/// One fold for each configuration; the first is open.
pub fn each(case: &Case, nodes: &[NodeLine], scale: u32, page: &mut String) {
    let mut folds = String::new();
    for outcome in &case.configurations {
        let name = &outcome.run.configuration;
        let charts = one(outcome, nodes, scale);
        if charts.is_empty() {
            continue;
        }
        let open = if folds.is_empty() { " open" } else { "" };
        let _ = writeln!(
            folds,
            "<details class=\"one\"{open}><summary>{}</summary>\n<p class=\"soft\">{}</p>\n{charts}</details>",
            escape(name),
            escape(&outcome.about)
        );
    }
    if folds.is_empty() {
        page.push_str(
            "<p class=\"soft\">These runs kept no series of nodes and pages, so there are no charts of \
             each by itself.</p>\n",
        );
        return;
    }
    let _ = write!(
        page,
        "<div class=\"card\"><h3>Each configuration by itself</h3>\n<p class=\"guide\">Traffic is what a \
         node's memory carried; latency is what a read of it took under that load, seen from its nearest \
         CPUs: it rises once traffic nears what the node can carry. The heat map has the workload's pages \
         from the bottom up in the order of their addresses, each group as high as it has pages, and time \
         from left to right: a strong band is a hot set, one that wanders a hot set that changes.</p>\n\
         {folds}</div>\n"
    );
}

fn one(outcome: &Outcome, nodes: &[NodeLine], scale: u32) -> String {
    let series = &outcome.run.series;
    let of = &outcome.run.configuration;
    let mut html = String::new();
    let mut chart = |name: &str, lines: Vec<Line>, unit: &str, scale: Scale| {
        if lines.iter().all(|line| line.points.is_empty()) {
            return;
        }
        let title = format!("{name}, {of}");
        let chart = charts::lines(&title, &lines, unit, scale);
        let _ = write!(html, "<h4>{name}</h4>\n{chart}");
    };
    let points = |values: &mut dyn Iterator<Item = f64>| -> Vec<(f64, f64)> {
        series.seconds.iter().copied().zip(values).collect()
    };
    let by_node = |values: &[Vec<f64>], factor: f64| -> Vec<Line> {
        let all = values.iter().zip(nodes).enumerate();
        all.map(|(at, (values, node))| Line {
            name: node_name(node),
            series: at,
            dashed: false,
            points: points(&mut values.iter().map(|value| value * factor)),
        })
        .collect()
    };
    let traffic = by_node(&series.bytes_per_s, 1e-9);
    chart(
        "Traffic by node",
        traffic,
        "traffic in GB/s",
        Scale::Amount("GB/s"),
    );
    let latency = by_node(&series.latency_ns, 1.0);
    chart(
        "Loaded read latency by node",
        latency,
        "latency in ns",
        Scale::Amount("ns"),
    );
    let programs = &outcome.run.programs;
    let shown = programs.iter().take(theme::SERIES).enumerate();
    let by_program = |of: &dyn Fn(usize) -> Vec<f64>| -> Vec<Line> {
        let all = shown.clone();
        all.map(|(at, program)| Line {
            name: program.name.clone(),
            series: at,
            dashed: false,
            points: points(&mut of(at).into_iter()),
        })
        .collect()
    };
    let gib = |at: usize| {
        let pages = programs[at].series.fast_pages.iter();
        pages
            .map(|&pages| pages as f64 * 4096.0 / (1u64 << 30) as f64)
            .collect()
    };
    let made = |at: usize| {
        let rates = programs[at].series.accesses_per_s.iter();
        rates.map(|rate| rate / 1e6).collect()
    };
    chart(
        "Fast memory by program",
        by_program(&gib),
        "fast memory in GiB",
        Scale::Amount("GiB"),
    );
    chart(
        "Accesses by program",
        by_program(&made),
        "million accesses a second",
        Scale::Amount("M/s"),
    );
    if programs.len() > theme::SERIES {
        let more = programs.len() - theme::SERIES;
        let _ = writeln!(
            html,
            "<p class=\"soft\">And {more} more programs, in --json.</p>"
        );
    }
    if let Some(map) = heat::map(&format!("Heat of pages, {of}"), series, scale) {
        let _ = write!(html, "<h4>Heat of pages</h4>\n{map}");
    }
    html
}

fn node_name(node: &NodeLine) -> String {
    let tier = if node.top_tier { "fast" } else { "slow" };
    format!("node {} ({tier} tier)", node.id)
}
