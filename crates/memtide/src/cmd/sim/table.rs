//! A comparison as text: one table of what came out, one of what it cost, one line of words.

use super::causes::CAUSES;
use super::comparison::{COUNTS, Case, Comparison, MeasureKind, NodeLine, Outcome};
use super::words::{amount, cpu_seconds, grouped, percent, ratio};
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::scenario::Mark;
use memtide_sim::scenario::confidence::{Doubt, MOST_SCALE_ERROR};
use std::fmt::Write as _;

/// The whole of it; `rate` is simulated accesses a second of wall-clock time.
pub fn text(comparison: &Comparison, rate: Option<f64>, styled: bool) -> String {
    let mut text = format!("{}: {}\n", comparison.name, comparison.title);
    for case in &comparison.cases {
        text.push('\n');
        if !case.name.is_empty() {
            let _ = writeln!(text, "{}\n", case.name);
        }
        if case.measure.kind == MeasureKind::Pages {
            placed(case, &comparison.nodes, styled, &mut text);
            continue;
        }
        print(columns(case), &case.configurations, styled, &mut text);
        super::programs::text(case, styled, &mut text);
        overhead(case, styled, &mut text);
        super::translations::text(case, styled, &mut text);
    }
    for line in notes(comparison) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(rate) = rate {
        let _ = writeln!(text, "{:.1} million simulated accesses/s", rate / 1e6);
    }
    for case in &comparison.cases {
        if case.measure.kind == MeasureKind::Pages {
            continue;
        }
        let name = match case.name.is_empty() {
            true => String::new(),
            false => format!("{}: ", case.name),
        };
        let _ = writeln!(text, "{name}{}", case.summary);
    }
    text
}

/// A column: its name and its cell in the row of an outcome.
pub type Column<'a> = (&'static str, Box<dyn Fn(&Outcome) -> String + 'a>);

/// What came out of each run; what no run has gets no column.
pub fn columns(case: &Case) -> Vec<Column<'_>> {
    let measure = &case.measure;
    let all = &case.configurations;
    let published = all.iter().any(|outcome| outcome.published.is_some());
    let name = match measure.kind {
        MeasureKind::Time => "time",
        MeasureKind::Score | MeasureKind::Pages => "score",
    };
    let mut columns: Vec<Column<'_>> = vec![
        (
            name,
            Box::new(|outcome| {
                let never = if outcome.never_home() { "> " } else { "" };
                let value = amount(outcome.shown_value(), &measure.unit);
                format!("{never}{value}")
            }),
        ),
        (
            "ratio",
            Box::new(|outcome| or_dash(outcome.shown_ratio().map(ratio))),
        ),
    ];
    if all.iter().any(|outcome| outcome.confidence.ratio.is_some()) {
        columns.push(("95 %", Box::new(interval)));
    }
    if all
        .iter()
        .any(|outcome| outcome.confidence.scale_error.is_some())
    {
        columns.push(("error of scale", Box::new(scale_error)));
    }
    if published {
        columns.push(("published", Box::new(published_ratio)));
    }
    columns.extend(super::home::columns(case));
    columns.push((
        "fast tier",
        Box::new(|outcome| percent(outcome.run.fast_share)),
    ));
    if super::programs::are_several(case) {
        columns.push(("fairness", Box::new(super::programs::fairness)));
    }
    for &(name, count) in COUNTS {
        // What never happened has no column.
        if all.iter().any(|outcome| count(outcome) > 0) {
            columns.push((name, Box::new(move |outcome| grouped(count(outcome)))));
        }
    }
    columns
}

/// The interval of the ratio, or that there is no difference to speak of.
fn interval(outcome: &Outcome) -> String {
    let Some(spread) = outcome.confidence.ratio else {
        return "-".to_owned();
    };
    let interval = format!("{}-{}", ratio(spread.low), ratio(spread.high));
    match outcome.confidence.is_alike() {
        // The first row is itself.
        Some(true) if spread.low < spread.high => format!("{interval}, not different"),
        _ => interval,
    }
}

