//! Idle pages go down, where hot ones need the room; and pages of classes that are
//! above their bounds, the coldest first.

use super::budgets::Budgets;
use super::config::TierConfig;
use super::losses::Losses;
use super::making_way::{MakingWay, Turn};
use super::shared::Shared;
use crate::ledger::{Ledger, Renumbered, Watched};
use crate::random::Random;
use crate::records::Records;
use crate::report::{Direction, Reporter};
use crate::world::{ClassId, World};
use memtide_core::demotion::{Coldest, Cursor, Evidence, Limits, Victim, choose_target};
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::nodemask::NodeMask;
use memtide_core::pages::{Folio, Immovable, Pages};
use memtide_core::promotion::Moved;
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Pages that the choice of victims looks at between two checks whether it has
/// enough: one section.
const SCAN_PAGES: u64 = SECTION_PAGES as u64;
/// Idle folios that their owners do not let go, after which a choice of victims is made
/// with what was found: the next one goes on from there. They take some tens of
/// milliseconds.
const MOST_REFUSED: u64 = 1 << 18;
/// Pages among which the coldest are looked for, where some have to leave: 1 GiB.
const COLDEST_PAGES: u64 = 1 << 18;
/// The part of its share that a class leaves free for hot pages of it, at most: one in so many.
const EXCHANGED: u64 = 16;
/// Pages that are drawn together where some make way, and the most such pieces.
const PIECE_PAGES: u64 = 64;
const MOST_PIECES: u64 = 1 << 14;
/// How long a page that was promoted takes part in no contest, in ms.
const CONTEST_SETTLE_MS: u64 = 10_000;
/// Makes the demoter's random numbers others than the observer's.
const SEED: u64 = 0x6d65_6d74_6964_6531;

/// The demoter. See the module's essay.
#[derive(Debug)]
pub(super) struct Demoter {
    cursor: Cursor,
    /// Where the coldest pages of a class are looked for next.
    next_section: BTreeMap<ClassId, u32>,
    random: Random,
    making_way: BTreeMap<ClassId, MakingWay>,
    /// Pages left of which it is not known that they are idle, or will: only a look can
    /// tell.
    pub look_wanted: bool,
}

impl Demoter {
    pub fn new(config: &TierConfig) -> Demoter {
        Demoter {
            cursor: Cursor::default(),
            next_section: BTreeMap::new(),
            random: Random::new(config.seed ^ SEED),
            making_way: BTreeMap::new(),
            look_wanted: false,
        }
    }

    /// Classes have other numbers from now on.
    pub fn renumber(&mut self, numbers: &Renumbered) {
        numbers.rekey(&mut self.next_section);
        numbers.rekey(&mut self.making_way);
    }

    /// Makes room for `wanting` hot pages that found none, and keeps the headroom
    /// where some may come. How many moved.
    pub fn demote(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        wanting: u64,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        if shared.ledger.lower_pages() == 0 {
            return 0;
        }
        let mut all = 0;
        let now = world.now();
        let mut left = shared.config.turn_pages;
        for node in hot_targets(&shared.ledger) {
            let short = shared.ledger.rooms.short_of(node, wanting).min(left);
            if short == 0 {
                continue;
            }
            let Some(target) = self.target(&shared.ledger, node) else {
                continue;
            };
            let way = Way { node, target };
            let settle_ms = shared.config.settle_ms;
            let victims = self.victims(shared, (way, None), short, settle_ms, now);
            let why = format!(
                "not touched in at least {} observations over {} ms; node {node} lacks {short} pages of room",
                shared.config.idle_passes, shared.config.idle_ms
            );
            let (taken, moved) = move_down(world, shared, victims, target, &why, reporter);
            left -= taken.min(left);
            all += moved;
        }
        all
    }

