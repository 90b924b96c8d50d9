//! The search at work: what it is told of memory, and what it has the source do.
//!
//! A source that completes passes and offers glances is driven by a [`Search`]
//! once there is more slow memory than one look takes in, or than can be looked at: on a busy machine
//! a pass over all of it may cost more than can be saved up. Else the core's
//! cadence looks at all of it.
//!
//! Whether pages of the fast tier are idle is seen by glances, too. Their
//! *stretches* go along with whatever the search has the source glance at.

use super::demoter::{self, Demoter};
use super::exchange::{self, Wanted};
use super::look_cost::LookCost;
use super::observer::{FIRST_PASS_MS, Observer, STRETCHES_MS, room_is_scarce};
use super::shared::Shared;
use super::singles::{Pages, Rest, Singles, parts_beside};
use super::subjects;
use crate::ledger::{Ledger, SECTIONS, Watched};
use crate::random::Random;
use crate::search::{self, Config, Memory, Order, Plan, Search, Span, UnitCosts, View, Watch};
use crate::world::{self, Backing, ProcessId, Subject, World, WorldError};
use memtide_core::pages::Folio;
use memtide_core::promotion::Moved;
use memtide_core::tiering::cadence::Observe;
use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::Millis;
use std::collections::BTreeMap;

/// How long a source that cost nothing of late is not asked what it cost, in ms.
const ACCOUNT_MS: u64 = 1_000;
/// Spans that a source is told at once, at most.
const SPANS: usize = 4_096;
/// Makes its random numbers others than the observer's.
const SEED: u64 = 0x7374_7265_7463_6865;
/// How often it is judged anew what room classes have and what is idle, in ms. It takes time by the
/// pages of fast memory and by the processes.
const ROOM_MS: u64 = 2_000;

/// A search that was begun because looks were dear ends when they cost no more than one part in so many of what
/// made them so: a machine is busy now and then.
const CHEAP_PART: f64 = 2.0;
/// And not before it has gone on for so long, in ms.
const DEAR_MS: u64 = 60_000;

/// What else than free memory says whether hot pages have room.
#[derive(Clone, Copy, Debug)]
struct Room {
    at: Millis,
    /// Pages of fast memory that are idle: they make room.
    idle_pages: u64,
    /// Whether half of all slow pages, or more, are of classes that are tight: until they are less than
    /// three eighths. Where they are fewer, the others have room, and must be found.
    mostly_tight: bool,
}

impl Room {
    /// Judged after it was `mostly_tight` or not.
    fn of(shared: &Shared, mostly_tight: bool, now: Millis) -> Room {
        let idle_pages = demoter::idle_pages(&shared.config, &shared.records, now);
        let mut room = Room {
            at: now,
            idle_pages,
            mostly_tight: false,
        };
        if !shared.budgets.any_tight() {
            return room;
        }
        let (mut tight, mut all) = (0, 0);
        for watched in shared.ledger.processes.iter() {
            let (_, slow) = shared.ledger.resident_of(watched.owner);
            all += slow;
            if shared.budgets.is_tight(watched.class) {
                tight += slow;
            }
        }
        let eighths = if mostly_tight { 3 } else { 4 };
        room.mostly_tight = tight > 0 && 8 * tight >= eighths * all;
        room
    }
}

/// What is glanced at beside what the search wants.
#[derive(Clone, Copy, Debug)]
struct Beside {
    owner: OwnerId,
    process: ProcessId,
    part: world::Span,
    /// What a single page stands for; `None` of a stretch.
    rest: Option<Rest>,
}

