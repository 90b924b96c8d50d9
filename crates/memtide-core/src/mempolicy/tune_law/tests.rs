//! The law against brute force, and against the document's machine.

use super::*;
use crate::mempolicy::curve::LoadPoint;
use proptest::prelude::*;

fn node(id: u16, near: bool, curve: Curve) -> NodeCurve {
    NodeCurve {
        node: NodeId(id),
        near,
        curve,
    }
}

/// Near nodes first, then far ones, of which only the peak is known.
fn peaks(near: &[u64], far: &[u64]) -> Vec<NodeCurve> {
    let near = near.iter().map(|mbps| (true, *mbps));
    let all = near.chain(far.iter().map(|mbps| (false, *mbps)));
    (0..)
        .zip(all)
        .map(|(id, (near, mbps))| node(id, near, Curve::peak_only(mbps)))
        .collect()
}

fn weights(expected: &Expected) -> Vec<(u16, u8)> {
    let pairs = expected.weights.iter();
    pairs.map(|(node, weight)| (node.0, *weight)).collect()
}

#[test]
fn whole_proportions_are_found() {
    let choice = choose(&peaks(&[180_000], &[20_000]), 0.02).unwrap();
    assert_eq!(choice.advice, Advice::Interleave);
    assert_eq!(weights(&choice.best), [(0, 9), (1, 1)]);
    assert_eq!(choice.best.bandwidth_mbps, 200_000);
    assert_eq!(choice.near_alone.unwrap().bandwidth_mbps, 180_000);
    // At 1:1 both carry what the slower does.
    assert_eq!(choice.one_to_one.bandwidth_mbps, 40_000);
    let choice = choose(&peaks(&[100, 100], &[50]), 0.02).unwrap();
    assert_eq!(weights(&choice.best), [(0, 2), (1, 2), (2, 1)]);
}

#[test]
fn the_documents_stream_machine() {
    // Triad: 208.5 GB/s on DRAM, 24.5 on CXL, 48.7 at 1:1; 9:1 gave 217.7.
    let nodes = peaks(&[208_523], &[24_484]);
    let choice = choose(&nodes, 0.02).unwrap();
    assert_eq!(choice.one_to_one.bandwidth_mbps, 48_968);
    let nine_to_one = BTreeMap::from([(NodeId(0), 9), (NodeId(1), 1)]);
    let nine_to_one = expect(&nodes, nine_to_one).unwrap();
    assert_eq!(nine_to_one.bandwidth_mbps, 208_523 * 10 / 9);
    // 17:2 of 233,007 at most: 19 * min(12,266, 12,242) = 232,598.
    assert_eq!(weights(&choice.best), [(0, 17), (1, 2)]);
    assert_eq!(choice.best.bandwidth_mbps, 232_598);
}

#[test]
fn a_far_node_below_the_noise_is_left_alone() {
    // 1 % more, measured to within 2 %.
    let choice = choose(&peaks(&[100_000], &[1_000]), 0.02).unwrap();
    assert_eq!(choice.advice, Advice::NearAlone);
    assert_eq!(weights(&choice.best), [(0, 1)]);
    assert_eq!(choice.best_of_all.bandwidth_mbps, 101_000);
    let choice = choose(&peaks(&[100_000], &[1_000]), 0.005).unwrap();
    assert_eq!(choice.advice, Advice::Interleave);
    assert_eq!(weights(&choice.best), [(0, 100), (1, 1)]);
}

#[test]
fn weights_are_no_more_exact_than_the_measurement() {
    // Exactly best is 21:22:25 or so; at 16 % noise 4 % less will do.
    let nodes = peaks(&[4_800, 5_000, 5_700], &[]);
    let exact = choose(&nodes, 0.0).unwrap().best;
    assert!(
        exact.weights.values().all(|weight| *weight > 10),
        "{exact:?}"
    );
    let rough = choose(&nodes, 0.16).unwrap().best;
    assert!(
        rough.weights.values().all(|weight| *weight <= 8),
        "{rough:?}"
    );
    assert!(rough.bandwidth_mbps as f64 >= exact.bandwidth_mbps as f64 * 0.96);
    assert_eq!(near_enough(f64::NAN), 995_000);
    assert_eq!(near_enough(0.02), 995_000);
}

#[test]
fn a_node_that_would_hold_up_the_rest_is_left_out() {
    // At 255:1 the third node would allow 100 * 511 only.
    let choice = choose(&peaks(&[100_000, 100_000], &[100]), 0.02).unwrap();
    assert_eq!(choice.advice, Advice::NearAlone);
    assert_eq!(weights(&choice.best_of_all), [(0, 1), (1, 1)]);
    // A node without any bandwidth is never in.
    let choice = choose(&peaks(&[100], &[0]), 0.02).unwrap();
    assert_eq!(weights(&choice.best), [(0, 1)]);
    assert_eq!(choice.one_to_one.bandwidth_mbps, 0);
}

