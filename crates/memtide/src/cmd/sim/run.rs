//! `memtide sim run`: from words on the command line to runs, and from runs to what is printed.

use super::args::RunArgs;
use super::comparison::{Comparison, Document};
use super::progress::Bar;
use super::{command, compare, estimate, html, load, replay, table};
use crate::shared::context::{BadUsage, Context};
use crate::shared::outside;
use memtide_sim::scenario::{Options, RunError, Scenario, confidence};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the command.
pub fn run(args: &RunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    memtide_linux::HugePages::ask();
    // All are read before the first runs: a mistake in the last shows at once.
    let mut inputs = Vec::new();
    let scenarios = match &args.trace {
        Some(trace) => {
            let machine = args.machine.as_deref();
            vec![replay::scenario(trace, machine, &mut inputs)?]
        }
        None => (args.scenarios.iter())
            .map(|word| load::scenario(word, &mut inputs))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let to_stdout = args
        .json
        .as_deref()
        .map_or(context.json, |file| file == Path::new("-"));
    let json = args.json.as_deref().filter(|_| !to_stdout);
    if json.is_some() && json == args.report.as_deref() {
        let what = "--json and --report name the same file; name two";
        return Err(BadUsage(what.to_owned()).into());
    }
    for (option, file) in [("--json", json), ("--report", args.report.as_deref())] {
        if let Some(file) = file {
            load::may_write(&inputs, option, file)?;
        }
    }
    for scenario in &scenarios {
        scenario.runs(&options(args, scenario)).map_err(blame)?;
    }
    let mut document = Document {
        scenarios: Vec::new(),
    };
    for scenario in &scenarios {
        let runs = (args.seeds, again(args));
        estimate::allow(scenario, &options(args, scenario), runs, args.yes)?;
    }
    for scenario in &scenarios {
        let (comparison, rate) = one(scenario, &options(args, scenario), args)?;
        if !to_stdout {
            let blank = if document.scenarios.is_empty() {
                ""
            } else {
                "\n"
            };
            let text = table::text(&comparison.shown(), rate, context.styled);
            context.print(&format!("{blank}{text}"))?;
        }
        document.scenarios.push(comparison);
    }
    if let Some(file) = &args.report {
        let shown: Vec<Comparison> = document.scenarios.iter().map(Comparison::shown).collect();
        load::write(file, &html::page(&shown, &command::line(args)))?;
        if !to_stdout {
            context.print(&format!("Charts: {}\n", outside::path(file)))?;
        }
    }
    match json {
        _ if to_stdout => context.print_json(&document)?,
        Some(file) => load::write(file, &(serde_json::to_string_pretty(&document)? + "\n"))?,
        None => {}
    }
    Ok(match document.scenarios.iter().any(Comparison::has_stale) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn options(args: &RunArgs, scenario: &Scenario) -> Options {
    let all = scenario.runs(&Options::default()).unwrap_or_default();
    let known: Vec<String> = all
        .into_iter()
        .map(|(_, configuration)| configuration)
        .collect();
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok());
    Options {
        seed: args.seed,
        scale: args.scale,
        jobs: jobs.map_or(1, NonZeroUsize::get),
        only: super::args::names(&args.only, &known),
        check: args.check,
    }
}

/// Whether a coarser machine runs it, too. A check looks at accesses, not at times.
fn again(args: &RunArgs) -> bool {
    !args.no_scale_error && !args.check
}

/// Runs a scenario; also how many accesses it simulated a second of the clock on the wall.
fn one(
    scenario: &Scenario,
    options: &Options,
    args: &RunArgs,
) -> anyhow::Result<(Comparison, Option<f64>)> {
    let runs = scenario.runs(options).map_err(blame)?;
    let bar = Bar::new(&scenario.name, runs.len());
    let start = Instant::now();
    let ran = confidence::run_surely(scenario, options, args.seeds, again(args), &bar);
    let elapsed = start.elapsed().as_secs_f64();
    bar.finish();
    let ran = ran.map_err(blame)?;
    let rate = (ran.accesses > 0 && elapsed > 0.0).then(|| ran.accesses as f64 / elapsed);
    let comparison = compare::comparison(scenario, ran.comparison, ran.confidence);
    Ok((comparison, rate))
}

/// An error of the words that were given, or of the run.
fn blame(error: RunError) -> anyhow::Error {
    match error {
        RunError::NoConfiguration { .. } | RunError::Scale { .. } | RunError::Recording { .. } => {
            BadUsage(error.to_string()).into()
        }
        RunError::Run { .. } => error.into(),
    }
}