    /// Has as many of `losers` make way on each node as the pages need that are `wanted` there. Leaves
    /// those that did.
    pub fn make_way_for_winners(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        losers: &mut Vec<Folio>,
        wanted: &BTreeMap<NodeId, u64>,
        reporter: &mut dyn Reporter,
    ) {
        let why = "two passes saw hotter pages in use that wait, and not this one";
        for (node, target) in self.targets(&shared.ledger) {
            let wanted = wanted.get(&node).copied().unwrap_or(0);
            // What room there is by now others did not want.
            let wanted = wanted.saturating_sub(shared.ledger.rooms.takes(node));
            let mut left = shared.config.turn_pages.min(wanted);
            let (ledger, mut losses) = (&shared.ledger, Losses::new(&shared.budgets, None));
            let mut goes = |folio: &Folio| {
                let pages = u64::from(folio.pages);
                let goes = pages <= left
                    && ledger.node_of(folio.first) == Some(node)
                    && losses.spares(ledger.class(folio.first), pages);
                left -= if goes { pages } else { 0 };
                goes
            };
            let go = losers.iter().copied().filter(&mut goes).collect();
            move_down(world, shared, go, target, why, reporter);
        }
        losers.retain(|folio| !is_on_top(&shared.ledger, folio.first));
    }

    /// Folios for a contest, `wanted` pages at most, a quarter of them on fast memory, and whether
    /// they are: from pieces of `piece` pages that are drawn at random.
    pub fn draw_for_contest(
        &mut self,
        shared: &Shared,
        wanted: u64,
        piece: u64,
        now: Millis,
    ) -> Vec<(Folio, bool)> {
        let down = self.targets(&shared.ledger);
        let up = shared.ledger.preferred_targets();
        let evidence = evidence(&shared.records);
        let settled = |folio| evidence.may_be_idle(folio, CONTEST_SETTLE_MS, now);
        let recent = &shared.records.recent;
        let left =
            |folio: Folio| recent.moved_within(folio.first, Moved::Down, CONTEST_SETTLE_MS, now);
        let fast = self.draw(
            shared,
            (Side::Leaves(None), piece),
            wanted / 4,
            &down,
            settled,
        );
        let slow = (Side::Comes, piece);
        let slow = self.draw(shared, slow, wanted - wanted / 4, &up, |folio| !left(folio));
        let fast = fast.into_iter().map(|folio| (folio, true));
        fast.chain(slow.into_iter().map(|folio| (folio, false)))
            .collect()
    }

    /// Brings classes that are above their bounds down to them, and lets idle
    /// pages of a class go where hot ones of it wait, or others make way.
    pub fn keep_bounds(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        turn: Turn,
        reporter: &mut dyn Reporter,
    ) {
        let mut left = shared.config.turn_pages;
        shared.budgets.exchanging = false;
        let mut n = 0;
        // Who lies within another one is first: what leaves of it counts for both.
        while let Some(class) = shared.budgets.nth_from_within(n) {
            n += 1;
            shared.moving_time.begin_again();
            let paused = shared.ledger.processes.is_paused(Some(class));
            let budgets = &shared.budgets;
            let excess = budgets.excess(class, turn.now).min(left);
            let bound = budgets.high(class).zip(budgets.left_of_own(class));
            let (Some((high, free)), 0, false) = (bound, excess, paused) else {
                self.is_making_way_due(shared, class, 0, turn);
                if excess > 0 && !paused {
                    let now = turn.now;
                    let moved = self.bring_down(world, shared, class, excess, now, reporter);
                    left -= moved.min(left);
                }
                continue;
            };
            // Little at a time: what left comes back as other pages at once. Where it does not, because the
            // gate holds them, no more leaves.
            let room = budgets.waiting(class).min(high.div_ceil(EXCHANGED));
            let short = room.saturating_sub(free).min(left);
            let mut moved = 0;
            if short > 0 {
                let settle_ms = shared.config.settle_ms;
                let why = "its class is at its fast.high, and hot pages of it wait";
                moved = self.send_idle(world, shared, class, short, settle_ms, why, reporter);
            }
            // What there was no time for may be idle.
            let starving = match shared.moving_time.is_cut() {
                true => 0,
                false => short.saturating_sub(moved),
            };
            moved += self.make_way(world, shared, class, starving, turn, reporter);
            left -= moved.min(left);
            shared.budgets.exchanging |= moved > 0;
        }
    }