/// The search and where its orders stand.
#[derive(Debug)]
pub(super) struct Searching {
    pub search: Search,
    cuts: bool,
    /// What the source glances at for the search, and how.
    glance: Vec<Subject>,
    piece: u64,
    interval_ms: u64,
    /// When it was told to.
    pub glance_told_at: Millis,
    stretches: Vec<Subject>,
    /// Pages that stand for what is in none of these, nor in what the search wants.
    pub singles: Singles,
    stretched: Option<Millis>,
    room: Option<Room>,
    random: Random,
    /// Our own processor time that orders took, not yet charged.
    own_ns: u64,
    accounted: Millis,
    /// Whether a pass ended since it was asked what it cost.
    pub passed: bool,
    promised: bool,
    advised: bool,
    /// Since when looks at all of slow memory are dear, if it was begun for that.
    dear_since: Option<Millis>,
}

impl Searching {
    /// A search for `observer`'s source, if this is a source for it; it knows of
    /// all memory that `shared` does.
    pub fn begin(
        observer: &Observer,
        world: &mut dyn World,
        shared: &Shared,
        now: Millis,
    ) -> Option<Searching> {
        let abilities = observer.abilities;
        if !abilities.passes || !abilities.glances {
            return None;
        }
        let (config, ledger) = (&shared.config, &shared.ledger);
        let cuts = world.cuts(observer.source);
        // Looks at all of slow memory do not find what of fast memory is colder.
        let lower = ledger.lower_pages();
        let is_dear = observer.looks_are_dear(lower);
        let is_small = lower <= config.look_pages && !is_dear;
        if is_small && !observer.exchange.is_starved(now) {
            return None;
        }
        let mut search = Search::new(
            Config {
                permille: config.cadence.share_permille,
                // Programs that use a page all the time may not do so in each 50 ms.
                interval_ms: (2 * config.look_every_ms, 20 * config.look_every_ms),
                look_pages: config.look_pages,
                keeps: abilities.keeps.unwrap_or(u64::MAX),
                spans: SPANS,
                sections: SECTIONS,
                block_pages: (search::BLOCK_PAGES / config.page_weight).max(1),
                cuts,
                round_ms: config.cadence.look_every_ms,
                costs: UnitCosts {
                    page: config.page_cost as f64,
                    span: 25.0,
                    ..UnitCosts::default()
                },
                ..Config::default()
            },
            now,
        );
        search.hold_at_most(observer.cadence.credit_us());
        if observer.is_looking() {
            // Its passes would go on, and be paid for, until the first look of the search.
            search.inherits_look();
        }
        let mut searching = Searching {
            search,
            cuts,
            glance: Vec::new(),
            piece: 1,
            interval_ms: config.glance_every_ms,
            glance_told_at: now,
            stretches: Vec::new(),
            singles: Singles::new(config.seed),
            stretched: None,
            room: None,
            random: Random::new(config.seed ^ SEED),
            own_ns: 0,
            accounted: now,
            passed: false,
            promised: false,
            advised: false,
            dear_since: is_dear.then_some(now),
        };
        for watched in ledger.processes.iter() {
            searching.tell_memory(ledger, watched);
        }
        Some(searching)
    }

    /// Tells the search where `watched`'s slow pages are.
    pub fn tell_memory(&mut self, ledger: &Ledger, watched: &Watched) {
        let mut memory: Vec<Memory> = Vec::new();
        for area in &watched.memory.areas {
            let mut runs: Vec<Run> = Vec::new();
            subjects::runs_of_area(ledger, watched.owner, area, &mut runs, |place| {
                !ledger.topology.is_top_tier(place.node()) && !place.stuck()
            });
            let object = |run: &Run| {
                let backing = area.backing.as_ref()?;
                Some((key(backing), backing.first + (run.first.0 - area.first.0)))
            };
            memory.extend(runs.iter().map(|run| Memory {
                run: *run,
                object: object(run),
            }));
        }
        self.search.set_memory(watched.owner, &memory);
    }

