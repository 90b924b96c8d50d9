//! The tables of `docs/reproduction.md`: each published row beside ours, made by running the scenarios.
//!
//! The document is text with places for tables: a line `<!-- table NAME -->`, what a run of scenario
//! NAME printed last, and a line `<!-- end -->`; `<!-- summary -->` likewise. [`render`] replaces what
//! stands between, so text and tables live in one file. `<!-- order -->` lists the pairs of rows that
//! did not come out in the published order. The tables take minutes to make; that they are current is
//! told by the same runs on smaller machines ([`super::coarse`]), which a test makes again.
//!
//! Ratios are to a case's first configuration. A *point* is a hundredth. Rows of first configurations
//! are 1 by definition and not counted. Rows that come out alike are not in order.

use super::{Comparison, Mark, Row, Unit};
use memtide_core::vmstat::Counter;
use std::fmt::Write;

/// How many points a ratio may be off.
pub const POINTS: f64 = 10.0;
/// A published gap beyond which the order of two rows has to come out.
pub const GAP: f64 = 0.05;

/// How far published rows came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows with a published ratio, without first ones.
    pub rows: u32,
    /// Of them, those within [`POINTS`].
    pub near: u32,
    /// Pairs of a case's rows whose published gap is beyond [`GAP`].
    pub pairs: u32,
    /// Of them, those in the published order.
    pub ordered: u32,
    /// Counts of pages published by node.
    pub counts: u32,
    /// Of them, those that agree to the page.
    pub exact: u32,
}

impl Tally {
    /// Adds another comparison's.
    pub fn add(&mut self, other: Tally) {
        self.rows += other.rows;
        self.near += other.near;
        self.pairs += other.pairs;
        self.ordered += other.ordered;
        self.counts += other.counts;
        self.exact += other.exact;
    }
}

/// Two rows of a case whose published gap is beyond [`GAP`].
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// The one with the smaller published value.
    pub smaller: &'a Row,
    /// The one with the larger.
    pub larger: &'a Row,
    /// Published, the larger by the smaller; more than 1.
    pub published: f64,
    /// The same of ours; not in order unless more than 1.
    pub ours: f64,
}

/// The pairs of a comparison.
#[must_use]
pub fn pairs(comparison: &Comparison) -> Vec<Pair<'_>> {
    let rows = comparison.rows.iter();
    let figures = |row| -> Option<(&Row, f64, f64)> {
        let row: &Row = row;
        Some((row, row.published.as_ref()?.ratio?, row.ratio?))
    };
    let rows: Vec<_> = rows.filter_map(figures).collect();
    let mut pairs = Vec::new();
    for (at, &a) in rows.iter().enumerate() {
        for &b in rows[..at].iter().filter(|b| b.0.case == a.0.case) {
            let (small, large) = if a.1 < b.1 { (a, b) } else { (b, a) };
            if large.1 / small.1 > 1.0 + GAP {
                pairs.push(Pair {
                    smaller: small.0,
                    larger: large.0,
                    published: large.1 / small.1,
                    ours: large.2 / small.2,
                });
            }
        }
    }
    pairs
}

/// Counts how far a comparison came out.
#[must_use]
pub fn tally(comparison: &Comparison) -> Tally {
    let mut tally = Tally::default();
    let mut case = None;
    for row in &comparison.rows {
        let published = row.published.as_ref().and_then(|published| published.ratio);
        let (Some(ours), Some(published)) = (row.ratio, published) else {
            continue;
        };
        if case.replace(&row.case) == Some(&row.case) {
            tally.rows += 1;
            tally.near += u32::from(((ours - published) * 100.0).abs() <= POINTS);
        }
    }
    for pair in pairs(comparison) {
        tally.pairs += 1;
        tally.ordered += u32::from(pair.ours > 1.0);
    }
    for row in &comparison.rows {
        for (published, ours) in page_counts(row) {
            tally.counts += 1;
            tally.exact += u32::from(published == ours);
        }
    }
    tally
}

