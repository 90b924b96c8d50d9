use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn mask(nodes: &str) -> NodeMask {
    nodes.parse().unwrap()
}

fn weighted(nodes: &str, weights: &[u8]) -> Spread {
    Spread::weighted(&mask(nodes), &Weights::new(weights)).unwrap()
}

/// Pages on nodes 0 and 1 of `pages` pages, the first of index `phase`.
fn by_index(spread: &Spread, phase: u64, pages: u64) -> [u64; 2] {
    let on = |n| {
        let mine = (phase..phase + pages).filter(|&i| spread.node_at(i) == NodeId(n));
        mine.count() as u64
    };
    [on(0), on(1)]
}

#[test]
fn the_documents_page_counts() {
    // 65,793 = 6 * 10,965 + 3 and 65,537 = 6 * 10,922 + 5.
    let five_one = weighted("0-1", &[5, 1]);
    let one_five = weighted("0-1", &[1, 5]);
    // 5 * 10,965 + 3 and 1 * 10,965: the three pages of the rest are node 0's.
    assert_eq!(by_index(&five_one, 0, 65_793), [54_828, 10_965]);
    // 10,965 + 1 and 5 * 10,965 + 2.
    assert_eq!(by_index(&one_five, 0, 65_793), [10_966, 54_827]);
    // From phase 0 the rest of five is all node 0's: 5 * 10,922 + 5.
    assert_eq!(by_index(&five_one, 0, 65_537), [54_615, 10_922]);
    // From any other phase node 1 gets one of the five; the document has this.
    for phase in 1..6 {
        assert_eq!(by_index(&five_one, phase, 65_537), [54_614, 10_923]);
    }
    // 10,922 + 1 and 5 * 10,922 + 4.
    assert_eq!(by_index(&one_five, 0, 65_537), [10_923, 54_614]);
    // 65,793 is odd: node 0 gets one more.
    for spread in [
        weighted("0-1", &[1, 1]),
        Spread::plain(&mask("0-1")).unwrap(),
    ] {
        assert_eq!(by_index(&spread, 0, 65_793), [32_897, 32_896]);
        assert_eq!(by_index(&spread, 0, 65_537), [32_769, 32_768]);
    }
}

#[test]
fn every_second_page_under_one_to_one_is_on_one_node() {
    let spread = weighted("0-1", &[1, 1]);
    assert!((0..100).all(|i| spread.node_at(2 * i) == NodeId(0)));
}

#[test]
fn a_counter_starts_at_the_lowest_node_and_uses_up_each_weight() {
    let spread = weighted("1,3,4", &[0, 2, 9, 1, 3]);
    let mut counter = Counter::START;
    assert_eq!(counter.peek(&spread), NodeId(1));
    let nodes: Vec<u16> = (0..8).map(|_| counter.next_node(&spread).0).collect();
    assert_eq!(nodes, [1, 1, 3, 4, 4, 4, 1, 1]);
    assert_eq!(counter.peek(&spread), NodeId(3));
    let plain = Spread::plain(&mask("1,3,4")).unwrap();
    let mut counter = Counter::START;
    let nodes: Vec<u16> = (0..5).map(|_| counter.next_node(&plain).0).collect();
    assert_eq!(nodes, [1, 3, 4, 1, 3]);
}

#[test]
fn what_is_left_of_a_weight_outlives_a_change_but_not_the_node() {
    let mut counter = Counter::START;
    assert_eq!(counter.next_node(&weighted("0-1", &[3, 1])), NodeId(0));
    // Two of the three are left, whatever the weight is now.
    let changed = weighted("0-1", &[9, 2]);
    let nodes: Vec<u16> = (0..5).map(|_| counter.next_node(&changed).0).collect();
    assert_eq!(nodes, [0, 0, 1, 1, 0]);
    // Eight of node 0's nine are left when it leaves the mask.
    let without = weighted("1-2", &[9, 2, 1]);
    assert_eq!(counter.next_node(&without), NodeId(1));
}

#[test]
fn a_bulk_of_exact_rounds_ends_where_it_began() {
    let spread = weighted("0-2", &[3, 2, 1]);
    let mut counter = Counter::START;
    counter.bulk(&spread, 2, |node, pages| {
        assert_eq!((node, pages), (NodeId(0), 2));
    });
    // One page is left on node 0; then 12 = 2 rounds of 6, from node 1 on.
    let mut got = Vec::new();
    counter.bulk(&spread, 13, |node, pages| got.push((node.0, pages)));
    assert_eq!(got, [(0, 1), (1, 4), (2, 2), (0, 6)]);
    assert_eq!(counter.next_node(&spread), NodeId(1));
}

