use super::*;

fn node(id: u16, cpus: &[u32], gib: u64) -> NodeInput {
    NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: gib << 30,
        cpus: cpus.to_vec(),
        distances: None,
        figures: AccessFigures::default(),
        tier: None,
    }
}

fn with_figures(mut node: NodeInput, latency: u32, bandwidth: u32) -> NodeInput {
    node.figures = AccessFigures {
        read_latency_ns: Some(latency),
        write_latency_ns: Some(latency),
        read_bandwidth_mbps: Some(bandwidth),
        write_bandwidth_mbps: Some(bandwidth),
    };
    node
}

fn with_distances(mut node: NodeInput, row: &[u32]) -> NodeInput {
    node.distances = Some(row.to_vec());
    node
}

fn build(nodes: Vec<NodeInput>) -> Topology {
    TopologyInput::new(nodes).try_into().unwrap()
}

fn tier(topology: &Topology, id: u16) -> Option<u32> {
    topology.node(NodeId(id)).unwrap().tier.map(|t| t.0)
}

fn mask(ids: &[u16]) -> NodeMask {
    ids.iter().map(|&i| NodeId(i)).collect()
}

/// The machine of *mm: Hot page tracking and promotion infrastructure*: two DRAM nodes and CXL.
fn seed_machine() -> Topology {
    build(vec![
        with_distances(node(0, &[0, 1], 128), &[10, 32, 50]),
        with_distances(node(1, &[2, 3], 128), &[32, 10, 60]),
        with_distances(node(2, &[], 258), &[255, 255, 10]),
    ])
}

#[test]
fn attached_memory_is_a_lower_tier_and_dram_is_on_top() {
    let t = seed_machine();
    assert_eq!(t.tier_origin(), TierOrigin::Assumed);
    assert_eq!(
        (tier(&t, 0), tier(&t, 1), tier(&t, 2)),
        (Some(4), Some(4), Some(22))
    );
    assert!(t.is_top_tier(NodeId(0)) && !t.is_top_tier(NodeId(2)));
    assert_eq!(
        t.tiers(),
        [(TierId(4), mask(&[0, 1])), (TierId(22), mask(&[2]))]
    );
    // Node 2 is 255 from both, and the lower id takes the tie.
    assert_eq!(t.promotion_target(NodeId(2)), Some(NodeId(0)));
    assert_eq!(t.promotion_target(NodeId(0)), None);
    let allowed = t.promotion_target_within(NodeId(2), &mask(&[1, 2]));
    assert_eq!(allowed, Some(NodeId(1)));
    assert_eq!(t.promotion_target_within(NodeId(2), &mask(&[2])), None);
    assert_eq!(t.demotion_targets(NodeId(1)).preferred, mask(&[2]));
    assert_eq!(t.demotion_targets(NodeId(2)), DemotionTargets::default());
    assert_eq!(t.node_of_cpu(3), Some(NodeId(1)));
    assert_eq!(t.node_of_cpu(4), None);
}

#[test]
fn a_slow_node_with_cpus_is_top_tier() {
    // As the kernel has it: tier 22 then is the slowest tier with a CPU.
    let mut slow = node(1, &[4], 64);
    slow.tier = Some(TierId(22));
    let mut fast = node(0, &[0], 64);
    fast.tier = Some(TierId(4));
    let t = build(vec![fast, slow]);
    assert_eq!(t.tier_origin(), TierOrigin::Kernel);
    assert!(t.is_top_tier(NodeId(1)));
    assert_eq!(t.promotion_target(NodeId(1)), None);
    // It still is a lower tier for demotion.
    assert_eq!(t.demotion_targets(NodeId(0)).preferred, mask(&[1]));
}

