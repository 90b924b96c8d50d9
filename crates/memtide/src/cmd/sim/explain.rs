//! `memtide sim explain`: a scenario in plain words.

use super::args::ExplainArgs;
use super::words::{amount, bytes, grouped, ratio};
use super::{compare, load};
use crate::shared::context::Context;
use crate::shared::outside::{message, outside};
use crate::shared::table::table as plain_table;
use comfy_table::CellAlignment::{Left, Right};
use memtide_sim::scenario::{Case, Figure, Mark, Published, Scenario};
use memtide_sim::spec::{LoadedLatency, MachineSpec, NodeSpec};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// How wide running text is.
const WIDTH: usize = 96;

/// What the command says; the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    title: String,
    document: Option<String>,
    shows: String,
    machine: Machine,
    scale: u32,
    cases: Vec<CaseReport>,
    configurations: Vec<Named>,
    published: Vec<PublishedRow>,
}

#[derive(Debug, Serialize)]
struct Machine {
    name: String,
    about: String,
    nodes: Vec<NodeReport>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    id: u16,
    cpus: u32,
    memory_bytes: u64,
    top_tier: bool,
    read_ns: f64,
    write_ns: f64,
    read_bytes_per_s: f64,
    write_bytes_per_s: f64,
    loaded: &'static str,
}

#[derive(Debug, Serialize)]
struct CaseReport {
    name: String,
    workload: String,
}

#[derive(Debug, Serialize)]
struct Named {
    name: String,
    about: String,
}

