//! Which reported accesses reach the store.
//!
//! A promotion can only help a page that lies on a slow node and is wanted
//! elsewhere. Everything else is dropped here, in the order in which the pghot
//! series drops it, so that its counters mean the same: a source's counter
//! counts what the source said, `pghot_recorded_accesses` what was recorded.

use super::store::{Recorded, Store};
use crate::access::{Access, Source, SourceSet};
use crate::pages::Pages;
use crate::topology::Topology;
use crate::units::{Millis, NodeId, PageNumber};
use crate::vmstat::{Counter, Counters};
use serde::Serialize;

/// What became of a reported access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intook {
    /// It was recorded; the page does not ask for a promotion by it.
    Recorded,
    /// It was recorded and made the page ready.
    BecameReady,
    /// The accessing node is not an online top-tier node.
    BadNode,
    /// Its source is not listened to.
    SourceDisabled,
    /// The page is on the accessing node already.
    Local,
    /// The page is on a top-tier node already.
    TopTier,
    /// No memory stands behind the page, or the store has no record for it.
    NoPage,
}

/// What became of a run of accesses, in folios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunIntook {
    /// Recorded.
    pub recorded: u64,
    /// Of these, made ready.
    pub became_ready: u64,
    /// Not recorded, for any of the reasons in [`Intook`].
    pub dropped: u64,
}

/// Pages that [`Intake::report_seen`] hands to the store together.
const SEEN_AT_ONCE: usize = 64;

/// The store's door.
#[derive(Clone, Copy, Debug)]
pub struct Intake<'a> {
    store: &'a Store,
    topology: &'a Topology,
    sources: SourceSet,
}

