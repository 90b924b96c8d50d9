//! What TLBs did and lazy unmap flush spared them: a table of its own where that is compared.

use super::comparison::{Case, Comparison, Outcome};
use super::words::{grouped, ratio};
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::result::LufCounts;
use std::fmt::Write as _;

/// Whether a case compares lazy flushing with something.
fn is_compared(case: &Case) -> bool {
    let mut outcomes = case.configurations.iter();
    outcomes.any(|outcome| outcome.run.luf.is_some())
}

/// Names of columns and the rows of configurations, the bounds left out.
fn rows(case: &Case) -> (Vec<String>, Vec<Vec<String>>) {
    let kernels = || case.configurations.iter().filter(|outcome| !outcome.bound);
    let first = kernels().next();
    let mut head = vec!["configuration".to_owned()];
    let mut rows: Vec<Vec<String>> = kernels()
        .map(|outcome| vec![outcome.run.configuration.clone()])
        .collect();
    let names = first.map_or_else(Vec::new, |first| {
        first.run.tlb().named().map(|(name, _)| name).to_vec()
    });
    for (at, name) in names.iter().enumerate() {
        let ours = |outcome: &Outcome| Some(outcome.run.tlb().named()[at].1);
        let theirs = |outcome: &Outcome| Some(outcome.published.as_ref()?.tlb?.named()[at].1);
        head.extend([(*name).to_owned(), "ratio".to_owned()]);
        let published = kernels().any(|outcome| theirs(outcome).is_some());
        head.extend(published.then(|| "published".to_owned()));
        for (row, outcome) in rows.iter_mut().zip(kernels()) {
            row.push(ours(outcome).map_or_else(dash, grouped));
            row.push(over(outcome, first, ours));
            if published {
                row.push(over(outcome, first, theirs));
            }
        }
    }
    type Count = fn(&LufCounts) -> u64;
    let counts: [(&str, Count); 4] = [
        ("put off", |luf| luf.deferred),
        ("late flushes", |luf| luf.at_use),
        ("forced", |luf| luf.forced.values().sum()),
        ("for nothing", |luf| luf.covered),
    ];
    for (name, count) in counts {
        head.push(name.to_owned());
        for (row, outcome) in rows.iter_mut().zip(kernels()) {
            let luf = outcome.run.luf.as_ref();
            row.push(luf.map_or_else(dash, |luf| grouped(count(luf))));
        }
    }
    (head, rows)
}

fn dash() -> String {
    "-".to_owned()
}

/// A count over that of the first configuration.
fn over(
    outcome: &Outcome,
    first: Option<&Outcome>,
    count: impl Fn(&Outcome) -> Option<u64>,
) -> String {
    let base = first.and_then(&count).filter(|&base| base > 0);
    let pair = count(outcome).zip(base);
    pair.map_or_else(dash, |(own, base)| ratio(own as f64 / base as f64))
}

/// The table, for a terminal: turned, with a column for each configuration.
pub fn text(case: &Case, styled: bool, text: &mut String) {
    if !is_compared(case) {
        return;
    }
    let (head, rows) = rows(case);
    let mut header = vec![("", Left)];
    header.extend(rows.iter().map(|row| (row[0].as_str(), Right)));
    let mut table = table(&header, styled);
    for (at, name) in head.iter().enumerate().skip(1) {
        let mut line = vec![name.clone()];
        line.extend(rows.iter().map(|row| row[at].clone()));
        table.add_row(line);
    }
    let _ = writeln!(
        text,
        "Translations (pages whose flush was put off; flushes made late because the memory was about to \
         be used,\nforced by an event, or done by the way by another):\n\n{}\n",
        table.trim_fmt()
    );
}

/// The table, for a page.
pub fn html(case: &Case, page: &mut String) {
    if !is_compared(case) {
        return;
    }
    let (head, rows) = rows(case);
    let rows = rows.into_iter().map(super::html::tables::Row::plain);
    let guide = "What TLBs did, and how many pages\u{2019} flushes lazy unmap flush put off; flushes that it \
                 made late because the memory was about to be used, that an event forced, and that another \
                 flush did by the way.";
    let table = super::html::tables::table("Translations", 1, &head, rows);
    super::html::card(page, "Translations", guide, &table);
}

/// What the check of every access found, a line for each configuration that it went wrong in.
pub fn checks(comparison: &Comparison) -> Vec<String> {
    let outcomes = || {
        comparison
            .cases
            .iter()
            .flat_map(|case| &case.configurations)
    };
    let checked: u64 = outcomes()
        .filter_map(|outcome| Some(outcome.run.checked.as_ref()?.accesses))
        .sum();
    let wrong = outcomes().filter_map(|outcome| {
        let checked = outcome.run.checked.as_ref()?;
        let first = checked.first.as_ref()?;
        Some(format!(
            "WRONG CONTENT in {}: {} of {} accesses; the first: {first}.",
            outcome.run.configuration,
            grouped(checked.wrong),
            grouped(checked.accesses)
        ))
    });
    let mut lines: Vec<String> = wrong.collect();
    if lines.is_empty() && checked > 0 {
        lines.push(format!(
            "Checked: all of {} simulated accesses found their page's newest content.",
            grouped(checked)
        ));
    }
    lines
}
