//! Hits beside the bound that no policy passes: Belady's, which knows the future.
//!
//! Patterns of what the pager is for, in granules. Where uses come at random, nobody
//! without foresight reaches Belady's bound: the best that can be had then is to keep
//! what is used most often for all time, which is shown beside it.

use super::tests::{Cache, numbers};
use std::collections::{BTreeMap, BTreeSet};

/// Hits of the policy that evicts what is used again last.
fn belady(uses: &[u32], capacity: usize, counted_from: usize) -> u64 {
    let mut next_use = vec![usize::MAX; uses.len()];
    let mut last = BTreeMap::new();
    for (at, index) in uses.iter().enumerate().rev() {
        next_use[at] = last.insert(*index, at).unwrap_or(usize::MAX);
    }
    let mut held = BTreeMap::new();
    let mut by_next = BTreeSet::new();
    let mut hits = 0;
    for (at, index) in uses.iter().enumerate() {
        if let Some(next) = held.remove(index) {
            by_next.remove(&(next, *index));
            hits += u64::from(at >= counted_from);
        } else if held.len() == capacity
            && let Some((_, gone)) = by_next.pop_last()
        {
            held.remove(&gone);
        }
        held.insert(*index, next_use[at]);
        by_next.insert((next_use[at], *index));
    }
    hits
}

/// Hits where the granules that are used most often are kept.
fn most_used(uses: &[u32], capacity: usize, counted_from: usize) -> u64 {
    let mut times = BTreeMap::<u32, u64>::new();
    for index in &uses[counted_from..] {
        *times.entry(*index).or_default() += 1;
    }
    let mut times: Vec<u64> = times.into_values().collect();
    times.sort_unstable_by_key(|times| std::cmp::Reverse(*times));
    times.iter().take(capacity).sum()
}

struct Shares {
    ours: f64,
    in_order: f64,
    belady: f64,
    most_used: f64,
}

/// Hits a use, after the first third.
fn shares(name: &str, uses: &[u32], capacity: usize) -> Shares {
    let from = uses.len() / 3;
    let counted = (uses.len() - from) as f64;
    let mut cache = Cache::new(capacity as u64, true, true);
    cache.hit_ratio(uses[..from].iter().copied());
    let mut fifo = Cache::new(capacity as u64, false, true);
    fifo.hit_ratio(uses[..from].iter().copied());
    let shares = Shares {
        ours: cache.hit_ratio(uses[from..].iter().copied()),
        in_order: fifo.hit_ratio(uses[from..].iter().copied()),
        belady: belady(uses, capacity, from) as f64 / counted,
        most_used: most_used(uses, capacity, from) as f64 / counted,
    };
    println!(
        "{name:<28} ours {:.3}, in order of arrival {:.3}, Belady {:.3} ({:.2}), most used {:.3} ({:.2})",
        shares.ours,
        shares.in_order,
        shares.belady,
        shares.ours / shares.belady,
        shares.most_used,
        shares.ours / shares.most_used
    );
    shares
}

/// 30 tokens, each of them all 4,000 granules.
fn model_sweep() -> Vec<u32> {
    (0..30).flat_map(|_| 0..4000).collect()
}

/// The same with 64 rows of an embedding of 170 granules before each.
fn sweep_with_embedding() -> Vec<u32> {
    let mut number = numbers(11);
    let mut uses = Vec::new();
    for _ in 0..30 {
        uses.extend((0..64).map(|_| 4000 + number(14).pow(2) as u32));
        uses.extend(0..4000);
    }
    uses
}

/// 32 layers of 4 granules that every token needs and 16 experts of 6, of which each
/// token takes two: half of the time one of the first three.
fn mixture_of_experts() -> Vec<u32> {
    let mut number = numbers(12);
    let mut uses = Vec::new();
    for _ in 0..200 {
        for layer in 0..32 {
            let first = layer * 100;
            uses.extend(first..first + 4);
            for _ in 0..2 {
                let expert = match number(2) {
                    0 => number(3),
                    _ => number(16),
                } as u32;
                uses.extend(first + 4 + expert * 6..first + 10 + expert * 6);
            }
        }
    }
    uses
}

/// Searches in a graph: ten uses of its upper levels (100 granules), then 40 of
/// neighbourhoods of which some are visited often.
fn graph_search() -> Vec<u32> {
    let mut number = numbers(13);
    let mut uses = Vec::new();
    for _ in 0..4000 {
        uses.extend((0..10).map(|_| number(100) as u32));
        uses.extend((0..40).map(|_| 100 + (number(63) * number(63)) as u32));
    }
    uses
}

/// Searches in lists: some of 500 lists of 8 granules, the first ones more often.
fn list_search() -> Vec<u32> {
    let mut number = numbers(14);
    let lists = (0..20_000).map(|_| (number(500).min(number(500)) * 8) as u32);
    lists.flat_map(|first| first..first + 8).collect()
}

/// Look-ups in a tree: the root, one of 40 inner pages, a leaf; half of them in a tenth
/// of the leaves.
fn tree_pages() -> Vec<u32> {
    let mut number = numbers(15);
    let mut uses = Vec::new();
    for _ in 0..60_000 {
        let leaf = match number(2) {
            0 => number(400),
            _ => number(4000),
        } as u32;
        uses.extend([0, 1 + leaf / 100, 41 + leaf]);
    }
    uses
}

/// Scans of some of 20 columns of 200 granules, the first ones more often.
fn column_scans() -> Vec<u32> {
    let mut number = numbers(16);
    let columns = (0..600).map(|_| (number(20).min(number(20)) * 200) as u32);
    columns.flat_map(|first| first..first + 200).collect()
}

#[test]
fn what_is_kept_of_a_sweep_is_main_and_nothing_does_worse_than_a_queue() {
    let quarter = 1000;
    for (name, uses) in [
        ("model sweep", model_sweep()),
        ("sweep with embedding", sweep_with_embedding()),
        ("mixture of experts", mixture_of_experts()),
        ("graph search", graph_search()),
        ("list search", list_search()),
        ("tree pages", tree_pages()),
        ("column scans", column_scans()),
    ] {
        for capacity in [quarter, 2 * quarter, 3 * quarter] {
            let of = shares(&format!("{name}, {capacity}"), &uses, capacity);
            assert!(of.ours <= of.belady, "{name}: nobody passes Belady");
            assert!(of.ours >= of.in_order, "{name}: no worse than a queue");
            // Of a sweep the main queue stays, seven eighths of all; a batch, one
            // thirty-second part of it, is always on its way out.
            let sweeps = name.contains("sweep");
            assert!(
                !sweeps || of.ours >= of.belady * 7.0 / 8.0 * 31.0 / 32.0,
                "{name}"
            );
        }
    }
}

#[test]
fn belady_is_what_it_is_by_hand() {
    // Room for two: 1 2 3 1 2. For 3 the 2 goes, which is used last; the 1 is there, and
    // then the 2 is not.
    assert_eq!(belady(&[1, 2, 3, 1, 2], 2, 0), 1);
    // One more turn brings 3, which stayed.
    assert_eq!(belady(&[1, 2, 3, 1, 2, 3], 2, 0), 2);
    assert_eq!(most_used(&[1, 2, 3, 1, 2, 1], 1, 0), 3);
}