    /// Has the source do what the search wants next.
    pub fn follow(
        &mut self,
        observer: &mut Observer,
        world: &mut dyn World,
        shared: &mut Shared,
        now: Millis,
    ) -> Result<(), WorldError> {
        let ledger = &shared.ledger;
        let mut unseen = Vec::new();
        for (page, pages, way) in shared.moved.drain(..) {
            let Some((owner, first)) = ledger.space.locate(page) else {
                continue;
            };
            let span = Span {
                owner,
                first,
                pages,
            };
            match way {
                Moved::Up => self.search.left(span),
                Moved::Down => {
                    self.search.came(span);
                    // Nobody knows yet whether it is in use.
                    if shared.records.recent.left_in_use(page) {
                        unseen.push(span);
                    }
                }
            }
        }
        if !unseen.is_empty() {
            self.search.should_see(&unseen);
        }
        if std::mem::take(&mut observer.look_wanted) {
            self.search.wake_up();
        }
        let wait = observer.look_must_wait(ledger, now);
        // One that waits saves up for a contest.
        let saves = observer.exchange.is_due(now) && self.search.knows_costs();
        self.search.looks_wait(wait || saves);
        let was_tight = self.room.is_some_and(|room| room.mostly_tight);
        let room = self.room.filter(|of| now.since(of.at) < ROOM_MS);
        let room = room.unwrap_or_else(|| Room::of(shared, was_tight, now));
        self.room = Some(room);
        let short = room_is_short(ledger) || room.mostly_tight;
        self.search
            .room_is(ledger.top_room() + room.idle_pages, short);
        let before = world.own_cpu_ns();
        let Plan { look, glance } = self.search.plan(now);
        self.look(observer, world, shared, look, now)?;
        self.glance(observer, world, shared, glance, now)?;
        self.own_ns += world.own_cpu_ns().saturating_sub(before);
        Ok(())
    }

    /// Has the source look at both tiers for the exchange, if it waits for that and the search lends
    /// its look.
    fn look_for_exchange(
        &mut self,
        observer: &mut Observer,
        demoter: &mut Demoter,
        world: &mut dyn World,
        shared: &Shared,
        now: Millis,
    ) -> Result<(), WorldError> {
        if !self.search.is_lent() {
            observer.exchange.drop_look(now);
        }
        let Some(lent) = self.search.lends() else {
            return Ok(());
        };
        let (wanted, pass_ms) = observer.exchange.wants(lent, now);
        let before = world.own_cpu_ns();
        let mut subjects = match wanted {
            Wanted::Nothing => return Ok(()),
            Wanted::Contest(most) => {
                let piece = (search::BLOCK_PAGES / shared.config.page_weight).max(1);
                let folios = demoter.draw_for_contest(shared, most, piece, now);
                let subjects = exchange::subjects(&shared.ledger, &folios);
                observer.exchange.holds(folios, subjects.clone(), now);
                subjects
            }
            Wanted::Judgement(subjects) => {
                let is_on_top = |folio: Folio| demoter::is_on_top(&shared.ledger, folio.first);
                observer.exchange.judges(is_on_top, now);
                subjects
            }
        };
        // Another process may have its number by now.
        subjects.retain(|of| {
            let watched = shared.ledger.processes.get(of.owner);
            watched.is_some_and(|watched| watched.process == of.process)
        });
        let pages: u64 = subjects.iter().map(Subject::pages).sum();
        let spans: usize = subjects.iter().map(|of| of.spans.len()).sum();
        if pages > 0 {
            observer.told = Some(Observe::Look);
            observer.told_at = now;
            let taken = world.look(observer.source, &subjects, pass_ms)?;
            self.search.lend(spans as u64, pages, pass_ms, now);
            if taken < pages {
                // Silence about the rest would mean nothing.
                world.look(observer.source, &[], pass_ms)?;
                self.search.abandon(View::Look);
            }
        }
        self.own_ns += world.own_cpu_ns().saturating_sub(before);
        Ok(())
    }

