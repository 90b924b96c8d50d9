//! Many tests, few boots: how tests are grouped, what their reports add up to, and how figures are
//! shown side by side.
//!
//! Pure: the list of tests and a stream of reports in, boots, counts and tables out. A test that was
//! planned and never reported is a failure, whatever the reason; [`series`] says which, and what to
//! boot when a guest dies. [`Summary`] is how a run ends: what was late and tried again, what failed,
//! what died, and the counts last, so that the end of a log, which is what survives of a long one,
//! names every failure and every second try.

pub mod series;

use std::collections::BTreeMap;

use crate::fetch::KernelLine;
use crate::guest::tests::{BootClass, Needs, Test};
use crate::report::{Report, Verdict};
use series::Death;

/// One line of a table: column name and printed value, in order.
pub type Row = Vec<(String, String)>;

/// Tests that share one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBoot {
    /// The topology's name.
    pub topology: &'static str,
    /// Settings for the whole boot.
    pub class: BootClass,
    /// What any of the tests needs.
    pub needs: Needs,
    /// The tests' names in running order.
    pub tests: Vec<String>,
}

/// Groups the tests whose names contain `filter` by boot, in the list's order. Tests that run on request
/// only are there if `filter` begins with their group's name.
#[must_use]
pub fn plan(tests: &[Test], filter: &str) -> Vec<PlannedBoot> {
    plan_of(tests.iter().filter(|test| test.is_asked_for(filter)))
}

/// Groups the tests that a run of everything has on this kernel, likewise.
#[must_use]
pub fn plan_everything(tests: &[Test], kernel: KernelLine) -> Vec<PlannedBoot> {
    plan_of(
        tests
            .iter()
            .filter(|test| test.is_in_a_run_of_everything(kernel)),
    )
}

/// Groups these tests by boot, in their order.
#[must_use]
pub fn plan_of<'a>(tests: impl IntoIterator<Item = &'a Test>) -> Vec<PlannedBoot> {
    let mut boots: Vec<PlannedBoot> = Vec::new();
    for test in tests {
        let same =
            |boot: &&mut PlannedBoot| boot.topology == test.topology && boot.class == test.class;
        if let Some(boot) = boots.iter_mut().find(same) {
            boot.needs.disk |= test.needs.disk;
            boot.needs.redis |= test.needs.redis;
            boot.needs.random_programs |= test.needs.random_programs;
            boot.needs.gigabytes |= test.needs.gigabytes;
            boot.needs.half_an_hour |= test.needs.half_an_hour;
            boot.tests.push(test.name.clone());
        } else {
            boots.push(PlannedBoot {
                topology: test.topology,
                class: test.class,
                needs: test.needs,
                tests: vec![test.name.clone()],
            });
        }
    }
    boots
}

/// Counts of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests whose promises held.
    pub passed: u64,
    /// Tests whose promises did not hold, or that never reported.
    pub failed: u64,
    /// Tests that could not run here.
    pub skipped: u64,
}

impl Tally {
    /// Counts one verdict.
    pub fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(
            formatter,
            "{passed} passed, {failed} failed, {skipped} skipped"
        )
    }
}

/// What a run says last.
#[derive(Debug, Default)]
pub struct Summary {
    /// The counts.
    pub tally: Tally,
    /// What failed, and why.
    pub failures: Vec<(String, String)>,
    /// Tries that were late and made again: the test, and which try it was and why.
    pub late: Vec<(String, String)>,
    /// Guests that died: where and when, and what it was.
    pub deaths: Vec<(String, Death)>,
}

impl Summary {
    /// Counts a verdict on `name`.
    pub fn count(&mut self, name: String, verdict: &Verdict) {
        self.tally.count(verdict);
        if let Verdict::Failed(reason) = verdict {
            self.failures.push((name, reason.clone()));
        }
    }

    /// Adds another summary.
    pub fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.failures.extend(other.failures);
        self.late.extend(other.late);
        self.deaths.extend(other.deaths);
    }
}

impl std::fmt::Display for Summary {
    /// What was late; the failures in the words of cargo's harness, which readers of logs look for; the
    /// dead guests by kind and one by one; the counts as the last line.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, death) in &self.deaths {
            *kinds.entry(death.kind).or_default() += 1;
        }
        if !self.late.is_empty() {
            writeln!(formatter, "late, and tried again: {}", self.late.len())?;
        }
        for (name, told) in &self.late {
            writeln!(formatter, "  {name}, {told}")?;
        }
        for (name, reason) in &self.failures {
            writeln!(formatter, "test {name} ... FAILED\n  {reason}")?;
        }
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds
                .iter()
                .map(|(kind, count)| format!("{count} of {kind}"))
                .collect();
            let count = self.deaths.len();
            writeln!(
                formatter,
                "guests that died: {count} ({})",
                kinds.join(", ")
            )?;
        }
        for (place, death) in &self.deaths {
            let during = death.during.as_deref().unwrap_or("no test");
            writeln!(formatter, "  {place}, during {during}: {}", death.reason)?;
        }
        write!(formatter, "{}", self.tally)
    }
}

/// Verdicts and figures of a planned boot, collected as they come.
#[derive(Debug, Default)]
pub struct Results {
    /// Every verdict, in order.
    pub verdicts: Vec<(String, Verdict)>,
    /// Tries that were late and made again: the test, and which try it was and why.
    pub late: Vec<(String, String)>,
    /// Rows by table.
    pub rows: BTreeMap<String, Vec<Row>>,
    running: Option<String>,
}

