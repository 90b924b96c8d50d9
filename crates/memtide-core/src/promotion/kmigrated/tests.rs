use super::*;
use crate::hotness::{Config, Layout};
use crate::pages::Immovable;
use crate::promotion::{GateConfig, StartState, Verdict};
use crate::topology::{NodeInput, TopologyInput};
use crate::vmstat::Counter;
use std::collections::BTreeMap;

const SLOW: NodeId = NodeId(2);

/// Two DRAM nodes with CPUs and a slow one without; node 1 is nearer to it.
fn topology() -> Topology {
    let node = |id, cpus: &[u32], distances: [u32; 3]| NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: 1 << 30,
        cpus: cpus.to_vec(),
        distances: Some(distances.to_vec()),
        figures: Default::default(),
        tier: None,
    };
    let nodes = vec![
        node(0, &[0], [10, 20, 50]),
        node(1, &[1], [20, 10, 40]),
        node(2, &[], [50, 40, 10]),
    ];
    TopologyInput::new(nodes).try_into().unwrap()
}

/// Every page is on the slow node, alone and free to move, but for exceptions.
#[derive(Default)]
struct Machine {
    homes: BTreeMap<u64, Option<NodeId>>,
    folio_pages: u32,
    groups: BTreeMap<u64, u64>,
    pinned: Vec<u64>,
    space: Option<NodeSpace>,
    /// Pages with these groups may still come up so many.
    shares: BTreeMap<u64, u64>,
}

impl Pages for Machine {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        self.homes.get(&page.0).copied().unwrap_or(Some(SLOW))
    }
    fn folio(&self, page: PageNumber) -> Folio {
        let pages = self.folio_pages.max(1);
        Folio {
            first: PageNumber(page.0 / u64::from(pages) * u64::from(pages)),
            pages,
        }
    }
    fn group(&self, page: PageNumber) -> u64 {
        self.groups.get(&page.0).copied().unwrap_or(0)
    }
    fn may_move(&self, page: PageNumber, _: NodeId) -> Result<(), Immovable> {
        if self.pinned.contains(&page.0) {
            Err(Immovable::Pinned)
        } else {
            Ok(())
        }
    }
    fn shares(&self, page: PageNumber, each: &mut dyn FnMut(Share)) {
        let number = self.group(page);
        // Eight and nine are parts of seven.
        for number in [number, 7]
            .into_iter()
            .take(1 + usize::from([8, 9].contains(&number)))
        {
            if let Some(left) = self.shares.get(&number) {
                let left = *left;
                each(Share { number, left });
            }
        }
    }
    fn space(&self, _: NodeId) -> Option<NodeSpace> {
        self.space
    }
}

#[derive(Default)]
struct Collected {
    batches: Vec<Batch>,
    kept: Vec<(u64, Kept)>,
}

impl Sink for Collected {
    fn batch(&mut self, batch: Batch) {
        self.batches.push(batch);
    }
    fn kept(&mut self, page: PageNumber, _: &Hotness, reason: Kept) {
        self.kept.push((page.0, reason));
    }
}

impl Collected {
    /// Target, group and first pages of each batch.
    fn batches(&self) -> Vec<(u16, u64, Vec<u64>)> {
        self.batches
            .iter()
            .map(|b| {
                (
                    b.target.0,
                    b.group,
                    b.folios.iter().map(|f| f.0.first.0).collect(),
                )
            })
            .collect()
    }
}

struct Setup {
    topology: Topology,
    store: Store,
    gate: Gate,
    machine: Machine,
    config: KmigratedConfig,
    counters: Counters,
}

fn setup(layout: Layout, rate_limit_mbps: u64) -> Setup {
    let gate = GateConfig {
        rate_limit_mbps,
        start: StartState::Zero,
        ..GateConfig::new(1000)
    };
    Setup {
        topology: topology(),
        store: Store::new(Config::new(layout), 1 << 20),
        gate: Gate::new(gate, 3),
        machine: Machine::default(),
        config: KmigratedConfig::default().with_batch(64).unwrap(),
        counters: Counters::ZERO,
    }
}

impl Setup {
    fn heat(&self, pages: impl IntoIterator<Item = u64>, node: Option<u16>, now: u64) {
        for page in pages {
            for _ in 0..2 {
                self.store
                    .record(PageNumber(page), node.map(NodeId), Millis(now));
            }
        }
    }

