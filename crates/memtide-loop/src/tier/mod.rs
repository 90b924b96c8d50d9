//! The loop that keeps pages on the tiers where they belong.
//!
//! One [`Tierer::step`] is one turn: refresh what is known, tell the source what
//! to observe, wait, record what was touched, let the core decide, move, note
//! what became of it. Each part has its own state:
//!
//! - [`refresh`] keeps the [`Ledger`](crate::ledger::Ledger) up to date: processes and where pages lie;
//! - [`observer`] says what the source is to look at, and [`choice`] which pages
//!   a look takes in that cannot take all;
//! - [`searching`] lets a [`Search`](crate::search::Search) drive a source that can do what that needs;
//! - [`look_cost`] says what looks cost, and so when the search takes over;
//! - [`listeners`] hears sources that tell of single accesses;
//! - [`broken`] goes on without sources that broke, and remembers what they had cost;
//! - [`flusher`] makes accesses show that processors hide;
//! - [`intake`] turns reports into [`Records`](crate::records::Records);
//! - [`promoter`] and [`demoter`] decide with the core, and [`exchange`] has colder pages make way for
//!   hotter ones where none is idle;
//! - [`idle`] has pages leave that nobody touched for long;
//! - [`budgets`] knows what classes of processes may have of fast memory, [`class_count`] what each
//!   uses of it, and [`losses`] what one choice of pages takes from them;
//! - [`fairness`] knows how well fast memory serves each class;
//! - [`pressed`] knows whether programs wait for memory;
//! - [`latency`] knows how late nodes answer, and [`account`] what promotion won and cost;
//! - [`page`] says of one page why it is where it is;
//! - [`shared`] is what all of them know, and carries out what they decide, for so long at a time
//!   ([`moving_time`]).
//!
//! The order of things is here. What a world adds is that everything can fail:
//! processes end, memory is unmapped, pages will not move, a source breaks.

mod account;
mod broken;
mod budgets;
pub mod choice;
mod class_count;
mod config;
mod demoter;
mod exchange;
mod explain;
mod fairness;
mod flusher;
mod follow;
mod idle;
mod intake;
mod latency;
mod listeners;
mod look_cost;
mod losses;
mod making_way;
mod moving_time;
mod observer;
mod page;
mod pressed;
mod processes;
mod promoter;
mod refresh;
mod searching;
mod shared;
mod singles;
mod subjects;

#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod fairness_tests;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod listeners_tests;
#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod pressed_tests;
#[cfg(test)]
mod shares_tests;
#[cfg(test)]
mod slow_machine_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiered_tests;

pub use budgets::Class;
pub use config::{IdleRule, TierConfig};
pub use shared::RETURN_MS;

use crate::report::{
    ClassStatus, Event, PageReport, ProcessOrder, ProcessStatus, Reporter, Status, TierStatus,
};
#[cfg(any(test, feature = "testing"))]
use crate::world::ProcessId;
use crate::world::{Came, World, WorldError};
use account::Used;
use broken::Broken;
use demoter::Demoter;
use flusher::Flusher;
use idle::Leaver;
use intake::Digest;
use listeners::Listeners;
use making_way::Turn;
use memtide_core::access;
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::tiering::cadence::Observe;
use memtide_core::tiering::space::OwnerId;
#[cfg(any(test, feature = "testing"))]
use memtide_core::tiering::space::VirtualPage;
#[cfg(any(test, feature = "testing"))]
use memtide_core::units::NodeId;
use memtide_core::units::{Millis, PageNumber};
use memtide_core::vmstat::Counter;
use observer::{Observer, main_source};
use promoter::Promoter;
use refresh::Refresh;
use shared::Shared;
use std::time::Duration;

/// How often is decided without news, in ms.
const DECIDE_MS: u64 = 2000;
/// How often room is looked for while hot pages wait for it, in ms.
const RETRY_MS: u64 = 100;
/// The longest wait of a turn while there are more pages to move than a turn moves, in ms.
const MOVING_MS: u64 = 1;
/// The longest wait of a turn while sources tell of single accesses, in ms.
const LISTEN_MS: u64 = 100;
/// The wait of a turn without any source, in ms: nothing can be decided.
const RESTING_MS: u64 = 1000;
/// When one page in so many of slow memory came to it lately, they should be seen: as
/// idle ones they were taken by samples.
const UNSEEN_PART: u64 = 16;
/// How often pages that commute are chosen anew, in ms.
const CHOOSE_MS: u64 = 10_000;

