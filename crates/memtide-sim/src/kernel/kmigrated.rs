//! Hot-page tracking: accesses from any source make pages of slow memory hot, and a kernel thread for
//! each slow node moves them up.
//!
//! Store, loop and gates are the core's; here are the sources and the thread's time. Sources: hint
//! faults report as they come; hardware samples at the end of each quantum; the accessed bits of the
//! pages of slow nodes are read every `page_table_scan_ms`, and say neither who nor how often. Bits of
//! fast pages stay as they are: they would tell nothing that the store keeps.
//!
//! A thread sleeps 100 ms, then goes through the ready pages batch by batch until none is left. A batch
//! takes its time: the next one begins when it is over. What the gate refuses is forgotten, as the
//! kernel does, and must become hot anew; our own gate without thresholds keeps it ready, because it
//! compares all pages that ask.

use super::Kernel;
use super::error::KernelError;
use super::lru::{ANONYMOUS, FILE};
use super::migrate::{Initiator, MoveReason};
use super::page_view::PageView;
use crate::config::{Configuration, Lru, Pghot, PromotionGate};
use crate::hardware::{Hardware, Sample, ServedBy};
use crate::page::{HUGE_PAGES, Slot};
use crate::spec::MachineSpec;
use memtide_core::access::{Access, Source, SourceSet};
use memtide_core::hotness::{Config, Hotness, Intake, SECTION_PAGES, Store};
use memtide_core::pages::{Folio, Pages as _};
use memtide_core::promotion::threshold_free::room;
use memtide_core::promotion::{
    Admit, Batch, Benefit, Gate, GateConfig, Kept, Kmigrated, KmigratedConfig, Moved as Way,
    PassReport, RecentMoves, Refused, Sink, Stops, ThresholdFree, Verdict,
};
use memtide_core::units::{Millis, NodeId, PageNumber};
use memtide_core::vmstat::Counter;

/// Pages that a thread moves before it looks at the clock again.
const BATCH_PAGES: u64 = 512;
/// A page that moved so lately must be hotter than the cut by [`MARGIN`], without thresholds.
const DAMPING_MS: u64 = 10_000;
const MARGIN: u16 = 32;
/// How long pages are expected to stay hot, without thresholds.
const HORIZON_MS: u64 = 60_000;
/// Accesses that stand behind an accessed bit or a hint fault, without thresholds.
const ACCESSES_A_BIT: u64 = 100;
/// Moves that are remembered, without thresholds.
const RECENT_MOVES: usize = 1 << 16;

/// Hot-page tracking's state.
pub(super) struct Tracking {
    pub(super) store: Store,
    sources: SourceSet,
    config: KmigratedConfig,
    gate: Gate,
    threshold_free: Option<(ThresholdFree, RecentMoves)>,
    scan_ns: u64,
    next_scan_ns: u64,
    threads: Vec<MigrationThread>,
}

/// The kernel thread of a slow node.
struct MigrationThread {
    node: NodeId,
    /// It sleeps, or its last batch lasts, until then.
    until_ns: u64,
    /// The section from which its pass goes on; `None`: asleep.
    at: Option<usize>,
}

impl Tracking {
    pub(super) fn new(
        spec: &MachineSpec,
        pghot: &Pghot,
        configuration: &Configuration,
        pages: u64,
        scale: u32,
    ) -> Result<Tracking, KernelError> {
        let config = Config::new(pghot.layout)
            .with_threshold(pghot.threshold)?
            .with_window_ms(pghot.window_ms)?;
        let gate = GateConfig {
            rate_limit_mbps: configuration.rate_limit_mbps,
            ..GateConfig::new(pghot.window_ms)
        };
        let free = pghot.gate == PromotionGate::ThresholdFree;
        let refused = if free {
            Refused::KeepReady
        } else {
            Refused::Forget
        };
        let slow = spec.topology.nodes().iter();
        let slow = slow.filter(|n| n.has_memory() && !n.top_tier);
        let config_of_loop = KmigratedConfig::default().with_refused(refused);
        let sleep_ns = u64::from(config_of_loop.sleep_ms()) * 1_000_000;
        let scan_ns = u64::from(pghot.page_table_scan_ms.max(1)) * 1_000_000;
        let ids = spec.nodes.iter().map(|n| usize::from(n.id) + 1).max();
        Ok(Tracking {
            store: Store::new(config, pages),
            sources: pghot.sources,
            config: config_of_loop,
            gate: Gate::new(gate.scaled(u64::from(scale)), ids.unwrap_or(0)),
            threshold_free: free.then(|| {
                let rules = ThresholdFree {
                    benefit: benefit(spec, pghot),
                    damping_ms: DAMPING_MS,
                    margin: MARGIN,
                };
                (rules, RecentMoves::new(RECENT_MOVES))
            }),
            scan_ns,
            next_scan_ns: scan_ns,
            threads: slow
                .map(|node| MigrationThread {
                    node: node.id,
                    until_ns: sleep_ns,
                    at: None,
                })
                .collect(),
        })
    }
}