    fn pass_within(&mut self, stops: Stops, now: u64) -> (PassReport, Collected) {
        let mut sink = Collected::default();
        let loop_ = Kmigrated::new(self.config, SLOW, &self.topology, &self.store, &self.gate);
        let report = loop_.pass(
            stops,
            &self.machine,
            &mut sink,
            &mut self.counters,
            Millis(now),
        );
        (report, sink)
    }

    fn pass(&mut self, now: u64) -> (PassReport, Collected) {
        self.pass_within(Stops::NONE, now)
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let config = KmigratedConfig::default();
    assert_eq!((config.batch(), config.sleep_ms()), (512, 100));
    assert_eq!(config.with_batch(63), Err(KmigratedError::Batch(63)));
    assert_eq!(config.with_sleep_ms(1001), Err(KmigratedError::Sleep(1001)));
    assert!(config.with_batch(1024).is_ok() && config.with_sleep_ms(50).is_ok());
}

#[test]
fn compact_records_go_to_the_nearest_fast_node() {
    let mut s = setup(Layout::Compact, 65536);
    s.heat([1, 2], Some(0), 5000);
    let (report, sink) = s.pass(5000);
    assert_eq!(sink.batches(), [(1, 0, vec![1, 2])]);
    assert_eq!((report.folios, report.pages, report.kept_ready), (2, 2, 0));
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 2);
    assert_eq!(s.pass(5000).0.visited, 0);
}

#[test]
fn a_batch_has_one_target_and_one_group_and_ends_when_full() {
    let mut s = setup(Layout::Precise, 65536);
    s.heat([1, 2], Some(0), 5000);
    s.heat([3], Some(1), 5000);
    s.heat([4], None, 5000);
    s.heat([5], Some(2), 5000);
    s.heat([6, 7], Some(0), 5000);
    s.machine.groups.insert(7, 9);
    // Nobody said who wanted 4, and 5 was wanted by a node that is not fast:
    // both go to the nearest.
    let expected = [
        (0, 0, vec![1, 2]),
        (1, 0, vec![3, 4, 5]),
        (0, 0, vec![6]),
        (0, 9, vec![7]),
    ];
    assert_eq!(s.pass(5000).1.batches(), expected);
    s.heat(100..230, None, 6000);
    let lengths: Vec<usize> = s
        .pass(6000)
        .1
        .batches
        .iter()
        .map(|b| b.folios.len())
        .collect();
    assert_eq!(lengths, [64, 64, 2]);
}

#[test]
fn alternating_targets_make_long_batches_if_several_are_open() {
    let mut s = setup(Layout::Precise, 65536);
    let heat = |s: &Setup| (0..8).for_each(|p| s.heat([p], Some((p % 2) as u16), 5000));
    heat(&s);
    assert_eq!(s.pass(5000).0.batches, 8);
    s.config = s.config.with_open_batches(2).unwrap();
    heat(&s);
    let expected = [(0, 0, vec![0, 2, 4, 6]), (1, 0, vec![1, 3, 5, 7])];
    assert_eq!(s.pass(5000).1.batches(), expected);
    // A third group ends the oldest of them.
    s.machine.groups.insert(4, 9);
    heat(&s);
    let order: Vec<_> = s
        .pass(5000)
        .1
        .batches()
        .into_iter()
        .map(|b| (b.0, b.1))
        .collect();
    assert_eq!(order, [(0, 0), (1, 0), (0, 9), (0, 0), (1, 0)]);
    assert_eq!(
        s.config.with_open_batches(0),
        Err(KmigratedError::OpenBatches(0))
    );
}

#[test]
fn a_refused_folio_is_asked_about_once_a_pass() {
    let mut s = setup(Layout::Precise, 0);
    s.machine.folio_pages = 512;
    s.heat([0, 5, 9], None, 5000);
    assert_eq!(s.pass(5000).0.kept_ready, 3);
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 512);
}

