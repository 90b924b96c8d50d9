//! Making hidden accesses show.
//!
//! A processor that still has a page's translation at hand does not look at the
//! page table, so it sets no accessed bit, however often the page is touched.
//! Whoever clears the bit without flushing the translation (DAMON and
//! `clear_refs` both do, for speed) then takes the page for idle. Programs that
//! sleep and wake on one processor can hide most of their hot pages in this way.
//!
//! The kernel flushes all translations of a process when it migrates any page
//! of it. So while a process is observed, one cold page of it commutes between
//! its place and the fast tier, and is brought home at the end. A process that
//! has not run since last time has touched nothing and is left in peace.
//!
//! Where idle pages leave fast memory although there is room, processes without any
//! slow page are observed, too. Of these a page of the fast tier commutes, unless their
//! class keeps its idle pages.
//!
//! A page that is in use must not be the one: whoever touches it while it is away waits for
//! slow memory. Of cold pages many turn out to be in use only later. They stay where they
//! are, and another page takes their place. What cannot go home at the moment tries again with
//! each flush; until then no other page of its process commutes.

use super::budgets::Budgets;
use super::config::TierConfig;
use super::demoter::target_of;
use super::observer::Observer;
use super::shared::{HOW, Shared};
use crate::ledger::{Ledger, Visit};
use crate::records::Records;
use crate::world::{ClassId, Outcome, PageRun, Settled, World};
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::pages::{Immovable, Pages as _};
use memtide_core::promotion::Moved;
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::BTreeSet;

/// How often they are flushed while glancing, at most, in ms: once a pass.
const GLANCE_FLUSH_MS: u64 = 250;
/// While glancing, flushing may take one part in so many of a CPU. A glance without a flush may cost more, and
/// sees nothing.
const GLANCE_FLUSH_SHARE: u64 = 200;
/// In the second pass of a look it may take one part in so many of the pass.
const LOOK_FLUSH_SHARE: u64 = 20;

/// Pages of the fast tier among which one to commute is looked for: 1 GiB.
const ENOUGH_PAGES: u64 = 1 << 18;
/// How often what is away is asked home at the end.
const LAST_TRIES: usize = 3;
const LAST_PAUSE_MS: u64 = 20;
/// How long the same section of a process comes first there, in ms.
const CHOICE_MS: u64 = 2_000;

/// A page that serves to flush its process's translations.
#[derive(Clone, Copy, Debug)]
struct Commuter {
    owner: OwnerId,
    page: PageNumber,
    visit: Visit,
    /// The process's processor time when it was last flushed.
    ticks: Option<u64>,
    /// It is in use, and when another was looked for there was none.
    alone_since: Option<Millis>,
}

impl Commuter {
    fn new(owner: OwnerId, page: PageNumber, visit: Visit) -> Commuter {
        Commuter {
            owner,
            page,
            visit,
            ticks: None,
            alone_since: None,
        }
    }
}

/// The flusher. See the module's essay.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    commuters: Vec<Commuter>,
    flushed: Millis,
    /// What the last times cost, in us of a CPU. On a busy machine one of them tells little.
    costs_us: [u64; 3],
    settled: Vec<Settled>,
    /// Pages that have turned out to lie elsewhere than was known, and which way they went.
    strays: Vec<(PageNumber, Moved)>,
}

impl Flusher {
    /// Chooses a cold page of each process whose slow pages are observed.
    pub fn choose(&mut self, world: &mut dyn World, shared: &mut Shared, now: Millis) {
        self.recall(world, &mut shared.ledger);
        let away: BTreeSet<OwnerId> = self.commuters.iter().map(|away| away.owner).collect();
        for watched in shared.ledger.processes.iter() {
            if !away.contains(&watched.owner) {
                let chosen = choose_first(shared, watched.owner, now);
                self.commuters.extend(chosen);
            }
        }
    }

