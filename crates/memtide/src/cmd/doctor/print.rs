//! The report for people: one line a check, then what it comes to.

use super::check::{Check, MOVER, Report, SOURCES, State, Verdict};
use crate::shared::table;
use comfy_table::CellAlignment::Left;
use comfy_table::{Cell, Color};

/// The whole report. Without `styled`, plain text that is not wrapped.
pub fn text(report: &Report, styled: bool) -> String {
    let header = [("check", Left), ("state", Left), ("detail", Left)];
    let mut table = table::table(&header, styled);
    for Check { name, finding, .. } in &report.checks {
        let mut state = Cell::new(words(finding.state));
        if let (true, Some(color)) = (styled, color(finding.state)) {
            state = state.fg(color);
        }
        table.add_row([
            Cell::new(name.replace('_', " ")),
            state,
            Cell::new(&finding.detail),
        ]);
    }
    format!("{}\n\n{}\n", table.trim_fmt(), conclusion(report))
}

fn conclusion(report: &Report) -> String {
    let working: Vec<String> = report
        .checks
        .iter()
        .filter(|check| SOURCES.contains(&check.name) && check.finding.state == State::Works)
        .map(|check| check.name.replace('_', " "))
        .collect();
    let broken: Vec<String> = report
        .checks
        .iter()
        .filter(|check| check.finding.state == State::Broken)
        .map(|check| check.name.replace('_', " "))
        .collect();
    let sentence = match report.verdict {
        Verdict::Ready => format!("memtide tier works here, with {}", working.join(", ")),
        Verdict::Unproved => "Nothing speaks against memtide tier; nothing was tried".to_owned(),
        Verdict::OneTier => "One tier of memory: nothing to do for memtide tier, unless its option --tiers names others"
                .to_owned(),
        Verdict::NotReady if report.checks.iter().any(mover_is_missing) => {
            "memtide tier cannot run here: no way to move pages".to_owned()
        }
        Verdict::NotReady => "memtide tier cannot run here: no source of accesses".to_owned(),
        Verdict::Broken => format!("Broken: {}", broken.join(", ")),
    };
    format!("{sentence}. ({:.1} s)", report.elapsed.as_secs_f64())
}

fn mover_is_missing(check: &Check) -> bool {
    check.name == MOVER && !matches!(check.finding.state, State::Works | State::NotProbed)
}

fn words(state: State) -> &'static str {
    match state {
        State::Works => "works",
        State::Set => "set",
        State::Advice => "advice",
        State::NotProbed => "not tried",
        State::Broken => "BROKEN",
        State::Unavailable => "unavailable",
        State::NotPermitted => "not permitted",
        State::Busy => "busy",
    }
}

fn color(state: State) -> Option<Color> {
    match state {
        State::Works => Some(Color::Green),
        State::Broken => Some(Color::Red),
        State::Advice | State::Unavailable | State::NotPermitted | State::Busy => {
            Some(Color::Yellow)
        }
        State::Set | State::NotProbed => None,
    }
}