#[test]
fn every_page_that_does_not_move_has_its_reason() {
    let mut s = setup(Layout::Precise, 65536);
    s.heat([1, 2, 3], None, 0);
    s.heat([4, 5, 6], None, 5200);
    s.machine.homes.insert(4, None);
    s.machine.homes.insert(5, Some(NodeId(1)));
    s.machine.pinned = vec![6];
    // At 5900 the first three are 5900 ms old, beyond the window of 5000.
    let (report, sink) = s.pass(5900);
    let cold = |p| (p, Kept::Cold);
    let others = [
        (4, Kept::Gone),
        (5, Kept::Elsewhere(NodeId(1))),
        (6, Kept::Immovable(Immovable::Pinned)),
    ];
    assert_eq!(
        sink.kept,
        [&[cold(1), cold(2), cold(3)], &others[..]].concat()
    );
    assert_eq!((report.cold, report.kept_ready, report.folios), (3, 2, 0));
    // 6 is asked again as long as it is hot; the gate's threshold is 1000 ms.
    s.machine.pinned.clear();
    let too_old = Verdict::Latency {
        latency_ms: 1000,
        threshold_ms: 1000,
    };
    assert_eq!(s.pass(6200).1.kept[1], (6, Kept::Gate(too_old)));
    s.heat([6], None, 6300);
    assert_eq!(s.pass(6300).1.batches(), [(1, 0, vec![6])]);
}

#[test]
fn a_folio_moves_once_whichever_of_its_pages_are_ready() {
    let mut s = setup(Layout::Precise, 65536);
    s.machine.folio_pages = 512;
    s.heat([513, 700, 1024], None, 5000);
    let (report, sink) = s.pass(5000);
    assert_eq!(sink.batches(), [(1, 0, vec![512, 1024])]);
    assert_eq!(report.pages, 1024);
    assert_eq!(sink.kept, [(700, Kept::SameFolio)]);
    assert_eq!(s.pass(5000).0.visited, 0);
}

#[test]
fn pages_over_the_rate_stay_ready_and_count_once_a_window() {
    // 1 MB/s: 256 pages a second, and the opener: 256 of 300 pages pass.
    let mut s = setup(Layout::Precise, 1);
    s.heat(0..300, None, 5000);
    let (report, sink) = s.pass(5000);
    assert_eq!((report.folios, report.kept_ready), (256, 44));
    assert!(matches!(
        sink.kept[0].1,
        Kept::Gate(Verdict::Rate {
            pages: 256,
            limit: 256
        })
    ));
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 300);
    // The window lasts until 6000: 44 pages wait and are not counted again.
    let (report, sink) = s.pass(5100);
    assert_eq!(
        (report.kept_ready, sink.kept[0].1),
        (44, Kept::WindowClosed)
    );
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 300);
    s.heat(256..300, None, 5900);
    let (report, _) = s.pass(6001);
    assert_eq!((report.folios, report.kept_ready), (44, 0));
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 344);
}

#[test]
fn as_the_kernel_does_refused_pages_can_be_forgotten() {
    let mut s = setup(Layout::Precise, 1);
    s.config = s.config.with_refused(Refused::Forget);
    s.heat(0..300, None, 5000);
    let (report, sink) = s.pass(5000);
    assert_eq!(
        (report.folios, report.kept_ready, sink.kept.len()),
        (256, 0, 44)
    );
    assert_eq!(s.pass(5100).0.visited, 0);
    s.heat([299], None, 5100);
    assert!(matches!(
        s.pass(5100).1.kept[..],
        [(299, Kept::Gate(Verdict::Rate { .. }))]
    ));
}

#[test]
fn a_full_target_keeps_pages_ready_and_asks_for_room() {
    // Free 105, high 100: four pages leave more than 100 free, as a page needs
    // free > 100 + 1: 105, 104, 103, 102 do, 101 does not.
    let mut s = setup(Layout::Precise, 65536);
    s.machine.space = Some(NodeSpace {
        free: 105,
        high: 100,
        promo: 200,
        present: 1 << 18,
    });
    s.heat(0..10, None, 5000);
    let (report, sink) = s.pass(5000);
    assert_eq!(
        (report.folios, report.no_room_pages, report.kept_ready),
        (4, 6, 6)
    );
    assert_eq!(sink.kept[0], (4, Kept::NoRoom(NodeId(1))));
    s.machine.space = s
        .machine
        .space
        .map(|space| NodeSpace { free: 500, ..space });
    assert_eq!(s.pass(5050).0.folios, 6);
}

#[test]
fn plenty_of_room_is_counted_apart_and_a_closed_window_does_not_matter() {
    let mut s = setup(Layout::Precise, 0);
    s.heat(0..3, None, 5000);
    assert_eq!(s.pass(5000).0.folios, 0);
    s.machine.space = Some(NodeSpace {
        free: 1 << 30,
        high: 100,
        promo: 200,
        present: 1 << 30,
    });
    assert_eq!(s.pass(5010).0.folios, 3);
    assert_eq!(s.counters.get(Counter::PgpromoteCandidateNrl), 3);
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 3);
}