/// The pairs of a comparison that are not in the published order, by name and published gap, each with
/// our gap in percent.
#[must_use]
pub fn out_of_order(comparison: &Comparison) -> Vec<(String, f64)> {
    let wrong = pairs(comparison).into_iter().filter(|p| p.ours <= 1.0);
    let named = |pair: Pair<'_>| {
        let case = match pair.larger.case.as_str() {
            "" => String::new(),
            case => format!(", {case}"),
        };
        let name = format!(
            "{}{case}: \"{}\" {:.1} % above \"{}\"",
            comparison.scenario,
            pair.larger.configuration,
            (pair.published - 1.0) * 100.0,
            pair.smaller.configuration,
        );
        (name, (pair.ours - 1.0) * 100.0)
    };
    wrong.map(named).collect()
}

fn page_counts(row: &Row) -> impl Iterator<Item = (&Vec<u64>, &Vec<u64>)> {
    let published = row.published.iter().flat_map(|published| &published.pages);
    published.filter_map(|(region, pages)| {
        let placed = row
            .result
            .placed
            .iter()
            .find(|placed| placed.region == *region)?;
        Some((pages, &placed.pages))
    })
}

/// The table of one scenario.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut out = String::new();
    let cases = comparison.rows.iter().any(|row| !row.case.is_empty());
    let pages = comparison.rows.iter().all(|row| row.unit == Unit::Pages);
    let _ = writeln!(
        out,
        "Scale 1/{}, seed {}.\n",
        comparison.scale, comparison.seed
    );
    if pages {
        out += "| weights | mapping | published, by node | ours |\n|---|---|---|---|\n";
        for row in &comparison.rows {
            let Some(published) = &row.published else {
                continue;
            };
            for (region, pages) in &published.pages {
                let placed = row
                    .result
                    .placed
                    .iter()
                    .find(|placed| placed.region == *region);
                let ours = placed.map_or(String::new(), |placed| format!("{:?}", placed.pages));
                let _ = writeln!(out, "| {} | {region} | {pages:?} | {ours} |", row.case);
            }
        }
        return out;
    }
    let case_head = if cases { "| case " } else { "" };
    let case_line = if cases { "|---" } else { "" };
    let _ = writeln!(
        out,
        "{case_head}| configuration | published | ratio | ours | ratio | points off | pages moved: published | ours | remark |\n\
         {case_line}|---|---|---|---|---|---|---|---|---|"
    );
    for row in &comparison.rows {
        if cases {
            let _ = write!(out, "| {} ", row.case);
        }
        let published = row.published.as_ref();
        let ratio = published.and_then(|published| published.ratio);
        let off = ratio
            .zip(row.ratio)
            .map(|(theirs, ours)| (ours - theirs) * 100.0);
        let off = off.map_or(String::new(), |off| match off.abs() <= POINTS {
            true => format!("{off:+.1}"),
            false => format!("**{off:+.1}**"),
        });
        let remark = published.map_or(String::new(), |published| {
            let mark = match published.mark {
                Some(Mark::Withdrawn) => "withdrawn",
                Some(Mark::Doubtful) => "doubtful",
                None => "",
            };
            let parts = [mark, published.note.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(": ")
        });
        let number = |value: Option<u64>| value.map_or(String::new(), grouped);
        let ratio_text =
            |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {off} | {} | {} | {remark} |",
            row.configuration,
            published
                .and_then(|published| published.value)
                .map_or(String::new(), |value| figure(value, row.unit)),
            ratio_text(ratio),
            figure(row.value, row.unit),
            ratio_text(row.ratio),
            number(published.and_then(|published| published.pages_moved)),
            grouped(moved(row)),
        );
    }
    let published = |row: &Row| {
        row.published
            .as_ref()
            .is_some_and(|p| p.balancing.is_some())
    };
    if comparison.rows.iter().any(published) {
        out += &super::balancing::tables(comparison);
    }
    translations(comparison, &mut out);
    for row in &comparison.not_run {
        let value = row.published.value.unwrap_or(0.0);
        let ratio = row.published.ratio.unwrap_or(0.0);
        let _ = writeln!(
            out,
            "\nNot run: {}, published {value:.1} s (ratio {ratio:.3}): {}.",
            row.configuration, row.why
        );
    }
    out
}

