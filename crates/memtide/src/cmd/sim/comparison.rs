//! What the runs of a scenario say when they are held against each other and against what was
//! published: one value for the JSON document, the table and the page.
//!
//! A configuration's *value* is the time that the workload took, or the score that it is measured by
//! (a rate; more is better). Its *ratio* is its value over that of the first configuration, for ours
//! and for the published values alike, so that the two can be compared although no simulated second
//! is a second of the document's machine. Nothing here depends on how fast the simulation ran.

use crate::shared::outside::{message, outside};
use memtide_core::vmstat::Counter;
use memtide_sim::result::RunResult;
use memtide_sim::result::TlbCounts;
use memtide_sim::scenario::Mark;
use memtide_sim::scenario::confidence::Confidence;
use memtide_sim::spec::MachineSpec;
use serde::Serialize;
use std::collections::BTreeMap;

/// The document of `memtide sim run --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    /// One for each scenario, in the order in which they were named.
    pub scenarios: Vec<Comparison>,
}

/// A scenario's runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the experiment comes from, if from a document.
    pub document: Option<String>,
    /// What the randomness began from.
    pub seed: u64,
    /// Pages of the real machine that a simulated page stands for.
    pub scale: u32,
    /// The machine's nodes.
    pub nodes: Vec<NodeLine>,
    /// All of the machine, for the page; `memtide sim explain --json` has it as a document.
    #[serde(skip)]
    pub machine: Option<MachineSpec>,
    /// Workloads that are compared each by itself; most scenarios have one.
    pub cases: Vec<Case>,
    /// Published rows that were not run, and why.
    pub not_run: Vec<NotRun>,
}

/// One workload under every configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Its name; empty if it is the only one.
    pub name: String,
    /// What the values are.
    pub measure: Measure,
    /// The runs, in the scenario's order, the bounds last.
    pub configurations: Vec<Outcome>,
    /// What the best configuration gains, in words.
    pub summary: String,
}

/// A published row that was not run.
#[derive(Clone, Debug, Serialize)]
pub struct NotRun {
    /// Of which case.
    pub case: String,
    /// Which configuration.
    pub configuration: String,
    /// Why not.
    pub why: String,
}

/// What a scenario is measured by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Measure {
    /// `time`, `score` or `pages`.
    pub kind: MeasureKind,
    /// `s`, or the score's unit.
    pub unit: String,
}

/// See [`Measure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasureKind {
    /// Less is better.
    Time,
    /// More is better.
    Score,
    /// Nothing is better: where pages lie is the result.
    Pages,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeLine {
    /// Its id.
    pub id: u16,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Its memory.
    pub memory_bytes: u64,
    /// Whether pages on it need no promotion.
    pub top_tier: bool,
}

/// A configuration's run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What the configuration means.
    pub about: String,
    /// Whether it is a bound and no kernel.
    pub bound: bool,
    /// Its time or score.
    pub value: f64,
    /// The value over that of the first configuration.
    pub ratio: Option<f64>,
    /// How sure both are: over several seeds, and on a coarser machine.
    pub confidence: Confidence,
    /// What was published of it.
    pub published: Option<Published>,
    /// Base pages of the real machine that were promoted.
    pub pages_promoted: u64,
    /// Pages that NUMA balancing moved without promoting them.
    pub pages_balanced: u64,
    /// Pages that were demoted.
    pub pages_demoted: u64,
    /// Hint faults.
    pub hint_faults: u64,
    /// The run itself.
    #[serde(flatten)]
    pub run: RunResult,
}