    fn look(
        &mut self,
        observer: &mut Observer,
        world: &mut dyn World,
        shared: &Shared,
        order: Order,
        now: Millis,
    ) -> Result<(), WorldError> {
        match order {
            Order::Keep => {}
            Order::Finish => world.finish_view(observer.source, world::View::Look)?,
            Order::Stop => {
                observer.told = Some(Observe::Glance);
                world.look(observer.source, &[], self.interval_ms)?;
            }
            Order::Begin(watch) => {
                let subjects = by_process(&shared.ledger, &watch);
                observer.told = Some(Observe::Look);
                observer.told_at = now;
                observer.pass_ms = self.search.least_look_pass_ms();
                let taken = world.look(observer.source, &subjects, watch.interval_ms)?;
                let asked: u64 = subjects.iter().map(Subject::pages).sum();
                if taken < asked.max(1) {
                    // Silence about the rest would mean nothing.
                    world.look(observer.source, &[], watch.interval_ms)?;
                    self.search.takes_at_most(taken);
                }
            }
        }
        Ok(())
    }

    fn glance(
        &mut self,
        observer: &mut Observer,
        world: &mut dyn World,
        shared: &Shared,
        order: Order,
        now: Millis,
    ) -> Result<(), WorldError> {
        if order == Order::Finish {
            // What it is told of stays what it was: the last reports are of that.
            return world.finish_view(observer.source, world::View::Glance);
        }
        // Where others begin, what is at work ends first, and that takes long.
        if self.search.look_needs_a_reader(now) {
            if order == Order::Stop {
                self.glance.clear();
                self.stretches.clear();
                self.stretched = None;
                observer.stretches.clear();
                self.search.glances_beside(0);
                return world.glance(observer.source, &[], self.interval_ms);
            }
            return Ok(());
        }
        // Those chosen last are what the source is at work on: others are chosen
        // only when it is told anew.
        let anew = match order {
            Order::Keep if !self.glance.is_empty() => return Ok(()),
            _ => self.choose_stretches(observer, shared, now),
        };
        match order {
            Order::Keep if !anew => return Ok(()),
            Order::Keep | Order::Finish => {}
            Order::Stop => self.glance.clear(),
            Order::Begin(watch) => {
                self.glance = by_process(&shared.ledger, &watch);
                self.piece = watch.grain;
                self.interval_ms = watch.interval_ms;
                if self.glance.is_empty() {
                    self.search.abandon(View::Glance);
                }
            }
        }
        self.singles
            .draw(shared, &self.stretches, &self.search, now);
        let subjects = self.with_stretches(observer, &shared.ledger);
        self.glance_told_at = now;
        if self.cuts && !self.glance.is_empty() {
            world.glance_in_pieces(observer.source, &subjects, self.piece, self.interval_ms)
        } else {
            world.glance(observer.source, &subjects, self.interval_ms)
        }
    }

    /// Chooses stretches if they are needed and it is time; whether they are
    /// others than before.
    fn choose_stretches(&mut self, observer: &mut Observer, shared: &Shared, now: Millis) -> bool {
        let wanted = shared.budgets.any_tight() || shared.config.idle.is_some();
        let scarce = room_is_scarce(&shared.ledger) || wanted;
        let due = |at: Millis| now.since(at) >= STRETCHES_MS;
        if scarce && self.stretched.is_none_or(due) {
            self.stretched = Some(now);
            let mut stretches = observer.glance_subjects(shared, Observe::Look);
            self.leave_out(&mut stretches);
            let anew = stretches != self.stretches;
            self.stretches = stretches;
            return anew;
        }
        let anew = !scarce && !self.stretches.is_empty();
        if anew {
            observer.stretches.clear();
            self.stretches.clear();
            self.stretched = None;
        }
        anew
    }

