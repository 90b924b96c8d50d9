//! Several programs at once: how fast each was, and how much of fast memory it had; a table of its own.

use super::comparison::{Case, Outcome};
use super::words::{amount, percent, ratio};
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::result::ProgramResult;
use std::fmt::Write as _;

/// Programs that are shown one by one; the others are in the JSON document.
const MOST: usize = 16;

const HEAD: [&str; 5] = ["program", "configuration", "score", "ratio", "fast tier"];

/// One row for each program and configuration, program by program, so that a program's rows can be
/// compared; and how many programs were left out.
fn rows(case: &Case) -> (Vec<[String; 5]>, usize) {
    let programs = |outcome: &Outcome| outcome.run.programs.len();
    let all = case.configurations.iter().map(programs).max().unwrap_or(0);
    let shown = all.min(MOST);
    let mut rows = Vec::new();
    for n in 0..shown {
        for outcome in &case.configurations {
            if let Some(program) = outcome.run.programs.get(n) {
                rows.push(row(program, &outcome.run.configuration));
            }
        }
    }
    (rows, all - shown)
}

fn row(program: &ProgramResult, configuration: &str) -> [String; 5] {
    [
        program.name.clone(),
        configuration.to_owned(),
        amount(program.accesses_per_s / 1e6, "M accesses/s"),
        program.ratio.map_or("-".to_owned(), ratio),
        percent(program.fast_share),
    ]
}

/// Jain's index, where there are several programs.
pub fn fairness(outcome: &Outcome) -> String {
    let index = outcome.run.fairness;
    index.map_or("-".to_owned(), |index| format!("{index:.3}"))
}

/// Whether any row has one.
pub fn are_several(case: &Case) -> bool {
    let mut all = case.configurations.iter();
    all.any(|outcome| outcome.run.fairness.is_some())
}

fn left_out(count: usize) -> Option<String> {
    (count > 0).then(|| format!("And {count} more programs, in --json."))
}

/// The table, for a terminal.
pub fn text(case: &Case, styled: bool, text: &mut String) {
    let (rows, more) = rows(case);
    if rows.is_empty() {
        return;
    }
    let aligned = [Left, Left, Right, Right, Right];
    let head: Vec<_> = HEAD.into_iter().zip(aligned).collect();
    let mut table = table(&head, styled);
    for row in rows {
        table.add_row(row);
    }
    let _ = writeln!(text, "Program by program:\n\n{}\n", table.trim_fmt());
    if let Some(more) = left_out(more) {
        let _ = writeln!(text, "{more}\n");
    }
}

/// The same as HTML.
pub fn html(case: &Case, page: &mut String) {
    let (rows, more) = rows(case);
    if rows.is_empty() {
        return;
    }
    let rows = rows.into_iter();
    let rows = rows.map(|row| super::html::tables::Row::plain(row.to_vec()));
    let html = super::html::tables::table("Program by program", 2, &HEAD, rows);
    let more = left_out(more).map_or(String::new(), |more| format!(" {more}"));
    let guide = format!(
        "How many accesses a second each program made while it ran, that over the same of the first \
         configuration, and the share of its memory accesses that the fast tier served.{more}"
    );
    super::html::card(page, "Program by program", &guide, &html);
}

#[cfg(test)]
mod tests {
    use super::super::comparison::samples;
    use super::*;
    use memtide_sim::result::ProgramSeries;

    #[test]
    fn rows_of_a_program_are_together() {
        let mut case = samples::comparison().cases.remove(0);
        assert!(!are_several(&case));
        for (n, outcome) in case.configurations.iter_mut().enumerate().take(2) {
            let program = |name: &str| ProgramResult {
                name: name.to_owned(),
                cgroup: None,
                started_s: 0.0,
                seconds: 10.0,
                accesses_per_s: 2e6 * (n + 1) as f64,
                ratio: Some((n + 1) as f64),
                fast_share: 0.5,
                pages_by_node: Vec::new(),
                series: ProgramSeries::default(),
            };
            outcome.run.programs = ["db", "scan"].map(program).into();
            outcome.run.fairness = Some(1.0);
        }
        let mut all = String::new();
        text(&case, false, &mut all);
        let expected = "\
Program by program:

program  configuration               score  ratio  fast tier
db       NUMAB0         2.000 M accesses/s  1.000       50 %
db       NUMAB2         4.000 M accesses/s  2.000       50 %
scan     NUMAB0         2.000 M accesses/s  1.000       50 %
scan     NUMAB2         4.000 M accesses/s  2.000       50 %

";
        assert_eq!(all, expected);
        assert!(are_several(&case));
    }
}