    /// Flushes the translations of every observed process that has run, if it
    /// is time.
    pub fn flush(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        observer: &Observer,
        now: Millis,
    ) {
        let looking = observer.is_looking();
        let due = match looking {
            true => self.look_flush_due(observer, now),
            false => {
                let pause_ms = self.cost_us().saturating_mul(GLANCE_FLUSH_SHARE) / 1000;
                now.since(self.flushed) >= pause_ms.max(GLANCE_FLUSH_MS)
            }
        };
        if !observer.abilities.passes || !due {
            return;
        }
        self.flushed = now;
        let before = world.own_cpu_ns();
        let mut tried = false;
        let mut commuters = std::mem::take(&mut self.commuters);
        commuters.retain_mut(|commuter| {
            let (ledger, records) = (&mut shared.ledger, &shared.records);
            let watched = ledger.processes.get(commuter.owner);
            let ticks = watched.map(|watched| watched.ticks);
            if !looking && ticks == commuter.ticks {
                return ticks.is_some();
            }
            (commuter.ticks, tried) = (ticks, true);
            // One that turned out to be in use stays where it is and may be promoted.
            let on_top = ledger.topology.is_top_tier(commuter.visit.home);
            let used = match on_top {
                true => records.idle.age(commuter.page) == 0,
                false => records.store.peek(commuter.page, now).is_some(),
            };
            // Its process may have come into a class that keeps its idle pages.
            let class = watched.map(|watched| watched.class);
            let may_leave = |class| idle_pages_leave(&shared.config, &shared.budgets, class);
            let kept = on_top && !class.is_some_and(may_leave);
            let out = ledger.visitors.is_out(commuter.page);
            if (out || (!used && !kept)) && self.commute(world, ledger, commuter) {
                commuter.alone_since = None;
                return true;
            }
            if ledger.visitors.is_out(commuter.page) {
                return true;
            }
            // Looking through fast memory in vain takes long.
            let in_vain = |at: Millis| now.since(at) < CHOICE_MS;
            if used && !kept && commuter.alone_since.is_some_and(in_vain) {
                return true;
            }
            // It is in use, was promoted or is gone, so nothing was flushed: another takes
            // its place at once, or the process's accesses stay hidden.
            let untried = used && !out;
            self.note_strays(shared);
            let next = choose_first(shared, commuter.owner, now);
            let Some(next) = next.filter(|next| untried || next.page != commuter.page) else {
                // All of fast memory that was looked at is in use. It will show when that ends.
                commuter.alone_since = Some(now);
                return on_top && untried && !kept;
            };
            *commuter = Commuter { ticks, ..next };
            self.commute(world, &mut shared.ledger, commuter)
        });
        self.note_strays(shared);
        self.commuters = commuters;
        // To find that nobody has run says nothing of what flushing costs.
        if tried {
            self.noted(world.own_cpu_ns().saturating_sub(before) / 1000);
        }
    }

    /// It has cost so much once more.
    fn noted(&mut self, cost_us: u64) {
        self.costs_us.rotate_right(1);
        self.costs_us[0] = cost_us;
    }

    /// What flushing costs: the middle one of the last times.
    fn cost_us(&self) -> u64 {
        let mut costs = self.costs_us;
        costs.sort_unstable();
        costs[1]
    }

    /// Tells the rest of the loop of pages that turned out to lie elsewhere.
    fn note_strays(&mut self, shared: &mut Shared) {
        let strays = self.strays.drain(..);
        let known = strays.filter(|(page, _)| shared.ledger.space.locate(*page).is_some());
        shared.moved.extend(known.map(|(page, way)| (page, 1, way)));
    }

    /// A pass clears all pages' bits, waits, and reads them in the same order: its
    /// middle lies between clearing and reading for every page. The first pass needs
    /// its flush, and so do those of a look that goes on; the second has one unless
    /// flushing is dear: what hides in it was seen once and would wait for the next look.
    fn look_flush_due(&self, observer: &Observer, now: Millis) -> bool {
        let first = observer.pass_ended <= observer.told_at;
        let began = observer.pass_ended.max(observer.told_at);
        // The search does not ask for more passes than it needs.
        let searching = observer.searching.is_some();
        let cheap = self.cost_us().saturating_mul(LOOK_FLUSH_SHARE) <= 1000 * observer.pass_ms;
        let needed = first || searching || cheap || observer.cadence.stretch() > 1;
        needed && self.flushed < began && now.since(began) >= observer.pass_ms / 2
    }