    /// Leaves as many of `stretches` as the budget pays for. The others have their turn later, each as
    /// likely as any other; until then all that is known of idle pages is of these.
    fn leave_out(&mut self, stretches: &mut [Subject]) {
        let mut left: u64 = stretches.iter().map(|of| of.spans.len() as u64).sum();
        let mut wanted = self.search.affords_beside(self.interval_ms).min(left);
        for subject in stretches {
            subject.spans.retain(|_| {
                let takes = self.random.below(left) < wanted;
                left -= 1;
                wanted -= u64::from(takes);
                takes
            });
        }
    }

    /// What the search has the source glance at, the stretches, and single pages.
    fn with_stretches(&mut self, observer: &mut Observer, ledger: &Ledger) -> Vec<Subject> {
        let beside = self.beside(ledger);
        self.search.glances_beside(beside.len() as u64);
        let mut subjects = self.glance.clone();
        // What is not told any more would look idle.
        observer.stretches.clear();
        let mut told = [Pages::new(), Pages::new()];
        for Beside {
            owner,
            process,
            part,
            rest,
        } in beside
        {
            if let Some(rest) = rest {
                told[rest as usize].insert((owner, part.first));
            }
            if rest != Some(Rest::Slow) {
                let stretch = (part.pages, false);
                observer.stretches.insert((owner, part.first), stretch);
            }
            let span = self.one_piece(part);
            match subjects.iter_mut().find(|subject| subject.owner == owner) {
                Some(subject) => subject.spans.push(span),
                None => subjects.push(Subject {
                    owner,
                    process,
                    spans: vec![span],
                }),
            }
        }
        for subject in &mut subjects {
            subject.spans.sort_unstable_by_key(|span| span.first);
        }
        self.singles.are_told(told);
        subjects.retain(|subject| !subject.spans.is_empty());
        subjects
    }

    /// What stands for all of `part` in a glance, which sees one page of it: of a source that cuts one
    /// piece, as it would see a page of each.
    fn one_piece(&mut self, part: world::Span) -> world::Span {
        if !self.cuts || self.glance.is_empty() || part.pages <= self.piece {
            return part;
        }
        let from = self.random.below(part.pages - self.piece + 1);
        world::Span {
            first: VirtualPage(part.first.0 + from),
            pages: self.piece,
        }
    }

    /// The stretches and single pages. None overlaps another, nor what the search glances at: of one
    /// that overlaps what was there before it, the longest part beside that remains, and what is left
    /// out of it is not taken for idle.
    fn beside(&self, ledger: &Ledger) -> Vec<Beside> {
        let mut taken: BTreeMap<OwnerId, Vec<world::Span>> = BTreeMap::new();
        for subject in &self.glance {
            taken.insert(subject.owner, subject.spans.clone());
        }
        let mut beside = Vec::new();
        let walks = !self.glance.is_empty() && self.search.walks();
        let stretches = self.stretches.iter().map(|of| (of, None));
        let singles = [Rest::Fast, Rest::Slow].map(|rest| {
            // Beside what is no part of the walk over all memory they say nothing.
            let drawn = self.singles.drawn(rest).iter().filter(move |_| walks);
            drawn.map(move |of| (of, Some(rest)))
        });
        for (of, rest) in stretches.chain(singles.into_iter().flatten()) {
            let Subject { owner, process, .. } = *of;
            let watched = ledger.processes.get(owner);
            // Another one may have its number by now.
            if watched.is_none_or(|watched| watched.process != process) {
                continue;
            }
            let taken = taken.entry(owner).or_default();
            let longest = |span: &world::Span| {
                let parts = parts_beside(taken, *span).into_iter();
                parts.max_by_key(|part| part.pages)
            };
            let own: Vec<world::Span> = of.spans.iter().filter_map(longest).collect();
            beside.extend(own.iter().map(|part| Beside {
                owner,
                process,
                part: *part,
                rest,
            }));
            taken.extend(own);
            taken.sort_unstable_by_key(|span| span.first);
        }
        beside
    }