/// A column of counts: its name, and the count.
pub type CountOf = (&'static str, fn(&Outcome) -> u64);

/// What tables count of a run; what never happened in any run gets no column.
pub const COUNTS: &[CountOf] = &[
    ("promoted", |outcome| outcome.pages_promoted),
    ("balanced", |outcome| outcome.pages_balanced),
    ("demoted", |outcome| outcome.pages_demoted),
    ("hint faults", |outcome| outcome.hint_faults),
    ("shootdowns", |outcome| outcome.run.tlb_shootdowns),
];

/// What was published of a configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Published {
    /// In the case's unit; null if only a ratio was published.
    pub value: Option<f64>,
    /// Over that of the first configuration, if that was published too.
    pub ratio: Option<f64>,
    /// Pages promoted, or moved by balancing.
    pub pages_moved: Option<u64>,
    /// Pages demoted.
    pub pages_demoted: Option<u64>,
    /// Hint faults.
    pub hint_faults: Option<u64>,
    /// Pages by node of each mapping.
    pub pages: BTreeMap<String, Vec<u64>>,
    /// What TLBs did.
    pub tlb: Option<TlbCounts>,
    /// `doubtful` or `withdrawn`: how far to trust it.
    pub mark: Option<Mark>,
    /// Why, or what else to know.
    pub note: String,
}

impl Comparison {
    /// The same for people: names and sentences out of the scenario's file are one line each, and
    /// cut. The document keeps them whole.
    pub fn shown(&self) -> Comparison {
        let mut shown = self.clone();
        name(&mut shown.name);
        name(&mut shown.title);
        shown.document.iter_mut().for_each(sentence);
        if let Some(machine) = &mut shown.machine {
            name(&mut machine.name);
            sentence(&mut machine.about);
        }
        for case in &mut shown.cases {
            name(&mut case.name);
            name(&mut case.measure.unit);
            case.configurations.iter_mut().for_each(Outcome::show);
            case.summary = match super::home::summary(&case.configurations) {
                Some(summary) => summary,
                None => super::words::summary(&case.measure, &case.configurations),
            };
        }
        for row in &mut shown.not_run {
            name(&mut row.case);
            name(&mut row.configuration);
            sentence(&mut row.why);
        }
        shown
    }

    /// Whether a check found an access that saw what it should not.
    pub fn has_stale(&self) -> bool {
        let outcomes = self.cases.iter().flat_map(|case| &case.configurations);
        outcomes
            .filter_map(|outcome| outcome.run.checked.as_ref())
            .any(|checked| checked.wrong > 0)
    }
}

fn name(text: &mut String) {
    *text = outside(text).into_owned();
}

fn sentence(text: &mut String) {
    *text = message(text);
}

impl Outcome {
    /// As [`Comparison::shown`].
    fn show(&mut self) {
        sentence(&mut self.about);
        name(&mut self.run.configuration);
        self.run.estimate.iter_mut().for_each(sentence);
        for placed in &mut self.run.placed {
            name(&mut placed.region);
        }
        for part in &mut self.run.series.heat_parts {
            name(&mut part.region);
        }
        for program in &mut self.run.programs {
            name(&mut program.name);
        }
        if let Some(published) = &mut self.published {
            sentence(&mut published.note);
            let pages = std::mem::take(&mut published.pages);
            let pages = pages.into_iter();
            published.pages = pages
                .map(|(region, pages)| (outside(&region).into_owned(), pages))
                .collect();
        }
    }

    /// A run beside what was published; its ratio is known once all of its case are there.
    pub fn new(
        about: String,
        bound: bool,
        value: f64,
        published: Option<Published>,
        run: RunResult,
    ) -> Outcome {
        let count = |counter| run.counters.get(counter);
        let promoted = count(Counter::PgpromoteSuccess);
        Outcome {
            about,
            bound,
            value,
            ratio: None,
            confidence: Confidence::default(),
            published,
            pages_promoted: promoted,
            // The kernel counts promotions there too.
            pages_balanced: count(Counter::NumaPagesMigrated).saturating_sub(promoted),
            pages_demoted: [
                Counter::PgdemoteKswapd,
                Counter::PgdemoteDirect,
                Counter::PgdemoteKhugepaged,
                Counter::PgdemoteProactive,
            ]
            .map(count)
            .iter()
            .sum(),
            hint_faults: count(Counter::NumaHintFaults),
            run,
        }
    }

