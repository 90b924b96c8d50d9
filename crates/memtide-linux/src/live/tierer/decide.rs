//! What the core decides, carried out.

use super::super::carry_out::{Books, Done, Job, carry_out, pretend};
use super::super::report::{Direction, Event, Range, Reporter, Stay};
use super::super::view::Machine;
use super::Tierer;
use memtide_core::demotion::{Cursor, Evidence, Limits, choose_target};
use memtide_core::hotness::Hotness;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::Pages;
use memtide_core::promotion::{
    Batch, Kept, Kmigrated, KmigratedConfig, Sink, Stops, Then, Verdict,
};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{NodeId, PageNumber};
use memtide_core::vmstat::Counter;
use std::collections::BTreeMap;

/// Pages that one turn may move in one direction: a turn stays well below a
/// second, and signals are heard.
const TURN_PAGES: u64 = 16_384;

/// Pages that the choice of victims looks at between two checks whether it has
/// enough: one section.
const SCAN_PAGES: u64 = memtide_core::hotness::SECTION_PAGES as u64;

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

impl Tierer {
    /// Promotes the pages that are ready and admitted.
    pub(super) fn promote(&mut self, reporter: &mut dyn Reporter) {
        let now = self.now();
        self.wanting = 0;
        self.refused = 0;
        let room = self.room_for_hot_pages();
        let lower: Vec<NodeId> = self
            .topology
            .nodes()
            .iter()
            .filter(|n| !n.top_tier && n.has_memory())
            .map(|n| n.id)
            .collect();
        for node in lower {
            let machine = Machine {
                space: &self.space,
                placement: &self.placement,
                processes: &self.processes,
                rooms: &self.rooms,
            };
            let mut found = Found {
                explain: self.options.explain,
                ..Found::default()
            };
            let (topology, store, gate) = (&self.topology, &self.store, &self.gate);
            let (config, counters) = (KmigratedConfig::default(), &mut self.counters);
            let stops = Stops {
                pages: TURN_PAGES,
                ..Stops::NONE
            };
            let report = match &self.options.threshold_free {
                None => Kmigrated::new(config, node, topology, store, gate)
                    .pass(stops, &machine, &mut found, counters, now),
                Some(rules) => {
                    let histogram = store.histogram(now);
                    let hot_set = rules.pass(&histogram, room, &self.recent);
                    let gates = Then {
                        first: &hot_set,
                        second: gate,
                    };
                    Kmigrated::new(config, node, topology, store, &gates)
                        .pass(stops, &machine, &mut found, counters, now)
                }
            };
            self.wanting += report.no_room_pages;
            self.refused += report.kept_ready;
            for batch in joined(found.batches) {
                let why = self.reason(&batch);
                let owner = OwnerId(batch.group as u32);
                let folios = batch
                    .folios
                    .into_iter()
                    .map(|(folio, hot)| (folio, Some(hot)));
                let folios = folios.collect();
                self.run(
                    owner,
                    batch.target,
                    Direction::Promotion,
                    folios,
                    why,
                    reporter,
                );
            }
            for (page, hotness, kept) in found.kept {
                self.explain_kept(page, node, &hotness, kept, reporter);
            }
        }
    }

    /// Pages that the fast tier can take: its free room, and what nobody has
    /// touched for long enough to leave.
    fn room_for_hot_pages(&self) -> u64 {
        if self.options.threshold_free.is_none() {
            return 0;
        }
        let top = self.topology.nodes().iter().filter(|node| node.top_tier);
        let free: u64 = top.map(|node| self.rooms.takes(node.id)).sum();
        let ages = self.idle.histogram();
        free + ages[usize::from(self.least_idle_age())..]
            .iter()
            .sum::<u64>()
    }

    /// How old a page's idleness must be: so many observations, over so long.
    fn least_idle_age(&self) -> u8 {
        let by_time = self.idle.age_for_ms(self.options.idle_ms, self.now());
        self.options.idle_passes.max(by_time.unwrap_or(u8::MAX))
    }

