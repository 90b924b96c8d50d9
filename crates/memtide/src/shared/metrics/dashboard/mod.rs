//! The dashboard, asked of a real Prometheus, and its picture for the pages.
//!
//! The real loop runs on two simulated machines ([`machines`]). What memtide tells of them is given to
//! Prometheus with the times at which it would have been scraped ([`history`]). Then each query of the
//! dashboard ([`definition`]) is asked as Grafana asks it, what comes is judged, and drawn as Grafana lays it
//! out ([`picture`]). Grafana itself is not run.
//!
//! Time is simulated, so that the picture is the same each time. [`AGAIN`] writes it.

pub(super) mod definition;
mod history;
mod machines;
mod picture;
mod scale;

use super::prometheus::{Line, Programs, Server};
use crate::shared::kept_pictures;
use definition::{Dashboard, Panel};
use history::{Scrape, history};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

/// The command that writes the picture.
const AGAIN: &str = "SNAPSHOTS=overwrite cargo test -p memtide --bin memtide metrics::dashboard";
/// What is shown begins at noon of the first day of 2026, in UTC.
const BEGIN_S: u64 = 1_767_268_800;
/// So long before it the first scrape was. No scrape is at the edge of a rate then: versions of Prometheus differ in
/// whether it counts.
const AHEAD_S: u64 = 5;
/// How often is scraped, and how long the rates are that Grafana asks for then: four scrapes.
const SCRAPE_S: u64 = 15;
const RATE_S: i64 = 4 * SCRAPE_S as i64;
const RUN_S: u64 = 20 * 60;

/// A panel with what its queries came to: legends and lines.
struct Answered {
    panel: Panel,
    lines: Vec<(String, Line)>,
}

struct Answers {
    dashboard: Dashboard,
    /// What Grafana offers as instances.
    instances: Vec<String>,
    panels: Vec<Answered>,
}

/// What Prometheus answers; nothing where there is none. Tests share it.
fn answers() -> Option<&'static Answers> {
    static ANSWERS: OnceLock<Option<Answers>> = OnceLock::new();
    let answers = ANSWERS.get_or_init(|| Some(ask(&Programs::find()?)));
    answers.as_ref()
}

/// What each machine tells. A test that fails need not run them again.
fn told() -> &'static [(&'static str, Vec<Scrape>); 2] {
    static TOLD: OnceLock<[(&str, Vec<Scrape>); 2]> = OnceLock::new();
    TOLD.get_or_init(|| {
        // memtide begins one scrape before the first.
        let times = 1..=RUN_S / SCRAPE_S + 1;
        let times: Vec<u64> = times.map(|n| n * SCRAPE_S * 1000).collect();
        let taken = Duration::from_secs(BEGIN_S - AHEAD_S - SCRAPE_S);
        [
            ("forge", machines::forge(&times, taken)),
            ("mill", machines::mill(&times, taken)),
        ]
    })
}

fn ask(programs: &Programs) -> Answers {
    let server = Server::over(programs, &history(told(), BEGIN_S - AHEAD_S - SCRAPE_S));
    let dashboard = Dashboard::read();
    let range = (BEGIN_S as i64, (BEGIN_S + RUN_S) as i64, SCRAPE_S as i64);
    let answered = |panel: &Panel| {
        let lines = panel.targets.iter().flat_map(|target| {
            let lines = server.range(&dashboard.filled(&target.expr, RATE_S), range);
            assert!(
                !lines.is_empty(),
                "{}: no line: {}",
                panel.title,
                target.expr
            );
            let legend = |line: Line| (target.legend(|name| line.label(name)), line);
            lines.into_iter().map(legend).collect::<Vec<_>>()
        });
        Answered {
            lines: lines.collect(),
            panel: panel.clone(),
        }
    };
    let mut asked = dashboard.variables.iter().filter_map(|of| of.2.as_deref());
    let of_label = |asked: &str| {
        let inside = asked.strip_prefix("label_values(")?.strip_suffix(')')?;
        let (series, label) = inside.split_once(", ")?;
        Some(server.label_values(label, series))
    };
    Answers {
        panels: dashboard.panels.iter().map(answered).collect(),
        instances: asked.next().and_then(of_label).expect("a variable"),
        dashboard,
    }
}