    /// Whether its hot set never was home: its time is the least that it can be.
    pub fn never_home(&self) -> bool {
        self.run.home.is_some_and(|home| home.seconds.is_none())
    }

    /// What is shown as its value: of several seeds the middle one.
    pub fn shown_value(&self) -> f64 {
        let median = self.confidence.value.map(|value| value.median);
        median.unwrap_or(self.value)
    }

    /// What is shown as its ratio, likewise.
    pub fn shown_ratio(&self) -> Option<f64> {
        let median = self.confidence.ratio.map(|ratio| ratio.median);
        median.or(self.ratio)
    }

    /// The same with how sure it is.
    pub fn sure(self, confidence: Confidence) -> Outcome {
        Outcome { confidence, ..self }
    }
}

impl Case {
    /// Holds runs against each other; the first is what the others are compared with, if it is the
    /// scenario's first (`--only` may leave it out).
    pub fn new(
        name: String,
        measure: Measure,
        mut outcomes: Vec<Outcome>,
        has_first: bool,
    ) -> Case {
        let first = outcomes.first().map(|outcome| outcome.value);
        if let Some(first) = first.filter(|first| has_first && *first > 0.0) {
            let base_is_known = !outcomes.first().is_some_and(Outcome::never_home);
            for outcome in &mut outcomes {
                let known = base_is_known && !outcome.never_home();
                outcome.ratio = known.then_some(outcome.value / first);
            }
        }
        let summary = match super::home::summary(&outcomes) {
            Some(summary) => summary,
            None => super::words::summary(&measure, &outcomes),
        };
        Case {
            name,
            measure,
            configurations: outcomes,
            summary,
        }
    }
}

#[cfg(test)]
pub mod samples {
    //! Made-up runs for the tests of what prints them.

    use super::*;
    use memtide_core::vmstat::Counters;
    use memtide_sim::result::{HeatPart, Overhead, Series};

    /// A run of so many seconds that promoted so many pages.
    pub fn run(name: &str, seconds: f64, promoted: u64) -> RunResult {
        let mut counters = Counters::ZERO;
        counters.add(Counter::PgpromoteSuccess, promoted);
        counters.add(Counter::NumaPagesMigrated, promoted);
        counters.add(Counter::NumaHintFaults, promoted * 2);
        counters.add(Counter::PgdemoteKswapd, promoted / 3);
        let points = 120;
        let share = |n: usize| (n + 1) as f64 / points as f64;
        let moved = promoted.min(1);
        Series {
            seconds: (0..points).map(|n| share(n) * seconds).collect(),
            pages_migrated: (0..points)
                .map(|n| (promoted as f64 * (share(n) * 3.0).min(1.0)) as u64)
                .collect(),
            done: (0..points).map(share).collect(),
            fast_share: (0..points)
                .map(|n| 0.4 + 0.5 * (share(n) * 3.0).min(1.0) * moved as f64)
                .collect(),
            bytes_per_s: vec![
                (0..points).map(|n| 8e10 + 4e10 * share(n)).collect(),
                (0..points).map(|n| 5e10 - 4e10 * share(n)).collect(),
            ],
            latency_ns: vec![
                (0..points).map(|n| 110.0 + 10.0 * share(n)).collect(),
                (0..points).map(|n| 320.0 - 60.0 * share(n)).collect(),
            ],
            heat: (0..64)
                .map(|group| {
                    (0..points)
                        .map(|n| match (group, n) {
                            (0..8, _) => 4000 + n as u32 * 3,
                            (8..40, _) => 10 + (group as u32 * 7 + n as u32) % 9,
                            _ => 0,
                        })
                        .collect()
                })
                .collect(),
            heat_parts: (0..64)
                .map(|group| HeatPart {
                    group,
                    region: if group < 40 { "heap" } else { "index" }.to_owned(),
                    pages: 8192,
                })
                .collect(),
        }
        .into_run(name, seconds, counters)
    }