/// The loop. See the module's essay.
#[derive(Debug)]
pub struct Tierer {
    shared: Shared,
    refresh: Refresh,
    observer: Observer,
    listeners: Listeners,
    broken: Broken,
    flusher: Flusher,
    promoter: Promoter,
    demoter: Demoter,
    leaver: Leaver,
    came: Came,
    /// Whether a page became ready since the last decision.
    news: bool,
    decided: Millis,
    /// Pages that had been demoted when it was last asked that they be seen.
    demoted: u64,
    /// When pages that commute were chosen last for the search.
    commuters_chosen: Option<Millis>,
}

impl Tierer {
    /// A loop over `world`. Of its sources that complete passes it has one look, the
    /// first; the others take over from one that breaks. Those that tell of single
    /// accesses it hears all at once.
    pub fn new(world: &mut dyn World, config: TierConfig) -> Tierer {
        let now = world.now();
        let shared = Shared::new(world, config);
        let config = &shared.config;
        let (main, share) = (main_source(world), config.cadence.share_permille);
        Tierer {
            refresh: Refresh::default(),
            observer: Observer::new(world, main, config, now),
            listeners: Listeners::new(world, main, share, config.sample_rate, now),
            broken: Broken::default(),
            flusher: Flusher::default(),
            promoter: Promoter::new(config, &shared.ledger),
            demoter: Demoter::new(config),
            leaver: Leaver::new(config, now),
            came: Came::default(),
            news: false,
            decided: now,
            demoted: 0,
            commuters_chosen: None,
            shared,
        }
    }

