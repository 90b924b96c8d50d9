//! Runs a scenario: every case under every configuration, compared with each case's first and with
//! what was published.
//!
//! Runs are independent, so they are spread over threads; results are put back in order, and nothing
//! in them depends on how many threads there were.

use super::{Case, Figure, Mark, Published, PublishedBalancing, Scenario};
use crate::config::Configuration;
use crate::engine::{IDLE_QUANTA, QUANTUM_NS};
use crate::result::TlbCounts;
use crate::result::{RunResult, Score};
use crate::text::did_you_mean;
use crate::workload::{Measure, ProgramsSpec, WorkloadSpec, pauses};
use crate::world;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides all chance.
    pub seed: u64,
    /// S of scale 1/S, a power of two; `None`: the scenario's own.
    pub scale: Option<u32>,
    /// Runs at the same time; at least 1.
    pub jobs: usize,
    /// Only these configurations; all if empty.
    pub only: Vec<String>,
    /// Whether every access is checked for the content that it finds, bounds that place pages by
    /// themselves excepted.
    pub check: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            scale: None,
            jobs: 1,
            only: Vec::new(),
            check: false,
        }
    }
}

/// Who wants to know how far runs are.
pub trait Progress: Sync {
    /// Run `run` (an index into [`Scenario::runs`]) has done this share, 0 to 1.
    fn at(&self, run: usize, done: f64);
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Progress for Quiet {
    fn at(&self, _: usize, _: f64) {}
}

/// Why a scenario did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// `only` names a configuration that there is not.
    #[error("there is no configuration \"{name}\" in {scenario}{mean}; there are {known}")]
    NoConfiguration {
        /// As given.
        name: String,
        /// The scenario.
        scenario: String,
        /// The nearest right one.
        mean: String,
        /// All of them.
        known: String,
    },
    /// A scale that cannot be.
    #[error("scale 1/{scale}: {scenario} needs S to be a power of two of at most {limit}")]
    Scale {
        /// As given.
        scale: u32,
        /// The scenario.
        scenario: String,
        /// The largest.
        limit: u32,
    },
    /// A recording in huge pages that the machine has no memory for.
    #[error(
        "scale 1/{scale}: the recording of {scenario} is spread over more huge pages than the machine has; give a \
         smaller S, or leave out `huge`"
    )]
    Recording {
        /// As given.
        scale: u32,
        /// The scenario.
        scenario: String,
    },
    /// The simulated kernel could not go on.
    #[error("{scenario}, {configuration}: {why}")]
    Run {
        /// The scenario.
        scenario: String,
        /// The configuration.
        configuration: String,
        /// What happened.
        why: String,
    },
}

/// In what a row is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Seconds; fewer are better.
    #[serde(rename = "s")]
    Seconds,
    /// Accesses a second; more are better.
    #[serde(rename = "accesses/s")]
    AccessesPerS,
    /// Bytes a second; more are better.
    #[serde(rename = "B/s")]
    BytesPerS,
    /// Not measured: where pages lie is the result.
    #[serde(rename = "pages")]
    Pages,
}

impl Unit {
    /// Whether a larger value is the better one.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        matches!(self, Unit::AccessesPerS | Unit::BytesPerS)
    }
}

/// A scenario's result.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// The machine's name.
    pub machine: String,
    /// The seed.
    pub seed: u64,
    /// S of scale 1/S.
    pub scale: u32,
    /// Cases by configurations, in order; bounds last in each case.
    pub rows: Vec<Row>,
    /// Published, but not run here.
    pub not_run: Vec<NotRun>,
}

/// A run beside what was published of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case; empty if there is one only.
    pub case: String,
    /// The configuration.
    pub configuration: String,
    /// What `value` counts.
    pub unit: Unit,
    /// Time or rate; 0 if only pages count.
    pub value: f64,
    /// `value` over that of the case's first configuration, if that was run.
    pub ratio: Option<f64>,
    /// What was published.
    pub published: Option<PublishedBeside>,
    /// All that was counted.
    pub result: RunResult,
}

/// What was published of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedBeside {
    /// In the row's unit; `None` if only a ratio was published.
    pub value: Option<f64>,
    /// Over the published value of the case's first configuration.
    pub ratio: Option<f64>,
    /// Pages promoted, or moved by balancing.
    pub pages_moved: Option<u64>,
    /// Pages demoted.
    pub pages_demoted: Option<u64>,
    /// Hint faults.
    pub hint_faults: Option<u64>,
    /// Pages by node of each mapping.
    pub pages: std::collections::BTreeMap<String, Vec<u64>>,
    /// What balancing cost and how it went; for tables.
    #[serde(skip)]
    pub balancing: Option<PublishedBalancing>,
    /// What TLBs did.
    pub tlb: Option<TlbCounts>,
    /// How far to trust it.
    pub mark: Option<Mark>,
    /// Why, or what else to know.
    pub note: String,
}

