//! Interleave weights as the kernel itself computes them (Linux 6.16 and later).
//!
//! Problem. Kernels before 6.16 leave all weights at 1, whatever the firmware
//! says of the nodes' bandwidths, and later ones forget theirs with the first
//! weight that anybody writes.
//!
//! Approach. The same integer arithmetic, so that on a kernel that computes
//! weights ours are the same to the last digit. A node's bandwidth is the
//! smaller of read and write, seen from the nearest CPUs (access class 1). Its
//! weight is its share of the sum, in 32nds, rounded down, at least 1; then all
//! weights are divided by their greatest common divisor. What the firmware does
//! not say counts as nothing in the sum and as 1 in the result.
//!
//! The rule sees peaks only. [`tune_law`](super::tune_law) sees how far each
//! node can be loaded, and which nodes are better left out.

use crate::topology::AccessFigures;
use crate::units::NodeId;
use std::collections::BTreeMap;

/// How many parts the sum of all bandwidths is divided into.
const WEIGHTINESS: u64 = 32;

/// The bandwidth that the kernel's rule takes, in the unit of `figures`; `None`
/// if the firmware leaves out either direction.
pub fn bandwidth(figures: &AccessFigures) -> Option<u32> {
    let read = figures.read_bandwidth_mbps.filter(|mbps| *mbps > 0)?;
    let write = figures.write_bandwidth_mbps.filter(|mbps| *mbps > 0)?;
    Some(read.min(write))
}

/// The weights for the nodes with memory, by bandwidth in any one unit.
pub fn kernel_weights(bandwidths: &BTreeMap<NodeId, Option<u32>>) -> BTreeMap<NodeId, u8> {
    let known = bandwidths.values().flatten();
    let sum: u64 = known.map(|&bandwidth| u64::from(bandwidth)).sum();
    let weight = |bandwidth: Option<u32>| {
        let parts = WEIGHTINESS * u64::from(bandwidth.unwrap_or(0));
        // At most 32, because no bandwidth is above the sum.
        if sum < parts { (parts / sum) as u8 } else { 1 }
    };
    let raw = bandwidths.iter().map(|(&node, &b)| (node, weight(b)));
    let mut weights: BTreeMap<NodeId, u8> = raw.collect();
    let divisor = weights.values().copied().fold(0, gcd).max(1);
    for weight in weights.values_mut() {
        *weight /= divisor;
    }
    weights
}

/// The greatest common divisor; of anything and 0 it is the other.
fn gcd(a: u8, b: u8) -> u8 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights(bandwidths: &[Option<u32>]) -> Vec<u8> {
        let nodes = (0..).map(NodeId).zip(bandwidths.iter().copied());
        kernel_weights(&nodes.collect()).into_values().collect()
    }

    #[test]
    fn what_the_kernel_gives_for_known_bandwidths() {
        // One node known: 32 * 200 / 200 = 32, the other is 1.
        assert_eq!(weights(&[Some(200), None]), [32, 1]);
        // 3200 / 101 = 31.7, and 32 < 101.
        assert_eq!(weights(&[Some(100), Some(1)]), [31, 1]);
        // 7168 / 288 = 24.9, 2048 / 288 = 7.1.
        assert_eq!(weights(&[Some(224), Some(64)]), [24, 7]);
        // 24 and 8, divided by 8.
        assert_eq!(weights(&[Some(300), Some(100)]), [3, 1]);
        assert_eq!(weights(&[Some(100), Some(100)]), [1, 1]);
        assert_eq!(weights(&[None, None]), [1, 1]);
        assert_eq!(weights(&[]), []);
        // The test guest on Linux 7.2: 200, 200 and 22 GiB/s give
        // 6400 / 422 = 15.2 twice and 704 / 422 = 1.7.
        let guest = [Some(204_800), Some(204_800), Some(22_528)];
        assert_eq!(weights(&guest), [15, 15, 1]);
    }

    #[test]
    fn both_directions_must_be_known() {
        let mut figures = AccessFigures {
            read_bandwidth_mbps: Some(300),
            ..AccessFigures::default()
        };
        assert_eq!(bandwidth(&figures), None);
        figures.write_bandwidth_mbps = Some(200);
        assert_eq!(bandwidth(&figures), Some(200));
        figures.write_bandwidth_mbps = Some(0);
        assert_eq!(bandwidth(&figures), None);
    }

    proptest! {
        #[test]
        fn every_weight_is_a_weight(
            bandwidths in prop::collection::vec(prop::option::of(any::<u32>()), 0..64),
        ) {
            let weights = weights(&bandwidths);
            prop_assert_eq!(weights.len(), bandwidths.len());
            prop_assert!(weights.iter().all(|weight| (1..=32).contains(weight)));
            let common = weights.iter().copied().fold(0, gcd);
            prop_assert!(common <= 1);
        }

        #[test]
        fn more_bandwidth_is_never_less_weight(
            bandwidths in prop::collection::vec(1u32..1_000_000, 2..8),
        ) {
            let nodes: Vec<Option<u32>> = bandwidths.iter().copied().map(Some).collect();
            let weights = weights(&nodes);
            for (i, j) in (0..weights.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                if bandwidths[i] >= bandwidths[j] {
                    prop_assert!(weights[i] >= weights[j]);
                }
            }
        }
    }
}
