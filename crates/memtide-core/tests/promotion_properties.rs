//! What holds for every promotion pass, whatever the machine looks like.
//!
//! - A ready page is batched or reported, once, and nothing else is.
//! - A page that is reported as refused is ready afterwards; a batched one is not.
//! - Nothing moves against its owner's word or to where there is no room.
//! - A batch has one target, one group and its limit; the gate's count of
//!   candidates is the counter's.
#![cfg(not(loom))]

use memtide_core::hotness::{Config, Hotness, Layout, Store};
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::{Immovable, NodeSpace, Pages};
use memtide_core::promotion::{
    Batch, Gate, GateConfig, Kept, Kmigrated, KmigratedConfig, Sink, Stops,
};
use memtide_core::topology::{NodeInput, Topology, TopologyInput};
use memtide_core::units::{Millis, NodeId, PageNumber};
use memtide_core::vmstat::{Counter, Counters};
use proptest::prelude::*;

const SLOW: NodeId = NodeId(2);
const PAGES: usize = 300;

fn topology() -> Topology {
    let node = |id: u16| NodeInput {
        id: NodeId(id),
        online: true,
        memory_bytes: 1 << 30,
        cpus: if id < 2 { vec![id.into()] } else { vec![] },
        distances: None,
        figures: Default::default(),
        tier: None,
    };
    let nodes = (0..4).map(node).collect();
    TopologyInput::new(nodes).try_into().unwrap()
}

#[derive(Clone, Copy, Debug)]
struct Page {
    home: Option<NodeId>,
    group: u64,
    pinned: bool,
    /// Accesses of each round, and by whom.
    accesses: u8,
    by: Option<NodeId>,
}

#[derive(Debug)]
struct Machine {
    pages: Vec<Page>,
    free: [u64; 2],
}

impl Pages for Machine {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        self.pages[page.0 as usize].home
    }
    fn group(&self, page: PageNumber) -> u64 {
        self.pages[page.0 as usize].group
    }
    fn may_move(&self, page: PageNumber, _: NodeId) -> Result<(), Immovable> {
        if self.pages[page.0 as usize].pinned {
            Err(Immovable::Pinned)
        } else {
            Ok(())
        }
    }
    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        Some(NodeSpace {
            free: self.free[node.index()],
            high: 50,
            promo: 100,
            present: 1 << 18,
        })
    }
}

#[derive(Default)]
struct Collected {
    batches: Vec<Batch>,
    kept: Vec<(PageNumber, Kept)>,
}

impl Sink for Collected {
    fn batch(&mut self, batch: Batch) {
        self.batches.push(batch);
    }
    fn kept(&mut self, page: PageNumber, _: &Hotness, reason: Kept) {
        self.kept.push((page, reason));
    }
}

fn pages() -> impl Strategy<Value = Vec<Page>> {
    let home = prop_oneof![
        1 => Just(None),
        6 => Just(Some(SLOW)),
        1 => Just(Some(NodeId(3))),
        1 => Just(Some(NodeId(0))),
    ];
    let by = prop::option::of((0u16..5).prop_map(NodeId));
    let page = (home, 0u64..3, prop::bool::weighted(0.1), 0u8..4, by);
    let page = page.prop_map(|(home, group, pinned, accesses, by)| Page {
        home,
        group,
        pinned,
        accesses,
        by,
    });
    prop::collection::vec(page, PAGES)
}

fn ready(store: &Store, now: u64) -> Vec<PageNumber> {
    (0..PAGES as u64)
        .map(PageNumber)
        .filter(|&p| store.peek(p, Millis(now)).is_some_and(|h| h.ready))
        .collect()
}

/// Checks one pass; the pages that it batched.
fn check(
    machine: &Machine,
    before: &[PageNumber],
    after: &[PageNumber],
    sink: &Collected,
    limit: usize,
) -> Vec<PageNumber> {
    let moved: Vec<PageNumber> = sink
        .batches
        .iter()
        .flat_map(|b| b.folios.iter().map(|f| f.0.first))
        .collect();
    let mut seen = moved.clone();
    seen.extend(sink.kept.iter().map(|k| k.0));
    seen.sort();
    assert_eq!(seen, before);
    let still: Vec<PageNumber> = sink
        .kept
        .iter()
        .filter(|(_, why)| !matches!(why, Kept::Cold | Kept::Gone | Kept::AtTarget))
        .map(|k| k.0)
        .collect();
    assert_eq!(after, still);
    let mut arrived = [0; 2];
    for batch in &sink.batches {
        assert!((1..=limit).contains(&batch.folios.len()));
        assert_eq!(batch.pages, batch.folios.len() as u64);
        arrived[batch.target.index()] += batch.pages;
        for (folio, _) in &batch.folios {
            let page = &machine.pages[folio.first.0 as usize];
            assert_eq!((page.home, page.group), (Some(SLOW), batch.group));
            assert!(!page.pinned);
        }
    }
    for (arrived, free) in arrived.into_iter().zip(machine.free) {
        assert!(arrived == 0 || free - arrived >= 50);
    }
    moved
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_pass_accounts_for_every_ready_page(
        pages in pages(),
        free in [0u64..400, 0u64..400],
        rate_limit_mbps in 0u64..2,
        open in 1usize..5,
        layout in prop_oneof![Just(Layout::Compact), Just(Layout::Precise)],
    ) {
        let topology = topology();
        let store = Store::new(Config::new(layout), PAGES as u64);
        let gate = GateConfig { rate_limit_mbps, ..GateConfig::new(1000) };
        let gate = Gate::new(gate, 4);
        let config = KmigratedConfig::default().with_batch(64).unwrap();
        let config = config.with_open_batches(open).unwrap();
        let mut machine = Machine { pages, free };
        let mut counters = Counters::ZERO;
        for round in 1..10 {
            let now = round * 700;
            for (i, page) in machine.pages.iter().enumerate() {
                for _ in 0..page.accesses {
                    let by = page.by.filter(|_| round % 2 == 0);
                    store.record(PageNumber(i as u64), by, Millis(now));
                }
            }
            let before = ready(&store, now);
            let mut sink = Collected::default();
            let pass = Kmigrated::new(config, SLOW, &topology, &store, &gate);
            pass.pass(Stops::NONE, &machine, &mut sink, &mut counters, Millis(now));
            let after = ready(&store, now);
            for page in check(&machine, &before, &after, &sink, 64) {
                let home = &mut machine.pages[page.0 as usize].home;
                *home = Some(NodeId(0));
            }
        }
        let candidates: u64 = NodeMask::ALL.iter().map(|n| gate.candidates(n)).sum();
        prop_assert_eq!(candidates, counters.get(Counter::PgpromoteCandidate));
    }
}