/// What a move costs and saves on this machine.
fn benefit(spec: &MachineSpec, pghot: &Pghot) -> Benefit {
    let ns = |top: bool| {
        let is = |id: u16| spec.topology.is_top_tier(NodeId(id)) == top;
        let nodes = spec
            .nodes
            .iter()
            .filter(|n| n.capacity_bytes > 0 && is(n.id));
        nodes.map(|n| n.memory.read_ns as u64).min().unwrap_or(100)
    };
    let sampled = pghot.sources.contains(Source::Hardware);
    Benefit {
        slow_ns: ns(false),
        fast_ns: ns(true),
        move_ns: spec.costs.migrate_page_ns as u64 * 2,
        accesses_per_record: match sampled {
            true => u64::from(pghot.sample_period),
            false => ACCESSES_A_BIT,
        },
        horizon_ms: HORIZON_MS,
    }
}

/// What a pass hands over.
#[derive(Default)]
struct Outbox {
    batches: Vec<Batch>,
    /// Targets without room, and the pages that they refused.
    full: Vec<(NodeId, u64)>,
    /// Whether a page was too cold for our own gate.
    colder: bool,
}

/// Fills an outbox.
struct Filling<'a> {
    outbox: Outbox,
    view: &'a PageView<'a>,
}

impl Sink for Filling<'_> {
    fn batch(&mut self, batch: Batch) {
        self.outbox.batches.push(batch);
    }

    fn kept(&mut self, page: PageNumber, _: &Hotness, reason: Kept) {
        self.outbox.colder |= matches!(reason, Kept::Gate(Verdict::BelowCut { .. }));
        let Kept::NoRoom(node) = reason else {
            return;
        };
        let pages = u64::from(self.view.folio(page).pages);
        let full = &mut self.outbox.full;
        match full.iter_mut().find(|(known, _)| *known == node) {
            Some((_, refused)) => *refused += pages,
            None => full.push((node, pages)),
        }
    }
}

impl Kernel {
    /// Kernel threads beside the application, up to `now_ns`.
    pub(super) fn kmigrated(&mut self, hw: &mut Hardware, now_ns: u64, dt_ns: u64) {
        let _ = dt_ns;
        self.finish_moves(now_ns);
        self.recount_residents(now_ns);
        if self.balance.pghot.is_none() {
            return;
        }
        self.scan_page_tables(now_ns);
        let threads = self.balance.pghot.as_ref().map_or(0, |t| t.threads.len());
        for thread in 0..threads {
            self.run_migration_thread(hw, thread, now_ns);
        }
    }

    /// Hardware samples of the last quantum. The engine has charged the threads for them.
    pub(super) fn record_samples(&mut self, hw: &mut Hardware, samples: &[Sample], now_ns: u64) {
        if self.balance.pghot.is_none() {
            return;
        }
        self.count(Counter::HwhintTotalEvents, samples.len() as u64);
        for sample in samples {
            let served = match sample.served {
                ServedBy::Cache => continue,
                ServedBy::LocalDram | ServedBy::RemoteDram => Counter::HwhintDramAccesses,
                ServedBy::Extension => Counter::HwhintExtmemAccesses,
            };
            self.count(served, 1);
            if let Some(owner) = self.owner(sample.slot) {
                self.count(Counter::HwhintUsefulEvents, 1);
                let node = hw.node_of_cpu(sample.cpu);
                self.report_access(owner, Some(node), Source::Hardware, now_ns);
            }
        }
    }

