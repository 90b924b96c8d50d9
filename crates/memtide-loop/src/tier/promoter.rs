//! Hot pages go up: which are ready and admitted, and whereto.

use super::account::Account;
use super::budgets::Budgets;
use super::config::TierConfig;
use super::explain;
use super::latency::Latencies;
use super::pressed::{PRESSED, Pressed};
use super::shared::Shared;
use crate::ledger::{Ledger, PAUSED};
use crate::report::{Direction, Reporter};
use crate::world::{ClassId, World};
use memtide_core::hotness::Hotness;
use memtide_core::pages::{Folio, Immovable, NodeSpace, Pages, Share};
use memtide_core::promotion::{
    Batch, Gate, Kept, Kmigrated, KmigratedConfig, PassReport, Sink, Stops, Then,
};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use memtide_core::vmstat::Counter;
use std::collections::BTreeMap;

/// Its process rests: see [`super::account`].
pub(super) const RESTS: Immovable = Immovable::Other("its process rests");
/// Fast memory is slower: see [`super::latency`].
pub(super) const NO_FASTER: Immovable = Immovable::Other("fast memory is no faster under its load");
/// How often the gate is asked although no target has room, in ms; and where pages have starved for
/// long: whom it admits counts against its limit, room or not, and winners of contests need that.
const PROMOTE_MS: u64 = 1000;
const STARVED_MS: u64 = 5000;
/// One page of fast memory in so many is little room.
const LITTLE_PART: u64 = 64;

/// The promoter. See the module's essay.
#[derive(Debug)]
pub(super) struct Promoter {
    gate: Gate,
    /// Pages that found no room in the last round.
    pub wanting: u64,
    /// Pages that are hot and were refused for now in the last round.
    pub refused: u64,
    /// Whether the last round ended with the pages of a turn, and most of them moved: there may be
    /// more, for which there is no reason to wait.
    pub more: bool,
    asked: Millis,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round<'a> {
    /// That of classes which have less than is protected.
    BelowLow,
    /// Everybody's.
    All,
    /// That of these pages, in order of their first ones, for which others have made way.
    Winners(&'a [Folio]),
}

/// What a pass over the ready pages found.
#[derive(Default)]
struct Found {
    batches: Vec<Batch>,
    kept: Vec<(PageNumber, Hotness, Kept)>,
    /// Pages that their class's bound keeps down.
    waiting: BTreeMap<ClassId, u64>,
    /// Ready pages of classes that are paused, of processes that rest, and those that would
    /// gain nothing.
    resting: u64,
    /// Ready pages of classes that are promoted slower, as their processes wait for memory.
    slowed: u64,
}

/// Takes in what a pass finds.
struct Finding<'a> {
    found: &'a mut Found,
    explain: bool,
    ledger: &'a Ledger,
    budgets: &'a Budgets,
    pressed: &'a Pressed,
    /// The folio that waits last.
    last: Option<Folio>,
}

impl Sink for Finding<'_> {
    fn batch(&mut self, batch: Batch) {
        self.found.batches.push(batch);
    }

    fn kept(&mut self, page: PageNumber, hotness: &Hotness, reason: Kept) {
        let Kept::Immovable(why) = reason else {
            return self.kept_else(page, hotness, reason);
        };
        if [PAUSED, RESTS, NO_FASTER].contains(&why) {
            self.found.resting += 1;
        }
        if why != PAUSED && self.explain {
            self.found.kept.push((page, *hotness, reason));
        }
    }
}

impl Finding<'_> {
    fn kept_else(&mut self, page: PageNumber, hotness: &Hotness, reason: Kept) {
        if self.explain {
            self.found.kept.push((page, *hotness, reason));
        }
        if reason != Kept::Share {
            return;
        }
        if let Some(class) = self.ledger.class(page)
            && self.pressed.binds(class, self.budgets.left(class))
        {
            self.found.slowed += 1;
            return;
        }
        let folio = self.ledger.folio(page);
        if let Some(class) = self.ledger.class(page)
            && self.last.replace(folio) != Some(folio)
        {
            *self.found.waiting.entry(class).or_default() += u64::from(folio.pages);
        }
    }
}

/// Added to a class's number it is that of its share under pressure, apart from those of its
/// bound and of what is protected.
const PRESSED_SHARES: u64 = 1 << 40;

/// The pages of the ledger as those whose turn it is may come up.
struct Admission<'a> {
    ledger: &'a Ledger,
    budgets: &'a Budgets,
    pressed: &'a Pressed,
    account: Option<&'a Account>,
    latencies: &'a Latencies,
    round: Round<'a>,
}