#[test]
fn demotion_goes_to_the_nearest_node_of_the_next_tier_only() {
    // Node 0 has distances {2: 20, 3: 30}, both in tier 22, and node 5 in tier 40
    // at 15: 2 is preferred, 3 and 5 are fallbacks.
    let row = [10, 20, 30, 15];
    let kernel = |mut n: NodeInput, tier| {
        n.tier = Some(TierId(tier));
        n
    };
    let t = build(vec![
        kernel(node(5, &[], 8), 40),
        kernel(node(3, &[], 8), 22),
        kernel(with_distances(node(0, &[0], 8), &row), 4),
        kernel(node(2, &[], 8), 22),
    ]);
    let targets = t.demotion_targets(NodeId(0));
    assert_eq!(targets.preferred, mask(&[2]));
    assert_eq!(targets.fallback, mask(&[2, 3, 5]));
    assert_eq!(targets.within(&mask(&[3])).preferred, NodeMask::EMPTY);
    // Without a row 2 and 3 are equally far, and so is nothing of node 2's.
    assert_eq!(t.demotion_targets(NodeId(2)).preferred, mask(&[5]));
    // The lowest tier is promoted past the middle one, to the top at once.
    assert_eq!(t.promotion_target(NodeId(5)), Some(NodeId(0)));
}

#[test]
fn equally_near_nodes_are_all_preferred() {
    let t = build(vec![node(0, &[0], 8), node(1, &[], 8), node(2, &[], 8)]);
    assert_eq!(t.demotion_targets(NodeId(0)).preferred, mask(&[1, 2]));
}

#[test]
fn figures_make_tiers_by_the_kernels_rule() {
    // HBM: 576 * 200 / 160 = 720, * 200000 / 800000 = 180, tier 1. Without CPUs,
    // but faster than DRAM, so top tier. CXL: 576 * 500 / 160 = 1800,
    // * 200000 / 60000 = 6000, tier 46.
    let t = build(vec![
        with_figures(node(0, &[0], 64), 80, 100_000),
        with_figures(node(1, &[], 16), 100, 400_000),
        with_figures(node(2, &[], 256), 250, 30_000),
    ]);
    assert_eq!(t.tier_origin(), TierOrigin::Figures);
    assert_eq!(
        (tier(&t, 0), tier(&t, 1), tier(&t, 2)),
        (Some(4), Some(1), Some(46))
    );
    assert!(t.is_top_tier(NodeId(1)));
    // Promotion prefers a node with CPUs at the same distance, whatever its id.
    assert_eq!(t.promotion_target(NodeId(2)), Some(NodeId(0)));
    // HBM's cold pages go to DRAM first.
    assert_eq!(t.demotion_targets(NodeId(1)).preferred, mask(&[0]));
    assert_eq!(t.demotion_targets(NodeId(1)).fallback, mask(&[0, 2]));
}

#[test]
fn drams_that_differ_by_more_than_a_tenth_make_figures_useless() {
    let nodes = |latency| {
        vec![
            with_figures(node(0, &[0], 64), 100, 100_000),
            with_figures(node(1, &[1], 64), latency, 100_000),
            with_figures(node(2, &[], 64), 200, 50_000),
        ]
    };
    // 100 and 110 differ by a tenth: 576 * 2 = 1152, * 2 = 2304, tier 18.
    assert_eq!(tier(&build(nodes(110)), 2), Some(18));
    let t = build(nodes(111));
    assert_eq!(
        (tier(&t, 2), t.tier_origin()),
        (Some(22), TierOrigin::Assumed)
    );
}

#[test]
fn a_half_known_node_is_assumed_to_be_attached_memory() {
    let mut cxl = with_figures(node(2, &[], 64), 200, 50_000);
    cxl.figures.write_latency_ns = None;
    let t = build(vec![with_figures(node(0, &[0], 64), 100, 100_000), cxl]);
    assert_eq!(tier(&t, 2), Some(22));
    // DRAM without figures is nothing to compare with either.
    let t = build(vec![
        node(0, &[0], 64),
        with_figures(node(2, &[], 64), 200, 50_000),
    ]);
    assert_eq!(tier(&t, 2), Some(22));
}

#[test]
fn holes_offline_and_memoryless_nodes_are_no_targets() {
    let mut offline = node(7, &[], 64);
    offline.online = false;
    // Node 3 has CPUs only. Distance rows go by online nodes: 1, 3, 9.
    let t = build(vec![
        with_distances(node(9, &[], 64), &[30, 20, 10]),
        offline,
        with_distances(node(3, &[8], 0), &[20, 10, 20]),
        with_distances(node(1, &[0], 64), &[10, 20, 30]),
    ]);
    assert_eq!(
        t.nodes().iter().map(|n| n.id.0).collect::<Vec<_>>(),
        [1, 3, 7, 9]
    );
    assert_eq!(t.distance(NodeId(9), NodeId(3)), Some(20));
    assert_eq!(t.distance(NodeId(9), NodeId(7)), None);
    assert_eq!((tier(&t, 3), tier(&t, 7)), (None, None));
    assert!(t.is_top_tier(NodeId(3)) && !t.is_top_tier(NodeId(7)));
    // Node 3 is nearer to 9 and has CPUs, but no memory.
    assert_eq!(t.promotion_target(NodeId(9)), Some(NodeId(1)));
    assert_eq!(t.demotion_targets(NodeId(1)).fallback, mask(&[9]));
    assert_eq!(t.memory_nodes(), mask(&[1, 9]));
    assert!(t.node(NodeId(2)).is_none());
    assert_eq!(t.promotion_target(NodeId(2)), None);
}

