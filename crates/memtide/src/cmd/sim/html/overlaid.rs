//! Charts that hold all configurations of a scenario against each other.

use super::bars::{self, Bar, Stack};
use super::charts::{self, Line, Scale};
use super::{card, legend};
use crate::cmd::sim::causes::CAUSES;
use crate::cmd::sim::comparison::{Case, MeasureKind, Outcome};
use memtide_sim::result::Series;

/// Ratios as bars, beside the published ones.
pub fn values(case: &Case, page: &mut String) {
    let (title, better) = match case.measure.kind {
        MeasureKind::Time => (
            "Time, relative to the first configuration",
            "Shorter is better.",
        ),
        MeasureKind::Score | MeasureKind::Pages => (
            "Score, relative to the first configuration",
            "Longer is better.",
        ),
    };
    let outcomes = &case.configurations;
    if outcomes.iter().all(|outcome| outcome.ratio.is_none()) {
        return;
    }
    let published = outcomes.iter().any(|outcome| outcome.published.is_some());
    let published = if published {
        " The thin grey bar below is the ratio that was published: the closer the two ends, the better \
         the simulation agrees with the measurement."
    } else {
        ""
    };
    let several = outcomes
        .iter()
        .any(|outcome| outcome.confidence.ratio.is_some());
    let several = if several {
        " The thin line over a bar's end is the interval of 95 % over the seeds."
    } else {
        ""
    };
    let bars: Vec<Bar> = outcomes
        .iter()
        .enumerate()
        .map(|(series, outcome)| Bar {
            name: outcome.run.configuration.clone(),
            series,
            value: outcome.shown_ratio(),
            interval: outcome
                .confidence
                .ratio
                .map(|spread| (spread.low, spread.high)),
            published: outcome.published.as_ref().and_then(|figure| figure.ratio),
        })
        .collect();
    let first = outcomes.first();
    let first = first.map_or("the first", |first| first.run.configuration.as_str());
    let guide = format!(
        "Each value over that of {first}, whose 1 is the upright line; bars begin at 0. {better}{published}{several}"
    );
    card(page, title, &guide, &bars::bars(title, &bars));
}

/// Pages that moved, work done, share of the fast tier.
pub fn over_time(case: &Case, page: &mut String) {
    type Of = fn(&Series) -> Vec<f64>;
    let all: [(&str, &str, &str, Scale, Of); 3] = [
        (
            "Pages moved",
            "Pages promoted, or moved between nodes by NUMA balancing, up to each moment. A line that \
             bends and stays flat has found its hot pages; one that keeps climbing is still looking, or \
             moves pages to and fro.",
            "pages moved so far",
            Scale::Amount("pages"),
            |series| {
                series
                    .pages_migrated
                    .iter()
                    .map(|&pages| pages as f64)
                    .collect()
            },
        ),
        (
            "Work done",
            "The share of its accesses that the slowest group of threads has made. The steeper, the \
             faster; a bend upwards is where moved pages begin to pay.",
            "work done",
            Scale::Share,
            |series| series.done.clone(),
        ),
        (
            "Accesses served by the fast tier",
            "Of the accesses that went to memory, the share that found their page on a fast node. The \
             oracle's line has the hottest pages on the nearest nodes.",
            "served by the fast tier",
            Scale::Share,
            |series| series.fast_share.clone(),
        ),
    ];
    for (title, guide, y_name, scale, of) in all {
        let lines = lines(&case.configurations, of);
        // A run on the machine of rates has none of some.
        if lines.iter().any(|line| !line.points.is_empty()) {
            card(
                page,
                title,
                guide,
                &charts::lines(title, &lines, y_name, scale),
            );
        }
    }
}

fn lines(outcomes: &[Outcome], values: impl Fn(&Series) -> Vec<f64>) -> Vec<Line> {
    outcomes
        .iter()
        .enumerate()
        .map(|(series, outcome)| {
            let over_time = &outcome.run.series;
            Line {
                name: outcome.run.configuration.clone(),
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
pub fn overhead(case: &Case, page: &mut String) {
    let outcomes = &case.configurations;
    let shown: Vec<_> = CAUSES
        .iter()
        .filter(|cause| {
            outcomes
                .iter()
                .any(|outcome| cause.ns(&outcome.run.overhead) > 0)
        })
        .collect();
    if shown.is_empty() {
        return;
    }
    let stacks: Vec<Stack> = outcomes
        .iter()
        .map(|outcome| Stack {
            name: outcome.run.configuration.clone(),
            parts: shown
                .iter()
                .enumerate()
                .map(|(series, cause)| {
                    let seconds = cause.ns(&outcome.run.overhead) as f64 / 1e9;
                    (cause.name, series, seconds)
                })
                .collect(),
        })
        .collect();
    let names = shown
        .iter()
        .enumerate()
        .map(|(series, cause)| (series, false, cause.name));
    let title = "Overhead by cause";
    card(
        page,
        title,
        "CPU time, summed over all CPUs, that went into finding, moving and making room for pages instead \
         of into the workload. Kernel threads (kmigrated, kswapd, page-table scan) run beside the \
         application; the rest interrupts it. What each cause is stands at the end.",
        &(legend(names) + &bars::stacks(title, &stacks, "s")),
    );
}
