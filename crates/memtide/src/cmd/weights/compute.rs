//! From a source of bandwidths to weights.

use super::args::Args;
use super::progress::Bar;
use crate::shared::context::BadUsage;
use crate::shared::firmware_weights;
use crate::shared::nodes;
use anyhow::{Context as _, bail};
use memtide_core::keys::KeysOnce;
use memtide_core::mempolicy::curve::Curve;
use memtide_core::mempolicy::measured::{Measurement, Mix};
use memtide_core::mempolicy::tune;
use memtide_core::mempolicy::tune_law::{self, Choice, Expected, NodeCurve};
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use memtide_linux::files::input;
use memtide_linux::fs::topology::Machine;
use memtide_linux::fs::{Root, node};
use memtide_linux::measure::{self, MeasureError, plan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The least gain that is believed in, measured or not.
const LEAST_NOISE: f64 = 0.02;

/// Where bandwidths came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The firmware, by way of the kernel.
    Firmware,
    /// The command line.
    Given,
    /// A measurement, just made.
    Measured,
    /// A measurement that was read.
    File,
}

/// What was computed.
#[derive(Clone, Debug)]
pub struct Computed {
    /// From what.
    pub origin: Origin,
    /// At which mix; `None` if the bandwidths are of no mix in particular.
    pub mix: Option<Mix>,
    /// The nodes that there are bandwidths of.
    pub curves: Vec<NodeCurve>,
    /// What the law chooses, and what it compares with.
    pub choice: Choice,
    /// The weights to write, for each of those nodes.
    pub weights: BTreeMap<NodeId, u8>,
    /// What these carry.
    pub expected: Expected,
    /// A gain below this is noise.
    pub noise: f64,
    /// The measurement, if there is one.
    pub measurement: Option<Measurement>,
}

/// Computes as `args` say; `None` if the firmware tells nothing.
pub fn compute(args: &Args, machine: &Machine, root: &Root) -> anyhow::Result<Option<Computed>> {
    let mix = Mix::from(args.mix);
    if let Some(given) = &args.source.bandwidth {
        return Ok(Some(given_bandwidths(given, &machine.topology)?));
    }
    if args.source.measure {
        let measurement = measured(args, root)?;
        return from_measurement(Origin::Measured, measurement, mix).map(Some);
    }
    if let Some(file) = &args.source.from {
        let computed = from_measurement(Origin::File, read(file)?, mix);
        return computed
            .with_context(|| file.display().to_string())
            .map(Some);
    }
    firmware(machine)
}

/// The kernel's own rule. Expectations are the law's, where every bandwidth is
/// known.
fn firmware(machine: &Machine) -> anyhow::Result<Option<Computed>> {
    let topology = &machine.topology;
    let bandwidths = firmware_weights::bandwidths(machine);
    let known = bandwidths
        .iter()
        .filter_map(|(&id, mbps)| Some((id, u64::from((*mbps)?))));
    let curves = curves(known, topology);
    let Some(choice) = tune_law::choose(&curves, LEAST_NOISE) else {
        return Ok(None);
    };
    let weights = tune::kernel_weights(&bandwidths);
    let of_known = |id: &NodeId| curves.iter().any(|curve| curve.node == *id);
    let of_known = weights.iter().filter(|(id, _)| of_known(id));
    let expected = tune_law::expect(&curves, of_known.map(|(&id, &w)| (id, w)).collect());
    Ok(Some(Computed {
        origin: Origin::Firmware,
        mix: None,
        expected: expected.unwrap_or_else(|| choice.best_of_all.clone()),
        curves,
        choice,
        weights,
        noise: LEAST_NOISE,
        measurement: None,
    }))
}

fn given_bandwidths(
    given: &BTreeMap<NodeId, u64>,
    topology: &Topology,
) -> anyhow::Result<Computed> {
    let curves = curves(given.iter().map(|(id, mbps)| (*id, *mbps)), topology);
    by_law(Origin::Given, None, curves, LEAST_NOISE, None)
}

fn curves(peaks: impl Iterator<Item = (NodeId, u64)>, topology: &Topology) -> Vec<NodeCurve> {
    let curve = |(node, mbps)| NodeCurve {
        node,
        near: topology
            .node(node)
            .is_some_and(|node| plan::is_near(node, topology)),
        curve: Curve::peak_only(mbps),
    };
    peaks.map(curve).collect()
}