#[test]
fn a_pass_ends_at_its_limit_and_the_next_goes_on() {
    let mut s = setup(Layout::Precise, 65536);
    s.heat(0..10, None, 5000);
    let stops = |pages| Stops {
        sections: 0..usize::MAX,
        pages,
    };
    let (report, sink) = s.pass_within(stops(4), 5000);
    assert_eq!(
        (report.pages, report.stopped, sink.kept.len()),
        (4, true, 0)
    );
    assert_eq!(s.pass_within(stops(0), 5000).0.pages, 0);
    let (report, sink) = s.pass_within(stops(100), 5000);
    assert_eq!((report.pages, report.stopped), (6, false));
    assert_eq!(sink.batches(), [(1, 0, (4..10).collect())]);
}

#[test]
fn a_batch_that_failed_can_be_put_back() {
    let mut s = setup(Layout::Precise, 65536);
    s.heat([1], Some(0), 5000);
    let (_, sink) = s.pass(5100);
    let (folio, hotness) = sink.batches[0].folios[0];
    assert_eq!((folio.first, hotness.age_ms), (PageNumber(1), 100));
    s.store.put_back(folio.first, &hotness, Millis(5100));
    assert_eq!(s.pass(5200).1.batches(), [(0, 0, vec![1])]);
}

#[test]
#[should_panic(expected = "a page is to move to where it is")]
fn a_move_to_where_a_page_is_would_be_noticed() {
    let topology = topology();
    let store = Store::new(Config::new(Layout::Precise), 10);
    let gate = Gate::new(GateConfig::new(1000), 3);
    let thread = Kmigrated::new(KmigratedConfig::default(), SLOW, &topology, &store, &gate);
    let mut pass = Pass {
        loop_: &thread,
        pages: &Machine::default(),
        sink: &mut Collected::default(),
        now: Millis(0),
        open: Vec::new(),
        last: None,
        destinations: Vec::new(),
        shares: Vec::new(),
        counted: Vec::new(),
        report: PassReport::default(),
    };
    let folio = Folio {
        first: PageNumber(1),
        pages: 1,
    };
    store.record(PageNumber(1), None, Millis(0));
    let hotness = store.peek(PageNumber(1), Millis(0)).unwrap();
    pass.add(SLOW, 0, folio, hotness);
}

#[test]
fn a_share_that_is_used_up_keeps_its_pages_and_nobody_elses() {
    let mut s = setup(Layout::Precise, 1000);
    // Pages 0 to 9 count against a share with room for three, 10 to 14 against none.
    s.machine.groups = (0..10).map(|page| (page, 7)).collect();
    s.machine.shares = [(7, 3)].into();
    s.heat(0..15, None, 6000);
    let (report, sink) = s.pass(6100);
    assert_eq!((report.pages, report.over_share), (8, 7));
    assert_eq!(report.kept_ready, 7);
    let mut over = sink.kept.iter();
    assert!(over.all(|(page, kept)| (3..10).contains(page) && *kept == Kept::Share));
    // They used no budget, and come as soon as they may.
    assert_eq!(s.counters.get(Counter::PgpromoteCandidate), 8);
    s.machine.shares = [(7, 100)].into();
    assert_eq!(s.pass(6200).0.pages, 7);
}

#[test]
fn a_page_counts_against_all_its_shares() {
    let mut s = setup(Layout::Precise, 1000);
    s.machine.groups = (0..10).map(|page| (page, 8 + page / 5)).collect();
    // Of the first part two may come; of both together four.
    s.machine.shares = [(7, 4), (8, 2)].into();
    s.heat(0..10, None, 6000);
    let (report, sink) = s.pass(6100);
    assert_eq!((report.pages, report.over_share), (4, 6));
    let kept: Vec<u64> = sink.kept.iter().map(|(page, _)| *page).collect();
    assert_eq!(kept, [2, 3, 4, 7, 8, 9]);
}

#[test]
fn a_folio_that_is_larger_than_what_is_left_of_a_share_stays() {
    let mut s = setup(Layout::Precise, 1000);
    s.machine.folio_pages = 512;
    s.machine.groups = [(0, 7), (512, 7)].into();
    s.machine.shares = [(7, 1000)].into();
    s.heat([0, 512], None, 6000);
    let (report, _) = s.pass(6100);
    assert_eq!((report.pages, report.over_share), (512, 1));
}