#[derive(Debug, Serialize)]
struct PublishedRow {
    case: String,
    configuration: String,
    figure: Option<f64>,
    unit: &'static str,
    pages_moved: Option<u64>,
    pages_demoted: Option<u64>,
    hint_faults: Option<u64>,
    mark: Option<Mark>,
    note: String,
    not_run: Option<String>,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let scenario = load::without_trace(&args.scenario, &mut Vec::new())?;
    let report = Report::new(&scenario);
    match args.json || context.json {
        true => context.print_json(&report)?,
        false => {
            let word = outside(&args.scenario);
            context.print(&text(&report.shown(), &word, context.styled))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(scenario: &Scenario) -> Report {
        let mut configurations: Vec<Named> = Vec::new();
        for case in &scenario.cases {
            for configuration in scenario.configurations_of(case) {
                if !configurations
                    .iter()
                    .any(|named| named.name == configuration.name)
                {
                    configurations.push(Named {
                        name: configuration.name,
                        about: configuration.about,
                    });
                }
            }
        }
        Report {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            document: Some(scenario.document.clone()).filter(|document| !document.is_empty()),
            shows: scenario.shows.clone(),
            machine: machine(&scenario.machine),
            scale: scenario.scale,
            cases: scenario.cases.iter().map(case).collect(),
            configurations,
            published: scenario.published.iter().map(published).collect(),
        }
    }
}

impl Report {
    /// The same for people: names and sentences out of files are one line each, and cut.
    fn shown(mut self) -> Report {
        let name = |text: &mut String| *text = outside(text).into_owned();
        let sentence = |text: &mut String| *text = message(text);
        name(&mut self.name);
        name(&mut self.title);
        self.document.iter_mut().for_each(sentence);
        sentence(&mut self.shows);
        name(&mut self.machine.name);
        sentence(&mut self.machine.about);
        for case in &mut self.cases {
            name(&mut case.name);
            sentence(&mut case.workload);
        }
        for configuration in &mut self.configurations {
            name(&mut configuration.name);
            sentence(&mut configuration.about);
        }
        for row in &mut self.published {
            name(&mut row.case);
            name(&mut row.configuration);
            sentence(&mut row.note);
            row.not_run.iter_mut().for_each(sentence);
        }
        self
    }
}

fn machine(machine: &MachineSpec) -> Machine {
    let top = compare::nodes(machine);
    let node = |(node, line): (&NodeSpec, &super::comparison::NodeLine)| NodeReport {
        id: node.id,
        cpus: node.cpus,
        memory_bytes: node.capacity_bytes,
        top_tier: line.top_tier,
        read_ns: node.memory.read_ns,
        write_ns: node.memory.write_ns,
        read_bytes_per_s: node.memory.read_bytes_per_s,
        write_bytes_per_s: node.memory.write_bytes_per_s,
        loaded: match node.memory.loaded {
            LoadedLatency::Regions { .. } => "regions",
            LoadedLatency::Measured(_) => "measured",
        },
    };
    Machine {
        name: machine.name.clone(),
        about: machine.about.clone(),
        nodes: machine.nodes.iter().zip(&top).map(node).collect(),
    }
}

fn case(case: &Case) -> CaseReport {
    let workload = case.workload.about();
    CaseReport {
        name: case.name.clone(),
        workload: match &case.home {
            Some(home) => format!("{workload} {}", home.about()),
            None => workload,
        },
    }
}

fn published(row: &Published) -> PublishedRow {
    let (figure, unit) = match row.figure() {
        Some(Figure::Seconds(seconds)) => (Some(seconds), "s"),
        Some(Figure::BytesPerS(bytes)) => (Some(bytes / 1e9), "GB/s"),
        Some(Figure::Ratio(ratio)) => (Some(ratio), "ratio"),
        Some(Figure::Pages) | None => (None, "pages"),
    };
    PublishedRow {
        case: row.case.clone(),
        configuration: row.configuration.clone(),
        figure,
        unit,
        pages_moved: row.pages_moved,
        pages_demoted: row.pages_demoted,
        hint_faults: row.hint_faults,
        mark: row.mark,
        note: row.note.clone(),
        not_run: row.not_run.clone(),
    }
}

fn text(report: &Report, word: &str, styled: bool) -> String {
    let mut text = format!("{}: {}\n", report.name, report.title);
    if let Some(document) = &report.document {
        let _ = writeln!(text, "After: {document}");
    }
    text.push('\n');
    wrapped(&report.shows, 0, &mut text);

    let _ = writeln!(text, "\nTHE MACHINE: {}\n", report.machine.name);
    wrapped(&report.machine.about, 2, &mut text);
    text.push('\n');
    let header = [
        ("  node", Left),
        ("memory", Right),
        ("CPUs", Right),
        ("tier", Left),
        ("read", Right),
        ("write", Right),
        ("reads", Right),
        ("writes", Right),
    ];
    let mut nodes = plain_table(&header, styled);
    for node in &report.machine.nodes {
        nodes.add_row([
            format!("  {}", node.id),
            bytes(node.memory_bytes),
            node.cpus.to_string(),
            if node.top_tier { "fast" } else { "slow" }.to_owned(),
            format!("{:.0} ns", node.read_ns),
            format!("{:.0} ns", node.write_ns),
            format!("{:.1} GB/s", node.read_bytes_per_s / 1e9),
            format!("{:.1} GB/s", node.write_bytes_per_s / 1e9),
        ]);
    }
    let _ = writeln!(text, "{}", nodes.trim_fmt());

    let _ = writeln!(text, "\nTHE WORKLOAD\n");
    for case in &report.cases {
        if !case.name.is_empty() {
            let _ = writeln!(text, "  {}", case.name);
        }
        let indent = if case.name.is_empty() { 2 } else { 4 };
        wrapped(&case.workload, indent, &mut text);
    }

    let _ = writeln!(text, "\nTHE CONFIGURATIONS\n");
    for configuration in &report.configurations {
        let _ = writeln!(text, "  {}", configuration.name);
        wrapped(&configuration.about, 4, &mut text);
    }

    if !report.published.is_empty() {
        let _ = writeln!(text, "\nWHAT WAS PUBLISHED\n");
        let _ = writeln!(text, "{}", published_table(report, styled));
        let marks = [
            (
                Mark::Doubtful,
                "doubtful: its author calls it noisy, or it contradicts itself",
            ),
            (Mark::Withdrawn, "withdrawn: its author took it back"),
        ];
        for (mark, meaning) in marks {
            if report.published.iter().any(|row| row.mark == Some(mark)) {
                let _ = writeln!(text, "  {meaning}");
            }
        }
    }
    let scale = match report.scale {
        1 => "at full size".to_owned(),
        scale => format!("at 1/{scale} of its size"),
    };
    let _ = writeln!(text, "\nRun it {scale}: memtide sim run {word}");
    text
}

fn published_table(report: &Report, styled: bool) -> String {
    let rows = &report.published;
    let cases = rows.iter().any(|row| !row.case.is_empty());
    let notes = |row: &PublishedRow| {
        let mark = row.mark.map(|mark| match mark {
            Mark::Doubtful => "doubtful".to_owned(),
            Mark::Withdrawn => "withdrawn".to_owned(),
        });
        let note = Some(row.note.clone()).filter(|note| !note.is_empty());
        let not_run = row
            .not_run
            .as_ref()
            .map(|why| format!("not run here: {why}"));
        let all: Vec<String> = [mark, note, not_run].into_iter().flatten().collect();
        all.join("; ")
    };
    type Count = fn(&PublishedRow) -> Option<u64>;
    type Cell<'a> = Box<dyn Fn(&PublishedRow) -> String + 'a>;
    let count =
        |get: Count| -> Cell<'_> { Box::new(move |row| get(row).map_or("-".to_owned(), grouped)) };
    let mut columns: Vec<(&str, bool, Cell<'_>)> = Vec::new();
    if cases {
        columns.push(("  case", true, Box::new(|row| format!("  {}", row.case))));
    }
    let indent = if cases { "" } else { "  " };
    let name = if cases {
        "configuration"
    } else {
        "  configuration"
    };
    columns.push((
        name,
        true,
        Box::new(move |row| format!("{indent}{}", row.configuration)),
    ));
    columns.push((
        "figure",
        false,
        Box::new(|row| match (row.figure, row.unit) {
            (None, _) => "-".to_owned(),
            (Some(figure), "ratio") => format!("{} of the first", ratio(figure)),
            (Some(figure), unit) => amount(figure, unit),
        }),
    ));
    let counts: [(&str, Count); 3] = [
        ("pages moved", |row| row.pages_moved),
        ("demoted", |row| row.pages_demoted),
        ("hint faults", |row| row.hint_faults),
    ];
    for (name, get) in counts {
        if rows.iter().any(|row| get(row).is_some()) {
            columns.push((name, false, count(get)));
        }
    }
    if rows.iter().any(|row| !notes(row).is_empty()) {
        columns.push(("", true, Box::new(notes)));
    }
    let header: Vec<_> = columns
        .iter()
        .map(|(name, left, _)| (*name, if *left { Left } else { Right }))
        .collect();
    let mut table = plain_table(&header, styled);
    for row in rows {
        table.add_row(columns.iter().map(|(_, _, cell)| cell(row)));
    }
    table.trim_fmt()
}

/// Running text, in lines.
fn wrapped(text: &str, indent: usize, out: &mut String) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{:indent$}{line}", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}
