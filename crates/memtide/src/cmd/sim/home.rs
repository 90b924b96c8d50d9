//! When a hot set was home: beside each row what was promised and what it cost, and a chart of time
//! against memory over all cases.

use super::comparison::{Case, Comparison, Outcome};
use super::html::{card, charts, tables};
use super::words::{amount, bytes, percent};
use memtide_sim::result::Home;

/// A column: its name and its cell in the row of an outcome.
type Column<'a> = (&'static str, Box<dyn Fn(&Outcome) -> String + 'a>);
/// What of a row such a column shows.
type Cell = fn(&Home) -> Option<String>;

const COLUMNS: [(&str, Cell); 4] = [
    ("promise", |home| Some(amount(home.promise_s?, "s"))),
    ("bound", |home| Some(amount(home.bound_s?, "s"))),
    ("cold moved", |home| Some(percent(home.cold_share?))),
    ("a minute at most", |home| Some(percent(home.minute_share?))),
];

/// What a row has in a column, or that it has nothing.
fn cell(outcome: &Outcome, cell: Cell) -> String {
    let text = outcome.run.home.as_ref().and_then(cell);
    text.unwrap_or_else(|| "-".to_owned())
}

/// The columns that some row of `case` has something in.
pub fn columns(case: &Case) -> impl Iterator<Item = Column<'_>> {
    let of_some = |of: Cell| {
        let mut all = case.configurations.iter();
        all.any(move |outcome| outcome.run.home.as_ref().and_then(of).is_some())
    };
    let columns = COLUMNS.iter().filter(move |(_, of)| of_some(*of));
    columns.map(|&(name, of)| {
        let show = move |outcome: &Outcome| cell(outcome, of);
        (name, Box::new(show) as Box<dyn Fn(&Outcome) -> String>)
    })
}

/// In one line; `None` for cases that are measured otherwise.
pub fn summary(outcomes: &[Outcome]) -> Option<String> {
    let told = |outcome: &Outcome| {
        let home = outcome.run.home?;
        let name = &outcome.run.configuration;
        let came = amount(outcome.shown_value(), "s");
        let came = match home.seconds {
            Some(_) => format!("{name}: home after {came}"),
            None => format!("{name}: not home within {came}"),
        };
        Some(match home.promise_s {
            Some(promise) => format!("{came} (promised: {})", amount(promise, "s")),
            None => came,
        })
    };
    let all: Option<Vec<String>> = outcomes.iter().map(told).collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(format!("{}.", all.join("; ")))
}

/// A row of the page: its case's name and its outcome.
fn rows(comparison: &Comparison) -> Vec<(&str, &Outcome, Home)> {
    let cases = comparison.cases.iter();
    cases
        .flat_map(|case| {
            let outcomes = case.configurations.iter();
            outcomes.filter_map(|outcome| Some((&*case.name, outcome, outcome.run.home?)))
        })
        .collect()
}