fn from_measurement(
    origin: Origin,
    measurement: Measurement,
    mix: Mix,
) -> anyhow::Result<Computed> {
    let (curves, noise) = measurement.curves(mix)?;
    let noise = noise.max(LEAST_NOISE);
    by_law(origin, Some(mix), curves, noise, Some(measurement))
}

fn by_law(
    origin: Origin,
    mix: Option<Mix>,
    curves: Vec<NodeCurve>,
    noise: f64,
    measurement: Option<Measurement>,
) -> anyhow::Result<Computed> {
    let Some(choice) = tune_law::choose(&curves, noise) else {
        bail!("no node carries anything, so there is nothing to choose");
    };
    // Nodes that are better left out get the least that there is.
    let mut weights: BTreeMap<NodeId, u8> = curves.iter().map(|curve| (curve.node, 1)).collect();
    weights.extend(&choice.best_of_all.weights);
    Ok(Computed {
        origin,
        mix,
        expected: choice.best_of_all.clone(),
        curves,
        choice,
        weights,
        noise,
        measurement,
    })
}

fn measured(args: &Args, root: &Root) -> anyhow::Result<Measurement> {
    let there = nodes::Machine::read(root, false)?;
    let blame = |option: &'static str| move |why| BadUsage(format!("{option}: {why}"));
    let nodes = args.nodes.as_ref();
    let nodes = nodes.map(|list| list.nodes_among(&there.memory_nodes));
    let cpus = args.cpus.as_ref().map(|list| list.among(&there.cpus));
    let options = plan::Options {
        nodes: nodes.transpose().map_err(blame("--nodes"))?,
        cpus: cpus.transpose().map_err(blame("--cpus"))?,
        time: args.time.unwrap_or(plan::DEFAULT_TIME),
        memory_bytes: args.memory,
    };
    let plans = measure::plan(root, &options).map_err(super::blame_measuring)?;
    let turns = plans.iter().map(measure::turns).sum();
    let mut bar = Bar::new(turns, options.time * plans.len() as u32);
    let measured = measure::measure(&plans, options.time, &mut bar);
    bar.finish();
    measured.map_err(|error: MeasureError| error.into())
}

/// The most that a file with a measurement may be, in bytes.
const LARGEST: u64 = 16 << 20;

/// A measurement out of what `--measure --json` printed, or by itself.
fn read(file: &Path) -> anyhow::Result<Measurement> {
    let text = input::text(file, LARGEST).with_context(|| file.display().to_string())?;
    let made = "write one with memtide weights --measure --json";
    let once = serde_json::from_str::<KeysOnce>(&text);
    let document: serde_json::Value = once
        .and_then(|KeysOnce| serde_json::from_str(&text))
        .with_context(|| format!("{}: no measurement ({made})", file.display()))?;
    let inner = match document.get("measurement") {
        Some(inner) => inner.clone(),
        None => document,
    };
    if inner.is_null() {
        bail!("{}: the measurement in it is null; {made}", file.display());
    }
    serde_json::from_value(inner)
        .with_context(|| format!("{}: no measurement ({made})", file.display()))
}

/// What the kernel's files say of the table, in order of trust.
pub fn in_force(weights: Option<&node::Weights>, id: NodeId) -> Option<u8> {
    weights?.weights.get(&id).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtide-linux/tests/fixtures");
        memtide_linux::fs::topology::read(&Root::new(fixtures.join(name))).unwrap()
    }

    #[test]
    fn the_kernels_rule_gives_what_the_kernel_has() {
        for name in ["two-sockets-cxl-hmat", "hbm"] {
            let machine = machine(name);
            let kernel = machine.weights.as_ref().unwrap();
            assert_eq!(kernel.auto, Some(true));
            let computed = firmware(&machine).unwrap().unwrap();
            assert_eq!(computed.weights, kernel.weights, "{name}");
        }
        assert!(firmware(&machine("two-sockets")).unwrap().is_none());
    }

    #[test]
    fn a_node_that_is_left_out_weighs_one() {
        let given = BTreeMap::from([(NodeId(0), 200_000), (NodeId(1), 100)]);
        let topology = machine("two-sockets").topology;
        let computed = given_bandwidths(&given, &topology).unwrap();
        let weights = BTreeMap::from([(NodeId(0), 1), (NodeId(1), 1)]);
        assert_eq!(computed.weights, weights);
        assert_eq!(computed.expected.weights, BTreeMap::from([(NodeId(0), 1)]));
    }
}
