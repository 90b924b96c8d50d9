use super::*;

const NODE: NodeId = NodeId(0);

/// 1 MB/s of 4 KiB pages: 1 << (20 - 12) = 256 pages a second.
fn slow_gate(start: StartState) -> Gate {
    let config = GateConfig {
        rate_limit_mbps: 1,
        start,
        ..GateConfig::new(1000)
    };
    Gate::new(config, 2)
}

fn ask(gate: &Gate, now: u64, latency_ms: u32, pages: u64) -> Verdict {
    let request = Request {
        latency_ms,
        pages,
        space: None,
    };
    gate.ask(NODE, Millis(now), &request)
}

fn space(free: u64, present: u64) -> NodeSpace {
    NodeSpace {
        free,
        high: 500,
        promo: 1000,
        present,
    }
}

#[test]
fn the_default_budget_is_64_gib_a_second() {
    // 65536 MB/s << (20 - 12) = 16777216 pages of 4 KiB, << (20 - 16) = 1048576 of 64 KiB.
    let mut config = GateConfig::new(1000);
    assert_eq!(config.pages_per_second(), 16_777_216);
    config.page_size = PageSize::new(65536).unwrap();
    assert_eq!(config.pages_per_second(), 1_048_576);
}

#[test]
fn a_smaller_machine_has_a_smaller_budget_and_plenty_sooner() {
    // 65536 MB/s are 16,777,216 pages; a sixteenth 1,048,576. 1 GiB / 16 = 64 MiB,
    // 16,384 pages; a sixteenth of 10,000 present is less.
    let config = GateConfig::new(1000).scaled(16);
    assert_eq!(config.pages_per_second(), 1_048_576);
    let gate = Gate::new(config, 1);
    let space = |free| NodeSpace {
        free,
        high: 5,
        promo: 10,
        present: 10_000,
    };
    assert!(!gate.is_plenty(&space(16_394)));
    assert!(gate.is_plenty(&space(16_395)));
}

#[test]
fn on_a_booted_kernel_the_first_page_finds_the_minute_over() {
    // No candidates, far below 90 % of the budget: 1000 + 2 * 1000 / 16 = 1125.
    let gate = slow_gate(StartState::KernelBoot);
    assert_eq!(gate.threshold_ms(NODE), Some(1000));
    assert_eq!(ask(&gate, 0, 1124, 1), Verdict::WithinRate);
    assert_eq!(gate.threshold_ms(NODE), Some(1125));
    let refused = Verdict::Latency {
        latency_ms: 1125,
        threshold_ms: 1125,
    };
    assert_eq!(ask(&gate, 0, 1125, 1), refused);
}

#[test]
fn from_a_zero_clock_nothing_is_adjusted_in_the_first_minute() {
    let gate = slow_gate(StartState::Zero);
    ask(&gate, 60_000, 5000, 1);
    assert_eq!(gate.threshold_ms(NODE), Some(1000));
    ask(&gate, 60_001, 5000, 1);
    assert_eq!(gate.threshold_ms(NODE), Some(1125));
}

#[test]
fn a_page_refused_for_latency_is_no_candidate() {
    let gate = slow_gate(StartState::Zero);
    assert!(!ask(&gate, 10, 1000, 7).admitted());
    assert_eq!(gate.candidates(NODE), 0);
    assert!(ask(&gate, 10, 999, 7).admitted());
    assert_eq!(gate.candidates(NODE), 7);
}

#[test]
fn too_much_demand_lowers_the_threshold_to_a_unit_and_no_further() {
    // The budget of a minute is 256 * 60000 / 1000 = 15360 pages; 110 % is 16896.
    // Every minute 20000 candidates come. From 1000 the threshold falls by
    // 125 a minute: 7 minutes to 125, where it stays.
    let gate = slow_gate(StartState::Zero);
    let mut seen = Vec::new();
    for minute in 0..10 {
        let now = minute * 60_001;
        ask(&gate, now, 0, 20_000);
        seen.push(gate.threshold_ms(NODE).unwrap());
    }
    assert_eq!(seen, [1000, 875, 750, 625, 500, 375, 250, 125, 125, 125]);
    // Then nothing comes: up by 125 a minute to 2000, where it stays. Each
    // minute's question is too old to count as a candidate. The first of them
    // still finds the 20000 of the minute before.
    let mut seen = Vec::new();
    for minute in 10..28 {
        ask(&gate, minute * 60_001, 5000, 1);
        seen.push(gate.threshold_ms(NODE).unwrap());
    }
    assert_eq!(seen[0], 125);
    assert_eq!(seen[1..4], [250, 375, 500]);
    assert_eq!(seen[14..], [1875, 2000, 2000, 2000]);
}

#[test]
fn within_a_tenth_of_the_budget_the_threshold_stays() {
    // 15360 * 9 / 10 = 13824 and 15360 * 11 / 10 = 16896 are both within.
    for (candidates, expected) in [
        (13_823, 1125),
        (13_824, 1000),
        (16_896, 1000),
        (16_897, 875),
    ] {
        let gate = slow_gate(StartState::Zero);
        ask(&gate, 1, 0, candidates);
        ask(&gate, 60_001, 5000, 1);
        assert_eq!(gate.threshold_ms(NODE), Some(expected), "{candidates}");
    }
}