    /// Has up to `starving` pages of `class` make way that are not known to be idle, if
    /// that is due. How many went.
    fn make_way(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        class: ClassId,
        starving: u64,
        turn: Turn,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        // Of what only would go nothing comes back: a dry run cannot learn from it.
        if !self.is_making_way_due(shared, class, starving, turn) || shared.config.dry_run {
            return 0;
        }
        // Where others may take the room, nothing of what is protected goes.
        let wanted = match shared.ledger.top_room() >= starving {
            true => starving,
            false => starving.min(shared.budgets.may_lose(Some(class))),
        };
        let targets = self.targets(&shared.ledger);
        let of = (Side::Leaves(Some(class)), PIECE_PAGES);
        let (evidence, settle_ms) = (evidence(&shared.records), shared.config.settle_ms);
        let may_be_idle = |folio| evidence.may_be_idle(folio, settle_ms, turn.now);
        let folios = self.draw(shared, of, wanted, &targets, may_be_idle);
        let why = "makes way for hot pages of its class, which is at its fast.high";
        let went = self.send_in_use(world, shared, &folios, &targets, why, reporter);
        let left = |folio: &Folio| !is_on_top(&shared.ledger, folio.first);
        let gone = folios.into_iter().filter(left).collect();
        let way = self.making_way.entry(class).or_default();
        way.tried(gone, turn);
        went
    }

    fn is_making_way_due(
        &mut self,
        shared: &Shared,
        class: ClassId,
        starving: u64,
        turn: Turn,
    ) -> bool {
        let is_in_use = |folio: Folio| {
            let page = folio.first;
            is_on_top(&shared.ledger, page) || shared.records.store.peek(page, turn.now).is_some()
        };
        let way = self.making_way.entry(class).or_default();
        way.is_due(starving, turn, is_in_use)
    }

    /// Folios of one `side`, `wanted` pages at most, that are `fit` and may move to the target
    /// of their node: from pieces of `piece_pages` drawn at random, as the hot ones may be all in one
    /// place.
    fn draw(
        &mut self,
        shared: &Shared,
        (side, piece_pages): (Side, u64),
        wanted: u64,
        targets: &[(NodeId, NodeId)],
        fit: impl Fn(Folio) -> bool,
    ) -> Vec<Folio> {
        let ledger = &shared.ledger;
        let (sections, mut losses) = match side {
            Side::Leaves(class) => (
                sections_of(shared, class, true),
                Some(Losses::new(&shared.budgets, class)),
            ),
            Side::Comes => {
                let paused = |watched: &Watched| ledger.processes.is_paused(watched.class);
                (sections(ledger, |watched| !paused(watched)), None)
            }
        };
        let spares = &mut |folio: Folio| {
            let losses = losses.as_mut();
            losses.is_none_or(|losses| {
                losses.spares(ledger.class(folio.first), u64::from(folio.pages))
            })
        };
        let (mut drawn, mut folios, mut found) = (BTreeSet::new(), Vec::new(), 0);
        let pieces = sections.len() as u64 * (SECTION_PAGES as u64 / piece_pages);
        for _ in 0..pieces.min(MOST_PIECES * PIECE_PAGES / piece_pages.max(PIECE_PAGES)) {
            if found >= wanted {
                break;
            }
            let piece = self.random.below(pieces);
            if !drawn.insert(piece) {
                continue;
            }
            let in_section = SECTION_PAGES as u64 / piece_pages;
            let section = u64::from(sections[(piece / in_section) as usize]);
            let first = section * SECTION_PAGES as u64 + piece % in_section * piece_pages;
            let visit = |first: PageNumber, pages: u64, place: Place| {
                let target = targets.iter().find(|(node, _)| *node == place.node());
                let Some((_, target)) = target.filter(|_| !place.stuck()) else {
                    return;
                };
                let mut page = first;
                while page.0 < first.0 + pages {
                    let folio = ledger.folio(page);
                    page = PageNumber(folio.first.0 + u64::from(folio.pages));
                    // The piece of a huge page that is its first.
                    let fits = found + u64::from(folio.pages) <= wanted;
                    if fits
                        && folio.first >= first
                        && ledger.may_move(folio.first, *target).is_ok()
                        && fit(folio)
                        && spares(folio)
                    {
                        found += u64::from(folio.pages);
                        folios.push(folio);
                    }
                }
            };
            ledger.placement.runs(PageNumber(first), piece_pages, visit);
        }
        folios
    }