/// How far the ratio moves on a coarser machine, and there with another seed if that explains it.
fn scale_error(outcome: &Outcome) -> String {
    let confidence = &outcome.confidence;
    let error = |error: Option<f64>| or_dash(error.map(|error| format!("±{}", ratio(error))));
    let of_scale = error(confidence.scale_error);
    match confidence.doubt() {
        Some(Doubt::Seed) => format!("{of_scale}, by chance {}", error(confidence.seed_error)),
        Some(Doubt::Scale) => format!("{of_scale}, not valid"),
        None => of_scale,
    }
}

/// The published ratio, marked if the document itself doubts it.
fn published_ratio(outcome: &Outcome) -> String {
    let Some(published) = &outcome.published else {
        return "-".to_owned();
    };
    let mark = if published.mark.is_some() { "*" } else { "" };
    format!("{}{mark}", or_dash(published.ratio.map(ratio)))
}

/// Where the pages of each mapping lie, beside the published counts.
fn placed(case: &Case, nodes: &[NodeLine], styled: bool, text: &mut String) {
    let names: Vec<String> = nodes
        .iter()
        .map(|node| format!("node {}", node.id))
        .collect();
    let mut header = vec![("configuration", Left), ("mapping", Left)];
    header.extend(names.iter().map(|name| (name.as_str(), Right)));
    header.push(("published", Left));
    let mut table = table(&header, styled);
    for outcome in &case.configurations {
        for placed in &outcome.run.placed {
            let published = outcome.published.as_ref();
            let published = published.and_then(|published| published.pages.get(&placed.region));
            let mut row = vec![outcome.run.configuration.clone(), placed.region.clone()];
            row.extend(placed.pages.iter().map(|&pages| grouped(pages)));
            row.push(or_dash(published.map(|pages| counts(pages))));
            table.add_row(row);
        }
    }
    let _ = writeln!(text, "Pages by node:\n\n{}\n", table.trim_fmt());
}

/// Counts of pages by node, in one cell.
pub fn counts(pages: &[u64]) -> String {
    let pages: Vec<String> = pages.iter().map(|&pages| grouped(pages)).collect();
    pages.join(" / ")
}

fn overhead(case: &Case, styled: bool, text: &mut String) {
    let all = &case.configurations;
    let columns: Vec<Column<'_>> = CAUSES
        .iter()
        .filter(|cause| {
            all.iter()
                .any(|outcome| cause.ns(&outcome.run.overhead) > 0)
        })
        .map(|cause| {
            let cell = |outcome: &Outcome| cpu_seconds(cause.ns(&outcome.run.overhead));
            (
                cause.name,
                Box::new(cell) as Box<dyn Fn(&Outcome) -> String>,
            )
        })
        .collect();
    if columns.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "What it cost, in seconds of CPU time over all CPUs:\n"
    );
    print(columns, all, styled, text);
}

fn print(columns: Vec<Column<'_>>, outcomes: &[Outcome], styled: bool, text: &mut String) {
    let mut header = vec![("configuration", Left)];
    header.extend(columns.iter().map(|(name, _)| (*name, Right)));
    let mut table = table(&header, styled);
    for outcome in outcomes {
        let mut row = vec![outcome.run.configuration.clone()];
        row.extend(columns.iter().map(|(_, cell)| cell(outcome)));
        table.add_row(row);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
}

/// What the reader of the tables has to know.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    for (mark, word) in [(Mark::Doubtful, "doubtful"), (Mark::Withdrawn, "withdrawn")] {
        let marked = |outcome: &&Outcome| {
            let published = outcome.published.as_ref();
            published.is_some_and(|published| published.mark == Some(mark))
        };
        let mut names: Vec<&str> = comparison
            .cases
            .iter()
            .flat_map(|case| &case.configurations)
            .filter(marked)
            .map(|outcome| outcome.run.configuration.as_str())
            .collect();
        names.dedup();
        if !names.is_empty() {
            notes.push(format!("* Published, and {word}: {}.", names.join(", ")));
        }
    }
    for row in &comparison.not_run {
        let case = if row.case.is_empty() { "" } else { ", " };
        notes.push(format!(
            "Published, but not run: {}{case}{} ({}).",
            row.configuration, row.case, row.why
        ));
    }
    notes.extend(super::translations::checks(comparison));
    if comparison.scale > 1 {
        notes.push(format!(
            "Simulated at 1/{}: each page and each access stands for {}; counts are of the full size.",
            comparison.scale, comparison.scale
        ));
    }
    notes.extend(not_valid(comparison));
    notes
}