#[test]
fn a_plain_bulk_starts_at_the_same_node_each_time() {
    let spread = Spread::plain(&mask("0-2")).unwrap();
    let mut counter = Counter::START;
    for _ in 0..2 {
        // 7 = 3 * 2 + 1: the first node gets the one more.
        let mut got = Vec::new();
        counter.bulk(&spread, 7, |node, pages| got.push((node.0, pages)));
        assert_eq!(got, [(0, 3), (1, 2), (2, 2)]);
    }
}

#[test]
fn the_largest_round_fits() {
    // 1024 nodes of weight 255: 261,120 pages.
    let spread = Spread::weighted(&NodeMask::ALL, &Weights::new(&[255; 1024])).unwrap();
    assert_eq!(spread.total(), 261_120);
    assert_eq!(spread.node_at(261_119), NodeId(1023));
    assert_eq!(spread.node_at(261_120), NodeId(0));
    assert!(Spread::plain(&NodeMask::EMPTY).is_none());
}

fn sets() -> impl Strategy<Value = (NodeMask, Weights)> {
    let nodes = prop::collection::btree_set(0u16..70, 1..9);
    let weight = prop_oneof![0u8..6, any::<u8>()];
    (nodes, prop::collection::vec(weight, 70))
        .prop_map(|(n, w)| (n.into_iter().map(NodeId).collect(), Weights::new(&w)))
}

/// One round, written out: each node as often as it weighs.
fn round(set: &NodeMask, weights: &Weights) -> Vec<NodeId> {
    let share = |n| vec![n; usize::from(weights.get(n))];
    set.iter().flat_map(share).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Single(u64),
    Bulk(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u64..20).prop_map(Step::Single),
        (0u64..20).prop_map(Step::Bulk),
        (0u64..3000).prop_map(Step::Bulk),
    ];
    prop::collection::vec(step, 0..12)
}

proptest! {
    #[test]
    fn an_index_is_a_place_in_the_written_out_round(
        (set, weights) in sets(), index: u64, near in 0u64..2000, top: bool,
    ) {
        let index = if top { u64::MAX - near } else { index };
        let spread = Spread::weighted(&set, &weights).unwrap();
        let round = round(&set, &weights);
        let position = index % round.len() as u64;
        prop_assert_eq!(spread.position(index), position);
        prop_assert_eq!(spread.node_at(index), round[position as usize]);
        let plain: Vec<NodeId> = set.iter().collect();
        let turn = (index % plain.len() as u64) as usize;
        prop_assert_eq!(Spread::plain(&set).unwrap().node_at(index), plain[turn]);
    }

    #[test]
    fn a_counter_walks_the_written_out_round((set, weights) in sets()) {
        let spread = Spread::weighted(&set, &weights).unwrap();
        let mut counter = Counter::START;
        for node in round(&set, &weights).into_iter().cycle().take(5000) {
            if counter.left == 0 {
                prop_assert_eq!(counter.peek(&spread), node);
            }
            prop_assert_eq!(counter.next_node(&spread), node);
        }
    }

    #[test]
    fn single_and_bulk_may_alternate_at_will((set, weights) in sets(), steps in steps()) {
        let spread = Spread::weighted(&set, &weights).unwrap();
        let mut mixed = Counter::START;
        let mut single = Counter::START;
        let (mut got, mut want) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            let mut add = |n: NodeId, pages| *got.entry(n).or_insert(0u64) += pages;
            let (Step::Single(pages) | Step::Bulk(pages)) = step;
            match step {
                Step::Single(_) => (0..pages).for_each(|_| add(mixed.next_node(&spread), 1)),
                Step::Bulk(_) => mixed.bulk(&spread, pages, add),
            }
            for _ in 0..pages {
                *want.entry(single.next_node(&spread)).or_insert(0u64) += 1;
            }
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(mixed.peek(&spread), single.peek(&spread));
        }
    }

    #[test]
    fn a_plain_bulk_shares_out_evenly((set, _) in sets(), pages in 0u64..10_000) {
        let spread = Spread::plain(&set).unwrap();
        let mut got = BTreeMap::new();
        let mut counter = Counter::START;
        counter.bulk(&spread, pages, |n, pages| {
            assert!(pages > 0 && got.insert(n, pages).is_none());
        });
        prop_assert_eq!(got.values().sum::<u64>(), pages);
        let share = |n: &NodeId| got.get(n).copied().unwrap_or(0);
        let shares: Vec<u64> = spread.nodes().iter().map(share).collect();
        prop_assert!(shares.is_sorted_by(|a, b| a >= b));
        prop_assert!(shares[0] - shares[shares.len() - 1] <= 1);
    }
}