#[test]
fn room_to_spare_lets_everything_in_and_resets_the_threshold() {
    let gate = slow_gate(StartState::KernelBoot);
    ask(&gate, 0, 5000, 1);
    assert_eq!(gate.threshold_ms(NODE), Some(1125));
    // Plenty is 1 GiB = 262144 pages beyond the promotion watermark of 1000.
    let with = |free| Request {
        latency_ms: 5000,
        pages: 512,
        space: Some(space(free, 1_000_000)),
    };
    assert!(!gate.ask(NODE, Millis(1), &with(263_144)).admitted());
    assert_eq!(gate.threshold_ms(NODE), Some(1125));
    assert_eq!(gate.ask(NODE, Millis(1), &with(263_145)), Verdict::Space);
    assert_eq!(gate.threshold_ms(NODE), Some(1000));
    assert_eq!((gate.candidates(NODE), gate.bypassed(NODE)), (0, 512));
}

#[test]
fn on_a_large_node_plenty_is_a_sixteenth() {
    // 160 GiB are 41943040 pages; a sixteenth is 2621440, more than 262144.
    let gate = slow_gate(StartState::Zero);
    assert!(!gate.is_plenty(&space(2_622_440, 41_943_040)));
    assert!(gate.is_plenty(&space(2_622_441, 41_943_040)));
}

#[test]
fn older_kernels_do_not_count_what_space_lets_in() {
    let config = GateConfig {
        count_bypassed: false,
        ..GateConfig::new(1000)
    };
    let gate = Gate::new(config, 1);
    let request = Request {
        latency_ms: 0,
        pages: 1,
        space: Some(space(1 << 30, 1 << 30)),
    };
    assert_eq!(gate.ask(NODE, Millis(0), &request), Verdict::Space);
    assert_eq!(gate.bypassed(NODE), 0);
    assert_eq!(gate.counter(Verdict::Space), None);
}

#[test]
fn a_huge_page_passes_a_smaller_budget_if_it_opens_the_window() {
    // The budget is 256 pages a second, the folio has 512. At 1001 ms a window
    // opens with the folio not counted into it: 0 < 256. The next makes it 512.
    let gate = slow_gate(StartState::Zero);
    assert_eq!(ask(&gate, 1001, 0, 512), Verdict::WithinRate);
    let full = Verdict::Rate {
        pages: 512,
        limit: 256,
    };
    assert_eq!(ask(&gate, 1001, 0, 512), full);
    assert!(gate.is_window_full(NODE, Millis(1001)));
    // At 2001 ms exactly 1000 ms have passed: the window is not over yet.
    assert!(gate.is_window_full(NODE, Millis(2001)));
    assert!(!ask(&gate, 2001, 0, 1).admitted());
    assert!(!gate.is_window_full(NODE, Millis(2002)));
    assert_eq!(ask(&gate, 2002, 0, 512), Verdict::WithinRate);
    // Refused ones stay counted: they are demand. 512 + 512 + 1 + 512.
    assert_eq!(gate.candidates(NODE), 1537);
}

#[test]
fn the_window_takes_as_many_pages_as_the_budget_and_one() {
    // The page that opens it is free; then 255 pages make 255 < 256, and the
    // 256th makes 256, which is refused.
    let gate = slow_gate(StartState::Zero);
    let admitted = (0..1000)
        .filter(|_| ask(&gate, 5000, 0, 1).admitted())
        .count();
    assert_eq!(admitted, 256);
}

#[test]
fn destinations_have_budgets_of_their_own() {
    let gate = slow_gate(StartState::Zero);
    ask(&gate, 2000, 0, 1);
    assert!(!ask(&gate, 2000, 0, 512).admitted());
    let request = Request {
        latency_ms: 0,
        pages: 1,
        space: None,
    };
    assert!(gate.ask(NodeId(1), Millis(2000), &request).admitted());
    assert!(!gate.ask(NodeId(2), Millis(2000), &request).admitted());
    assert_eq!(gate.threshold_ms(NodeId(2)), None);
}

#[test]
fn no_budget_refuses_all_but_what_space_lets_in() {
    let config = GateConfig {
        rate_limit_mbps: 0,
        ..GateConfig::new(1000)
    };
    let gate = Gate::new(config, 1);
    assert!(!ask(&gate, 0, 0, 1).admitted());
    let request = Request {
        latency_ms: 0,
        pages: 1,
        space: Some(space(1 << 30, 1 << 30)),
    };
    assert!(gate.ask(NODE, Millis(0), &request).admitted());
}

#[test]
fn threads_together_get_one_budget() {
    // However the threads interleave, at most the budget and the opener pass,
    // and every page is counted once.
    let gate = slow_gate(StartState::Zero);
    let admitted: usize = std::thread::scope(|scope| {
        let run = || {
            (0..1000)
                .filter(|_| ask(&gate, 5000, 0, 1).admitted())
                .count()
        };
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads.map(|t| t.join().unwrap()).into_iter().sum()
    });
    assert!((255..=257).contains(&admitted), "{admitted}");
    assert_eq!(gate.candidates(NODE), 2000);
}

#[test]
#[should_panic(expected = "more than twice its reference")]
fn a_threshold_beyond_its_bounds_is_noticed() {
    let gate = slow_gate(StartState::Zero);
    gate.nodes[0].threshold_ms.store(5000, Ordering::Relaxed);
    // A minute without candidates would raise it; one with too many lowers it by a unit of 125.
    gate.nodes[0].candidates.store(1 << 40, Ordering::Relaxed);
    ask(&gate, 60_001, 1, 1);
}