    /// Charges what observing has cost since the last call.
    pub fn account(&mut self, observer: &mut Observer, world: &mut dyn World, now: Millis) {
        if !self.passed && now.since(self.accounted) < ACCOUNT_MS {
            return;
        }
        self.passed = false;
        self.accounted = now;
        let pass_us = observer.newly_spent_ns(world) / 1000;
        let tell_us = std::mem::take(&mut self.own_ns) / 1000;
        self.search.spent(pass_us, tell_us, now);
    }

    /// Stops the source where its look is over and pages that it found are about to move.
    pub fn stop_spent_look(
        &mut self,
        observer: &mut Observer,
        world: &mut dyn World,
    ) -> Result<(), WorldError> {
        if !self.search.look_is_spent() {
            return Ok(());
        }
        let before = world.own_cpu_ns();
        observer.told = Some(Observe::Glance);
        world.look(observer.source, &[], self.interval_ms)?;
        self.own_ns += world.own_cpu_ns().saturating_sub(before);
        Ok(())
    }

    /// What the budget buys, once that is known and if it is worth telling:
    /// where all slow pages fit into a look, it is soon.
    pub fn promise(&mut self, shared: &Shared) -> Option<String> {
        let large = self.search.pages() > shared.config.look_pages;
        if self.promised || !large || !self.search.knows_costs() {
            return None;
        }
        self.promised = true;
        Some(self.search.promise().to_string())
    }
}

/// What a page of a page-table scan costs at most, as a part of what the source that is
/// searched with takes for one: a hundredth was measured on an emulated processor.
const SCAN_PART: f64 = 0.05;
/// Nobody is told of another source for less, in s.
const WORTH_TELLING_S: f64 = 60.0;
/// How long a scan takes beside its processor time, in s.
const SCAN_S: f64 = 2.0;

impl Searching {
    /// Once, if hot pages were found to be scattered and seeing all of them takes long:
    /// which source would find them soon.
    pub fn advise(&mut self, shared: &Shared, source: &str) -> Option<String> {
        if self.advised || !self.search.finds_scattered() {
            return None;
        }
        let promise = self.search.promise();
        if promise.cover_s < WORTH_TELLING_S {
            return None;
        }
        self.advised = true;
        let cadence = shared.config.cadence;
        let scan_us = 2.0 * promise.pages as f64 * promise.page_us * SCAN_PART;
        let saved_us = (cadence.burst_us as f64).min(scan_us);
        let earned_s = (scan_us - saved_us) / (1000.0 * f64::from(promise.permille.max(1)));
        let scan_s = SCAN_S + scan_us / 1e6 + earned_s;
        Some(format!(
            "hot pages are scattered: {source} sees every page of {} within {}; \
             source page-table would find them within {}, at a price (docs/sources.md)",
            search::Size(promise.pages),
            search::Time(promise.cover_s),
            search::Time(scan_s),
        ))
    }
}

/// Room is short where fast nodes can take no more than one page in so many, of those that are
/// slow or that they have room for.
const ROOM_PART: u64 = 64;

fn room_is_short(ledger: &Ledger) -> bool {
    let room = ledger.top_room();
    let fast = ledger.resident(true) + room;
    room * ROOM_PART <= ledger.lower_pages().min(fast)
}

/// What `watch` names, process by process.
fn by_process(ledger: &Ledger, watch: &Watch) -> Vec<Subject> {
    let of_one = |spans: &[Span]| {
        let watched = ledger.processes.get(spans[0].owner)?;
        let span = |span: &Span| world::Span {
            first: span.first,
            pages: span.pages,
        };
        Some(Subject {
            owner: watched.owner,
            process: watched.process,
            spans: spans.iter().map(span).collect(),
        })
    };
    let owners = watch.spans.chunk_by(|a, b| a.owner == b.owner);
    owners.filter_map(of_one).collect()
}

/// One number for what a mapping maps.
fn key(backing: &Backing) -> u64 {
    let (a, b) = backing.object;
    a.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ b
}