    /// Tells the store that somebody touched the folio of `owner`; what that takes.
    pub(super) fn report_access(
        &mut self,
        owner: Slot,
        node: Option<NodeId>,
        source: Source,
        now_ns: u64,
    ) -> u64 {
        let Some(tracking) = &self.balance.pghot else {
            return 0;
        };
        if !tracking.sources.contains(source) {
            return 0;
        }
        let access = Access {
            page: PageNumber(u64::from(owner)),
            node,
            source,
            at: Millis(now_ns / 1_000_000),
        };
        let view = PageView {
            ptes: &self.ptes,
            frames: &self.frames,
            regions: &self.regions,
        };
        let intake = Intake::new(&tracking.store, &self.topology, tracking.sources);
        intake.report(&access, &view, &mut self.counters);
        self.costs.record_ns as u64
    }

    /// Tells the store which folios a page-table scan found accessed.
    fn report_seen(&mut self, owners: &[PageNumber], now_ns: u64) {
        let Some(tracking) = &self.balance.pghot else {
            return;
        };
        let view = PageView {
            ptes: &self.ptes,
            frames: &self.frames,
            regions: &self.regions,
        };
        let intake = Intake::new(&tracking.store, &self.topology, tracking.sources);
        let at = Millis(now_ns / 1_000_000);
        intake.report_seen(owners, Source::PageTableScan, at, &view, &mut self.counters);
    }

    /// Reads the accessed bits of all slow pages that are mapped, if it is time.
    fn scan_page_tables(&mut self, now_ns: u64) {
        let Some(tracking) = &mut self.balance.pghot else {
            return;
        };
        if !tracking.sources.contains(Source::PageTableScan) || now_ns < tracking.next_scan_ns {
            return;
        }
        tracking.next_scan_ns = now_ns + tracking.scan_ns;
        let (mut looked, mut ns) = (0, 0);
        let mut accessed = Vec::with_capacity(HUGE_PAGES as usize);
        let mut owners = Vec::with_capacity(HUGE_PAGES as usize);
        for region in 0..self.regions.len() {
            if self.regions.get(region).freed {
                continue;
            }
            // A table of 512 entries at a time.
            let slots = self.regions.get(region).slots();
            for table in slots.clone().step_by(HUGE_PAGES as usize) {
                let table = table..slots.end.min(table + HUGE_PAGES);
                looked += self.harvest_accessed(table, |head| accessed.push(head));
                let found = accessed.drain(..).filter_map(|head| self.owner(head));
                owners.extend(found.map(|owner| PageNumber(u64::from(owner))));
                ns += owners.len() as u64 * self.costs.record_ns as u64;
                self.report_seen(&owners, now_ns);
                owners.clear();
            }
        }
        ns += (looked as f64 * self.costs.age_pte_ns) as u64;
        self.overhead.page_table_scan_ns += ns;
    }

    /// One thread, as far as it comes until `now_ns`.
    fn run_migration_thread(&mut self, hw: &mut Hardware, thread: usize, now_ns: u64) {
        let Some(mut tracking) = self.balance.pghot.take() else {
            return;
        };
        let sections = tracking.store.sections();
        let sleep_ns = u64::from(tracking.config.sleep_ms()) * 1_000_000;
        while tracking.threads[thread].until_ns <= now_ns {
            let MigrationThread { node, until_ns, at } = tracking.threads[thread];
            let at = at.unwrap_or(0);
            let (report, outbox) = self.promotion_pass(&tracking, node, at..sections, until_ns);
            if self.balance.makes_room {
                for (node, refused) in outbox.full {
                    // Our own gate counts with the idle pages: they leave for those that it let in.
                    match tracking.threshold_free.is_some() && refused > 0 {
                        true => self.wake_kswapd_for(node, refused.min(self.idle_pages(node))),
                        false => self.wake_kswapd(node),
                    }
                }
            }
            let last = outbox.batches.last().and_then(|b| b.folios.last());
            let last = last.map_or(at, |(folio, _)| folio.first.0 as usize / SECTION_PAGES);
            let mut ns = (report.visited as f64 * self.costs.record_ns) as u64;
            // Moves look for the store.
            self.balance.pghot = Some(tracking);
            for batch in &outbox.batches {
                ns += self.promote(hw, batch, now_ns);
            }
            tracking = self.balance.pghot.take().expect("put there above");
            self.overhead.kmigrated_ns += ns;
            let next = until_ns + ns * u64::from(self.scale);
            tracking.threads[thread] = match report.stopped {
                true => MigrationThread {
                    node,
                    until_ns: next,
                    at: Some(last),
                },
                false => MigrationThread {
                    node,
                    until_ns: next + sleep_ns,
                    at: None,
                },
            };
        }
        self.balance.pghot = Some(tracking);
    }