/// Which ratios are not to be relied on, and what to do.
fn not_valid(comparison: &Comparison) -> Vec<String> {
    let names = |doubt: Doubt| -> Option<String> {
        let in_case = |case: &'_ Case| -> Vec<String> {
            let doubtful = case.configurations.iter();
            let doubtful = doubtful.filter(|row| row.confidence.doubt() == Some(doubt));
            let name = |row: &Outcome| match case.name.is_empty() {
                true => row.run.configuration.clone(),
                false => format!("{} ({})", row.run.configuration, case.name),
            };
            doubtful.map(name).collect()
        };
        let names: Vec<String> = comparison.cases.iter().flat_map(in_case).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let by_scale = names(Doubt::Scale).map(|names| {
        format!(
            "Not valid at 1/{}, as these ratios move by more than {MOST_SCALE_ERROR} on a machine four times \
             as coarse: {names}. Give a finer scale: --scale 1/{}.",
            comparison.scale,
            (comparison.scale / 4).max(1)
        )
    });
    let by_seed = names(Doubt::Seed).map(|names| {
        format!(
            "Uncertain by chance, as these ratios move by more than {MOST_SCALE_ERROR} with another seed on a \
             machine four times as coarse: {names}. Run several seeds: --seeds 5."
        )
    });
    by_scale.into_iter().chain(by_seed).collect()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::comparison::samples;
    use super::*;

    #[test]
    fn tables_and_words() {
        let text = text(&samples::comparison(), Some(61_234_567.0), false);
        let expected = "\
made-up: A made-up experiment

configuration     time  ratio  published  fast tier   promoted  demoted  hint faults  shootdowns
NUMAB0         60.00 s  1.000      1.000       50 %          0        0            0           0
NUMAB2         54.00 s  0.900     1.050*       50 %    300,000  100,000      600,000     600,000
pghot-hwhints  45.00 s  0.750      0.700       50 %  2,000,000  666,666    4,000,000   4,000,000
static         59.50 s  0.992          -       50 %          0        0            0           0
oracle         40.00 s  0.667          -       50 %          0        0            0           0

What it cost, in seconds of CPU time over all CPUs:

configuration  hint faults  hint scan  shootdowns  kmigrated
NUMAB0                   0          0           0          0
NUMAB2                0.60       0.18        0.12       0.42
pghot-hwhints         4.00       1.20        0.80       2.80
static                   0          0           0          0
oracle                   0          0           0          0

* Published, and doubtful: NUMAB2.
Simulated at 1/16: each page and each access stands for 16; counts are of the full size.
61.2 million simulated accesses/s
Best: pghot-hwhints takes 45.00 s, 25 % less time than NUMAB0; 12 % longer than the oracle, a bound on what placing pages by their rates can reach.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_ratio_that_moves_with_the_scale_or_the_seed_is_doubted() {
        let mut comparison = samples::comparison();
        let rows = &mut comparison.cases[0].configurations;
        rows[1].confidence.scale_error = Some(0.02);
        rows[2].confidence.scale_error = Some(0.021);
        rows[3].confidence.scale_error = Some(0.05);
        rows[3].confidence.seed_error = Some(0.03);
        let text = text(&comparison, None, false);
        assert!(text.contains("  ±0.020  "), "{text}");
        assert!(text.contains("  ±0.021, not valid  "), "{text}");
        let note = "Not valid at 1/16, as these ratios move by more than 0.02 on a machine four times as \
                    coarse: pghot-hwhints. Give a finer scale: --scale 1/4.\n";
        assert!(text.contains(note), "{text}");
        assert!(text.contains("  ±0.050, by chance ±0.030  "), "{text}");
        let note = "Uncertain by chance, as these ratios move by more than 0.02 with another seed on a \
                    machine four times as coarse: static. Run several seeds: --seeds 5.\n";
        assert!(text.contains(note), "{text}");
    }
}