    /// Forgets the pages of a slot whose process is gone: another one may have
    /// it by now.
    pub fn forget(&mut self, owner: OwnerId) {
        self.commuters.retain(|commuter| commuter.owner != owner);
    }

    /// Brings home what is away, and flushes no more but what cannot go now: that is tried again with
    /// the next flush.
    pub fn recall(&mut self, world: &mut dyn World, ledger: &mut Ledger) {
        self.commuters.clear();
        for (page, visit) in ledger.visitors.iter().collect::<Vec<_>>() {
            let Some((owner, _)) = ledger.space.locate(page) else {
                continue;
            };
            let away = Commuter::new(owner, page, visit);
            self.commute(world, ledger, &away);
            if ledger.visitors.is_out(page) {
                self.commuters.push(away);
            }
        }
    }

    /// Brings home what is away, for good.
    pub fn end(&mut self, world: &mut dyn World, ledger: &mut Ledger) {
        self.recall(world, ledger);
        for _ in 1..LAST_TRIES {
            if ledger.visitors.is_empty() {
                break;
            }
            // Whoever holds a page does so for a moment.
            world.rest(LAST_PAUSE_MS);
            self.recall(world, ledger);
        }
    }

    /// Moves the page the other way; whether it went, and so may serve again.
    fn commute(&mut self, world: &mut dyn World, ledger: &mut Ledger, commuter: &Commuter) -> bool {
        let Some(watched) = ledger.processes.get(commuter.owner) else {
            return false;
        };
        let Some((_, first)) = ledger.space.locate(commuter.page) else {
            return false;
        };
        let page = commuter.page;
        let out = ledger.visitors.is_out(page);
        // What is away may go home: its process came into the class meanwhile.
        if !out && ledger.processes.is_paused(watched.class) {
            return false;
        }
        // It turned out to be hot and was promoted, or is gone: it has no home to
        // go back to any more.
        let place = ledger.placement.get(page);
        if !out && place.is_none_or(|place| place.node() != commuter.visit.home) {
            return false;
        }
        let one = PageRun {
            first,
            pages: 1,
            huge: false,
        };
        let target = match out {
            true => commuter.visit.home,
            false => commuter.visit.away,
        };
        // Its owner may have said otherwise since it was chosen. Home it goes unless that is
        // forbidden.
        let refused = match (watched.memory.may_move(first, target), out) {
            (Ok(()), _) => false,
            (Err(why), true) => matches!(why, Immovable::Mempolicy | Immovable::Cpuset),
            (Err(_), false) => true,
        };
        if refused {
            self.stays_away(ledger, commuter, out);
            return false;
        }
        self.settled.clear();
        world.move_pages(watched.process, target, &[one], HOW, &mut self.settled);
        let outcome = self.settled.first().map(|settled| settled.outcome);
        match outcome {
            Some(Outcome::AlreadyThere) if !out => {
                self.lies_at(ledger, page, target);
                false
            }
            Some(outcome) if outcome.is_there() => {
                match out {
                    true => _ = ledger.visitors.end(page),
                    false => ledger.visitors.begin(page, commuter.visit),
                }
                true
            }
            // It goes when whoever uses it has done so, or there is room.
            Some(Outcome::Busy | Outcome::NoMemory) => false,
            Some(Outcome::NotPresent | Outcome::ZeroOrUnmapped | Outcome::ProcessGone) => {
                ledger.visitors.end(page);
                false
            }
            _ => {
                self.stays_away(ledger, commuter, out);
                false
            }
        }
    }

    /// What may not go home stays where it is.
    fn stays_away(&mut self, ledger: &mut Ledger, commuter: &Commuter, out: bool) {
        if out {
            ledger.visitors.end(commuter.page);
            self.lies_at(ledger, commuter.page, commuter.visit.away);
        }
    }

    /// A page lies elsewhere than was known. Taken for a visitor, one that is home on fast memory by
    /// now would be sent to slow memory, whoever uses it.
    fn lies_at(&mut self, ledger: &mut Ledger, page: PageNumber, node: NodeId) {
        ledger.placement.set_run(page, 1, node, false);
        let way = match ledger.topology.is_top_tier(node) {
            true => Moved::Up,
            false => Moved::Down,
        };
        self.strays.push((page, way));
    }
}