    fn promotion_pass(
        &mut self,
        tracking: &Tracking,
        node: NodeId,
        sections: std::ops::Range<usize>,
        at_ns: u64,
    ) -> (PassReport, Outbox) {
        let now = Millis(at_ns / 1_000_000);
        match &tracking.threshold_free {
            None => self.pass_with(tracking, node, sections, now, &tracking.gate),
            Some((rules, recent)) => {
                let fits = |n| room(&self.frames.space(n), self.idle_pages(n));
                let room = self.top_nodes().map(fits).sum();
                let histogram = tracking.store.histogram(now);
                let gate = rules.pass(&histogram, room, recent);
                let (report, mut outbox) = self.pass_with(tracking, node, sections, now, &gate);
                // Where hardly anything fits, and that stays where it is, no target refuses a page for want
                // of room. kswapd finds out what is idle there.
                if report.pages == 0 && outbox.colder && outbox.full.is_empty() {
                    outbox.full = self.top_nodes().map(|node| (node, 0)).collect();
                }
                (report, outbox)
            }
        }
    }

    fn pass_with<G: Admit>(
        &mut self,
        tracking: &Tracking,
        node: NodeId,
        sections: std::ops::Range<usize>,
        now: Millis,
        gate: &G,
    ) -> (PassReport, Outbox) {
        let view = PageView {
            ptes: &self.ptes,
            frames: &self.frames,
            regions: &self.regions,
        };
        let store = &tracking.store;
        let kmigrated = Kmigrated::new(tracking.config, node, &self.topology, store, gate);
        let stops = Stops {
            sections,
            pages: BATCH_PAGES,
        };
        let mut filling = Filling {
            outbox: Outbox::default(),
            view: &view,
        };
        let report = kmigrated.pass(stops, &view, &mut filling, &mut self.counters, now);
        (report, filling.outbox)
    }

    /// Moves a batch; what it took.
    fn promote(&mut self, hw: &mut Hardware, batch: &Batch, now_ns: u64) -> u64 {
        let owners: Vec<Slot> = batch
            .folios
            .iter()
            .map(|(folio, _)| folio.first.0 as Slot)
            .collect();
        let by = Initiator { cpu: None, now_ns };
        let moved = self.migrate(hw, &owners, batch.target, MoveReason::Balancing, by);
        for owner in owners {
            if self.ptes[owner as usize].node() == batch.target {
                self.note_move(owner, Way::Up, now_ns);
            }
        }
        moved.ns
    }

    /// Remembers that a folio moved: our own gate asks more of one that moved lately, so that pages near
    /// its cut do not change places at every pass.
    pub(super) fn note_move(&mut self, owner: Slot, way: Way, now_ns: u64) {
        let (first, pages) = (PageNumber(u64::from(owner)), self.folio_pages(owner));
        if let Some(tracking) = &mut self.balance.pghot
            && let Some((_, recent)) = &mut tracking.threshold_free
        {
            recent.note(Folio { first, pages }, way, Millis(now_ns / 1_000_000));
        }
    }

    fn top_nodes(&self) -> impl Iterator<Item = NodeId> {
        let all = self.topology.nodes().iter();
        all.filter(|n| n.top_tier && n.has_memory()).map(|n| n.id)
    }

    /// Pages of a node that demotion would take first.
    pub(super) fn idle_pages(&self, node: NodeId) -> u64 {
        let of_kind = |kind| {
            let idle = |&state: &u8| match self.lists.lru() {
                Lru::Classic => state == super::lru::INACTIVE,
                Lru::Multigenerational => {
                    let sequence = self.lists.sequence_of(node, kind, state);
                    sequence + super::lru::YOUNG_GENERATIONS <= self.lists.youngest(node)
                }
            };
            let states = (1..=4).filter(idle);
            states.map(|s| self.lists.pages(node, kind, s)).sum::<u64>()
        };
        of_kind(ANONYMOUS) + of_kind(FILE)
    }
}