#[test]
fn one_node_has_nowhere_to_go() {
    let t = build(vec![node(0, &[0], 24)]);
    assert!(t.is_top_tier(NodeId(0)));
    assert_eq!(t.promotion_target(NodeId(0)), None);
    assert_eq!(t.demotion_targets(NodeId(0)), DemotionTargets::default());
}

#[test]
fn tiers_by_hand_decide_what_is_fast() {
    // Two sockets, memory without CPUs that the kernel takes for slow, and a node of CPUs only.
    let own = build(vec![
        node(0, &[0], 16),
        node(1, &[1], 16),
        node(2, &[], 16),
        node(3, &[2], 0),
    ]);
    let with = |tiers: &str| own.with_tiers(&tiers.parse().unwrap());
    let by_hand = with("2/0/1").unwrap();
    assert_eq!(by_hand.tier_origin(), TierOrigin::ByHand);
    assert_eq!(
        [0, 1, 2, 3].map(|id| tier(&by_hand, id)),
        [Some(1), Some(2), Some(0), None]
    );
    // Only the first tier is fast, although the others have the CPUs.
    assert_eq!(
        [0, 1, 2].map(|id| by_hand.is_top_tier(NodeId(id))),
        [false, false, true]
    );
    assert_eq!(by_hand.promotion_target(NodeId(1)), Some(NodeId(2)));
    assert_eq!(by_hand.promotion_target(NodeId(2)), None);
    assert_eq!(by_hand.demotion_targets(NodeId(2)).preferred, mask(&[0]));
    assert_eq!(by_hand.demotion_targets(NodeId(2)).fallback, mask(&[0, 1]));
    assert_eq!(
        by_hand.demotion_targets(NodeId(1)),
        DemotionTargets::default()
    );
    // Giving others replaces them.
    assert_eq!(
        by_hand
            .with_tiers(&"0,1/2".parse().unwrap())
            .unwrap()
            .nodes()
            .len(),
        4
    );
    assert_eq!(with("0/2").unwrap_err(), TopologyError::InNoTier(NodeId(1)));
    let error = with("0,1/2/3").unwrap_err();
    assert_eq!(error, TopologyError::TierWithoutMemory(NodeId(3)));
    assert_eq!(
        with("0,1,2/7").unwrap_err(),
        TopologyError::TierWithoutMemory(NodeId(7))
    );
}

#[test]
fn what_cannot_be_a_machine_is_refused_with_the_place() {
    let error = |nodes| Topology::try_from(TopologyInput::new(nodes)).unwrap_err();
    assert_eq!(error(vec![]), TopologyError::NoMemory);
    assert_eq!(error(vec![node(0, &[0], 0)]), TopologyError::NoMemory);
    assert_eq!(
        error(vec![node(1, &[], 1), node(1, &[], 1)]),
        TopologyError::Duplicate(NodeId(1))
    );
    assert_eq!(
        error(vec![node(1024, &[], 1)]),
        TopologyError::IdTooLarge(NodeId(1024))
    );
    let row = error(vec![
        node(0, &[0], 1),
        with_distances(node(1, &[], 1), &[10]),
    ]);
    assert!(
        row.to_string()
            .starts_with("node 1: its distance row has 1 entries for 2")
    );
    let short = error(vec![with_distances(node(0, &[0], 1), &[9])]);
    assert!(short.to_string().contains("distance 9 to node 0"));
    let cpu = error(vec![node(0, &[0, 4], 1), node(1, &[4], 1)]);
    assert!(cpu.to_string().starts_with("CPU 4 is on nodes 0 and 1"));
}
