//! A scenario from its TOML file.
//!
//! Errors of names and types come from the reader; what can only be judged with the machine at hand is
//! checked afterwards. Either way the message has file, line and key.

use super::programs::{self, ProgramText};
use super::{Case, HomeSpec, Published, Scenario, largest_scale};
use crate::config::ConfigurationText;
use crate::spec::{MachineSpec, ReadFile};
use crate::text::{Source, TextError, did_you_mean};
use crate::workload::{Measure, Places, WorkloadSpec};
use serde::Deserialize;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioText {
    title: String,
    #[serde(default)]
    document: String,
    shows: String,
    machine: Spanned<String>,
    scale: Spanned<u32>,
    workload: Option<Spanned<WorkloadSpec>>,
    #[serde(default, rename = "program")]
    programs: Vec<Spanned<ProgramText>>,
    #[serde(default, rename = "case")]
    cases: Vec<Spanned<CaseText>>,
    #[serde(rename = "configuration")]
    configurations: Vec<Spanned<ConfigurationText>>,
    #[serde(default)]
    published: Vec<Spanned<Published>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseText {
    name: String,
    #[serde(default)]
    only: Vec<String>,
    home: Option<Spanned<HomeSpec>>,
    workload: Option<Spanned<WorkloadSpec>>,
    #[serde(default, rename = "program")]
    programs: Vec<Spanned<ProgramText>>,
}

impl Scenario {
    /// Reads a scenario. `other` reads the files that it names (its machine), by their path relative
    /// to it.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be, with file, line and key.
    pub fn read(text: &str, file: &str, other: ReadFile<'_>) -> Result<Scenario, TextError> {
        let source = Source { file, text };
        let text: ScenarioText = source.read()?;
        let machine = machine(source, &text.machine, other)?;
        if !text.scale.get_ref().is_power_of_two() {
            let what = format!(
                "scale: {} is no power of two; give S of 1/S: 1, 2, 4, ...",
                text.scale.get_ref()
            );
            return Err(source.error(text.scale.span(), &what));
        }
        let places = Places::new(&machine);
        let cases = cases(source, text.workload, text.programs, text.cases, &places)?;
        let limit = largest_scale(&cases, &machine);
        if *text.scale.get_ref() > limit {
            let what = &match limit {
                1 => "scale: this workload means something at full size only; give 1".to_owned(),
                limit => format!("scale: give {limit} at most"),
            };
            return Err(source.error(text.scale.span(), what));
        }
        let mut configurations: Vec<crate::config::Configuration> = Vec::new();
        for text in text.configurations {
            let span = text.span();
            let configuration = text.into_inner().check(source, &machine.topology)?;
            let name = &configuration.name;
            if let Some(what) = programs::without_program(&configuration.classes, &cases) {
                return Err(source.error(span, &what));
            }
            if configurations.iter().any(|other| other.name == *name)
                || matches!(name.as_str(), "static" | "oracle")
            {
                let what = format!("name: \"{name}\" is taken; give each configuration its own");
                return Err(source.error(span, &what));
            }
            configurations.push(configuration);
        }
        for case in &cases {
            let names: Vec<&str> = configurations.iter().map(|c| c.name.as_str()).collect();
            let unknown = case
                .only
                .iter()
                .find(|name| !names.contains(&name.as_str()));
            if let Some(name) = unknown {
                let at = source.text.find(&format!("\"{name}\"")).unwrap_or(0);
                let mean = did_you_mean(name, &names);
                let what = format!("only: there is no configuration \"{name}\"{mean}");
                return Err(source.error(at..at, &what));
            }
        }
        let stem = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let scenario = Scenario {
            name: stem.strip_suffix(".toml").unwrap_or(stem).to_owned(),
            title: text.title,
            document: text.document,
            shows: text.shows,
            machine,
            scale: *text.scale.get_ref(),
            cases,
            configurations,
            published: Vec::new(),
            rows: Arc::default(),
        };
        let published = published(source, &scenario, text.published)?;
        Ok(Scenario {
            published,
            ..scenario
        })
    }
}

fn machine(
    source: Source<'_>,
    path: &Spanned<String>,
    other: ReadFile<'_>,
) -> Result<MachineSpec, TextError> {
    let text = other(path.get_ref())
        .map_err(|error| source.error(path.span(), &format!("machine: {error}")))?;
    let (folder, _) = path.get_ref().rsplit_once('/').unwrap_or(("", ""));
    let file = match source.file.rsplit_once('/') {
        Some((beside, _)) => format!("{beside}/{}", path.get_ref()),
        None => path.get_ref().clone(),
    };
    let of_machine = Source {
        file: &file,
        text: &text,
    };
    MachineSpec::read(of_machine, &mut |name| match folder {
        "" => other(name),
        _ => other(&format!("{folder}/{name}")),
    })
}

fn cases(
    source: Source<'_>,
    workload: Option<Spanned<WorkloadSpec>>,
    programs: Vec<Spanned<ProgramText>>,
    cases: Vec<Spanned<CaseText>>,
    places: &Places,
) -> Result<Vec<Case>, TextError> {
    if let Some(first) = programs.first() {
        if workload.is_some() || !cases.is_empty() {
            let what = "program: there is a workload or a case already; make it a program, or leave programs out";
            return Err(source.error(first.span(), what));
        }
        return Ok(vec![Case {
            name: String::new(),
            only: Vec::new(),
            home: None,
            workload: programs::read(source, programs, places)?,
        }]);
    }
    match &workload {
        Some(workload) if !cases.is_empty() => {
            let what = "workload: there are cases already; put the workload into one";
            return Err(source.error(workload.span(), what));
        }
        None if cases.is_empty() => {
            return Err(source.error(0..0, "workload: nothing runs; add [workload.random] or so"));
        }
        _ => {}
    }
    let only = workload.map(|workload| {
        let workload = one_workload(source, workload, places)?;
        Ok(Case {
            name: String::new(),
            only: Vec::new(),
            home: None,
            workload,
        })
    });
    let mut all: Vec<Case> = only.into_iter().collect::<Result<_, _>>()?;
    for text in cases {
        let span = text.span();
        let case = case(source, text, places)?;
        if all.iter().any(|other| other.name == case.name) {
            let what = format!("name: \"{}\" is taken; give each case its own", case.name);
            return Err(source.error(key_within(source, span, "name"), &what));
        }
        let file = |case: &Case| case.workload.trace().map(|trace| trace.file.clone());
        let first = all.iter().find_map(file);
        if let (Some(first), Some(second)) = (first, file(&case))
            && first != second
        {
            let what = format!(
                "file: another case replays \"{first}\"; a scenario has one recording, so put \"{second}\" \
                 into a scenario of its own"
            );
            return Err(source.error(key_within(source, span, "file"), &what));
        }
        all.push(case);
    }
    Ok(all)
}

/// One of several cases, checked: a workload, or programs.
fn case(source: Source<'_>, text: Spanned<CaseText>, places: &Places) -> Result<Case, TextError> {
    let span = text.span();
    let text = text.into_inner();
    let workload = match (text.workload, text.programs) {
        (Some(workload), programs) if programs.is_empty() => {
            one_workload(source, workload, places)?
        }
        (None, programs) if !programs.is_empty() => programs::read(source, programs, places)?,
        (Some(_), _) => {
            let what = "case: it has a workload and programs; make the workload a program";
            return Err(source.error(span, what));
        }
        (None, _) => {
            let what = "case: nothing runs; add [case.workload.random] or so";
            return Err(source.error(span, what));
        }
    };
    if let Some(home) = &text.home
        && let Some((key, why)) = home.get_ref().wrong(&workload)
    {
        let at = key_within(source, home.span(), key);
        return Err(source.error(at, &format!("{key}: {why}")));
    }
    Ok(Case {
        name: text.name,
        only: text.only,
        home: text.home.map(Spanned::into_inner),
        workload,
    })
}

fn one_workload(
    source: Source<'_>,
    workload: Spanned<WorkloadSpec>,
    places: &Places,
) -> Result<WorkloadSpec, TextError> {
    workload.get_ref().check(places).map_err(|wrong| {
        let at = key_within(source, workload.span(), wrong.key);
        source.error(at, &format!("{}: {}", wrong.key, wrong.why))
    })?;
    Ok(workload.into_inner())
}

/// Where `key` is set from `span` on; the beginning of `span` if it is not.
pub(super) fn key_within(source: Source<'_>, span: Range<usize>, key: &str) -> Range<usize> {
    let rest = source.text.get(span.start..).unwrap_or("");
    let mut at = span.start;
    for line in rest.split_inclusive('\n') {
        let set = line.trim_start().strip_prefix(key);
        if set.is_some_and(|after| after.trim_start().starts_with('=')) {
            return at..at;
        }
        at += line.len();
    }
    span.start..span.start
}

fn published(
    source: Source<'_>,
    scenario: &Scenario,
    rows: Vec<Spanned<Published>>,
) -> Result<Vec<Published>, TextError> {
    let mut checked = Vec::new();
    for row in rows {
        let span = row.span();
        let row = row.into_inner();
        let error = |key: &str, what: String| {
            source.error(
                key_within(source, span.clone(), key),
                &format!("{key}: {what}"),
            )
        };
        let cases: Vec<&str> = scenario
            .cases
            .iter()
            .map(|case| case.name.as_str())
            .collect();
        let Some(case) = scenario.cases.iter().find(|case| case.name == row.case) else {
            let mean = did_you_mean(&row.case, &cases);
            return Err(error(
                "case",
                format!("there is no case \"{}\"{mean}", row.case),
            ));
        };
        let names: Vec<&str> = scenario
            .configurations
            .iter()
            .map(|c| c.name.as_str())
            .collect();
        if row.not_run.is_none() && !names.contains(&row.configuration.as_str()) {
            let mean = did_you_mean(&row.configuration, &names);
            let what = format!("there is no configuration \"{}\"{mean}", row.configuration);
            return Err(error("configuration", what));
        }
        let fits = match case.workload.measure() {
            Measure::Seconds => row.seconds.or(row.ratio).is_some(),
            Measure::Rate => row.ratio.is_some(),
            Measure::Bytes | Measure::Traffic => row.gb_per_s.or(row.ratio).is_some(),
            Measure::Pages => !row.pages.is_empty(),
        };
        for (key, figure) in [
            ("seconds", row.seconds),
            ("gb_per_s", row.gb_per_s),
            ("ratio", row.ratio),
        ] {
            let good = |figure: f64| figure.is_finite() && figure > 0.0;
            if let Some(figure) = figure.filter(|&figure| !good(figure)) {
                return Err(error(
                    key,
                    format!("{figure} is no measurement; give more than 0"),
                ));
            }
        }
        if !fits || row.figure().is_none() {
            let what = "give one figure that this workload has: seconds, gb_per_s, ratio or pages";
            return Err(source.error(span, &format!("published: {what}")));
        }
        checked.push(row);
    }
    Ok(checked)
}
