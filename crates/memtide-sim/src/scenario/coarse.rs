//! The published experiments on machines mostly a quarter as fine: what a test can afford at every change.
//!
//! The tables of `docs/reproduction.md` take minutes of an optimised build. The same runs at a coarser
//! scale take seconds, and whatever changes the tables changes them too. So the document also holds
//! every ratio at the coarse scale (`<!-- coarse -->`), and a test makes them again. They come out near
//! those of the tables, not equal: what a coarser machine loses is in `docs/simulator.md`.
//!
//! The same runs show that nothing beats the oracle ([`beaten`]).

use super::{Comparison, Row, SHIPPED, Scenario};
use std::fmt::Write;

/// How much better than the oracle a row may be: 0.1 %.
pub const SLACK: f64 = 0.001;
/// How many times coarser.
const COARSER: u32 = 4;

/// The scale at which a scenario is checked.
#[must_use]
pub fn scale(scenario: &Scenario) -> u32 {
    match scenario.name.as_str() {
        // Every page is counted.
        "page-count" => 1,
        // Fewer huge pages than one set of the TLB has ways would never leave it.
        "pghot-mode3" => scenario.scale,
        // A region is hot for a second or two, and a batch of coarse pages takes longer to move.
        "pghot-overcommit" => scenario.scale,
        _ => scenario.scale * COARSER,
    }
}

/// The rows that are better than their case's oracle, with how much better.
#[must_use]
pub fn beaten(comparison: &Comparison) -> Vec<(&Row, f64)> {
    let rows = comparison.rows.iter();
    let is_oracle = |row: &&Row| row.configuration == "oracle";
    let oracles: Vec<&Row> = rows.clone().filter(is_oracle).collect();
    let better = |row| -> Option<(&Row, f64)> {
        let row: &Row = row;
        let oracle = oracles.iter().find(|oracle| oracle.case == row.case)?;
        let by = match row.unit.more_is_better() {
            true => row.value / oracle.value - 1.0,
            false => oracle.value / row.value - 1.0,
        };
        (by > SLACK).then_some((row, by))
    };
    rows.filter_map(better).collect()
}

/// All ratios of a comparison in a line of the document's table.
#[must_use]
pub fn line(comparison: &Comparison) -> String {
    let mut ratios = String::new();
    for row in &comparison.rows {
        let _ = match row.ratio {
            Some(ratio) => write!(ratios, " {ratio:.4}"),
            None => write!(ratios, " -"),
        };
    }
    format!(
        "| {} | 1/{} |{ratios} |",
        comparison.scenario, comparison.scale
    )
}

/// The document with a fresh table of coarse ratios. `run` makes a scenario's comparison at [`scale`].
///
/// # Errors
///
/// A document without the table, or what `run` says.
pub fn render(
    document: &str,
    run: &mut dyn FnMut(&Scenario) -> Result<Comparison, String>,
) -> Result<String, String> {
    let place = || {
        let (before, rest) = document.split_once("<!-- coarse -->")?;
        Some((before, &rest[rest.find("<!-- end -->")?..]))
    };
    let (before, after) = place().ok_or("no <!-- coarse --> with an <!-- end --> after it")?;
    let mut table = "| scenario | scale | ratios, row by row |\n|---|---|---|\n".to_owned();
    for shipped in SHIPPED {
        let scenario = shipped.read().map_err(|error| error.to_string())?;
        if !scenario.published.is_empty() {
            table += &line(&run(&scenario)?);
            table.push('\n');
        }
    }
    Ok(format!("{before}<!-- coarse -->\n\n{table}\n{after}"))
}