    /// Makes room for hot pages that found none, and keeps the headroom where
    /// some may come.
    pub(super) fn demote(&mut self, reporter: &mut dyn Reporter) {
        if self.lower_pages() == 0 {
            return;
        }
        let now = self.now();
        let wanting = self.wanting;
        let mut top: Vec<NodeId> = self
            .preferred_targets()
            .iter()
            .map(|(_, top)| *top)
            .collect();
        top.sort_unstable();
        top.dedup();
        let mut left = TURN_PAGES;
        for node in top {
            let short = self.rooms.short_of(node, wanting).min(left);
            if short == 0 {
                continue;
            }
            let machine = Machine {
                space: &self.space,
                placement: &self.placement,
                processes: &self.processes,
                rooms: &self.rooms,
            };
            let evidence = Evidence {
                idle: &self.idle,
                hotness: &self.store,
                recent: &self.recent,
            };
            let limits = |pages| Limits {
                pages,
                scan: SCAN_PAGES,
                min_age: self.least_idle_age(),
                settle_ms: self.options.settle_ms,
            };
            // One round over everything at most, and only as far as it takes:
            // what has been idle for long enough is cold enough.
            let (extent, mut cursor, mut scanned) = (self.space.extent(), self.cursor, 0);
            let mut victims = Vec::new();
            let mut found = 0;
            while found < short && scanned < extent {
                if cursor.page().0 >= extent {
                    cursor = Cursor::default();
                }
                let some =
                    evidence.choose(node, &limits(short - found), &mut cursor, &machine, now);
                scanned += SCAN_PAGES;
                found += some.pages;
                victims.extend(some.folios);
            }
            self.cursor = cursor;
            let random = Tierer::next_random(&mut self.random);
            let target = choose_target(
                &self.topology,
                node,
                1,
                &NodeMask::ALL,
                |node| self.rooms.get(node),
                random,
            );
            let Some(target) = target.map(|chosen| chosen.node) else {
                continue;
            };
            let room = self.rooms.takes(target);
            let mut jobs: BTreeMap<OwnerId, Vec<_>> = BTreeMap::new();
            let mut taken = 0;
            for victim in &victims {
                let pages = u64::from(victim.folio.pages);
                if taken + pages > room || machine.may_move(victim.folio.first, target).is_err() {
                    continue;
                }
                taken += pages;
                let owner = OwnerId(machine.group(victim.folio.first) as u32);
                jobs.entry(owner).or_default().push((victim.folio, None));
            }
            left -= taken.min(left);
            let why = format!(
                "not touched in at least {} observations over {} ms; node {node} lacks {short} pages of room",
                self.options.idle_passes, self.options.idle_ms
            );
            for (owner, mut folios) in jobs {
                folios.sort_by_key(|(folio, _)| folio.first);
                self.run(
                    owner,
                    target,
                    Direction::Demotion,
                    folios,
                    why.clone(),
                    reporter,
                );
            }
        }
    }

    fn run(
        &mut self,
        owner: OwnerId,
        target: NodeId,
        direction: Direction,
        folios: Vec<(memtide_core::pages::Folio, Option<Hotness>)>,
        why: String,
        reporter: &mut dyn Reporter,
    ) {
        let Some(watched) = self.processes.get(owner) else {
            return;
        };
        let process = watched.process;
        let job = Job {
            owner,
            process,
            target,
            direction,
            folios,
            why,
        };
        let now = self.now();
        let mut books = Books {
            space: &self.space,
            placement: &mut self.placement,
            store: &self.store,
            recent: &mut self.recent,
            page: self.page,
            now,
            explain: self.options.explain,
        };
        let done = if self.options.dry_run {
            Done {
                moved: pretend(&job, &mut books, reporter),
                ..Done::default()
            }
        } else {
            carry_out(&mut self.mover, &job, &mut books, reporter)
        };
        self.failed_pages += done.failed;
        self.counters.add(
            match direction {
                Direction::Promotion => Counter::PgpromoteSuccess,
                Direction::Demotion => Counter::PgdemoteProactive,
            },
            done.moved,
        );
    }

