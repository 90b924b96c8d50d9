//! Hot pages go up: which are ready and admitted, and whereto.

use super::config::TierConfig;
use super::explain;
use super::shared::Shared;
use crate::ledger::Ledger;
use crate::report::{Direction, Reporter};
use crate::world::World;
use memtide_core::hotness::Hotness;
use memtide_core::promotion::{
    Batch, Gate, Kept, Kmigrated, KmigratedConfig, PassReport, Sink, Stops, Then,
};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};

/// Pages that one turn may move in one direction: a turn stays well below a
/// second, and signals are heard.
pub(super) const TURN_PAGES: u64 = 16_384;
/// How often the gate is asked although no target has room, in ms.
const PROMOTE_MS: u64 = 1000;

/// The promoter. See the module's essay.
#[derive(Debug)]
pub(super) struct Promoter {
    gate: Gate,
    /// Pages that found no room in the last round.
    pub wanting: u64,
    /// Pages that are hot and were refused for now in the last round.
    pub refused: u64,
    asked: Millis,
}

/// What a pass over the ready pages found.
#[derive(Default)]
struct Found {
    batches: Vec<Batch>,
    kept: Vec<(PageNumber, Hotness, Kept)>,
    explain: bool,
}

impl Sink for Found {
    fn batch(&mut self, batch: Batch) {
        self.batches.push(batch);
    }

    fn kept(&mut self, page: PageNumber, hotness: &Hotness, reason: Kept) {
        if self.explain {
            self.kept.push((page, *hotness, reason));
        }
    }
}

impl Promoter {
    pub fn new(config: &TierConfig, ledger: &Ledger) -> Promoter {
        let last = ledger.topology.nodes().last();
        let nodes = last.map_or(1, |node| node.id.index() + 1);
        Promoter {
            gate: Gate::new(config.gate, nodes),
            wanting: 0,
            refused: 0,
            asked: Millis(0),
        }
    }

    /// Whether hot pages wait for room or for the gate.
    pub fn pages_wait(&self) -> bool {
        self.wanting > 0 || self.refused > 0
    }

    /// Whether asking the gate makes sense: pages that wait for room are asked
    /// for again only when there is some, and counted as candidates once.
    pub fn may_help(&mut self, ledger: &Ledger, now: Millis) -> bool {
        let targets = ledger.preferred_targets();
        let roomy = (targets.iter()).any(|(_, target)| ledger.rooms.takes(*target) > 0);
        let due = roomy || now.since(self.asked) >= PROMOTE_MS;
        if due {
            self.asked = now;
        }
        due
    }

    /// Promotes the pages that are ready and admitted. `idle_room` is what the
    /// fast tier could send away.
    pub fn promote(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        idle_room: u64,
        reporter: &mut dyn Reporter,
    ) {
        let now = world.now();
        self.wanting = 0;
        self.refused = 0;
        let room = shared.ledger.top_room() + idle_room;
        let nodes = shared.ledger.topology.nodes().iter();
        let lower = nodes.filter(|node| !node.top_tier && node.has_memory());
        for node in lower.map(|node| node.id).collect::<Vec<NodeId>>() {
            let mut found = Found {
                explain: shared.config.explain,
                ..Found::default()
            };
            let report = self.pass(shared, node, room, &mut found, now);
            self.wanting += report.no_room_pages;
            self.refused += report.kept_ready;
            for batch in joined(found.batches) {
                let why = reason(&batch);
                let job = (
                    OwnerId(batch.group as u32),
                    batch.target,
                    Direction::Promotion,
                );
                let (folios, hot): (Vec<_>, Vec<_>) = batch.folios.into_iter().unzip();
                shared.move_folios(world, job, &folios, &hot, why, reporter);
            }
            for (page, hotness, kept) in found.kept {
                explain::kept(&shared.ledger, page, node, &hotness, kept, now, reporter);
            }
        }
    }

    fn pass(
        &self,
        shared: &mut Shared,
        node: NodeId,
        room: u64,
        found: &mut Found,
        now: Millis,
    ) -> PassReport {
        let Shared {
            config,
            ledger,
            records,
            counters,
            ..
        } = shared;
        let (ledger, store) = (&*ledger, &records.store);
        let thread = KmigratedConfig::default();
        let stops = Stops {
            pages: TURN_PAGES,
            ..Stops::NONE
        };
        match &config.threshold_free {
            None => Kmigrated::new(thread, node, &ledger.topology, store, &self.gate)
                .pass(stops, ledger, found, counters, now),
            Some(rules) => {
                let histogram = store.histogram(now);
                let gates = Then {
                    first: &rules.pass(&histogram, room, &records.recent),
                    second: &self.gate,
                };
                Kmigrated::new(thread, node, &ledger.topology, store, &gates)
                    .pass(stops, ledger, found, counters, now)
            }
        }
    }
}

/// Joins batches of one owner and target: the mover cuts them as a system call
/// likes it, which is larger than a batch of the core's.
fn joined(batches: Vec<Batch>) -> Vec<Batch> {
    let mut joined: Vec<Batch> = Vec::new();
    for batch in batches {
        match joined.last_mut() {
            Some(last) if last.group == batch.group && last.target == batch.target => {
                last.pages += batch.pages;
                last.folios.extend(batch.folios);
            }
            _ => joined.push(batch),
        }
    }
    joined
}

fn reason(batch: &Batch) -> String {
    let hot = || batch.folios.iter().map(|(_, hotness)| hotness);
    let least = hot().map(|hotness| hotness.frequency).min().unwrap_or(0);
    let oldest = hot().map(|hotness| hotness.age_ms).max().unwrap_or(0);
    format!("touched at least {least} times in the window, last at most {oldest} ms ago")
}
