//! Charts that hold all configurations of a scenario against each other.

use super::charts::{self, Bar, Line, Scale, Stack};
use super::{card, entries, legend};
use crate::cmd::sim::causes::CAUSES;
use crate::cmd::sim::comparison::{Case, MeasureKind, Outcome};
use memtide_sim::result::Series;

/// The title of the chart of [`values`].
pub fn values_title(case: &Case) -> &'static str {
    match case.measure.kind {
        MeasureKind::Time => "Time, relative to the first configuration",
        MeasureKind::Score | MeasureKind::Pages => "Score, relative to the first configuration",
    }
}

/// How to read it.
pub fn values_guide(case: &Case) -> String {
    let better = match case.measure.kind {
        MeasureKind::Time => "Shorter is better.",
        MeasureKind::Score | MeasureKind::Pages => "Longer is better.",
    };
    let published = case
        .configurations
        .iter()
        .any(|outcome| outcome.published.is_some());
    let published = if published {
        " The thin grey bar below is the ratio that was published: the closer the two ends, the better \
         the simulation agrees with the measurement."
    } else {
        ""
    };
    format!("{better}{published}")
}

/// Ratios as bars, beside the published ones.
pub fn values(case: &Case) -> anyhow::Result<String> {
    let bars: Vec<Bar> = case
        .configurations
        .iter()
        .enumerate()
        .map(|(series, outcome)| Bar {
            name: outcome.run.configuration.clone(),
            series,
            value: outcome.ratio.unwrap_or(0.0),
            published: outcome.published.as_ref().and_then(|figure| figure.ratio),
        })
        .collect();
    let first = case
        .configurations
        .first()
        .map_or("the first", |first| first.run.configuration.as_str());
    charts::bars(&bars, &format!("ratio to {first}"))
}

/// Pages that moved, work done, share of the fast tier.
pub fn over_time(case: &Case, page: &mut String) -> anyhow::Result<()> {
    let outcomes = &case.configurations;
    let legend = legend(entries(outcomes));
    let moved = lines(outcomes, |series| {
        series
            .pages_migrated
            .iter()
            .map(|&pages| pages as f64)
            .collect()
    });
    let chart = charts::lines(&moved, "pages moved so far", Scale::Amount)?;
    card(
        page,
        "Pages moved",
        "Pages promoted, or moved between nodes by NUMA balancing, up to each moment. A line that \
         bends and stays flat has found its hot pages; one that keeps climbing is still looking, or \
         moves pages to and fro.",
        &(legend.clone() + &chart),
    );
    let done = lines(outcomes, |series| series.done.clone());
    let chart = charts::lines(&done, "work done", Scale::Share)?;
    card(
        page,
        "Work done",
        "The share of its accesses that the slowest group of threads has made. The steeper, the \
         faster; a bend upwards is where moved pages begin to pay.",
        &(legend.clone() + &chart),
    );
    let fast = lines(outcomes, |series| series.fast_share.clone());
    let chart = charts::lines(&fast, "served by the fast tier", Scale::Share)?;
    card(
        page,
        "Accesses served by the fast tier",
        "Of the accesses that went to memory, the share that found their page on a fast node. The \
         oracle's line has the hottest pages on the nearest nodes.",
        &(legend + &chart),
    );
    Ok(())
}

fn lines(outcomes: &[Outcome], values: impl Fn(&Series) -> Vec<f64>) -> Vec<Line> {
    outcomes
        .iter()
        .enumerate()
        .map(|(series, outcome)| {
            let over_time = &outcome.run.series;
            Line {
                series,
                dashed: outcome.bound,
                points: over_time
                    .seconds
                    .iter()
                    .copied()
                    .zip(values(over_time))
                    .collect(),
            }
        })
        .collect()
}

/// CPU time by cause.
pub fn overhead(case: &Case, page: &mut String) -> anyhow::Result<()> {
    let outcomes = &case.configurations;
    let shown: Vec<_> = CAUSES
        .iter()
        .filter(|cause| {
            outcomes
                .iter()
                .any(|outcome| cause.ns(&outcome.run.overhead) > 0)
        })
        .collect();
    let stacks: Vec<Stack> = outcomes
        .iter()
        .map(|outcome| Stack {
            name: outcome.run.configuration.clone(),
            parts: shown
                .iter()
                .enumerate()
                .map(|(series, cause)| (series, cause.ns(&outcome.run.overhead) as f64 / 1e9))
                .collect(),
        })
        .collect();
    let names = shown
        .iter()
        .enumerate()
        .map(|(series, cause)| (series, false, cause.name));
    let chart = charts::stacks(&stacks, "seconds of CPU time, over all CPUs")?;
    card(
        page,
        "Overhead by cause",
        "CPU time that went into finding, moving and making room for pages instead of into the \
         workload. Kernel threads (kmigrated, kswapd, page-table scan) run beside the application; the \
         rest interrupts it. What each cause is stands at the end.",
        &(legend(names) + &chart),
    );
    Ok(())
}