    trait IntoRun {
        fn into_run(self, name: &str, seconds: f64, counters: Counters) -> RunResult;
    }

    impl IntoRun for Series {
        fn into_run(self, name: &str, seconds: f64, counters: Counters) -> RunResult {
            let faults = counters.get(Counter::NumaHintFaults);
            RunResult {
                configuration: name.to_owned(),
                seconds,
                score: None,
                tlb_shootdowns: faults,
                tlb_flushes: faults,
                tlb_misses: 1000,
                dtlb_load_misses: 700,
                dtlb_store_misses: 300,
                itlb_misses: 0,
                luf: None,
                checked: None,
                home: None,
                overhead: Overhead {
                    hint_fault_ns: faults * 1000,
                    numa_scan_ns: faults * 300,
                    kmigrated_ns: faults * 700,
                    shootdown_ns: faults * 200,
                    ..Overhead::default()
                },
                counters,
                accesses: 1 << 20,
                estimate: None,
                fast_share: 0.5,
                balancing: Default::default(),
                tiering: None,
                memtide_balance: None,
                pages_by_node: vec![1000, 24],
                placed: Vec::new(),
                bytes_per_s: vec![1e11, 1e10],
                series: self,
                group_seconds: vec![seconds],
                programs: Vec::new(),
                fairness: None,
            }
        }
    }

    /// A comparison of three runs and two bounds; three of them were published.
    pub fn comparison() -> Comparison {
        let outcome = |about: &str, published: Option<(f64, Option<Mark>)>, run: RunResult| {
            let published = published.map(|(value, mark)| Published {
                value: Some(value),
                ratio: Some(value / 63.0),
                mark,
                ..Published::default()
            });
            let bound = matches!(run.configuration.as_str(), "static" | "oracle");
            Outcome::new(about.to_owned(), bound, run.seconds, published, run)
        };
        let nodes = [(0, 96, true), (2, 0, false)];
        let case = Case::new(
            String::new(),
            Measure {
                kind: MeasureKind::Time,
                unit: "s".to_owned(),
            },
            vec![
                outcome("Nothing moves.", Some((63.0, None)), run("NUMAB0", 60.0, 0)),
                outcome(
                    "Hint faults.",
                    Some((66.15, Some(Mark::Doubtful))),
                    run("NUMAB2", 54.0, 300_000),
                ),
                outcome(
                    "Hardware samples.",
                    Some((44.1, None)),
                    run("pghot-hwhints", 45.0, 2_000_000),
                ),
                outcome("Nothing moves; no kernel.", None, run("static", 59.5, 0)),
                outcome("The best there could be.", None, run("oracle", 40.0, 0)),
            ],
            true,
        );
        Comparison {
            name: "made-up".to_owned(),
            title: "A made-up experiment".to_owned(),
            document: Some("none".to_owned()),
            seed: 1,
            scale: 16,
            machine: None,
            nodes: nodes
                .map(|(id, cpus, top_tier)| NodeLine {
                    id,
                    cpus,
                    memory_bytes: 128 << 30,
                    top_tier,
                })
                .to_vec(),
            cases: vec![case],
            not_run: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_over_the_first_configuration() {
        let comparison = samples::comparison();
        let ratios: Vec<f64> = comparison.cases[0]
            .configurations
            .iter()
            .map(|outcome| outcome.ratio.unwrap())
            .collect();
        assert_eq!(ratios[..3], [1.0, 0.9, 0.75]);
    }

    #[test]
    fn promotions_are_not_counted_as_balancing_too() {
        let comparison = samples::comparison();
        let moved = &comparison.cases[0].configurations[2];
        assert_eq!((moved.pages_promoted, moved.pages_balanced), (2_000_000, 0));
        assert_eq!(moved.pages_demoted, 666_666);
    }
}