/// Whether idle pages of `class` leave fast memory although there is room. Where they stay no page of it
/// commutes from there, not even for a moment.
fn idle_pages_leave(config: &TierConfig, budgets: &Budgets, class: Option<ClassId>) -> bool {
    config.idle.is_some() && budgets.tiered(class).demote_idle
}

/// The page of a process that is the first to commute, if any may.
fn choose_first(shared: &Shared, owner: OwnerId, now: Millis) -> Option<Commuter> {
    let Shared {
        ledger, records, ..
    } = shared;
    first_commuter(ledger, records, owner, now).or_else(|| {
        let class = ledger.processes.get(owner)?.class;
        idle_pages_leave(&shared.config, &shared.budgets, class)
            .then(|| fast_commuter(ledger, records, owner, now))?
    })
}

/// The first page of a process that can commute: on a lower tier, and free to go both
/// ways. One that is not known to be in use, if there is one.
fn first_commuter(
    ledger: &Ledger,
    records: &Records,
    owner: OwnerId,
    now: Millis,
) -> Option<Commuter> {
    let watched = ledger.processes.get(owner)?;
    if ledger.processes.is_paused(watched.class) {
        return None;
    }
    let (mut found, mut in_use) = (None, None);
    for section in ledger.space.sections_of(owner) {
        let first = PageNumber(u64::from(section) * SECTION_PAGES as u64);
        let visit = |first: PageNumber, pages, place: Place| {
            let home = place.node();
            if found.is_some() || place.huge() || place.stuck() {
                return;
            }
            if ledger.topology.is_top_tier(home) {
                return;
            }
            let Some(away) = ledger.topology.promotion_target(home) else {
                return;
            };
            for page in (first.0..first.0 + pages).map(PageNumber) {
                let used = records.store.peek(page, now).is_some();
                let may = |node| ledger.may_move(page, node).is_ok();
                let out = ledger.visitors.is_out(page);
                if out || used && in_use.is_some() || !may(away) || !may(home) {
                    continue;
                }
                let commuter = Commuter::new(owner, page, Visit { home, away });
                if used {
                    in_use = Some(commuter);
                } else {
                    found = Some(commuter);
                    break;
                }
            }
        };
        ledger.placement.runs(first, SECTION_PAGES as u64, visit);
        if found.is_some() {
            break;
        }
    }
    found.or(in_use)
}