impl Results {
    /// Takes one report.
    pub fn take(&mut self, report: &Report) {
        match report {
            Report::Started { test } => self.running = Some(test.clone()),
            Report::Verdict { test, verdict, .. } => {
                self.verdicts.push((test.clone(), verdict.clone()));
                self.running = None;
            }
            Report::Late { test, told } => self.late.push((test.clone(), told.clone())),
            Report::Row { table, cells } => {
                self.rows
                    .entry(table.clone())
                    .or_default()
                    .push(cells.clone());
            }
            Report::Ready { .. } | Report::Note { .. } | Report::End { .. } => {}
        }
    }

    /// The counts.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for (_, verdict) in &self.verdicts {
            tally.count(verdict);
        }
        tally
    }
}

/// A table with one line per row and as many columns as the rows name, in order of appearance;
/// rows are sorted by their first cell's first appearance, so that variants of a case are neighbours.
#[must_use]
pub fn format_table(rows: &[Row]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    let mut keys: Vec<&str> = Vec::new();
    for row in rows {
        for (name, _) in row {
            if !columns.contains(&name.as_str()) {
                columns.push(name);
            }
        }
        if let Some((_, key)) = row.first()
            && !keys.contains(&key.as_str())
        {
            keys.push(key);
        }
    }
    let key_of = |row: &&Row| {
        row.first()
            .and_then(|(_, key)| keys.iter().position(|known| known == key))
    };
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(key_of);
    let cell = |row: &[(String, String)], column: &str| -> String {
        row.iter()
            .find(|(name, _)| name == column)
            .map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|&name| name.to_owned()).collect()];
    lines.extend(
        sorted
            .iter()
            .map(|row| columns.iter().map(|name| cell(row, name)).collect()),
    );
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            lines
                .iter()
                .map(|line| line[column].len())
                .max()
                .unwrap_or(0)
        })
        .collect();
    lines
        .iter()
        .map(|line| {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_everything_has_each_test_on_some_kernel_but_one() {
        let tests = crate::guest::tests::all();
        let on_none = |test: &&Test| test.kernels().is_empty();
        let left_out: Vec<&str> = tests
            .iter()
            .filter(on_none)
            .map(|test| test.name.as_str())
            .collect();
        assert_eq!(left_out, ["balance/cpu-limit"]);
        let mut asked: Vec<&str> = tests
            .iter()
            .filter(|test| !test.on_request && !on_none(test))
            .map(|test| test.name.as_str())
            .collect();
        let boots = KernelLine::ALL.map(|kernel| plan_everything(&tests, kernel));
        let mut planned: Vec<&str> = boots
            .iter()
            .flatten()
            .flat_map(|boot| boot.tests.iter().map(String::as_str))
            .collect();
        planned.sort_unstable();
        planned.dedup();
        asked.sort_unstable();
        assert_eq!(planned, asked);
    }

    #[test]
    fn a_boot_is_shared_by_topology_and_class() {
        let tests = crate::guest::tests::all();
        let boots = plan(&tests, "");
        let planned =
            |boots: &[PlannedBoot]| -> usize { boots.iter().map(|boot| boot.tests.len()).sum() };
        let on_request = tests.iter().filter(|test| test.on_request).count();
        assert!(on_request > 0);
        assert_eq!(planned(&boots) + on_request, tests.len());
        assert_eq!(planned(&plan_of(&tests)), tests.len());
        let kernels = |filter| {
            let boots = plan(&tests, filter);
            let names = boots.iter().flat_map(|boot| &boot.tests);
            names
                .filter(|name| name.starts_with("tiering/") && name.ends_with("/kernel"))
                .count()
        };
        assert_eq!((kernels(""), kernels("redis")), (0, 0));
        assert!(kernels("tiering/") > kernels("tiering/redis/kernel"));
        assert_eq!(kernels("tiering/redis/kernel"), 1);
        for (number, boot) in boots.iter().enumerate() {
            let same =
                |other: &PlannedBoot| other.topology == boot.topology && other.class == boot.class;
            assert!(!boots[number + 1..].iter().any(same));
        }
        assert_eq!(plan(&tests, "no such test"), []);
    }

    #[test]
    fn the_counts_are_the_last_line() {
        let mut summary = Summary::default();
        summary.count("7.2 a".into(), &Verdict::Passed);
        assert_eq!(summary.to_string(), "1 passed, 0 failed, 0 skipped");
        summary.count("7.2 b".into(), &Verdict::Failed("2 of 3 pages".into()));
        let (late, told) = ("7.2 c".into(), "try 1 of 3: home after 9.0 s".into());
        summary.late.push((late, told));
        let death = Death {
            boot: 1,
            during: Some("b".into()),
            kind: "hang",
            reason: "the guest hung: no report for 240 s".into(),
        };
        summary.deaths.push(("7.2-cxl-quiet, boot 1".into(), death));
        assert_eq!(
            summary.to_string(),
            "late, and tried again: 1\n  7.2 c, try 1 of 3: home after 9.0 s\n\
             test 7.2 b ... FAILED\n  2 of 3 pages\n\
             guests that died: 1 (1 of hang)\n  \
             7.2-cxl-quiet, boot 1, during b: the guest hung: no report for 240 s\n\
             1 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn rows_of_a_case_are_neighbours() {
        let row = |case: &str, who: &str| {
            vec![
                ("case".to_owned(), case.to_owned()),
                ("who".to_owned(), who.to_owned()),
            ]
        };
        let table = format_table(&[row("a", "kernel"), row("b", "kernel"), row("a", "memtide")]);
        assert_eq!(
            table,
            "case  who\na     kernel\na     memtide\nb     kernel\n"
        );
    }
}
