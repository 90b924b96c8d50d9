//! What a measurement of a machine's memory says, as plain data.
//!
//! It is made on a live machine (`memtide weights --measure`), printed as JSON
//! (`docs/json.md`), and read back by whoever needs curves: the choice of
//! weights, and the simulated machine.

use super::curve::{Curve, LoadPoint};
use super::tune_law::NodeCurve;
use crate::units::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Reads to writes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mix {
    /// Reads only.
    #[serde(rename = "read")]
    Read,
    /// Two reads for each write.
    #[serde(rename = "2:1")]
    TwoToOne,
    /// As many reads as writes.
    #[serde(rename = "1:1")]
    OneToOne,
    /// Writes only.
    #[serde(rename = "write")]
    Write,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 4] = [Mix::Read, Mix::TwoToOne, Mix::OneToOne, Mix::Write];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Read => "read",
            Mix::TwoToOne => "2:1",
            Mix::OneToOne => "1:1",
            Mix::Write => "write",
        }
    }
}

/// A measured machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The nodes that were measured, ascending.
    pub nodes: Vec<MeasuredNode>,
}

/// A measured node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredNode {
    /// The node.
    pub node: NodeId,
    /// Whether it is near: memory beside CPUs, or faster.
    pub near: bool,
    /// The CPUs that used it, as a list.
    pub cpus: String,
    /// How much memory was used in all.
    pub memory_bytes: u64,
    /// How much of it was in huge pages, if the kernel told.
    pub huge_bytes: Option<u64>,
    /// How long it took.
    pub seconds: f64,
    /// Latency of a read that nothing else disturbs.
    pub idle_latency_ns: f64,
    /// What was measured of each mix.
    pub mixes: Vec<MeasuredMix>,
    /// What to know about these figures, a sentence each.
    pub notes: Vec<String>,
}

/// A measured mix of reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredMix {
    /// The mix.
    pub mix: Mix,
    /// Reads and writes of all CPUs together, the median of several turns.
    pub peak_mbps: u64,
    /// How far those turns lay apart, relative to the median.
    pub spread: f64,
    /// Latency under load, in ascending order of what was asked for.
    pub points: Vec<LoadPoint>,
}

/// Why a measurement that was read cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MeasurementError {
    /// It has no nodes.
    #[error("no node was measured")]
    Empty,
    /// A node is in it twice.
    #[error("node {0} is in it twice")]
    Twice(NodeId),
    /// A mix of a node is in it twice.
    #[error("node {node} has the mix {} twice", mix.name())]
    MixTwice {
        /// The node.
        node: NodeId,
        /// The mix.
        mix: Mix,
    },
    /// A mix is missing.
    #[error("node {node} was not measured at {}", mix.name())]
    NoMix {
        /// The node.
        node: NodeId,
        /// The mix.
        mix: Mix,
    },
    /// A latency is no latency.
    #[error("node {node}: {latency_ns} ns is no latency")]
    Latency {
        /// The node.
        node: NodeId,
        /// What it says.
        latency_ns: f64,
    },
}

impl MeasuredNode {
    /// Latency by bandwidth at `mix`, if that was measured.
    pub fn curve(&self, mix: Mix) -> Option<Curve> {
        let measured = self.mixes.iter().find(|measured| measured.mix == mix)?;
        let mut points = measured.points.clone();
        points.push(LoadPoint {
            bandwidth_mbps: 0,
            latency_ns: self.idle_latency_ns,
        });
        Some(Curve::new(points, measured.peak_mbps))
    }
}

impl Measurement {
    /// Checks that every node is in it once, and of each node every mix: which
    /// of two is meant nobody knows.
    ///
    /// # Errors
    ///
    /// [`MeasurementError::Twice`], [`MeasurementError::MixTwice`].
    pub fn once(&self) -> Result<(), MeasurementError> {
        let mut nodes = BTreeSet::new();
        for measured in &self.nodes {
            let node = measured.node;
            if !nodes.insert(node) {
                return Err(MeasurementError::Twice(node));
            }
            let mut mixes = BTreeSet::new();
            for MeasuredMix { mix, .. } in &measured.mixes {
                if !mixes.insert(*mix) {
                    return Err(MeasurementError::MixTwice { node, mix: *mix });
                }
            }
        }
        Ok(())
    }

    /// The nodes as the bandwidth law wants them, and the relative noise: how
    /// far the least steady node's turns lay apart.
    ///
    /// # Errors
    ///
    /// [`MeasurementError`].
    pub fn curves(&self, mix: Mix) -> Result<(Vec<NodeCurve>, f64), MeasurementError> {
        self.once()?;
        let mut curves: Vec<NodeCurve> = Vec::new();
        let mut noise: f64 = 0.0;
        for measured in &self.nodes {
            let node = measured.node;
            let no_mix = MeasurementError::NoMix { node, mix };
            let of_mix = measured.mixes.iter().find(|measured| measured.mix == mix);
            let points = &of_mix.ok_or(no_mix.clone())?.points;
            let latencies = points.iter().map(|point| point.latency_ns);
            let mut latencies = latencies.chain([measured.idle_latency_ns]);
            if let Some(latency_ns) = latencies.find(|ns| !ns.is_finite() || *ns <= 0.0) {
                return Err(MeasurementError::Latency { node, latency_ns });
            }
            noise = noise.max(of_mix.map_or(0.0, |measured| measured.spread));
            curves.push(NodeCurve {
                node,
                near: measured.near,
                curve: measured.curve(mix).ok_or(no_mix)?,
            });
        }
        match curves.is_empty() {
            true => Err(MeasurementError::Empty),
            false => Ok((curves, noise)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u16, latency_ns: f64) -> MeasuredNode {
        MeasuredNode {
            node: NodeId(node),
            near: node == 0,
            cpus: "0-1".to_owned(),
            memory_bytes: 1 << 30,
            huge_bytes: None,
            seconds: 1.0,
            idle_latency_ns: latency_ns,
            mixes: vec![MeasuredMix {
                mix: Mix::Read,
                peak_mbps: 1000,
                spread: 0.01 * f64::from(node),
                points: vec![LoadPoint {
                    bandwidth_mbps: 900,
                    latency_ns: 3.0 * latency_ns,
                }],
            }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_measurement_becomes_curves_with_the_idle_point() {
        let nodes = vec![node(0, 100.0), node(2, 200.0)];
        let (curves, noise) = Measurement { nodes }.curves(Mix::Read).unwrap();
        assert_eq!(noise, 0.02);
        assert!(curves[0].near && !curves[1].near);
        // Half-way from 100 ns without load to 300 ns at 900 MB/s.
        assert_eq!(curves[0].curve.usable_mbps(), 450);
        assert_eq!(curves[1].curve.peak_mbps(), 1000);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let curves = |nodes, mix| Measurement { nodes }.curves(mix).unwrap_err().to_string();
        assert_eq!(curves(vec![], Mix::Read), "no node was measured");
        let twice = vec![node(1, 1.0), node(1, 1.0)];
        assert_eq!(curves(twice, Mix::Read), "node 1 is in it twice");
        let mut mixes = node(1, 1.0);
        mixes.mixes.extend(mixes.mixes.clone());
        assert_eq!(
            curves(vec![mixes], Mix::Read),
            "node 1 has the mix read twice"
        );
        assert_eq!(
            curves(vec![node(1, 1.0)], Mix::TwoToOne),
            "node 1 was not measured at 2:1"
        );
        assert_eq!(
            curves(vec![node(1, 0.0)], Mix::Read),
            "node 1: 0 ns is no latency"
        );
    }
}
