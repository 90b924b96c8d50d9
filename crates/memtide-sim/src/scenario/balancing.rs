//! What NUMA balancing cost beside what was published of it, and how its runs went over time.
//!
//! A document that traces a kernel sees three sums: what was spent in faults (or in a sampler's
//! interrupts), in work of tasks on their way back to user mode, and at context switches. Ours are
//! added up to the same three; batches' decisions and moves, which a kernel thread makes, count as
//! task work. Beside them stands what such a trace does not see: threads that wait for pages on the
//! move, and other CPUs that are interrupted to forget translations.
//!
//! Runs take different times, so their ways are told at tenths of each run's own time.

use super::published::PublishedBalancing;
use super::reproduction::grouped;
use super::{Comparison, Row};
use crate::result::{Balancing, Series};
use memtide_core::balancing::sampled::Cause;
use std::fmt::Write;

/// Parts of a run.
const PARTS: usize = 10;

/// The document's three sums, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    faults: f64,
    work: f64,
    switches: f64,
}

impl Sums {
    fn published(figures: &PublishedBalancing) -> Sums {
        Sums {
            faults: figures.fault_handling_s,
            work: figures.task_work_s,
            switches: figures.context_switches_s,
        }
    }

    /// Hint faults move pages themselves; samples leave that to their tasks or to a thread.
    fn of(balancing: &Balancing) -> Sums {
        let by_samples = seconds(balancing, Cause::Interrupt) > 0.0;
        let moves = seconds(balancing, Cause::Move);
        let own = |causes: &[Cause]| causes.iter().map(|&c| seconds(balancing, c)).sum::<f64>();
        Sums {
            faults: own(&[Cause::Fault, Cause::Interrupt]) + if by_samples { 0.0 } else { moves },
            work: own(&[Cause::Scan, Cause::Sample, Cause::Decide])
                + if by_samples { moves } else { 0.0 },
            switches: seconds(balancing, Cause::Switch),
        }
    }

    fn all(self) -> f64 {
        self.faults + self.work + self.switches
    }
}

fn seconds(balancing: &Balancing, cause: Cause) -> f64 {
    let found = balancing.causes.iter().find(|entry| entry.cause == cause);
    found.map_or(0.0, |entry| entry.ns as f64 * 1e-9)
}

/// The tables of a scenario whose document reports balancing's cost.
#[must_use]
pub fn tables(comparison: &Comparison) -> String {
    let mut out = costs(comparison);
    let rows: Vec<&Row> = comparison.rows.iter().filter(|row| balances(row)).collect();
    out += "\nPages moved, at tenths of each run's time:\n\n";
    let published = |row: &&Row| {
        let figures = row.published.as_ref()?.balancing.as_ref()?;
        let (every_s, pages) = figures.pages_moved_every.as_ref()?;
        let own = (0..pages.len())
            .map(|n| (n + 1) as f64 * every_s)
            .collect::<Vec<f64>>();
        Some(at_parts(&own, pages, 0))
    };
    let text = |pages: Vec<u64>| pages.into_iter().map(grouped).collect::<Vec<_>>();
    let mut lines = Vec::new();
    for row in &rows {
        if let Some(pages) = published(row) {
            lines.push((format!("{}, published", row.configuration), text(pages)));
        }
        let series = &row.result.series;
        let pages = at_parts(&series.seconds, &series.pages_migrated, 0);
        lines.push((format!("{}, ours", row.configuration), text(pages)));
    }
    way(&lines, &mut out);
    out += "\nShare of the iterations done by the thread that is furthest behind, at tenths of each run's time:\n\n";
    let done = |row: &&Row| {
        let Series { seconds, done, .. } = &row.result.series;
        let parts = at_parts(seconds, done, 0.0);
        let parts = parts.into_iter().map(|done| format!("{done:.2}")).collect();
        (format!("{}, ours", row.configuration), parts)
    };
    way(&rows.iter().map(done).collect::<Vec<_>>(), &mut out);
    out
}

fn balances(row: &Row) -> bool {
    row.result.balancing.pages_moved > 0
}

fn costs(comparison: &Comparison) -> String {
    let mut out = String::from(
        "\nThe cost of balancing in seconds of CPU time, and of a moved page in microseconds:\n\n\
         | configuration | | fault handling | task work | context switches | sum | a page | pages a second \
         | waits | other CPUs' interrupts | all, a page |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in comparison.rows.iter().filter(|row| balances(row)) {
        let published = row.published.as_ref();
        if let Some((figures, published)) = published.and_then(|p| Some((p.balancing.as_ref()?, p)))
        {
            let sums = Sums::published(figures);
            let pages = published.pages_moved.unwrap_or(0).max(1) as f64;
            let rate = published.value.map_or(0.0, |seconds| pages / seconds);
            line(
                &mut out,
                (&row.configuration, "published"),
                sums,
                (pages, rate),
                None,
            );
        }
        let own = &row.result.balancing;
        let waits = seconds(own, Cause::Wait);
        let interrupts = seconds(own, Cause::Shootdown);
        let pages = (own.pages_moved as f64, own.pages_a_second as f64);
        let beside = Some((waits, interrupts));
        line(
            &mut out,
            (&row.configuration, "ours"),
            Sums::of(own),
            pages,
            beside,
        );
    }
    out
}

fn line(
    out: &mut String,
    (name, whose): (&str, &str),
    sums: Sums,
    (pages, rate): (f64, f64),
    beside: Option<(f64, f64)>,
) {
    let a_page = |seconds: f64| format!("{:.1} us", seconds * 1e6 / pages);
    let (waits, interrupts, all) = match beside {
        None => (String::new(), String::new(), String::new()),
        Some((waits, interrupts)) => (
            format!("{waits:.1}"),
            format!("{interrupts:.1}"),
            a_page(sums.all() + waits + interrupts),
        ),
    };
    let _ = writeln!(
        out,
        "| {name} | {whose} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} | {waits} | {interrupts} | {all} |",
        sums.faults,
        sums.work,
        sums.switches,
        sums.all(),
        a_page(sums.all()),
        grouped(rate.round() as u64),
    );
}

/// A series' values at tenths of its time: the last at or before each.
fn at_parts<T: Copy>(seconds: &[f64], values: &[T], before: T) -> Vec<T> {
    let end = seconds.last().copied().unwrap_or(0.0);
    let at = |part: usize| {
        let until = end * part as f64 / PARTS as f64 + 1e-9;
        let count = seconds.iter().take_while(|&&s| s <= until).count();
        count.checked_sub(1).map_or(before, |last| values[last])
    };
    (1..=PARTS).map(at).collect()
}

fn way(lines: &[(String, Vec<String>)], out: &mut String) {
    *out += "| run |";
    for part in 1..=PARTS {
        let _ = write!(out, " {:.1} |", part as f64 / PARTS as f64);
    }
    *out += "\n|---";
    *out += &"|---".repeat(PARTS);
    *out += "|\n";
    for (name, parts) in lines {
        let _ = writeln!(out, "| {name} | {} |", parts.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_take_the_last_value_before() {
        let seconds: Vec<f64> = (1..=5).map(f64::from).collect();
        // Tenths of 5 s are half seconds: nothing yet, 1 s, 1.5 s, 2 s...
        let parts = at_parts(&seconds, &[10u64, 20, 30, 40, 50], 0);
        assert_eq!(parts, [0, 10, 10, 20, 20, 30, 30, 40, 40, 50]);
        assert_eq!(at_parts::<u64>(&[], &[], 7), [7; PARTS]);
    }
}