    /// Has `excess` pages of `class` leave: those that are known to be idle; if
    /// these are too few for long, the coldest.
    fn bring_down(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        class: ClassId,
        excess: u64,
        now: Millis,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let why = "idle, and its class is above its fast.high";
        let mut moved = self.send_idle(world, shared, class, excess, 0, why, reporter);
        if moved > 0 {
            shared.budgets.goes_down(class);
        }
        // What there was no time for may be idle, too.
        let is_cut = shared.moving_time.is_cut() && moved > 0;
        if is_cut {
            shared.budgets.be_patient_again(class, now);
        }
        if moved >= excess || is_cut || !shared.budgets.patience_is_over(class, now) {
            return moved;
        }
        shared.moving_time.begin_again();
        let why = "among the coldest of its class, which is above its fast.high";
        let targets = self.targets(&shared.ledger);
        let coldest = self.coldest(shared, class, true, excess - moved, &targets, now);
        moved += self.send_in_use(world, shared, &coldest, &targets, why, reporter);
        if moved > 0 {
            shared.budgets.goes_down(class);
        } else if !shared.moving_time.is_cut() {
            shared.budgets.rest(class, now);
            if shared.budgets.bound_takes_all(class, now) {
                let coldest = self.coldest(shared, class, false, excess, &targets, now);
                moved = self.send_in_use(world, shared, &coldest, &targets, why, reporter);
            }
        }
        moved
    }

    /// The nodes of the top tier, and where cold pages of each go.
    fn targets(&mut self, ledger: &Ledger) -> Vec<(NodeId, NodeId)> {
        let top = ledger.top_nodes().into_iter();
        top.filter_map(|node| Some((node, self.target(ledger, node)?)))
            .collect()
    }

    /// Sends folios down that are not known to be idle. How many pages moved.
    fn send_in_use(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        folios: &[Folio],
        targets: &[(NodeId, NodeId)],
        why: &str,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let mut moved = 0;
        for (node, target) in targets {
            let ledger = &shared.ledger;
            let on_it = folios.iter().copied();
            let on_it = on_it.filter(|folio| ledger.node_of(folio.first) == Some(*node));
            let on_it: Vec<Folio> = on_it.collect();
            moved += move_down(world, shared, on_it, *target, why, reporter).1;
        }
        let recent = &mut shared.records.recent;
        folios
            .iter()
            .for_each(|folio| recent.is_in_use(folio.first));
        self.look_wanted |= moved > 0;
        moved
    }

    /// Sends `wanted` pages of `class` down that are known to be idle, if there are
    /// so many. How many moved.
    #[expect(clippy::too_many_arguments, reason = "whose, how many, and why")]
    fn send_idle(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        class: ClassId,
        wanted: u64,
        settle_ms: u64,
        why: &str,
        reporter: &mut dyn Reporter,
    ) -> u64 {
        let now = world.now();
        let mut all = 0;
        for node in shared.ledger.top_nodes() {
            if all >= wanted {
                break;
            }
            let Some(target) = self.target(&shared.ledger, node) else {
                continue;
            };
            let of = (Way { node, target }, Some(class));
            let victims = self.victims(shared, of, wanted - all, settle_ms, now);
            all += move_down(world, shared, victims, target, why, reporter).1;
        }
        all
    }

    fn target(&mut self, ledger: &Ledger, node: NodeId) -> Option<NodeId> {
        target_of(ledger, node, self.random.draw())
    }

    /// At least `short` pages that were idle for long enough and may go that `way`,
    /// if there are so many: one round over everything at most, and only as far as
    /// it takes. They are those of one class and of classes within it, or of all; in either
    /// case of those that have more than is protected.
    fn victims(
        &mut self,
        shared: &Shared,
        (way, only): (Way, Option<ClassId>),
        short: u64,
        settle_ms: u64,
        now: Millis,
    ) -> Vec<Folio> {
        let Shared {
            config,
            ledger,
            records,
            budgets,
            ..
        } = shared;
        let evidence = evidence(records);
        let min_age = least_idle_age(config, records, now);
        let leaving = Leaving {
            ledger,
            budgets,
            target: way.target,
            only,
            refused: Cell::new(0),
        };
        let extent = ledger.space.extent();
        let (mut victims, mut found, mut scanned) = (Vec::new(), 0, 0);
        let mut losses = Losses::new(budgets, only);
        while found < short && scanned < extent && leaving.refused.get() < MOST_REFUSED {
            if self.cursor.page().0 >= extent {
                self.cursor = Cursor::default();
            }
            let limits = Limits {
                pages: short - found,
                scan: SCAN_PAGES,
                min_age,
                settle_ms,
            };
            let some = evidence.choose(way.node, &limits, &mut self.cursor, &leaving, now);
            scanned += SCAN_PAGES;
            for Victim { folio, .. } in some.folios {
                let pages = u64::from(folio.pages);
                if !losses.spares(ledger.class(folio.first), pages) {
                    leaving.refused.update(|refused| refused + 1);
                    continue;
                }
                found += pages;
                victims.push(folio);
            }
        }
        victims
    }