/// A page of a process on the fast tier that can commute: one that was seen untouched,
/// of the [`ENOUGH_PAGES`] from a section on that time chooses.
fn fast_commuter(
    ledger: &Ledger,
    records: &Records,
    owner: OwnerId,
    now: Millis,
) -> Option<Commuter> {
    let watched = ledger.processes.get(owner)?;
    if ledger.processes.is_paused(watched.class) {
        return None;
    }
    let way = |home| Some((home, target_of(ledger, home, 0)?));
    let ways: Vec<(NodeId, NodeId)> = ledger.top_nodes().into_iter().filter_map(way).collect();
    let mut sections: Vec<u32> = ledger.space.sections_of(owner).collect();
    let turn = (now.0 / CHOICE_MS).checked_rem(sections.len() as u64)?;
    sections.rotate_left(turn as usize);
    let (mut found, mut seen) = (None, 0);
    for section in sections {
        let first = PageNumber(u64::from(section) * SECTION_PAGES as u64);
        let visit = |first: PageNumber, pages, place: Place| {
            let way = ways.iter().find(|(home, _)| *home == place.node());
            let movable = found.is_none() && !place.huge() && !place.stuck();
            let Some(&(home, away)) = way.filter(|_| movable) else {
                return;
            };
            seen += pages;
            let may =
                |page, node| ledger.may_move(page, node).is_ok() && !ledger.visitors.is_out(page);
            let mut pages = (first.0..first.0 + pages).map(PageNumber);
            let page = pages
                .find(|page| records.idle.age(*page) > 0 && may(*page, away) && may(*page, home));
            found = page.map(|page| Commuter::new(owner, page, Visit { home, away }));
        };
        ledger.placement.runs(first, SECTION_PAGES as u64, visit);
        if found.is_some() || seen >= ENOUGH_PAGES {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FAST, FakeProcess, FakeWorld, SLOW};
    use crate::world::Allowed;
    use memtide_core::tiering::space::VirtualPage;

    const OWNER: OwnerId = OwnerId(0);

    /// A process of ten slow pages, the first of which commutes.
    fn with_a_commuter() -> (FakeWorld, Ledger, Commuter) {
        let mut world = FakeWorld::two_tiers(100, 100);
        world.processes.push(FakeProcess::new(7, 1000, 10, SLOW));
        let mut ledger = Ledger::new(&world, 0);
        ledger.processes.refresh(&mut world, Millis(0)).unwrap();
        ledger.survey(&mut world, OWNER).unwrap();
        let page = ledger.space.find(OWNER, VirtualPage(1000)).unwrap();
        let (home, away) = (SLOW, FAST);
        (
            world,
            ledger,
            Commuter::new(OWNER, page, Visit { home, away }),
        )
    }

    /// A survey finds a page that is away elsewhere: that is not where it belongs.
    #[test]
    fn who_is_away_while_others_survey_comes_home() {
        let (mut world, mut ledger, commuter) = with_a_commuter();
        let mut flusher = Flusher::default();
        assert!(flusher.commute(&mut world, &mut ledger, &commuter));
        assert_eq!(world.process(7).on(FAST), 1);
        ledger.survey(&mut world, OWNER).unwrap();
        flusher.end(&mut world, &mut ledger);
        assert_eq!(world.process(7).on(FAST), 0);
    }

    /// What others moved or unmapped while it was away visits nobody any more.
    #[test]
    fn who_was_moved_by_others_is_no_visitor() {
        for node in [Some(SLOW), None] {
            let (mut world, mut ledger, commuter) = with_a_commuter();
            let mut flusher = Flusher::default();
            assert!(flusher.commute(&mut world, &mut ledger, &commuter));
            let pages = &mut world.processes[0].pages;
            match node {
                Some(node) => pages.insert(VirtualPage(1000), node),
                None => pages.remove(&VirtualPage(1000)),
            };
            ledger.survey(&mut world, OWNER).unwrap();
            assert!(ledger.visitors.is_empty());
        }
    }

    /// A flush that something else held up says little of what flushing costs.
    #[test]
    fn one_dear_flush_does_not_end_flushing() {
        let mut flusher = Flusher::default();
        for (cost_us, middle) in [(900, 0), (20_000, 900), (800, 900), (700, 800), (600, 700)] {
            flusher.noted(cost_us);
            assert_eq!(flusher.cost_us(), middle);
        }
    }

    #[test]
    fn who_cannot_go_home_now_goes_later() {
        let (mut world, mut ledger, commuter) = with_a_commuter();
        let mut flusher = Flusher::default();
        assert!(flusher.commute(&mut world, &mut ledger, &commuter));
        world.refuse.insert((7, VirtualPage(1000)), Outcome::Busy);
        flusher.recall(&mut world, &mut ledger);
        assert_eq!(world.process(7).on(FAST), 1);
        world.refuse.clear();
        flusher.recall(&mut world, &mut ledger);
        assert_eq!(world.process(7).on(FAST), 0);
    }

    /// A commuter that its owner binds meanwhile goes nowhere any more.
    #[test]
    fn a_commuter_stays_where_its_owner_wants_it() {
        let (mut world, mut ledger, commuter) = with_a_commuter();
        let mut flusher = Flusher::default();
        assert!(flusher.commute(&mut world, &mut ledger, &commuter));
        assert!(flusher.commute(&mut world, &mut ledger, &commuter));
        assert_eq!(world.process(7).on(FAST), 0, "out and home");
        let slow_only = Allowed::Nodes(Box::new([SLOW].into_iter().collect()));
        world.processes[0].memory.areas[0].allowed = slow_only;
        ledger.processes.reread(&mut world, OWNER).unwrap();
        assert!(!flusher.commute(&mut world, &mut ledger, &commuter));
        assert_eq!(world.process(7).on(FAST), 0);
    }
}
