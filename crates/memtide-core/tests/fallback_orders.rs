//! What a machine of many nodes costs to describe.
//!
//! Each of n nodes has its fallback order: n sorts of n nodes. Taking node after
//! node from those that are left gives the same orders and is n times n times n.
#![expect(clippy::disallowed_methods, reason = "a promise of time")]

use memtide_core::mempolicy::{Kernel, Machine, MachineInput};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SMALL: u16 = 256;
const LARGE: u16 = NodeId::LIMIT;

/// Four times the nodes are 20 times the work of n sorts of n (16 times as many
/// keys, each compared 10 times instead of 8), and 64 times that of n * n * n.
/// The bound is as many times away from the one as from the other.
const MOST: f64 = 1.79;

/// The distances of `nodes` nodes, of a small generator: any numbers do that
/// leave something to sort.
fn distances(nodes: u16) -> Vec<Vec<u32>> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        10 + (state >> 16) % 246
    };
    let mut row = || (0..nodes).map(|_| next()).collect();
    (0..nodes).map(|_| row()).collect()
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    black_box(work());
    began.elapsed()
}

/// What is judged: the machine's description becomes a machine.
fn machine(distances: &[Vec<u32>]) -> Duration {
    let nodes: NodeMask = (0..distances.len() as u16).map(NodeId).collect();
    let input = MachineInput {
        distances: Some(distances.to_vec()),
        ..MachineInput::new(nodes, nodes, Kernel::WITH_AUTO)
    };
    timed(|| Machine::new(input).unwrap())
}

/// What it is compared with: each row sorted by what stands in it.
fn sorts(distances: &[Vec<u32>]) -> Duration {
    let sorted = |row: &Vec<u32>| {
        let mut order: Vec<u16> = (0..row.len() as u16).collect();
        order.sort_unstable_by_key(|&n| (row[usize::from(n)], n));
        order
    };
    timed(|| distances.iter().map(sorted).collect::<Vec<_>>())
}

#[test]
fn many_nodes_take_as_many_sorts_and_no_more() {
    let (small, large) = (distances(SMALL), distances(LARGE));
    // The least of some turns, taken alternately: what else runs here adds to them.
    let mut least = [Duration::MAX; 4];
    for _ in 0..7 {
        let turn = [
            machine(&small),
            machine(&large),
            sorts(&small),
            sorts(&large),
        ];
        least = std::array::from_fn(|i| least[i].min(turn[i]));
    }
    let [of_small, of_large, sorts_small, sorts_large] = least.map(|time| time.as_secs_f64());
    let (ratio, wanted) = (of_large / of_small, sorts_large / sorts_small);
    println!(
        "{SMALL} nodes {:.2} ms, {LARGE} nodes {:.2} ms: {ratio:.1} times; sorts {wanted:.1} times",
        of_small * 1e3,
        of_large * 1e3,
    );
    assert!(
        ratio <= MOST * wanted,
        "{LARGE} nodes take {ratio:.1} times as long as {SMALL}, and as many sorts {wanted:.1} times"
    );
}