/// A row of the document that is not run here.
#[derive(Clone, Debug, Serialize)]
pub struct NotRun {
    /// The case.
    pub case: String,
    /// The configuration.
    pub configuration: String,
    /// What was published of it.
    pub published: PublishedBeside,
    /// Why it is not run.
    pub why: String,
}

impl Scenario {
    /// What is run under `options`, as (case, configuration), in the order of rows.
    ///
    /// # Errors
    ///
    /// An unknown name in `only`.
    pub fn runs(&self, options: &Options) -> Result<Vec<(String, String)>, RunError> {
        let runs = self.planned(options)?.into_iter();
        Ok(runs.map(|(case, c)| (case.name.clone(), c.name)).collect())
    }

    /// Quanta of all runs of a recording in which nobody accesses anything. Time jumps over long pauses,
    /// but not before the kernel is done with what it was at, and `memtide tier` with pages that leave
    /// because they are idle. 0 without a recording.
    ///
    /// # Errors
    ///
    /// An unknown name.
    pub fn paused_quanta(&self, options: &Options) -> Result<u64, RunError> {
        let runs = self.planned(options)?;
        let attended = |(_, configuration): &(&Case, Configuration)| {
            let tier = configuration.tier.as_ref();
            let ns = tier.map_or(0, |tier| world::row::attended_ns(&self.machine, tier));
            (ns / QUANTUM_NS).max(IDLE_QUANTA)
        };
        let mut most: Vec<u64> = runs.iter().map(attended).collect();
        most.sort_unstable();
        most.dedup();
        let sums = pauses(&self.rows, QUANTUM_NS, &most);
        let of_run = |run| sums[most.binary_search(&attended(run)).unwrap_or(0)];
        Ok(runs
            .iter()
            .map(of_run)
            .fold(0u64, |all, quanta| all.saturating_add(quanta)))
    }

    fn planned(&self, options: &Options) -> Result<Vec<(&Case, Configuration)>, RunError> {
        let all = self.cases.iter().flat_map(|case| {
            let configurations = self.configurations_of(case).into_iter();
            configurations.map(move |configuration| (case, configuration))
        });
        let all: Vec<_> = all.collect();
        let mut known: Vec<&str> = Vec::new();
        for (_, configuration) in &all {
            if !known.contains(&configuration.name.as_str()) {
                known.push(&configuration.name);
            }
        }
        if let Some(name) = options
            .only
            .iter()
            .find(|name| !known.contains(&name.as_str()))
        {
            return Err(RunError::NoConfiguration {
                name: name.clone(),
                scenario: self.name.clone(),
                mean: did_you_mean(name, &known),
                known: known.join(", "),
            });
        }
        let wanted = |(_, c): &(&Case, Configuration)| {
            options.only.is_empty() || options.only.contains(&c.name)
        };
        Ok(all.into_iter().filter(wanted).collect())
    }
}

/// Runs a scenario.
///
/// # Errors
///
/// An unknown name, a scale that cannot be, or a simulated kernel that could not go on.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Comparison, RunError> {
    let scale = options.scale.unwrap_or(scenario.scale);
    let limit = scenario.max_scale();
    if !scale.is_power_of_two() || scale > limit {
        return Err(RunError::Scale {
            scale,
            scenario: scenario.name.clone(),
            limit,
        });
    }
    if !scenario.recording_fits(scale) {
        let scenario = scenario.name.clone();
        return Err(RunError::Recording { scale, scenario });
    }
    let planned = scenario.planned(options)?;
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<RunResult, String>>>> =
        planned.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, configuration)) = planned.get(n) else {
                break;
            };
            let configuration = &Configuration {
                check: options.check,
                ..configuration.clone()
            };
            let (machine, seed) = (&scenario.machine, options.seed);
            let progress = |done| progress.at(n, done);
            let result = match (case.home(), &configuration.tier) {
                (Some((home, spec)), Some(tier)) if home.rates => {
                    world::row::rates::run(machine, spec, (configuration, tier), seed, &progress)
                }
                _ => {
                    let workload = scenario.workload(case, configuration, scale);
                    world::row::run(machine, workload, configuration, (seed, scale), &progress)
                }
            };
            let mut result = result.map_err(|error| error.to_string());
            if let Ok(result) = &mut result {
                case.note_home(configuration, result);
            }
            *results[n]
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        }
    };
    std::thread::scope(|threads| {
        for _ in 1..options.jobs.min(planned.len()) {
            // Where no thread can be had, the others do its work.
            if std::thread::Builder::new()
                .spawn_scoped(threads, work)
                .is_err()
            {
                break;
            }
        }
        work();
    });
    let mut rows: Vec<Row> = Vec::new();
    for ((case, configuration), result) in planned.iter().zip(results) {
        let result = result
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = result
            .unwrap_or_else(|| Err("the run ended without a result".to_owned()))
            .map_err(|why| RunError::Run {
                scenario: scenario.name.clone(),
                configuration: configuration.name.clone(),
                why,
            })?;
        rows.push(scenario.row(case, configuration, result, scale, &rows));
    }
    Ok(Comparison {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        machine: scenario.machine.name.clone(),
        seed: options.seed,
        scale,
        rows,
        not_run: scenario.not_run(),
    })
}

