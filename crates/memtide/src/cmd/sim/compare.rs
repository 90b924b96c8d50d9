//! From the simulator's rows to a comparison.

use super::comparison::{
    Case, Comparison, Measure, MeasureKind, NodeLine, NotRun, Outcome, Published,
};
use memtide_sim::scenario::confidence::Confidence;
use memtide_sim::scenario::{self, PublishedBeside, Row, Scenario, Unit};
use memtide_sim::spec::MachineSpec;

/// The runs of a scenario, held against each other case by case; `sure` says how sure each row is.
pub fn comparison(
    scenario: &Scenario,
    ran: scenario::Comparison,
    sure: Vec<Confidence>,
) -> Comparison {
    let mut rows: Vec<(Row, Confidence)> = ran.rows.into_iter().zip(sure).collect();
    let cases = scenario.cases.iter().filter_map(|case| {
        let (mine, others): (Vec<_>, Vec<_>) = std::mem::take(&mut rows)
            .into_iter()
            .partition(|(row, _)| row.case == case.name);
        rows = others;
        let (first, _) = mine.first()?;
        let all = scenario.configurations_of(case);
        let has_first = all
            .first()
            .is_some_and(|all| all.name == first.configuration);
        let measure = measure(first.unit);
        let outcomes = mine
            .into_iter()
            .map(|(row, sure)| {
                let configuration = all.iter().find(|all| all.name == row.configuration);
                let about = configuration.map_or("", |configuration| &configuration.about);
                let bound = configuration.is_some_and(|all| all.bound.is_some());
                outcome(row, about, bound, sure)
            })
            .collect();
        Some(Case::new(case.name.clone(), measure, outcomes, has_first))
    });
    let cases = cases.collect();
    Comparison {
        name: ran.scenario,
        title: ran.title,
        document: Some(scenario.document.clone()).filter(|document| !document.is_empty()),
        seed: ran.seed,
        scale: ran.scale,
        nodes: nodes(&scenario.machine),
        machine: Some(scenario.machine.clone()),
        cases,
        not_run: ran
            .not_run
            .into_iter()
            .map(|row| NotRun {
                case: row.case,
                configuration: row.configuration,
                why: row.why,
            })
            .collect(),
    }
}

/// The machine's nodes.
pub fn nodes(machine: &MachineSpec) -> Vec<NodeLine> {
    machine
        .nodes
        .iter()
        .map(|node| NodeLine {
            id: node.id,
            cpus: node.cpus,
            memory_bytes: node.capacity_bytes,
            top_tier: machine
                .topology
                .is_top_tier(memtide_core::units::NodeId(node.id)),
        })
        .collect()
}

fn outcome(row: Row, about: &str, bound: bool, mut sure: Confidence) -> Outcome {
    let per = per_unit(row.unit);
    if let Some(value) = &mut sure.value {
        for figure in [&mut value.median, &mut value.low, &mut value.high] {
            *figure /= per;
        }
    }
    let published = row.published.map(|published| beside(published, per));
    Outcome::new(
        about.to_owned(),
        bound,
        row.value / per,
        published,
        row.result,
    )
    .sure(sure)
}

fn beside(published: PublishedBeside, per: f64) -> Published {
    Published {
        value: published.value.map(|value| value / per),
        ratio: published.ratio,
        pages_moved: published.pages_moved,
        pages_demoted: published.pages_demoted,
        hint_faults: published.hint_faults,
        pages: published.pages,
        tlb: published.tlb,
        mark: published.mark,
        note: published.note,
    }
}

fn measure(unit: Unit) -> Measure {
    let (kind, name) = match unit {
        Unit::Seconds => (MeasureKind::Time, "s"),
        Unit::AccessesPerS => (MeasureKind::Score, "M accesses/s"),
        Unit::BytesPerS => (MeasureKind::Score, "GB/s"),
        Unit::Pages => (MeasureKind::Pages, "pages"),
    };
    Measure {
        kind,
        unit: name.to_owned(),
    }
}

/// The simulator's units in one of [`measure`]'s.
fn per_unit(unit: Unit) -> f64 {
    match unit {
        Unit::AccessesPerS => 1e6,
        Unit::BytesPerS => 1e9,
        Unit::Seconds | Unit::Pages => 1.0,
    }
}