impl Observer {
    /// Begins to search, if that is the way here and was not yet.
    pub fn take_up_search(&mut self, world: &mut dyn World, shared: &Shared, now: Millis) {
        if self.searching.is_none() {
            self.searching = Searching::begin(self, world, shared, now);
        }
    }

    /// Begins to search where looks turn out to be dear, and ends such a search when they would be cheap.
    pub fn weigh_search(&mut self, world: &mut dyn World, shared: &Shared, now: Millis) {
        let lower = shared.ledger.lower_pages();
        match &self.searching {
            None if self.looks_are_dear(lower) => self.take_up_search(world, shared, now),
            Some(searching) if !self.exchange.is_starved(now) => {
                let pass_us = searching.search.look_us(lower);
                let is_cheap = pass_us * CHEAP_PART < shared.config.cadence.burst_us as f64;
                let knows = is_cheap && searching.search.knows_costs();
                let long = |since: Millis| now.since(since) >= DEAR_MS;
                if knows && searching.dear_since.is_some_and(long) {
                    self.give_up_search(shared, now);
                }
            }
            _ => {}
        }
    }

    /// Who starved may have room now: ends a search that was begun for them, where looks at all of slow memory are
    /// not dear.
    pub fn nobody_starves(&mut self, shared: &Shared, now: Millis) {
        let searching = self.searching.as_ref();
        if searching.is_some_and(|searching| searching.dear_since.is_none()) {
            self.give_up_search(shared, now);
        }
    }

    /// Ends a search that looks at all of slow memory can do without.
    fn give_up_search(&mut self, shared: &Shared, now: Millis) {
        if shared.ledger.lower_pages() > shared.config.look_pages {
            return;
        }
        self.drop_search(now);
        // What the search looked at was smaller.
        self.pass_ms = self.pass_ms.max(FIRST_PASS_MS);
        self.cadence.begin_anew();
    }

    /// The source is to be told anew what to observe, and by no search: what that had not spent is all there is.
    pub fn drop_search(&mut self, now: Millis) {
        if let Some(searching) = self.searching.take() {
            self.cadence.hold_at_most(now, searching.search.credit_us());
        }
        self.stretches.clear();
        self.told = None;
        self.look_cost = LookCost::default();
    }

    /// Has the source do what the search wants next. Nothing without one.
    pub fn follow_search(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        demoter: &mut Demoter,
        now: Millis,
    ) -> Result<(), WorldError> {
        let Some(mut searching) = self.searching.take() else {
            return Ok(());
        };
        let looked = searching.look_for_exchange(self, demoter, world, shared, now);
        let followed = looked.and_then(|()| searching.follow(self, world, shared, now));
        self.searching = Some(searching);
        followed
    }

    /// Stops a look of the search that is over. Nothing without one.
    pub fn stop_spent_look(&mut self, world: &mut dyn World) -> Result<(), WorldError> {
        let Some(mut searching) = self.searching.take() else {
            return Ok(());
        };
        let stopped = searching.stop_spent_look(self, world);
        self.searching = Some(searching);
        stopped
    }

    /// Tells the search what observing has cost.
    pub fn account_search(&mut self, world: &mut dyn World, now: Millis) {
        if let Some(mut searching) = self.searching.take() {
            searching.account(self, world, now);
            self.searching = Some(searching);
        }
    }

    /// Tells the search of memory that was surveyed, or went with its process.
    pub fn tell_search(&mut self, ledger: &Ledger, surveyed: &[OwnerId], went: &[OwnerId]) {
        let Some(searching) = &mut self.searching else {
            return;
        };
        for owner in went {
            searching.search.remove(*owner);
        }
        for owner in surveyed {
            if let Some(watched) = ledger.processes.get(*owner) {
                searching.tell_memory(ledger, watched);
            }
        }
    }
}