/// Time against memory, and the promise beside each row.
pub fn html(comparison: &Comparison, page: &mut String) {
    let rows = rows(comparison);
    if rows.is_empty() {
        return;
    }
    let mut lines: Vec<charts::Line> = Vec::new();
    let mut add = |name: String, dashed: bool, point: (f64, f64)| {
        let at = lines.iter().position(|line| line.name == name);
        let at = at.unwrap_or_else(|| {
            lines.push(charts::Line {
                name,
                series: lines.len(),
                dashed,
                points: Vec::new(),
            });
            lines.len() - 1
        });
        lines[at].points.push(point);
    };
    for (_, outcome, home) in &rows {
        let gib = home.memory_bytes as f64 / (1u64 << 30) as f64;
        let shape = bytes(home.piece_bytes);
        let name = format!("{}, pieces of {shape}", outcome.run.configuration);
        // What never came home is not drawn: nobody knows where it would be.
        if home.seconds.is_some() {
            add(name, false, (gib, outcome.shown_value()));
        }
        if let Some(promise) = home.promise_s {
            add(format!("promise, pieces of {shape}"), true, (gib, promise));
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let title = "Time against memory";
    let chart = charts::growth(title, &lines, "memory in GiB", "seconds until home");
    let guide = "When fast memory served nine tenths of the accesses to hot pages, by how much memory there \
                 is; both axes are logarithmic. A solid line below the dashed one of the same pieces keeps \
                 its promise. What was not home when its run ended has no point.";
    card(page, title, guide, &chart);
    card(page, "Promises", TABLE_GUIDE, &table(&rows));
}

const TABLE_GUIDE: &str = "The bound is the time that two passes over every page take at the share of a CPU \
     that observing may use. Cold moved: pages that went up and are not hot, of all that are not. A minute at \
     most: what observing took of one CPU in its dearest minute.";

fn table(rows: &[(&str, &Outcome, Home)]) -> String {
    let head = ["case", "configuration", "home after"].into_iter();
    let head: Vec<&str> = head.chain(COLUMNS.map(|(name, _)| name)).collect();
    let rows = rows.iter().map(|(case, outcome, _)| {
        let never = if outcome.never_home() { "> " } else { "" };
        let mut cells = vec![
            (*case).to_owned(),
            outcome.run.configuration.clone(),
            format!("{never}{}", amount(outcome.shown_value(), "s")),
        ];
        cells.extend(COLUMNS.map(|(_, of)| cell(outcome, of)));
        tables::Row::plain(cells)
    });
    tables::table("Promises", 2, &head, rows)
}

#[cfg(test)]
mod tests {
    use super::super::comparison::samples;
    use super::*;

    fn at(outcome: &mut Outcome, gib: u64, seconds: Option<f64>, promise_s: Option<f64>) {
        outcome.value = seconds.unwrap_or(outcome.run.seconds);
        outcome.run.home = Some(Home {
            memory_bytes: gib << 30,
            piece_bytes: 64 << 20,
            seconds,
            cold_share: promise_s.map(|_| 0.0012),
            minute_share: promise_s.map(|_| 0.05),
            bound_s: promise_s.map(|promise| promise * 4.0),
            promise_s,
        });
    }

    fn case() -> Case {
        let mut case = samples::comparison().cases.remove(0);
        case.configurations.truncate(2);
        at(&mut case.configurations[0], 4, Some(1.25), Some(10.0));
        at(&mut case.configurations[1], 4, None, None);
        case
    }

    #[test]
    fn a_row_says_what_was_promised_and_what_never_came() {
        let case = case();
        let summary = summary(&case.configurations).unwrap();
        let told =
            "NUMAB0: home after 1.250 s (promised: 10.00 s); NUMAB2: not home within 54.00 s.";
        assert_eq!(summary, told);
        let cells: Vec<Vec<String>> = columns(&case)
            .map(|(_, cell)| case.configurations.iter().map(&cell).collect())
            .collect();
        assert_eq!(cells[0], ["10.00 s", "-"]);
        assert_eq!(cells[2], ["0.1 %", "-"]);
        // A time that is not known has no ratio.
        let case = Case::new(String::new(), case.measure, case.configurations, true);
        assert_eq!(case.configurations[0].ratio, Some(1.0));
        assert_eq!(case.configurations[1].ratio, None);
    }

    #[test]
    fn other_cases_have_no_such_columns() {
        let case = samples::comparison().cases.remove(0);
        assert_eq!(columns(&case).count(), 0);
        assert_eq!(super::summary(&case.configurations), None);
    }

    #[test]
    fn the_page_draws_time_against_memory() {
        let mut comparison = samples::comparison();
        comparison.cases = vec![case()];
        let mut page = String::new();
        html(&comparison, &mut page);
        assert!(page.contains("Time against memory") && page.contains("promise, pieces of 64 MiB"));
        assert!(page.contains("&gt; 54.00 s"), "{page}");
        assert!(!page.contains("NaN"));
        let mut none = String::new();
        html(&samples::comparison(), &mut none);
        assert_eq!(none, "");
    }
}