#[test]
fn one_kind_of_nodes_leaves_nothing_to_compare() {
    let choice = choose(&peaks(&[100, 50], &[]), 0.02).unwrap();
    assert_eq!(choice.advice, Advice::OneKind);
    assert_eq!(weights(&choice.best), [(0, 2), (1, 1)]);
    let choice = choose(&peaks(&[], &[100, 50]), 0.02).unwrap();
    assert_eq!((choice.advice, choice.near_alone), (Advice::OneKind, None));
    assert_eq!(choose(&[], 0.02), None);
    let twice = node(0, true, Curve::peak_only(1));
    assert_eq!(choose(&[twice.clone(), twice], 0.02), None);
}

#[test]
fn a_knee_counts_and_not_the_peak() {
    let curve = |points: &[(u64, f64)]| {
        let point = |&(bandwidth_mbps, latency_ns): &(u64, f64)| LoadPoint {
            bandwidth_mbps,
            latency_ns,
        };
        Curve::new(points.iter().map(point).collect(), 0)
    };
    // Both peak at 100,000; the far one is twice as late from 50,000 on.
    let nodes = [
        node(0, true, curve(&[(1, 100.0), (100_000, 200.0)])),
        node(
            1,
            false,
            curve(&[(1, 250.0), (50_000, 500.0), (100_000, 900.0)]),
        ),
    ];
    let choice = choose(&nodes, 0.02).unwrap();
    assert_eq!(weights(&choice.best), [(0, 2), (1, 1)]);
    assert_eq!(choice.best.bandwidth_mbps, 150_000);
    // Two thirds at 200 ns, one at 500.
    let latency_ns = choice.best.latency_ns.unwrap();
    assert!((latency_ns - 300.0).abs() < 0.1, "{latency_ns}");
}

#[test]
fn weights_that_nobody_measured_are_no_question() {
    let nodes = peaks(&[100], &[10]);
    assert_eq!(expect(&nodes, BTreeMap::from([(NodeId(7), 1)])), None);
    assert_eq!(expect(&nodes, BTreeMap::new()), None);
}

/// What weights carry, as a fraction.
fn carried(mbps: &[u128], weights: &[u128]) -> f64 {
    let sum: u128 = weights.iter().sum();
    let each = mbps.iter().zip(weights);
    each.map(|(&b, &w)| (b * sum) as f64 / w as f64)
        .fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_nodes_against_every_pair(a in 1u64..400_000, b in 1u64..400_000) {
        let choice = choose(&peaks(&[a, b], &[]), 0.0).unwrap();
        let mbps = [u128::from(a), u128::from(b)];
        let mut best = (a.max(b)) as f64;
        for w in (1..=255).flat_map(|v| (1..=255).map(move |w| [v, w])) {
            best = best.max(carried(&mbps, &w));
        }
        let found = choice.best.bandwidth_mbps as f64;
        prop_assert!(found <= best + 1.0, "{found} of {best}");
        prop_assert!(found + 1.0 >= best * 0.995, "{found} of {best}");
    }

    #[test]
    fn three_nodes_against_every_small_triple(
        a in 1u64..100_000, b in 1u64..100_000, c in 1u64..100_000,
    ) {
        let choice = choose(&peaks(&[a, b, c], &[]), 0.0).unwrap();
        let mbps = [a, b, c].map(u128::from);
        let mut best: f64 = 0.0;
        for v in 1..=30 {
            for w in (1..=30).flat_map(|w| (1..=30).map(move |x| [v, w, x])) {
                best = best.max(carried(&mbps, &w));
            }
        }
        prop_assert!(choice.best.bandwidth_mbps as f64 + 1.0 >= best * 0.995);
        prop_assert!(choice.best.bandwidth_mbps <= a + b + c);
    }

    #[test]
    fn the_advice_is_never_worse_than_what_it_was_compared_with(
        near in prop::collection::vec(1u64..500_000, 1..4),
        far in prop::collection::vec(1u64..500_000, 0..4),
        noise in 0.0f64..0.2,
    ) {
        let choice = choose(&peaks(&near, &far), noise).unwrap();
        let near_alone = choice.near_alone.unwrap();
        let slack = |mbps: u64| mbps as f64 * (1.0 - (noise / 4.0).max(0.005)) - 1.0;
        let best = choice.best.bandwidth_mbps as f64;
        prop_assert!(best >= slack(near_alone.bandwidth_mbps));
        prop_assert!(best * (1.0 + noise) >= slack(choice.best_of_all.bandwidth_mbps));
        prop_assert!(best * (1.0 + noise) >= slack(choice.one_to_one.bandwidth_mbps));
        prop_assert!(choice.best.weights.values().all(|weight| *weight > 0));
    }
}