/// The values that a unit can have here.
fn bounds(unit: &str) -> (f64, f64) {
    match unit {
        // No machine has more memory, and none moves more in a second.
        "bytes" => (0.0, 20.0 * (1u64 << 30) as f64),
        "Bps" => (0.0, 200e6),
        // Shares; and of processors no more than one.
        "percentunit" | "none" => (0.0, 1.0),
        // Numbers of processes, and what happens so often a second.
        "short" => (0.0, 10_000.0),
        other => panic!("a unit that nobody judges: {other}"),
    }
}

#[test]
fn each_query_has_the_lines_that_its_legend_promises() {
    let Some(answers) = answers() else { return };
    assert_eq!(answers.instances, ["forge", "mill"]);
    assert_eq!(answers.panels.len(), answers.dashboard.panels.len());
    for Answered { panel, lines } in &answers.panels {
        let title = &panel.title;
        let legends: BTreeSet<&str> = lines.iter().map(|(legend, _)| legend.as_str()).collect();
        assert_eq!(
            legends.len(),
            lines.len(),
            "{title}: lines of one name: {legends:?}"
        );
        for (legend, line) in lines {
            // A rate begins with the second scrape.
            assert!(line.points.len() > 3, "{title}: {legend}: {line:?}");
        }
        let both = ["forge", "mill"].iter().all(|instance| {
            lines
                .iter()
                .any(|(_, line)| line.label("instance") == Some(instance))
        });
        // Only one machine has classes, and only one balances.
        let one = title.starts_with("Classes:") || title.starts_with("Balancing:");
        assert!(both != one, "{title}: {legends:?}");
    }
}

/// Prometheus shows at the end what was told at the end.
#[test]
fn what_is_shown_is_what_was_told() {
    let Some(answers) = answers() else { return };
    let shown = |title: &str, legend: &str| {
        let mut panels = answers.panels.iter();
        let of = panels.find(|of| of.panel.title == title).expect("a panel");
        let mut lines = of.lines.iter();
        let (_, line) = lines.find(|(name, _)| name == legend).expect("a line");
        line.points.last().copied().expect("points")
    };
    let last = |instance: &str, sample: &str| {
        let (_, scrapes) = told().iter().find(|(of, _)| *of == instance)?;
        let mut values = scrapes
            .last()?
            .text
            .lines()
            .filter_map(|line| line.strip_prefix(sample));
        values.next()?.trim().parse::<f64>().ok()
    };
    for instance in ["forge", "mill"] {
        for tier in ["fast", "slow"] {
            let sample = format!("memtide_managed_bytes{{loop=\"tier\",tier=\"{tier}\"}}");
            let (at, value) = shown("Memory of managed processes", &format!("{instance} {tier}"));
            assert_eq!(at as u64, BEGIN_S + RUN_S);
            assert_eq!(Some(value), last(instance, &sample), "{instance} {tier}");
        }
    }
    let sample = "memtide_class_fast_bytes{loop=\"tier\",class=\"batch\"}";
    let (_, value) = shown("Classes: fast memory", "mill batch");
    assert_eq!(Some(value), last("mill", sample));
}

#[test]
fn values_are_of_the_unit_that_their_panel_names() {
    let Some(answers) = answers() else { return };
    for Answered { panel, lines } in &answers.panels {
        let (least, most) = bounds(&panel.unit);
        let mut moves = false;
        for (legend, line) in lines {
            for (at, value) in &line.points {
                let sane = (least..=most).contains(value);
                assert!(
                    sane,
                    "{}: {legend} at {at}: {value} {}",
                    panel.title, panel.unit
                );
                moves |= *value > 0.0;
            }
        }
        // That none are lost is as it should be.
        let may_rest = panel.title == "Reports lost";
        assert!(moves || may_rest, "{}: nothing happens", panel.title);
    }
}

#[test]
fn the_picture_of_the_pages_is_what_is_drawn() {
    let Some(answers) = answers() else {
        // Who asks for the picture is not to take the old one for it.
        assert!(
            !kept_pictures::overwrites(),
            "docs/dashboard.svg cannot be drawn without prometheus and promtool"
        );
        return;
    };
    let about = "Eighteen panels of the two machines forge and mill over twenty minutes: memory by tier, its fast \
                 share, what moves, free memory, what memtide costs, balancing, programs that wait for memory, and \
                 classes with their shares.";
    let times = (BEGIN_S as i64, (BEGIN_S + RUN_S) as i64);
    let now = picture::svg(answers, about, times);
    kept_pictures::compare("dashboard.svg", &now, "the dashboard shows", AGAIN);
}