/// What TLBs did, over what they did under the first configuration, beside the same published.
fn translations(comparison: &Comparison, out: &mut String) {
    let theirs = |row: &Row| row.published.as_ref().and_then(|published| published.tlb);
    let Some(first) = comparison.rows.iter().find(|row| theirs(row).is_some()) else {
        return;
    };
    let base = (
        theirs(first).map(|tlb| tlb.named()),
        first.result.tlb().named(),
    );
    let names = base
        .1
        .map(|(name, _)| format!(" {name}: published | ours |"));
    let _ = writeln!(
        out,
        "\nRatios to the first configuration, which has {} shootdowns:\n\n\
         | configuration |{}\n|---|{}",
        grouped(first.result.tlb_shootdowns),
        names.concat(),
        "---|---|".repeat(names.len())
    );
    let share = |count: u64, of: u64| match of {
        0 => String::new(),
        of => format!("{:.3}", count as f64 / of as f64),
    };
    for row in &comparison.rows {
        let _ = write!(out, "| {} |", row.configuration);
        let published = theirs(row).map(|tlb| tlb.named());
        for (at, (_, ours)) in row.result.tlb().named().into_iter().enumerate() {
            let pair = published.zip(base.0);
            let theirs = pair.map_or(String::new(), |(own, base)| share(own[at].1, base[at].1));
            let _ = write!(out, " {theirs} | {} |", share(ours, base.1[at].1));
        }
        out.push('\n');
    }
}

/// Pages that balancing or promotion moved; a promotion counts once.
fn moved(row: &Row) -> u64 {
    let promoted = row.result.counters.get(Counter::PgpromoteSuccess);
    let balanced = row.result.counters.get(Counter::NumaPagesMigrated);
    promoted.max(balanced)
}

fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => format!("{value:.2} s"),
        Unit::BytesPerS => format!("{:.1} GB/s", value / 1e9),
        Unit::AccessesPerS => format!("{:.1} M/s", value / 1e6),
        Unit::Pages => String::new(),
    }
}

pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The document with fresh tables. `run` gives a scenario's comparison by name.
///
/// # Errors
///
/// A table without end, or what `run` says.
pub fn render(
    document: &str,
    run: &mut dyn FnMut(&str) -> Result<Comparison, String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut all = Tally::default();
    let mut rest = document;
    let (mut summary_at, mut order_at) = (None, None);
    let mut order = String::new();
    while let Some((line, after)) = rest.split_once('\n') {
        out += line;
        out.push('\n');
        rest = after;
        let Some(what) = line
            .strip_prefix("<!-- ")
            .and_then(|line| line.strip_suffix(" -->"))
            .filter(|what| *what != "end")
        else {
            continue;
        };
        if let Some(name) = what.strip_prefix("table ") {
            let comparison = run(name)?;
            all.add(tally(&comparison));
            for (name, ours) in out_of_order(&comparison) {
                let _ = writeln!(order, "- {name} as published, {ours:+.1} % here");
            }
            out += &format!("\n{}\n", table(&comparison));
        } else if what == "summary" {
            summary_at = Some(out.len());
        } else if what == "order" {
            order_at = Some(out.len());
        } else {
            continue;
        }
        let end = rest.find("<!-- end -->");
        rest = &rest[end.ok_or_else(|| format!("\"{line}\" has no <!-- end --> after it"))?..];
    }
    out += rest;
    // The later place first, so that the other stays where it is.
    if let Some(at) = order_at {
        out.insert_str(at, &format!("\n{order}\n"));
    }
    if let Some(at) = summary_at {
        let text = format!(
            "\n{} of {} published ratios come out within {POINTS:.0} points. Of {} pairs of rows with a \
             published gap of more than {:.0} %, {} come out in the published order. {} of {} published \
             counts of pages agree to the page.\n\n",
            all.near,
            all.rows,
            all.pairs,
            GAP * 100.0,
            all.ordered,
            all.exact,
            all.counts
        );
        out.insert_str(at, &text);
    }
    Ok(out)
}