impl<'a> Intake<'a> {
    /// A door that lets in what `sources` report.
    pub fn new(store: &'a Store, topology: &'a Topology, sources: SourceSet) -> Intake<'a> {
        Intake {
            store,
            topology,
            sources,
        }
    }

    /// Records an access if it can matter. A folio's accesses are kept in its
    /// first page's record.
    pub fn report(&self, access: &Access, pages: &impl Pages, counters: &mut Counters) -> Intook {
        if access.node.is_some_and(|node| !self.may_receive(node)) {
            return Intook::BadNode;
        }
        if !self.sources.contains(access.source) {
            return Intook::SourceDisabled;
        }
        counters.add(access.source.counter(), 1);
        let Some(home) = pages.node_of(access.page) else {
            return Intook::NoPage;
        };
        if access.node == Some(home) {
            return Intook::Local;
        }
        if self.topology.is_top_tier(home) {
            return Intook::TopTier;
        }
        let page = pages.folio(access.page).first;
        match self.store.record(page, access.node, access.at) {
            Recorded::Outside => Intook::NoPage,
            Recorded::BecameReady => {
                counters.add(Counter::PghotRecordedAccesses, 1);
                Intook::BecameReady
            }
            Recorded::Counted | Recorded::StillReady => {
                counters.add(Counter::PghotRecordedAccesses, 1);
                Intook::Recorded
            }
        }
    }

    /// Records an access to each of `count` pages from the access's on: what a
    /// page-table scan or a DAMON region says. Each folio counts once.
    pub fn report_run(
        &self,
        access: &Access,
        count: u64,
        pages: &impl Pages,
        counters: &mut Counters,
    ) -> RunIntook {
        let mut report = RunIntook::default();
        let end = access.page.0.saturating_add(count);
        let mut next = access.page.0;
        while next < end {
            let page = PageNumber(next);
            match self.report(&Access { page, ..*access }, pages, counters) {
                Intook::BecameReady => {
                    report.recorded += 1;
                    report.became_ready += 1;
                }
                Intook::Recorded => report.recorded += 1,
                _ => report.dropped += 1,
            }
            let folio = pages.folio(page);
            next = (next + 1).max(folio.first.0 + u64::from(folio.pages));
        }
        report
    }

    /// Records an access by nobody in particular to each of `seen`, all from one source at one time:
    /// what a page-table scan found. As [`Intake::report`] for each, and cheaper a page.
    pub fn report_seen(
        &self,
        seen: &[PageNumber],
        source: Source,
        at: Millis,
        pages: &impl Pages,
        counters: &mut Counters,
    ) {
        if !self.sources.contains(source) {
            return;
        }
        counters.add(source.counter(), seen.len() as u64);
        let mut slow = [(PageNumber(0), None); SEEN_AT_ONCE];
        for chunk in seen.chunks(SEEN_AT_ONCE) {
            let mut count = 0;
            for &page in chunk {
                let home = pages.node_of(page);
                if home.is_some_and(|home| !self.topology.is_top_tier(home)) {
                    slow[count].0 = pages.folio(page).first;
                    count += 1;
                }
            }
            let recorded = self.store.record_batch(&slow[..count], at).recorded;
            counters.add(Counter::PghotRecordedAccesses, recorded);
        }
    }

    fn may_receive(&self, node: NodeId) -> bool {
        self.topology.is_top_tier(node)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hotness::{Config, Layout};
    use crate::pages::Folio;
    use crate::topology::{NodeInput, TopologyInput};

    /// Page 0 on node 0, page 9 nowhere, the rest on node 2 in folios of four.
    struct Machine;

    impl Pages for Machine {
        fn node_of(&self, page: PageNumber) -> Option<NodeId> {
            match page.0 {
                0 => Some(NodeId(0)),
                9 => None,
                _ => Some(NodeId(2)),
            }
        }
        fn folio(&self, page: PageNumber) -> Folio {
            Folio {
                first: PageNumber(page.0 & !3),
                pages: 4,
            }
        }
    }

    /// Node 0 is DRAM with a CPU, node 1 a CPU alone, node 2 slow.
    fn topology() -> Topology {
        let node = |id, cpus: &[u32], memory_bytes| NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes,
            cpus: cpus.to_vec(),
            distances: None,
            figures: Default::default(),
            tier: None,
        };
        let nodes = vec![
            node(0, &[0], 1 << 30),
            node(1, &[1], 0),
            node(2, &[], 1 << 30),
        ];
        TopologyInput::new(nodes).try_into().unwrap()
    }

    fn access(page: u64, node: Option<u16>, source: Source) -> Access {
        Access {
            page: PageNumber(page),
            node: node.map(NodeId),
            source,
            at: Millis(100),
        }
    }

    #[test]
    fn only_accesses_to_slow_pages_from_elsewhere_are_recorded() {
        let topology = topology();
        let store = Store::new(Config::new(Layout::Precise), 8);
        let sources = SourceSet::NONE
            .with(Source::Hardware)
            .with(Source::PageTableScan);
        let intake = Intake::new(&store, &topology, sources);
        let mut counters = Counters::ZERO;
        let mut report = |page, node, source| {
            intake.report(&access(page, node, source), &Machine, &mut counters)
        };
        use Source::{Hardware, HintFault, PageTableScan};
        // A node that cannot receive, a source that is off: not even counted.
        assert_eq!(report(5, Some(2), Hardware), Intook::BadNode);
        assert_eq!(report(5, Some(77), Hardware), Intook::BadNode);
        assert_eq!(report(5, Some(0), HintFault), Intook::SourceDisabled);
        // Counted as said, but not recorded.
        assert_eq!(report(0, Some(0), Hardware), Intook::Local);
        assert_eq!(report(0, Some(1), Hardware), Intook::TopTier);
        assert_eq!(report(9, Some(0), Hardware), Intook::NoPage);
        assert_eq!(report(1000, None, Hardware), Intook::NoPage);
        // Recorded in the folio's first page.
        assert_eq!(report(5, Some(0), Hardware), Intook::Recorded);
        assert_eq!(report(6, None, PageTableScan), Intook::BecameReady);
        let hot = store.peek(PageNumber(4), Millis(100)).unwrap();
        assert_eq!((hot.frequency, hot.node), (2, None));
        assert!(store.peek(PageNumber(5), Millis(100)).is_none());
        assert_eq!(counters.get(Counter::PghotRecordedHwhints), 5);
        assert_eq!(counters.get(Counter::PghotRecordedPgtscans), 1);
        assert_eq!(counters.get(Counter::PghotRecordedHintfaults), 0);
        assert_eq!(counters.get(Counter::PghotRecordedAccesses), 2);
    }

    #[test]
    fn pages_seen_together_are_recorded_like_each_of_them() {
        let topology = topology();
        let seen: Vec<_> = [0, 5, 9, 1, 6, 1000, 10].map(PageNumber).into();
        let one = Store::new(Config::new(Layout::Precise), 16);
        let all = Store::new(Config::new(Layout::Precise), 16);
        let (mut singly, mut together) = (Counters::ZERO, Counters::ZERO);
        for &PageNumber(page) in &seen {
            let access = access(page, None, Source::PageTableScan);
            Intake::new(&one, &topology, SourceSet::ALL).report(&access, &Machine, &mut singly);
        }
        let intake = Intake::new(&all, &topology, SourceSet::ALL);
        let at = Millis(100);
        intake.report_seen(&seen, Source::PageTableScan, at, &Machine, &mut together);
        assert_eq!(singly, together);
        for page in (0..16).map(PageNumber) {
            assert_eq!(one.peek(page, at), all.peek(page, at), "{page:?}");
        }
        // A source that is off is not even counted.
        let off = Intake::new(&all, &topology, SourceSet::NONE);
        off.report_seen(&seen, Source::PageTableScan, at, &Machine, &mut together);
        assert_eq!(singly, together);
    }

    #[test]
    fn a_run_counts_each_folio_once() {
        // Pages 2 to 12: folio 0 (on the fast node's page 0, but page 2 itself is
        // slow), folio 4, folio 8 from page 8, folio 12 from page 12, which
        // the store of 12 pages does not have.
        let topology = topology();
        let store = Store::new(Config::new(Layout::Compact), 12);
        let intake = Intake::new(&store, &topology, SourceSet::ALL);
        let mut counters = Counters::ZERO;
        let first = access(2, None, Source::Damon);
        let report = intake.report_run(&first, 11, &Machine, &mut counters);
        let expected = RunIntook {
            recorded: 3,
            became_ready: 0,
            dropped: 1,
        };
        assert_eq!(report, expected);
        let report = intake.report_run(&first, 11, &Machine, &mut counters);
        assert_eq!(report.became_ready, 3);
        assert_eq!(counters.get(Counter::PghotRecordedDamon), 8);
    }
}