    /// One turn, which waits for something to happen, at most a second. Returns
    /// whether any managed process is left.
    ///
    /// # Errors
    ///
    /// What ends the run. A source that broke does not, if there is another.
    pub fn step(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<bool, WorldError> {
        match self.turn(world, reporter) {
            Ok(()) => {}
            Err(WorldError::Source { source_id, what }) => {
                self.go_on_without(world, source_id, what, reporter)?;
            }
            Err(error) => return Err(error),
        }
        Ok(!self.shared.ledger.processes.is_empty())
    }

    /// Has the sources that tell of single accesses do so.
    fn listen(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        if self.listeners.is_empty() {
            return Ok(());
        }
        let now = world.now();
        let looks = self.observer.abilities.passes;
        let ledger = &self.shared.ledger;
        let left = self.listeners.follow(world, ledger, looks, now, reporter)?;
        if let Some(permille) = left.filter(|_| looks) {
            self.observer.set_share(now, permille);
        }
        Ok(())
    }

    fn turn(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let hurry = !self.shared.budgets.is_empty() && self.shared.budgets.hurry(self.decided);
        let waiting = self.promoter.pages_wait() || hurry;
        let patience_ms = match self.listeners.is_empty() {
            true if world.sources().is_empty() => RESTING_MS,
            true => self.observer.patience_ms(waiting),
            // Their buffers fill up, and what they tell is worth something now.
            false => self.observer.patience_ms(waiting).min(LISTEN_MS),
        };
        // What takes long waits: a pass that is lost meanwhile is paid for all the same.
        let in_haste = self.observer.needs_a_reader(world.now());
        let patience_ms = match self.promoter.more && !in_haste {
            true => patience_ms.min(MOVING_MS),
            false => patience_ms,
        };
        let patience_ms = match self.reads_latencies(world) {
            true => patience_ms.min(self.shared.latencies.every_ms()),
            false => patience_ms,
        };
        self.refresh.expire(&mut self.shared.records, world.now());
        if !in_haste || self.refresh.is_owed() {
            self.bring_up_to_date(world, reporter)?;
        }
        self.listen(world, reporter)?;
        if self.observer.searching.is_some() {
            self.search(world, reporter)?;
        } else {
            self.shared.moved.clear();
            self.tell_source(world, reporter)?;
        }
        if !self.shared.config.dry_run {
            let now = world.now();
            let shared = &mut self.shared;
            self.flusher.flush(world, shared, &self.observer, now);
        }
        self.came.clear();
        let due_ms = self.observer.search_due_ms(world.now());
        world.wait(patience_ms.min(due_ms), &mut self.came)?;
        let now = world.now();
        for notice in &self.came.notices {
            let text = notice.to_string();
            reporter.event(now, Event::Notice { text });
        }
        let invalid = &self.came.invalid;
        self.listeners.tell_invalid(invalid, now, reporter);
        if self.observer.searching.is_some() {
            self.digest(world, now, reporter);
            self.observer.account_search(world, now);
            self.observer.weigh_search(world, &self.shared, now);
            self.observer.stop_spent_look(world)?;
            return self.decide(world, reporter);
        }
        self.observer.account(world, now);
        self.digest(world, now, reporter);
        self.observer.end_look(world, &self.shared.config, now)?;
        self.decide(world, reporter)?;
        let now = world.now();
        self.observer.weigh_search(world, &self.shared, now);
        match self.observer.searching {
            Some(_) => Ok(()),
            None => self.observer.stretch_look(world, &self.shared, now),
        }
    }

    fn bring_up_to_date(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let news = self.refresh.run(world, &mut self.shared, reporter)?;
        self.read_latencies(world, reporter)?;
        let ledger = &self.shared.ledger;
        self.observer
            .tell_search(ledger, &news.surveyed, &news.went);
        if news.refreshed {
            self.audit(world, &news.went, reporter)?;
        }
        for owner in &news.went {
            self.flusher.forget(*owner);
        }
        let (budgets, dry_run) = (&mut self.shared.budgets, self.shared.config.dry_run);
        if budgets.read(world, dry_run, reporter)? && self.observer.searching.is_none() {
            // Other stretches of fast memory are to be glanced at.
            self.observer.told = None;
        }
        self.shared.pressed.hear(world)?;
        if news.changed {
            self.listeners.changed();
            let now = world.now();
            self.observer.take_up_search(world, &self.shared, now);
            self.commuters_chosen = None;
            self.observer.memory_changed(&news, now);
        }
        Ok(())
    }

    /// Whether it matters how late nodes answer, and can be read.
    fn reads_latencies(&self, world: &dyn World) -> bool {
        world.has_canary() && self.shared.ledger.lower_pages() > 0
    }

    /// Asks nodes how late they answer, if it is time.
    fn read_latencies(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        if !self.reads_latencies(world) {
            return Ok(());
        }
        let Shared {
            ledger,
            counters,
            latencies,
            ..
        } = &mut self.shared;
        let now = world.now();
        let recorded = counters.get(Counter::PghotRecordedAccesses);
        let news = latencies.read(world, &ledger.topology, recorded, now)?;
        for text in news {
            reporter.event(now, Event::Notice { text });
        }
        Ok(())
    }

    /// Closes the account of the last second.
    fn audit(
        &mut self,
        world: &mut dyn World,
        went: &[OwnerId],
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        if self.shared.account.is_none() {
            return Ok(());
        }
        let (observing_ns, _) = self.observing(world);
        let Shared {
            config,
            ledger,
            records,
            counters,
            account: Some(account),
            latencies,
            ..
        } = &mut self.shared
        else {
            return Ok(());
        };
        went.iter().for_each(|owner| account.forget(*owner));
        let now = world.now();
        let by_faults = self.observer.source_kind(world) == Some(access::Source::HintFault);
        let recorded = counters.get(Counter::PghotRecordedAccesses);
        let used = Used {
            own_ns: world.own_cpu_ns(),
            observing_ns,
            faults: if by_faults { recorded } else { 0 },
        };
        let idle_age = demoter::least_idle_age(config, records, now);
        // A sample stands for many more accesses than a page that a pass saw touched, and without passes
        // nobody says what is idle.
        let judges = self.listeners.is_empty() && self.observer.abilities.passes;
        let aged = (idle_age, judges);
        for owner in account.audit((ledger, records), latencies, aged, used, now) {
            let (Some(watched), Some(rests)) = (ledger.processes.get(owner), account.rests(owner))
            else {
                continue;
            };
            let text = format!("process {} {}", watched.process.pid, rests.words(now));
            reporter.event(now, Event::Notice { text });
        }
        Ok(())
    }

    /// Has the source do what the search wants next.
    fn search(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let now = world.now();
        let due = |at: Millis| now.since(at) >= CHOOSE_MS;
        if self.commuters_chosen.is_none_or(due) {
            self.commuters_chosen = Some(now);
            self.shared.ledger.read_rooms(world)?;
            self.flusher.choose(world, &mut self.shared, now);
            self.observer.told.get_or_insert(Observe::Glance);
        }
        let shared = &mut self.shared;
        let demoter = &mut self.demoter;
        self.observer.follow_search(world, shared, demoter, now)?;
        let searching = self.observer.searching.as_mut();
        if let Some(text) = searching.and_then(|searching| searching.promise(shared)) {
            reporter.event(now, Event::Notice { text });
        }
        let source = usize::from(self.observer.source.0);
        let name = world.sources().get(source).map(|info| info.name.as_str());
        let searching = self.observer.searching.as_mut();
        let advice = searching.zip(name);
        if let Some(text) = advice.and_then(|(searching, name)| searching.advise(shared, name)) {
            reporter.event(now, Event::Notice { text });
        }
        Ok(())
    }

    /// Tells the source what to observe, if that has changed.
    fn tell_source(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let now = world.now();
        let ledger = &mut self.shared.ledger;
        let wanting = self.promoter.wanting;
        let Some(observe) = self.observer.change(ledger, wanting, now) else {
            if self.observer.glances_anew(now) {
                ledger.read_rooms(world)?;
                self.flusher.choose(world, &mut self.shared, now);
                self.observer.glance_anew(world, &self.shared, now)?;
            }
            return Ok(());
        };
        ledger.read_rooms(world)?;
        self.flusher.choose(world, &mut self.shared, now);
        let looked = self.observer.tell(world, &self.shared, observe, now)?;
        let skipped = looked.and_then(|looked| looked.skipped());
        if let Some((looked, skipped)) = skipped.filter(|_| self.observer.abilities.glances) {
            let text = format!("looking at {looked} slow pages closely, {skipped} in later turns");
            reporter.event(world.now(), Event::Notice { text });
        }
        Ok(())
    }

    fn digest(&mut self, world: &mut dyn World, now: Millis, reporter: &mut dyn Reporter) {
        let Some(kind) = self.observer.source_kind(world) else {
            return;
        };
        let targets = self.shared.ledger.preferred_targets();
        let mut digest = Digest {
            shared: &mut self.shared,
            observer: &mut self.observer,
            kind,
            now,
            reporter,
            targets,
            listeners: &self.listeners,
        };
        self.news |= digest.take(&self.came.reports);
        if self.came.samples.is_empty() {
            return;
        }
        let before_ns = world.own_cpu_ns();
        self.news |= digest.take_samples(&self.came.samples);
        let took_ns = world.own_cpu_ns().saturating_sub(before_ns);
        self.listeners.worked(took_ns);
    }

    fn decide(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        if self.observer.needs_a_reader(world.now()) {
            return Ok(());
        }
        self.let_idle_go(world, reporter)?;
        let now = world.now();
        if !self.decision_due(now) {
            return Ok(());
        }
        // Those that were read before anything was in use are old.
        self.read_latencies(world, reporter)?;
        let shared = &mut self.shared;
        shared.ledger.read_rooms(world)?;
        self.promoter.more = false;
        // Without a search there are no contests.
        let searches = self.observer.searching.is_some();
        let is_starved = searches && self.observer.exchange.is_starved(now);
        if self.promoter.may_help(&shared.ledger, is_starved, now) {
            let idle = match shared.config.threshold_free {
                Some(_) => demoter::idle_pages(&shared.config, &shared.records, now),
                None => 0,
            };
            shared.moving_time.begin(self.observer.moving_ms(now));
            self.promoter.promote(world, shared, idle, reporter);
        }
        shared
            .moving_time
            .begin(self.observer.moving_ms(world.now()));
        let wanting = self.promoter.wanting;
        let left = self.demoter.demote(world, shared, wanting, reporter);
        self.exchange(world, if left > 0 { 0 } else { wanting }, reporter)?;
        let shared = &mut self.shared;
        if !shared.budgets.is_empty() {
            let (looks, seen) = self.observer.looks();
            let turn = Turn { now, looks, seen };
            shared
                .moving_time
                .begin(self.observer.moving_ms(world.now()));
            self.demoter.keep_bounds(world, shared, turn, reporter);
            self.observer.look_wanted |= std::mem::take(&mut self.demoter.look_wanted);
        }
        self.promoter.more |= self.shared.moving_time.take_more();
        let demoted = self.shared.counters.get(Counter::PgdemoteProactive);
        if (demoted - self.demoted) * UNSEEN_PART >= self.shared.ledger.lower_pages().max(1) {
            self.demoted = demoted;
            self.observer.many_left(now);
        }
        Ok(())
    }

    /// Has colder pages make way for `starving` hot ones, where none is idle.
    fn exchange(
        &mut self,
        world: &mut dyn World,
        starving: u64,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        // Of what only would go nothing comes back: a dry run cannot learn from it.
        if self.shared.config.dry_run {
            return Ok(());
        }
        let now = world.now();
        self.shared.moving_time.begin(self.observer.moving_ms(now));
        let (shared, exchange) = (&mut self.shared, &mut self.observer.exchange);
        exchange.starve(starving, now);
        if let Some(sides) = exchange.take_sides(now) {
            let movers = (&mut self.demoter, &mut self.promoter);
            let sides = exchange::change_places(world, shared, movers, sides, reporter)?;
            exchange.exchanged(sides, now);
        }
        if exchange.is_starved(now) {
            self.observer.take_up_search(world, &self.shared, now);
        }
        Ok(())
    }

    /// Has pages leave that nobody touched for as long as the user said.
    fn let_idle_go(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let Some(rule) = self.shared.config.idle.clone() else {
            return Ok(());
        };
        let (now, shared) = (world.now(), &mut self.shared);
        let source = self.observer.source;
        self.leaver.judge_source(world, source, now, reporter);
        if self.leaver.has_work(&rule, now) {
            shared.ledger.read_rooms(world)?;
            shared.moving_time.begin(self.observer.moving_ms(now));
            if self.leaver.leave(world, shared, &rule, reporter) {
                self.observer.pages_left(world, &self.shared, now);
            }
        }
        Ok(())
    }

    /// Whether something became ready, something is waiting for room, or it is
    /// time to see whether ready pages that were refused are admitted now.
    fn decision_due(&mut self, now: Millis) -> bool {
        let budgets = &self.shared.budgets;
        let hurry = !budgets.is_empty() && budgets.hurry(now);
        let waiting = self.promoter.pages_wait() || self.observer.is_cramped() || hurry;
        let wait = if waiting { RETRY_MS } else { DECIDE_MS };
        let due = self.news || self.promoter.more || now.since(self.decided) >= wait;
        if due {
            self.decided = now;
            self.news = false;
        }
        due
    }

    /// What all sources have cost the kernel, and how much of theirs was lost, in a run
    /// in which some may have broken: neither falls.
    fn observing(&self, world: &mut dyn World) -> (u64, u64) {
        let main = self.observer.source;
        let (mut kernel_ns, mut lost) = self.listeners.status(world);
        kernel_ns += self.observer.kernel_cpu_ns + self.broken.kernel_cpu_ns;
        lost += self.broken.lost;
        if !self.listeners.has(main) {
            lost += world.source_status(main).lost;
        }
        (kernel_ns, lost)
    }

    /// Where things stand.
    pub fn status(&self, world: &mut dyn World) -> Status {
        let Shared {
            ledger, counters, ..
        } = &self.shared;
        let (kernel_ns, lost) = self.observing(world);
        let now = world.now();
        let classes = self.classes(now);
        let [by_accesses, by_touched] = self.fairness(&classes, now);
        let tiering = TierStatus {
            top_pages: ledger.resident(true),
            lower_pages: ledger.resident(false),
            pgpromote_success: counters.get(Counter::PgpromoteSuccess),
            pgpromote_candidate: counters.get(Counter::PgpromoteCandidate),
            pgpromote_candidate_nrl: counters.get(Counter::PgpromoteCandidateNrl),
            pgdemote_proactive: counters.get(Counter::PgdemoteProactive),
            returned_pages: self.shared.returned_pages,
            pghot_recorded_accesses: counters.get(Counter::PghotRecordedAccesses),
            passes: self.observer.passes,
            free_pages: ledger.rooms.free(),
            observing: match self.observer.told {
                Some(_) if !self.observer.is_told() => "samples",
                Some(Observe::Look) => "look",
                Some(Observe::Glance) => "glance",
                None => "start",
            },
            kernel_cpu: Duration::from_nanos(kernel_ns),
            demoted_idle_pages: self.shared.config.idle.as_ref().map(|_| self.leaver.left),
            classes,
            access_fairness_permille: by_accesses,
            touched_fairness_permille: by_touched,
            account: (self.shared.account.as_ref())
                .map(|account| account.status(&self.shared.latencies)),
            pressure: self.shared.pressed.status(None),
        };
        Status {
            at_ms: now.0,
            processes: ledger.processes.len(),
            failed_pages: self.shared.failed_pages,
            lost,
            cpu: Duration::from_nanos(world.own_cpu_ns()),
            tiering: Some(tiering),
            balancing: None,
        }
    }

    fn classes(&self, now: Millis) -> Vec<ClassStatus> {
        let Shared {
            budgets,
            pressed,
            fairness,
            ..
        } = &self.shared;
        let mut all = budgets.status();
        for (class, of) in budgets.ids().zip(&mut all) {
            of.pressure = pressed.status(Some(class));
            let shares = fairness.of(class, now);
            of.fast_access_permille = shares.accesses.map(fairness::permille);
            of.fast_touched_permille = shares.touched.map(fairness::permille);
        }
        all
    }

    /// Has the pages of the class of this name stay where they are, or move again.
    /// Whether that is new; `None` if there is no such class.
    pub fn pause(&mut self, world: &mut dyn World, name: &str, paused: bool) -> Option<bool> {
        let now = world.now();
        let Shared {
            ledger, budgets, ..
        } = &mut self.shared;
        let class = budgets.find(name)?;
        if ledger.processes.is_paused(Some(class)) == paused {
            return Some(false);
        }
        // What commutes comes home first, and those that may commute now are chosen at
        // once: the accesses of others must not hide until the next look.
        self.flusher.recall(world, ledger);
        ledger.processes.pause(class, paused);
        budgets.pause(class, paused);
        self.flusher.choose(world, &mut self.shared, now);
        let Shared {
            ledger, records, ..
        } = &mut self.shared;
        if !paused {
            // Nobody has looked whether its pages were in use.
            let members = ledger.processes.iter();
            let members = members.filter(|watched| watched.class == Some(class));
            for section in members.flat_map(|of| ledger.space.sections_of(of.owner)) {
                let first = PageNumber(u64::from(section) * SECTION_PAGES as u64);
                records.idle.unknown(first, SECTION_PAGES as u64);
                if let Some(rounds) = &records.rounds {
                    rounds.touched(first, SECTION_PAGES as u64);
                }
            }
            // What is hot by now is not known as long as nobody looks.
            self.observer.look_wanted = true;
        }
        Some(true)
    }

    /// What is known of the page at `address` of the process that has `pid`.
    ///
    /// # Errors
    /// Why nothing is known, in a sentence.
    pub fn page(
        &self,
        world: &mut dyn World,
        pid: u32,
        address: u64,
    ) -> Result<PageReport, String> {
        page::report(&self.shared, &self.leaver, pid, address, world.now())
    }

    /// Pages that are elsewhere for a moment so that accesses show, and where they belong.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn visitors(&self) -> impl Iterator<Item = (ProcessId, VirtualPage, NodeId)> {
        let ledger = &self.shared.ledger;
        let all = ledger.visitors.iter();
        all.filter_map(|(page, visit)| {
            let (owner, at) = ledger.space.locate(page)?;
            let process = ledger.processes.get(owner)?.process;
            Some((process, at, visit.home))
        })
    }

    /// Where the first `most` managed processes in `order` stand.
    pub fn processes(&self, order: ProcessOrder, most: usize) -> Vec<ProcessStatus> {
        processes::list(&self.shared, order, most)
    }

    /// Ends observation and puts back what was changed to observe.
    pub fn finish(&mut self, world: &mut dyn World) -> Result<(), WorldError> {
        self.flusher.end(world, &mut self.shared.ledger);
        world.close()?;
        if self.observer.is_told() {
            self.observer.newly_spent_ns(world);
        }
        Ok(())
    }
}
