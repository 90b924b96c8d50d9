//! `memtide sim list`.

use super::args::ListArgs;
use super::load;
use crate::shared::context::Context;
use crate::shared::table::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::scenario::{MACHINES, SHIPPED, Shipped};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// What the command says; the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    scenarios: Vec<ScenarioLine>,
    machines: Vec<MachineLine>,
}

#[derive(Debug, Serialize)]
struct ScenarioLine {
    name: String,
    title: String,
    document: Option<String>,
    configurations: Vec<String>,
    about_seconds: Option<u32>,
}

#[derive(Debug, Serialize)]
struct MachineLine {
    name: String,
    about: String,
}

/// Runs the command.
pub fn run(args: &ListArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let report = Report {
        scenarios: SHIPPED
            .iter()
            .map(scenario_line)
            .collect::<Result<_, _>>()?,
        machines: machines()?,
    };
    match args.json || context.json {
        true => context.print_json(&report)?,
        false => context.print(&text(&report, context.styled))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// About how long a run of each takes on two processors, in seconds; measured by hand. Those of
/// `scale`, `scale-large`, `hot-larger-than-fast` and `bursty` are reckoned from processor time or accesses.
const SECONDS: &[(&str, u32)] = &[
    ("zipf-drift", 5),
    ("phases", 4),
    ("scan-over-hot", 4),
    ("scale", 7),
    ("scale-large", 600),
    ("scale-4g", 6),
    ("hot-larger-than-fast", 20),
    ("warm-and-full", 45),
    ("bursty", 6),
    ("bandwidth-bound", 14),
    ("two-tenants", 8),
    ("noisy-neighbour", 11),
    ("burst", 5),
    ("pointer-chase", 5),
    ("page-count", 1),
    ("stream-interleave", 9),
    ("mlc-interleave", 6),
    ("xsbench-interleave", 3),
    ("pghot-mode1", 12),
    ("pghot-mode2", 9),
    ("pghot-mode3", 16),
    ("pghot-overcommit", 3),
    ("numab-bind-pmbench", 13),
    ("ibs-two-node", 6),
    ("sockets", 7),
    ("luf-llama", 19),
];

fn scenario_line(shipped: &Shipped) -> anyhow::Result<ScenarioLine> {
    let scenario = shipped.read()?;
    let mut configurations: Vec<String> = Vec::new();
    for case in &scenario.cases {
        for configuration in scenario.configurations_of(case) {
            if !configurations.contains(&configuration.name) {
                configurations.push(configuration.name);
            }
        }
    }
    let seconds = SECONDS.iter().find(|(name, _)| *name == shipped.name);
    Ok(ScenarioLine {
        name: shipped.name.to_owned(),
        title: scenario.title,
        document: Some(scenario.document).filter(|document| !document.is_empty()),
        configurations,
        about_seconds: seconds.map(|(_, seconds)| *seconds),
    })
}

fn machines() -> anyhow::Result<Vec<MachineLine>> {
    MACHINES
        .iter()
        .map(|shipped| {
            Ok(MachineLine {
                name: shipped.name.to_owned(),
                about: load::machine(shipped.name, &mut Vec::new())?.about,
            })
        })
        .collect()
}

fn text(report: &Report, styled: bool) -> String {
    let mut scenarios = table(
        &[
            ("scenario", Left),
            ("about", Right),
            ("configurations", Right),
            ("after", Left),
            ("what", Left),
        ],
        styled,
    );
    for line in &report.scenarios {
        scenarios.add_row([
            line.name.clone(),
            line.about_seconds.map_or("-".to_owned(), duration),
            line.configurations.len().to_string(),
            line.document.clone().unwrap_or_else(|| "-".to_owned()),
            line.title.clone(),
        ]);
    }
    let mut machines = table(&[("machine", Left), ("what", Left)], styled);
    for line in &report.machines {
        machines.add_row([line.name.clone(), first_sentence(&line.about)]);
    }
    let mut text = format!("{}\n\n{}\n\n", scenarios.trim_fmt(), machines.trim_fmt());
    let _ = writeln!(
        text,
        "About is the time of a run on two processors. memtide sim explain NAME says what a scenario \
         is,\nmemtide sim run NAME runs it; docs/scenarios.md says how to write one."
    );
    text
}

/// A time for people: `40 s`, `3 min`.
fn duration(seconds: u32) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        more => format!("{} min", more.div_ceil(60)),
    }
}

fn first_sentence(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.find(". ") {
        Some(end) => words[..=end].to_owned(),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_a_time() {
        for shipped in SHIPPED {
            let listed = SECONDS.iter().any(|(name, _)| *name == shipped.name);
            assert!(listed, "{}", shipped.name);
        }
    }
}