impl Scenario {
    fn row(
        &self,
        case: &Case,
        configuration: &Configuration,
        mut result: RunResult,
        scale: u32,
        before: &[Row],
    ) -> Row {
        let (unit, value) = match &result.home {
            // One that never was home was not within the run.
            Some(home) => (Unit::Seconds, home.seconds.unwrap_or(result.seconds)),
            None => measured(&case.workload, &result, scale),
        };
        if unit.more_is_better() {
            let unit = match unit {
                Unit::AccessesPerS => "accesses/s",
                _ => "B/s",
            };
            result.score = Some(Score { value, unit });
        }
        let configurations = self.configurations_of(case);
        let first = configurations.first().map(|c| c.name.as_str());
        let own = first == Some(&configuration.name);
        let base_row = before
            .iter()
            .find(|row| row.case == case.name && Some(row.configuration.as_str()) == first);
        if own || base_row.is_some() {
            super::programs::compare(&mut result, base_row.map(|row| &row.result));
        }
        let base = match own {
            true => Some(value),
            false => base_row
                .filter(|row| !never_home(&row.result))
                .map(|row| row.value),
        };
        let published = self.published.iter().find(|published| {
            published.case == case.name
                && published.configuration == configuration.name
                && published.not_run.is_none()
        });
        Row {
            case: case.name.clone(),
            configuration: configuration.name.clone(),
            unit,
            value,
            ratio: base
                .filter(|&base| base > 0.0 && !never_home(&result))
                .map(|base| value / base),
            published: published.map(|published| self.beside(published)),
            result,
        }
    }

    /// A published row with its ratio.
    fn beside(&self, published: &Published) -> PublishedBeside {
        let value = |published: &Published| match published.figure() {
            Some(Figure::Seconds(value) | Figure::BytesPerS(value)) => Some(value),
            _ => None,
        };
        let case = self.cases.iter().find(|case| case.name == published.case);
        let first = case.and_then(|case| self.configurations_of(case).into_iter().next());
        let first = first.and_then(|first| {
            self.published
                .iter()
                .find(|row| row.case == published.case && row.configuration == first.name)
        });
        let ratio = match published.figure() {
            Some(Figure::Ratio(ratio)) => Some(ratio),
            _ => value(published)
                .zip(first.and_then(value))
                .map(|(own, base)| own / base),
        };
        PublishedBeside {
            value: value(published),
            ratio,
            pages_moved: published.pages_moved,
            pages_demoted: published.pages_demoted,
            hint_faults: published.hint_faults,
            pages: published.pages.clone(),
            balancing: published.balancing.clone(),
            tlb: published.tlb,
            mark: published.mark,
            note: published.note.clone(),
        }
    }

    fn not_run(&self) -> Vec<NotRun> {
        let rows = self.published.iter();
        rows.filter_map(|row| {
            Some(NotRun {
                case: row.case.clone(),
                configuration: row.configuration.clone(),
                published: self.beside(row),
                why: row.not_run.clone()?,
            })
        })
        .collect()
    }
}

/// Whether a hot set never was home: the time is no measurement then, but the least that it can be.
fn never_home(result: &RunResult) -> bool {
    result.home.is_some_and(|home| home.seconds.is_none())
}

/// What a workload's own measure says of a run.
fn measured(workload: &WorkloadSpec, result: &RunResult, scale: u32) -> (Unit, f64) {
    let seconds = result.seconds.max(1e-12);
    match (workload.measure(), workload) {
        (Measure::Rate, WorkloadSpec::Programs(ProgramsSpec(all))) if workload.has_background() => {
            let counted = all.iter().zip(&result.programs);
            let counted = counted.filter(|(spec, _)| !spec.background);
            let accesses: f64 = counted
                .map(|(_, one)| one.accesses_per_s * one.seconds)
                .sum();
            (Unit::AccessesPerS, accesses / seconds)
        }
        (Measure::Rate, _) => {
            let accesses = result.accesses as f64 * f64::from(scale);
            (Unit::AccessesPerS, accesses / seconds)
        }
        (Measure::Bytes, WorkloadSpec::Stream(spec)) => {
            (Unit::BytesPerS, spec.counted_bytes(scale) as f64 / seconds)
        }
        (Measure::Bytes | Measure::Traffic, _) => {
            (Unit::BytesPerS, result.bytes_per_s.iter().sum())
        }
        (Measure::Pages, _) => (Unit::Pages, 0.0),
        (Measure::Seconds, _) => (Unit::Seconds, result.seconds),
    }
}