    /// The coldest pages of `class` on these nodes that may leave for their targets, but for
    /// what is protected within it if that is to `protect`,
    /// however warm they are: `wanted` of them, of the [`COLDEST_PAGES`] that come
    /// next if there are more.
    fn coldest(
        &mut self,
        shared: &Shared,
        class: ClassId,
        protect: bool,
        wanted: u64,
        targets: &[(NodeId, NodeId)],
        now: Millis,
    ) -> Vec<Folio> {
        let Shared {
            config,
            ledger,
            records,
            ..
        } = shared;
        let mut sections = sections_of(shared, Some(class), protect);
        let from = *self.next_section.entry(class).or_default();
        let at = sections.partition_point(|section| *section < from);
        sections.rotate_left(at);
        let evidence = evidence(records);
        // Folios that are more than their class may lose would take the place of others.
        let goes = |folio: Folio| {
            let of = ledger.class(folio.first);
            !protect || shared.budgets.may_lose_within(of, Some(class)) >= u64::from(folio.pages)
        };
        let mut coldest = Coldest::new(wanted);
        let mut seen = 0;
        for section in sections {
            if seen >= COLDEST_PAGES && coldest.pages() >= wanted {
                self.next_section.insert(class, section);
                break;
            }
            let first = PageNumber(u64::from(section) * SECTION_PAGES as u64);
            let visit = |first: PageNumber, pages: u64, place: Place| {
                let target = targets.iter().find(|(node, _)| *node == place.node());
                let Some((_, target)) = target.filter(|_| !place.stuck()) else {
                    return;
                };
                seen += pages;
                let mut page = first;
                while page.0 < first.0 + pages {
                    let folio = ledger.folio(page);
                    page = PageNumber(folio.first.0 + u64::from(folio.pages));
                    if goes(folio) && ledger.may_move(folio.first, *target).is_ok() {
                        let coldness = evidence.coldness(folio, config.settle_ms, now);
                        coldest.offer(folio, coldness);
                    }
                }
            };
            ledger.placement.runs(first, SECTION_PAGES as u64, visit);
        }
        let mut losses = Losses::new(&shared.budgets, Some(class));
        let mut spares =
            |folio: &Folio| losses.spares(ledger.class(folio.first), u64::from(folio.pages));
        let folios = coldest.into_folios().map(|(folio, _)| folio);
        folios.filter(|folio| !protect || spares(folio)).collect()
    }
}

/// The sections of the processes that are `wanted`, in order.
fn sections(ledger: &Ledger, wanted: impl Fn(&Watched) -> bool) -> Vec<u32> {
    let wanted = ledger.processes.iter().filter(|watched| wanted(watched));
    let sections = wanted.flat_map(|watched| ledger.space.sections_of(watched.owner));
    let mut sections: Vec<u32> = sections.collect();
    sections.sort_unstable();
    sections
}

/// The sections of all processes, or of those of `class` and of classes within it, in order; of those
/// only that may lose pages for others in it, if what they keep is to `protect`.
fn sections_of(shared: &Shared, class: Option<ClassId>, protect: bool) -> Vec<u32> {
    let Shared {
        ledger, budgets, ..
    } = shared;
    sections(ledger, |watched| {
        let of = watched.class;
        class.is_none_or(|class| budgets.is_within(of, class))
            && budgets.tiered(of).demote
            && (!protect || budgets.may_lose_within(of, class) > 0)
    })
}

/// Which pages are drawn.
#[derive(Clone, Copy)]
enum Side {
    /// Those that may leave fast memory, of a class or of all.
    Leaves(Option<ClassId>),
    /// Those that may come.
    Comes,
}

/// A node, and where its cold pages go.
#[derive(Clone, Copy)]
struct Way {
    node: NodeId,
    target: NodeId,
}

