//! Charts of one configuration: bandwidth and latency by node, and which pages were hot when.

use super::charts::{self, Line, Scale};
use super::{escape, heat_scale, legend};
use crate::cmd::sim::comparison::{Case, NodeLine, Outcome};
use std::fmt::Write as _;

/// One fold for each configuration; the first is open.
pub fn each(case: &Case, nodes: &[NodeLine], page: &mut String) -> anyhow::Result<()> {
    page.push_str(
        "<div class=\"card\"><h3>Each configuration by itself</h3>\n<figcaption>Traffic is what a \
         node's memory carried; latency is what a read of it took under that load, seen from its \
         nearest CPUs: it rises once traffic nears what the node can carry. The heat map has the \
         workload's pages from the bottom up in the order of their addresses, time from left to right: \
         a strong band is a hot set, one that wanders a hot set that changes.</figcaption>\n",
    );
    let most = case.configurations.len();
    for (n, outcome) in case.configurations.iter().enumerate() {
        let open = if n == 0 || most == 1 { " open" } else { "" };
        let _ = writeln!(
            page,
            "<details{open}><summary>{}</summary>\n<p class=\"soft\">{}</p>",
            escape(&outcome.run.configuration),
            escape(&outcome.about)
        );
        one(outcome, nodes, page)?;
        page.push_str("</details>\n");
    }
    page.push_str("</div>\n");
    Ok(())
}

fn one(outcome: &Outcome, nodes: &[NodeLine], page: &mut String) -> anyhow::Result<()> {
    let series = &outcome.run.series;
    let names: Vec<String> = nodes.iter().map(node_name).collect();
    let legend = legend(
        names
            .iter()
            .enumerate()
            .map(|(node, name)| (node, false, name.as_str())),
    );
    let lines = |values: &[Vec<f64>], factor: f64| -> Vec<Line> {
        values
            .iter()
            .enumerate()
            .map(|(series_of, values)| Line {
                series: series_of,
                dashed: false,
                points: series
                    .seconds
                    .iter()
                    .copied()
                    .zip(values.iter().map(|value| value * factor))
                    .collect(),
            })
            .collect()
    };
    let traffic = charts::lines(&lines(&series.bytes_per_s, 1e-9), "GB/s", Scale::Amount)?;
    let latency = charts::lines(&lines(&series.latency_ns, 1.0), "ns", Scale::Amount)?;
    let heat = charts::heat(&series.seconds, &series.heat)?;
    let _ = write!(
        page,
        "<h4>Traffic by node</h4>\n{legend}{traffic}<h4>Loaded read latency by node</h4>\n\
         {legend}{latency}<h4>Heat of pages</h4>\n{}{heat}",
        heat_scale()
    );
    Ok(())
}

fn node_name(node: &NodeLine) -> String {
    let tier = if node.top_tier { "fast" } else { "slow" };
    format!("node {} ({tier} tier)", node.id)
}