impl Pages for Admission<'_> {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        self.ledger.node_of(page)
    }

    fn folio(&self, page: PageNumber) -> Folio {
        self.ledger.folio(page)
    }

    fn group(&self, page: PageNumber) -> u64 {
        self.ledger.group(page)
    }

    fn may_move(&self, page: PageNumber, target: NodeId) -> Result<(), Immovable> {
        if self.round == Round::BelowLow && self.budgets.below_low(self.ledger.class(page)) == 0 {
            return Err(Immovable::Other("others have less than is protected"));
        }
        if let Round::Winners(folios) = self.round {
            let first = self.ledger.folio(page).first;
            let wins = folios.binary_search_by_key(&first, |folio| folio.first);
            wins.map_err(|_| Immovable::Other("others have made way for hotter pages"))?;
        }
        self.ledger.may_move(page, target)?;
        if !self.pressed.is_calm() && self.pressed.holds(self.ledger.class(page)) {
            return Err(PRESSED);
        }
        if self.latencies.is_any_slower() {
            let topology = &self.ledger.topology;
            let node = self.ledger.node_of(page);
            if node.is_some_and(|node| self.latencies.slower(topology, node, target).is_some()) {
                return Err(NO_FASTER);
            }
        }
        let Some(account) = self.account else {
            return Ok(());
        };
        match self.ledger.space.locate(page) {
            Some((owner, _)) if !account.may_promote(owner) => Err(RESTS),
            _ => Ok(()),
        }
    }

    fn shares(&self, page: PageNumber, each: &mut dyn FnMut(Share)) {
        if self.budgets.is_empty() {
            return;
        }
        let Some(class) = self.ledger.class(page) else {
            return;
        };
        self.budgets.shares(class, each);
        if let Some(left) = self.pressed.left(class) {
            let number = PRESSED_SHARES + u64::from(class.0);
            each(Share { number, left });
        }
        if self.round == Round::BelowLow {
            each(self.budgets.protected_share(class));
        }
    }

    fn space(&self, node: NodeId) -> Option<NodeSpace> {
        self.ledger.space(node)
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
            more: false,
            asked: Millis(0),
        }
    }

    /// So many megabytes a second may go up from now on.
    pub fn set_rate_limit(&mut self, mbps: u64) {
        self.gate.set_rate_limit(mbps);
    }

    /// Whether hot pages wait for room or for the gate.
    pub fn pages_wait(&self) -> bool {
        self.wanting > 0 || self.refused > 0
    }

    /// Whether asking the gate makes sense: pages that wait for room are asked
    /// for again only when there is some, and counted as candidates once. Where they have starved for
    /// long, a little room is for winners of contests.
    pub fn may_help(&mut self, ledger: &Ledger, is_starved: bool, now: Millis) -> bool {
        let (wait_ms, least) = match is_starved {
            true => (STARVED_MS, ledger.resident(true) / LITTLE_PART),
            false => (PROMOTE_MS, 0),
        };
        let targets = ledger.preferred_targets();
        let roomy = (targets.iter()).any(|(_, target)| ledger.rooms.takes(*target) > least);
        let due = roomy || now.since(self.asked) >= wait_ms;
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
        shared.pressed.earn(now);
        self.wanting = 0;
        self.refused = 0;
        let room = shared.ledger.top_room() + idle_room;
        // The gate counts whom it admits.
        let turn_pages = shared.turn_pages();
        let nodes = shared.ledger.topology.nodes().iter();
        let lower = nodes.filter(|node| !node.top_tier && node.has_memory());
        let mut left: Vec<(NodeId, u64)> = lower.map(|node| (node.id, turn_pages)).collect();
        if some_below_low(shared) {
            for (node, left) in &mut left {
                let mut found = Found::default();
                let before = shared.counters.get(Counter::PgpromoteSuccess);
                let report = self.pass(
                    shared,
                    (*node, *left),
                    Round::BelowLow,
                    (room, now),
                    &mut found,
                );
                move_up(world, shared, found.batches, reporter);
                let moved = shared.counters.get(Counter::PgpromoteSuccess) - before;
                // Then nobody else has a turn.
                let is_short = turn_pages < shared.config.turn_pages;
                self.more |= is_short && report.pages >= *left && moved * 2 >= *left;
                *left -= report.pages.min(*left);
            }
        }
        let mut waiting: BTreeMap<ClassId, u64> = BTreeMap::new();
        for (node, left) in left {
            let mut found = Found::default();
            let report = self.pass(shared, (node, left), Round::All, (room, now), &mut found);
            let before = shared.counters.get(Counter::PgpromoteSuccess);
            self.wanting += report.no_room_pages;
            // What a share, a pause or a rest keeps down waits for these, and not for a moment.
            let waits = report.over_share + found.resting;
            self.refused += report.kept_ready.saturating_sub(waits) + found.slowed;
            self.refused += u64::from(shared.pressed.ended(report.pages));
            move_up(world, shared, found.batches, reporter);
            let moved = shared.counters.get(Counter::PgpromoteSuccess) - before;
            self.more |= left > 0 && report.pages >= left && moved * 2 >= left;
            for (page, hotness, kept) in found.kept {
                explain::kept(shared, page, node, &hotness, kept, now, reporter);
            }
            for (class, pages) in found.waiting {
                *waiting.entry(class).or_default() += pages;
            }
        }
        shared
            .budgets
            .set_waiting(|class| waiting.get(&class).copied().unwrap_or(0));
    }

    /// Whether `folio` may come to `target` for all that is known before the gate is asked.
    pub fn may_come(shared: &Shared, folio: Folio, target: NodeId) -> bool {
        let admission = Admission {
            ledger: &shared.ledger,
            budgets: &shared.budgets,
            pressed: &shared.pressed,
            account: shared.account.as_ref(),
            latencies: &shared.latencies,
            round: Round::All,
        };
        admission.may_move(folio.first, target).is_ok()
    }

    /// Promotes those of `winners`, which are in order, that the gate admits and that fit.
    pub fn promote_winners(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        winners: &[Folio],
        reporter: &mut dyn Reporter,
    ) {
        let (now, pages) = (world.now(), shared.turn_pages());
        let nodes = shared.ledger.topology.nodes().iter();
        let lower = nodes.filter(|node| !node.top_tier && node.has_memory());
        let lower: Vec<NodeId> = lower.map(|node| node.id).collect();
        for node in lower {
            let (room, mut found) = (shared.ledger.top_room(), Found::default());
            let round = Round::Winners(winners);
            self.pass(shared, (node, pages), round, (room, now), &mut found);
            move_up(world, shared, found.batches, reporter);
        }
    }

    fn pass(
        &self,
        shared: &mut Shared,
        (node, pages): (NodeId, u64),
        round: Round<'_>,
        (room, now): (u64, Millis),
        found: &mut Found,
    ) -> PassReport {
        let Shared {
            config,
            ledger,
            records,
            counters,
            budgets,
            pressed,
            account,
            latencies,
            ..
        } = shared;
        let (ledger, store) = (&*ledger, &records.store);
        let admission = &Admission {
            ledger,
            budgets,
            pressed,
            account: account.as_ref(),
            latencies,
            round,
        };
        let finding = &mut Finding {
            found,
            explain: config.explain && round == Round::All,
            ledger,
            budgets,
            pressed,
            last: None,
        };
        let thread = KmigratedConfig::default();
        let stops = Stops {
            pages: pressed.at_most(pages),
            ..Stops::NONE
        };
        match &config.threshold_free {
            None => Kmigrated::new(thread, node, &ledger.topology, store, &self.gate)
                .pass(stops, admission, finding, counters, now),
            Some(rules) => {
                let histogram = store.histogram(now);
                let gates = Then {
                    first: &rules.pass(&histogram, room, &records.recent),
                    second: &self.gate,
                };
                Kmigrated::new(thread, node, &ledger.topology, store, &gates)
                    .pass(stops, admission, finding, counters, now)
            }
        }
    }
}

/// Whether a managed process is of a class that has less than is protected.
fn some_below_low(shared: &Shared) -> bool {
    let Shared {
        ledger, budgets, ..
    } = shared;
    let mut all = ledger.processes.iter();
    !budgets.is_empty() && all.any(|watched| budgets.below_low(watched.class) > 0)
}

/// Has what a pass admitted moved.
fn move_up(
    world: &mut dyn World,
    shared: &mut Shared,
    batches: Vec<Batch>,
    reporter: &mut dyn Reporter,
) {
    for batch in joined(batches) {
        let why = reason(&batch);
        let job = (
            OwnerId(batch.group as u32),
            batch.target,
            Direction::Promotion,
        );
        let (folios, hot): (Vec<_>, Vec<_>) = batch.folios.into_iter().unzip();
        shared.move_folios(world, job, &folios, &hot, &why, reporter);
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
