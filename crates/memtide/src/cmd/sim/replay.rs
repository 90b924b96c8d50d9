//! `memtide sim run --trace`: a recording on a machine, by three ways of placing its pages.
//!
//! What is built is a scenario like any other, from text in the format of scenarios; so whoever wants
//! other configurations copies it into a file and changes it there. The recorded pages begin on the
//! slow tier, since that is where placing them has something to do.

use super::load::{self, Inputs};
use crate::shared::context::BadUsage;
use memtide_sim::scenario::Scenario;
use memtide_sim::spec::MachineSpec;
use std::path::Path;

/// The machine of `pghot-mode1`.
const MACHINE: &str = "zen5-cxl";

/// What the scenario calls its machine's file.
const THE_MACHINE: &str = "-";

const CONFIGURATIONS: &str = r#"
[[configuration]]
name = "off"
about = "The kernel moves no page to where it is used."

[[configuration]]
name = "kernel"
about = "The kernel's tiering: hint faults find hot pages of the slow tier and promote them."
numa_balancing = 2

[[configuration]]
name = "memtide tier"
tier = {}
"#;

/// The scenario of a recording.
pub fn scenario(
    trace: &Path,
    machine: Option<&str>,
    inputs: &mut Inputs,
) -> anyhow::Result<Scenario> {
    let word = machine.unwrap_or(MACHINE);
    let spec = load::machine(word, inputs)?;
    let text = text(trace, &spec).map_err(BadUsage)?;
    let file = format!("{}.toml", name(trace));
    let scenario = Scenario::read(&text, &file, &mut |path| match path {
        THE_MACHINE => load::machine_text(word, inputs),
        // What the machine's file names lies beside it.
        path => load::beside(word, path, inputs),
    })
    .map_err(|error| BadUsage(error.to_string()))?;
    Ok(scenario.with_trace(load::trace(trace, inputs)?))
}

fn name(trace: &Path) -> String {
    trace.file_stem().map_or("trace".to_owned(), |stem| {
        stem.to_string_lossy().into_owned()
    })
}

/// The scenario's text.
fn text(trace: &Path, machine: &MachineSpec) -> Result<String, String> {
    let line = |path: &dyn std::fmt::Display| toml::Value::String(path.to_string()).to_string();
    let cpus = machine.nodes.iter().find(|node| node.cpus > 0);
    let cpus = cpus.ok_or_else(|| format!("{}: no node has CPUs", machine.name))?;
    let top = |id| {
        machine
            .topology
            .is_top_tier(memtide_core::units::NodeId(id))
    };
    let slow = machine.nodes.iter().find(|node| !top(node.id));
    let on = slow.unwrap_or(cpus).id;
    Ok(format!(
        "title = {}\nshows = \"What tiering gains for recorded accesses.\"\nmachine = \"{THE_MACHINE}\"\nscale = 1\n\
         [workload.trace]\nfile = {}\nnode = {}\non = {on}\nops_per_access = 10\nthink = \"1 ns\"\n\
         {CONFIGURATIONS}",
        line(&format!(
            "The accesses of {} on {}",
            trace.display(),
            machine.name
        )),
        line(&trace.display()),
        cpus.id,
    ))
}
