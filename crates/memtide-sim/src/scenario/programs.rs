//! A scenario's programs, where several run at once: `[[program]]` as it is in the file, and each
//! program's result over that of the first configuration.

use super::Case;
use crate::result::RunResult;
use crate::text::{Source, TextError, did_you_mean};
use crate::units::Nanos;
use crate::workload::{Places, ProgramSpec, ProgramsSpec, WorkloadSpec, Wrong};
use crate::world::Membership;
use memtide_loop::options::{AnyOf, Classes, Pattern};
use memtide_loop::world::ClassId;
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// The longest name.
const LONGEST_NAME: usize = 32;
/// The longest path of a cgroup.
const LONGEST_PATH: usize = 255;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramText {
    name: Spanned<String>,
    cgroup: Option<Spanned<String>>,
    start: Option<Nanos>,
    end: Option<Nanos>,
    #[serde(default)]
    background: bool,
    workload: Spanned<WorkloadSpec>,
}

/// Checks the programs one by one and all together, as the one workload that they are.
pub fn read(
    source: Source<'_>,
    programs: Vec<Spanned<ProgramText>>,
    places: &Places,
) -> Result<WorkloadSpec, TextError> {
    let whole = programs.first().map_or(0..0, Spanned::span);
    let mut all: Vec<ProgramSpec> = Vec::new();
    for text in programs {
        let span = text.span();
        let text = text.into_inner();
        let within = text.workload.span();
        let name = text.name.get_ref();
        let wrong = |span: Range<usize>, what: String| Err(source.error(span, &what));
        if let Err(why) = check_name(name) {
            return wrong(text.name.span(), format!("name: {why}"));
        }
        if all.iter().any(|other| other.name == *name) {
            let what = format!("name: \"{name}\" is taken; give each program its own");
            return wrong(text.name.span(), what);
        }
        if let Some(cgroup) = &text.cgroup
            && let Err(why) = check_cgroup(cgroup.get_ref())
        {
            return wrong(cgroup.span(), format!("cgroup: {why}"));
        }
        let spec = ProgramSpec {
            name: text.name.into_inner(),
            cgroup: text.cgroup.map(Spanned::into_inner),
            start: text.start.unwrap_or(Nanos(0.0)),
            end: text.end,
            background: text.background,
            workload: text.workload.into_inner(),
        };
        spec.check(places).map_err(|Wrong { key, why }| {
            let own = ["start", "end"].contains(&key);
            let at = super::read::key_within(source, if own { span } else { within }, key);
            source.error(at, &format!("{key}: {why}"))
        })?;
        all.push(spec);
    }
    let all = WorkloadSpec::Programs(ProgramsSpec(all));
    all.check(places)
        .map_err(|Wrong { key, why }| source.error(whole, &format!("{key}: {why}")))?;
    Ok(all)
}

/// As names of classes are.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match name.chars().all(fits) && (1..=LONGEST_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!(
            "no name of a program; it takes letters, digits, _ and -, {LONGEST_NAME} at most"
        )),
    }
}

fn check_cgroup(path: &str) -> Result<(), String> {
    let name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('*');
    let names = path.strip_prefix('/');
    let good = names.is_some_and(|names| names.split('/').all(name))
        && path.len() <= LONGEST_PATH
        && !path.chars().any(char::is_control);
    match good {
        true => Ok(()),
        false => {
            Err("no path of one cgroup; write it as /db or /system.slice/redis.service".into())
        }
    }
}

/// The most cgroups that are named to who named another one.
const MOST_NAMED: usize = 8;

/// A class of `classes` that no program is in, nor in a class within it, with what to do about it.
pub fn without_program(classes: &Classes, cases: &[Case]) -> Option<String> {
    let programs = cases.iter().flat_map(|case| match &case.workload {
        WorkloadSpec::Programs(ProgramsSpec(all)) => all.as_slice(),
        _ => &[],
    });
    let cgroups: Vec<&str> = programs.filter_map(|one| one.cgroup.as_deref()).collect();
    let membership = Membership::new(classes);
    let taken = |n: u32| {
        let mut all = cgroups.iter();
        all.any(|cgroup| {
            let of = membership.of_cgroup(cgroup);
            of == Some(ClassId(n)) || membership.around(cgroup).contains(&ClassId(n))
        })
    };
    let (_, (name, class)) = (0..).zip(classes).find(|&(n, _)| !taken(n))?;
    let asked = class
        .cgroup
        .iter()
        .flat_map(AnyOf::all)
        .map(Pattern::to_string);
    let mean = asked.map(|asked| did_you_mean(&asked, &cgroups)).next();
    let known = match cgroups.is_empty() {
        true => "no program has a cgroup; give one its cgroup".to_owned(),
        false => {
            let more = match cgroups.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let some = &cgroups[..cgroups.len().min(MOST_NAMED)];
            format!("programs are in {}{more}", some.join(", "))
        }
    };
    Some(format!(
        "class {name}: no program is in it{}; {known}",
        mean.unwrap_or_default()
    ))
}

/// Notes each program's rate over that in the case's first configuration.
pub fn compare(result: &mut RunResult, first: Option<&RunResult>) {
    let own: Vec<f64> = result
        .programs
        .iter()
        .map(|one| one.accesses_per_s)
        .collect();
    let base = first.map(|first| {
        first
            .programs
            .iter()
            .map(|one| one.accesses_per_s)
            .collect()
    });
    let base: Vec<f64> = base.unwrap_or(own);
    for (program, base) in result.programs.iter_mut().zip(base) {
        program.ratio = (base > 0.0).then(|| program.accesses_per_s / base);
    }
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