/// The pages of the ledger as they may leave fast memory.
struct Leaving<'a> {
    ledger: &'a Ledger,
    budgets: &'a Budgets,
    target: NodeId,
    /// How many folios were asked about that their owners do not let go.
    refused: Cell<u64>,
    /// Only those of this class, and of classes within it.
    only: Option<ClassId>,
}

/// Where cold pages of `node` go; `random` picks among equals.
pub(super) fn target_of(ledger: &Ledger, node: NodeId, random: u64) -> Option<NodeId> {
    let (all, space) = (&NodeMask::ALL, |node| ledger.rooms.get(node));
    let chosen = choose_target(&ledger.topology, node, 1, all, space, random);
    chosen.map(|chosen| chosen.node)
}

impl Pages for Leaving<'_> {
    fn node_of(&self, page: PageNumber) -> Option<NodeId> {
        self.ledger.node_of(page)
    }

    fn folio(&self, page: PageNumber) -> Folio {
        self.ledger.folio(page)
    }

    fn may_leave(&self, page: PageNumber) -> Result<(), Immovable> {
        if !self.budgets.lets_all_go() {
            let class = self.ledger.class(page);
            let within = |around| self.budgets.is_within(class, around);
            let may =
                self.only.is_none_or(within) && self.budgets.may_lose_within(class, self.only) > 0;
            if !may {
                return Err(Immovable::Other("its class keeps it"));
            }
        }
        // Before the choice and not after it: pages that must stay would take the
        // place of others, again and again.
        let may = self.ledger.may_move(page, self.target);
        self.refused
            .update(|refused| refused + u64::from(may.is_err()));
        may
    }
}

fn evidence(records: &Records) -> Evidence<'_> {
    Evidence {
        idle: &records.idle,
        hotness: &records.store,
        recent: &records.recent,
    }
}

pub(super) fn is_on_top(ledger: &Ledger, page: PageNumber) -> bool {
    let node = ledger.node_of(page);
    node.is_some_and(|node| ledger.topology.is_top_tier(node))
}

/// The nodes to which hot pages go.
fn hot_targets(ledger: &Ledger) -> Vec<NodeId> {
    let targets = ledger.preferred_targets();
    let mut top: Vec<NodeId> = targets.iter().map(|(_, top)| *top).collect();
    top.sort_unstable();
    top.dedup();
    top
}

/// How old a page's idleness must be: so many observations, over so long.
pub(super) fn least_idle_age(config: &TierConfig, records: &Records, now: Millis) -> u8 {
    let by_time = records.idle.age_for_ms(config.idle_ms, now);
    config.idle_passes.max(by_time.unwrap_or(u8::MAX))
}

/// Pages that nobody has touched for long enough to leave.
pub(super) fn idle_pages(config: &TierConfig, records: &Records, now: Millis) -> u64 {
    let ages = records.idle.histogram();
    let least = usize::from(least_idle_age(config, records, now));
    ages[least..].iter().sum()
}

/// Moves those of `folios` to `target` that may go there and fit. How many base
/// pages were tried, and how many moved.
pub(super) fn move_down(
    world: &mut dyn World,
    shared: &mut Shared,
    folios: Vec<Folio>,
    target: NodeId,
    why: &str,
    reporter: &mut dyn Reporter,
) -> (u64, u64) {
    let (jobs, taken) = jobs(&shared.ledger, &folios, target);
    let mut moved = 0;
    for (owner, mut folios) in jobs {
        folios.sort_by_key(|folio| folio.first);
        let job = (owner, target, Direction::Demotion);
        moved += shared.move_folios(world, job, &folios, &[], why, reporter);
    }
    (taken, moved)
}

/// The folios that may go to `target` and fit there, by owner; and their pages.
fn jobs(ledger: &Ledger, folios: &[Folio], target: NodeId) -> (BTreeMap<OwnerId, Vec<Folio>>, u64) {
    let room = ledger.rooms.takes(target);
    let mut jobs: BTreeMap<OwnerId, Vec<Folio>> = BTreeMap::new();
    let mut taken = 0;
    for folio in folios {
        let pages = u64::from(folio.pages);
        if taken + pages > room || ledger.may_move(folio.first, target).is_err() {
            continue;
        }
        taken += pages;
        let owner = OwnerId(ledger.group(folio.first) as u32);
        jobs.entry(owner).or_default().push(*folio);
    }
    (jobs, taken)
}
