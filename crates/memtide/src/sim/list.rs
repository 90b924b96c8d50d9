//! `memtide sim list`.

use super::args::ListArgs;
use super::load::{self, Folder, Found};
use super::shipped::{self, Shipped};
use crate::cli::Context;
use crate::topology::table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::scenario::Scenario;
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
    about_seconds: u32,
}

#[derive(Debug, Serialize)]
struct MachineLine {
    name: String,
    about: String,
}

/// Runs the command.
pub fn run(args: &ListArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let report = Report {
        scenarios: shipped::scenarios()
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

/// A shipped scenario.
pub fn read(file: &Shipped) -> anyhow::Result<Scenario> {
    load::parse(&Found {
        file: file.path.to_owned(),
        text: file.text.to_owned(),
        folder: Folder::Shipped,
    })
}

fn scenario_line(file: &'static Shipped) -> anyhow::Result<ScenarioLine> {
    let scenario = read(file)?;
    Ok(ScenarioLine {
        name: file.name().to_owned(),
        title: scenario.title.clone(),
        document: scenario.document.clone(),
        configurations: scenario
            .configurations
            .iter()
            .map(|configuration| configuration.name.clone())
            .collect(),
        about_seconds: file.seconds,
    })
}

fn machines() -> anyhow::Result<Vec<MachineLine>> {
    shipped::machines()
        .map(|file| {
            let machine = load::machine(file.name())?;
            Ok(MachineLine {
                name: file.name().to_owned(),
                about: machine.about,
            })
        })
        .collect()
}

fn text(report: &Report, styled: bool) -> String {
    let mut scenarios = table(
        &[("scenario", Left), ("about", Right), ("document", Left), ("what", Left)],
        styled,
    );
    for line in &report.scenarios {
        scenarios.add_row([
            line.name.clone(),
            duration(line.about_seconds),
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