    fn reason(&self, batch: &Batch) -> String {
        let frequencies = batch.folios.iter().map(|(_, hotness)| hotness.frequency);
        let least = frequencies.min().unwrap_or(0);
        let oldest = batch
            .folios
            .iter()
            .map(|(_, hotness)| hotness.age_ms)
            .max()
            .unwrap_or(0);
        format!("touched at least {least} times in the window, last at most {oldest} ms ago")
    }

    fn explain_kept(
        &self,
        page: PageNumber,
        node: NodeId,
        hotness: &Hotness,
        kept: Kept,
        reporter: &mut dyn Reporter,
    ) {
        let why = match kept {
            Kept::Immovable(by) => Stay::Forbidden { by },
            Kept::Gate(Verdict::Latency { threshold_ms, .. }) => Stay::TooLongAgo {
                ms: u64::from(hotness.age_ms),
                threshold_ms: u64::from(threshold_ms),
            },
            Kept::Gate(Verdict::BelowCut { .. }) => Stay::Colder,
            Kept::Gate(Verdict::Damped { moved_ms_ago }) => Stay::JustMoved { ms: moved_ms_ago },
            Kept::Gate(Verdict::NoBenefit { .. }) => Stay::NotWorthIt,
            Kept::Gate(_) | Kept::WindowClosed => Stay::RateLimit,
            Kept::NoRoom(target) => Stay::NoRoom { target },
            Kept::Cold
            | Kept::Elsewhere(_)
            | Kept::Gone
            | Kept::NoTarget
            | Kept::AtTarget
            | Kept::SameFolio => return,
        };
        self.stayed(page, 1, node, why, reporter);
    }

    /// Says of every page on a slow node that is not hot why it stays, in runs.
    pub(super) fn explain_stays(
        &self,
        now: memtide_core::units::Millis,
        reporter: &mut dyn Reporter,
    ) {
        let threshold = self.options.hotness.threshold();
        let window = u64::from(self.options.hotness.window_ms());
        for watched in self.processes.iter() {
            let lower = |_, node| !self.topology.is_top_tier(node);
            for run in super::super::subjects::runs(watched, &self.space, &self.placement, lower) {
                let mut open: Option<(PageNumber, u64, NodeId, Stay)> = None;
                self.space
                    .for_runs(watched.owner, run.first, run.pages, |_, dense, pages| {
                        for n in 0..pages {
                            let page = PageNumber(dense.0 + n);
                            let Some(place) = self.placement.get(page) else {
                                continue;
                            };
                            let touches = match self.store.peek(page, now) {
                                Some(hotness) if hotness.ready => continue,
                                Some(hotness) if u64::from(hotness.age_ms) <= window => {
                                    hotness.frequency
                                }
                                _ => 0,
                            };
                            let why = match touches {
                                0 => Stay::Untouched,
                                touches => Stay::TooRarely { touches, threshold },
                            };
                            match &mut open {
                                Some((first, length, node, known))
                                    if first.0 + *length == page.0
                                        && *node == place.node()
                                        && *known == why =>
                                {
                                    *length += 1;
                                }
                                _ => {
                                    if let Some((first, length, node, why)) = open.take() {
                                        self.stayed(first, length, node, why, reporter);
                                    }
                                    open = Some((page, 1, place.node(), why));
                                }
                            }
                        }
                    });
                if let Some((first, length, node, why)) = open {
                    self.stayed(first, length, node, why, reporter);
                }
            }
        }
    }

    fn stayed(
        &self,
        first: PageNumber,
        pages: u64,
        node: NodeId,
        why: Stay,
        reporter: &mut dyn Reporter,
    ) {
        let Some((owner, at)) = self.space.locate(first) else {
            return;
        };
        let Some(watched) = self.processes.get(owner) else {
            return;
        };
        let range = Range {
            pid: watched.process.pid,
            address: at.0 << self.page.shift(),
            pages,
        };
        reporter.event(self.now(), Event::Stayed { range, node, why });
    }
}
