//! The loop that brings pages to the nodes that use them.
//!
//! One [`Balancer::step`] is one turn: hear who touched what, find out where
//! those pages are ([`unknown`]), count, and now and then let the core decide on
//! what has come together (`memtide_core::balancing::sampled`); then move pages
//! and, if asked to, threads ([`tasks`](mod@tasks)). What the loop costs is measured by
//! cause and bounded ([`credit`]).
//!
//! What stays true:
//!
//! - A page goes nowhere that its mempolicy or cpuset excludes, and to no node
//!   without room above its watermark: the same ledger as tiering's.
//! - A process or thread is told from a later one with its number by its start
//!   time, before each move.
//! - Samples of a moment of which some were lost are not used: what is missing
//!   may all be of one kind.
//! - Beside tiering (`BalanceConfig::beside_tiering`) only pages on fast nodes move, to fast
//!   nodes. Whether a page is still on one is asked right before it moves: tiering may have
//!   demoted it since it was located, and what is slow comes up by tiering's rules alone.
//! - Where the source is missing something (CPUs that went offline, a process
//!   that ended), the rest goes on.

mod config;
mod credit;
mod refresh;
mod shared;
mod tasks;
mod threads;
mod unknown;

#[cfg(test)]
mod tests;

pub use config::{BalanceConfig, Tasks, has_choice, has_fast_choice, tasks};

use crate::ledger::Ledger;
use crate::report::{BalanceStatus, Event, Reporter, Spent, Status};
use crate::world::{Came, ClassId, Invalid, Sample, SourceId, World, WorldError};
use credit::{Credit, Price};
use memtide_core::balancing::sampled::{PageMove, Plan, SampledAccess, SampledError};
use memtide_core::balancing::{Clock, SampleSettings};
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::Millis;
use refresh::Refresh;
use shared::Shared;
use std::time::Duration;
use unknown::Unknown;

/// The longest wait of a turn while samples come, in ms.
const PATIENCE_MS: u64 = 50;
/// The longest wait of a turn while none do, in ms.
const IDLE_PATIENCE_MS: u64 = 1000;
/// How long samples come together before something is decided, in ms.
const BATCH_MS: u64 = 200;
/// How often the source's period is set anew, in ms.
const STEER_MS: u64 = 250;
/// The same while nothing is heard.
const QUIET_STEER_MS: u64 = 4000;
/// The most of what may be used that goes into making pages fault, in percent,
/// once little is left.
const PROVOKE_PERCENT: u64 = 25;
/// The same for looking for threads and CPUs.
const STEER_PERCENT: u64 = 12;
/// Nothing heard for so long is quiet, in ms.
const QUIET_AFTER_MS: u64 = 2000;
/// How often people are told of invalid windows, in ms.
const TELL_INVALID_MS: u64 = 1000;

/// The loop. See the module's essay.
#[derive(Debug)]
pub struct Balancer {
    source: SourceId,
    shared: Shared,
    refresh: Refresh,
    tasks: tasks::Tasks,
    came: Came,
    /// Of what was heard, what counts.
    found: Vec<(SampledAccess, Clock)>,
    unknown: Unknown,
    plan: Plan,
    credit: Credit,
    price: Price,
    /// Processor time that it took to begin, in ns.
    cpu_before_ns: u64,
    /// When the source's period was set.
    steered: Millis,
    /// When it may be set again.
    steers_at: Millis,
    /// When pages may be made to fault again.
    provokes_at: Millis,
    acted: Millis,
    /// When something was heard last.
    heard_at: Millis,
    told_invalid: Option<Millis>,
    told_starved: bool,
}

impl Balancer {
    /// A loop over `world` that listens to the first of its sources.
    ///
    /// # Errors
    ///
    /// Settings that do not fit each other.
    pub fn new(world: &mut dyn World, config: BalanceConfig) -> Result<Balancer, SampledError> {
        let now = world.now();
        let cpu_before_ns = world.own_cpu_ns();
        let mut credit = Credit::new(config.cpu_permille, now);
        credit.begin(cpu_before_ns / 1000);
        Ok(Balancer {
            source: SourceId(0),
            shared: Shared::new(world, config)?,
            refresh: Refresh::default(),
            tasks: tasks::Tasks::default(),
            came: Came::default(),
            found: Vec::with_capacity(1 << 16),
            unknown: Unknown::default(),
            plan: Plan::default(),
            credit,
            price: Price::default(),
            cpu_before_ns,
            steered: now,
            steers_at: now,
            provokes_at: now,
            acted: now,
            heard_at: now,
            told_invalid: None,
            told_starved: false,
        })
    }

    /// Has pages and threads of a class's processes stay where they are, until it is resumed.
    pub fn pause(&mut self, class: ClassId, paused: bool) {
        self.shared.ledger.processes.pause(class, paused);
    }

    /// One turn, which waits for something to happen, at most a second. Returns
    /// whether any managed process is left.
    ///
    /// # Errors
    ///
    /// What ends the run.
    pub fn step(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<bool, WorldError> {
        let mut watch = Stopwatch::start(world);
        let quiet = world.now().since(self.heard_at) >= QUIET_AFTER_MS;
        let rest_ms = self.account(world);
        if rest_ms > 0 {
            // What is owed is more than one rest repays: until it is repaid nothing
            // is done but to see whether there is anybody left.
            self.refresh.run(
                world,
                self.source,
                &mut self.shared,
                &mut self.tasks,
                true,
                reporter,
            )?;
            watch.lap(world, &mut self.shared.spent.refresh_ns);
            world.rest(rest_ms);
            return Ok(!self.shared.ledger.processes.is_empty());
        }
        self.refresh.run(
            world,
            self.source,
            &mut self.shared,
            &mut self.tasks,
            quiet,
            reporter,
        )?;
        watch.lap(world, &mut self.shared.spent.refresh_ns);
        if world.now() >= self.provokes_at {
            world.provoke(self.source)?;
            let cost_us = watch.lap(world, &mut self.shared.spent.protect_ns) / 1000;
            let pause_ms = self.credit.pause_ms(cost_us, PROVOKE_PERCENT);
            self.provokes_at = Millis(world.now().0 + pause_ms);
        }
        self.listen(world, reporter)?;
        watch.lap(world, &mut self.shared.spent.samples_ns);
        let steered = self.steer(world, quiet, reporter)?;
        let cost_us = watch.lap(world, &mut self.shared.spent.refresh_ns) / 1000;
        if steered {
            let pause_ms = self.credit.pause_ms(cost_us, STEER_PERCENT);
            self.steers_at = Millis(self.steered.0 + pause_ms);
        }
        self.count(world, &mut watch)?;
        let now = world.now();
        if self.shared.counts.turn > 0 {
            self.heard_at = now;
        }
        if now.since(self.acted) >= BATCH_MS {
            self.acted = now;
            let learns = !self.price.is_known();
            self.act(world, &mut watch, reporter)?;
            // The first few pages said what a page costs; the others need not wait.
            let more = !self.shared.sampled.pending().is_empty();
            if learns && self.price.is_known() && more {
                self.act(world, &mut watch, reporter)?;
            }
        }
        let rest_ms = self.account(world);
        if rest_ms > 0 {
            world.rest(rest_ms);
        }
        Ok(!self.shared.ledger.processes.is_empty())
    }

    /// Charges what was used, and says how long to rest, in ms.
    fn account(&mut self, world: &mut dyn World) -> u64 {
        let (now, used_us) = (world.now(), world.own_cpu_ns() / 1000);
        self.credit.account(now, used_us)
    }

    /// Waits for what tells of accesses.
    fn listen(
        &mut self,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        self.came.clear();
        let patience_ms = match self.shared.counts.turn {
            0 => IDLE_PATIENCE_MS,
            _ => PATIENCE_MS,
        };
        world.wait(patience_ms, &mut self.came)?;
        self.shared.counts.turn = self.came.samples.len() as u64;
        let now = world.now();
        for invalid in &self.came.invalid {
            let Invalid {
                lost, throttled, ..
            } = *invalid;
            self.shared.counts.lost += lost;
            self.shared.counts.invalid_windows += 1;
            let told = self.told_invalid;
            if told.is_none_or(|told| now.since(told) >= TELL_INVALID_MS) {
                self.told_invalid = Some(now);
                reporter.event(now, Event::WindowInvalid { lost, throttled });
            }
        }
        for notice in &self.came.notices {
            let text = notice.to_string();
            reporter.event(now, Event::Notice { text });
        }
        Ok(())
    }

    /// Sets the source's period by what came since the last time, and looks for
    /// threads and CPUs that came or went. Whether it was time for that.
    fn steer(
        &mut self,
        world: &mut dyn World,
        quiet: bool,
        reporter: &mut dyn Reporter,
    ) -> Result<bool, WorldError> {
        let now = world.now();
        let elapsed_ms = now.since(self.steered);
        let pause = match quiet {
            true => QUIET_STEER_MS,
            false => STEER_MS,
        };
        if elapsed_ms < pause || now < self.steers_at {
            return Ok(false);
        }
        self.steered = now;
        let starved = world.attend(self.source)?;
        if starved && !std::mem::replace(&mut self.told_starved, true) {
            let name = source_name(world, self.source);
            let text =
                format!("{name}: another program keeps the unit busy, nothing is sampled; stop it");
            reporter.event(now, Event::Notice { text });
        }
        // The feedback of sampled balancing, as a share of its first period: who
        // has less to learn wants fewer samples.
        let first = u64::from(SampleSettings::default().period);
        let percent = (first * 100)
            .checked_div(self.shared.sampled.period())
            .unwrap_or(100);
        world.adapt(self.source, elapsed_ms, percent.clamp(50, 200) as u32);
        Ok(true)
    }

    /// Counts what came.
    fn count(&mut self, world: &mut dyn World, watch: &mut Stopwatch) -> Result<(), WorldError> {
        if self.came.samples.is_empty() {
            return Ok(());
        }
        self.locate(world)?;
        watch.lap(world, &mut self.shared.spent.locate_ns);
        let samples = std::mem::take(&mut self.came.samples);
        let at = world.now();
        self.found.clear();
        let counted = samples.iter().try_for_each(|sample| {
            let found = self.find(world, sample, at)?;
            self.found.extend(found);
            Ok(())
        });
        self.shared.sampled.sample_batch(&self.found);
        self.came.samples = samples;
        self.tasks.remove_ended(&mut self.shared);
        watch.lap(world, &mut self.shared.spent.samples_ns);
        counted
    }

    /// Finds out where pages are that nothing is known of.
    fn locate(&mut self, world: &mut dyn World) -> Result<(), WorldError> {
        let gap = self.shared.config.gap_pages;
        let ledger = &mut self.shared.ledger;
        for sample in &self.came.samples {
            let Some(owner) = self.refresh.owner(sample.pid) else {
                continue;
            };
            let page = VirtualPage(sample.address >> ledger.page.shift());
            let known = ledger.space.find(owner, page);
            if known.is_none_or(|dense| ledger.placement.get(dense).is_none()) {
                self.unknown.add(owner, page);
            }
        }
        self.unknown.ask(world, ledger, gap)
    }

    /// Who used which page; `None` for what is not ours to move.
    fn find(
        &mut self,
        world: &mut dyn World,
        sample: &Sample,
        at: Millis,
    ) -> Result<Option<(SampledAccess, Clock)>, WorldError> {
        let Some(owner) = self.refresh.owner(sample.pid) else {
            return Ok(None);
        };
        let ledger = &self.shared.ledger;
        let page = VirtualPage(sample.address >> ledger.page.shift());
        // What is nowhere is no memory that could move: the page of zeros, a
        // device's, or it is gone already.
        let Some(dense) = ledger.space.find(owner, page) else {
            return Ok(None);
        };
        let Some(place) = ledger.placement.get(dense) else {
            return Ok(None);
        };
        let nodes = &self.shared.sampled.config().balancer.node_of_cpu;
        let from = nodes.get(sample.cpu as usize).copied();
        let ours = |node| self.shared.is_ours(node);
        if !ours(place.node()) || !from.is_none_or(ours) {
            return Ok(None);
        }
        let (first, pages) = unknown::folio(&ledger.placement, dense);
        let resolved = self
            .tasks
            .resolve(world, &mut self.shared, owner, sample, at)?;
        let Some((task, runtime_ns)) = resolved else {
            return Ok(None);
        };
        let near = from == Some(place.node());
        self.shared.counts.samples += 1;
        self.shared.counts.local += u64::from(near);
        let clock = Clock {
            now_ns: self.shared.since_boot(at).0 * 1_000_000,
            runtime_ns,
        };
        let access = SampledAccess {
            task,
            cpu: sample.cpu,
            page: first,
            pages,
            node: Some(place.node()),
            // Most memory that threads share is written by somebody; where
            // nothing is known, sharing is the better guess.
            writable: true,
            shared: false,
        };
        Ok(Some((access, clock)))
    }

    /// Decides about what has come together, and does as much of it as is paid for.
    fn act(
        &mut self,
        world: &mut dyn World,
        watch: &mut Stopwatch,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let used_ns = world.own_cpu_ns();
        self.credit.charge(world.now(), used_ns / 1000);
        let turn_ns = used_ns.saturating_sub(watch.began_ns);
        let most = self.price.affordable(&self.credit, turn_ns);
        let shared = &mut self.shared;
        let queued = !shared.sampled.pending().is_empty();
        if !queued && shared.config.tasks == Tasks::Leave {
            return Ok(());
        }
        watch.lap(world, &mut shared.spent.samples_ns);
        if queued {
            shared.ledger.read_rooms(world)?;
        }
        let now = shared.since_boot(world.now());
        let plan = &mut self.plan;
        shared.sampled.act_at_most(most, now, &shared.ledger, plan);
        shared.counts.stays.immovable += self.plan.stays.immovable;
        shared.counts.stays.no_room += self.plan.stays.no_room;
        watch.lap(world, &mut shared.spent.decide_ns);
        if shared.config.beside_tiering && !shared.config.dry_run {
            let moves = &mut self.plan.moves;
            keep_fast(
                world,
                &mut shared.ledger,
                &mut self.unknown,
                shared.config.gap_pages,
                moves,
            )?;
            watch.lap(world, &mut shared.spent.locate_ns);
        }
        shared.carry_out(world, &self.plan.moves, reporter);
        let pages = self.plan.moves.iter().map(|m| u64::from(m.pages)).sum();
        let spent_ns = watch.lap(world, &mut shared.spent.move_ns);
        self.price.learn(pages, spent_ns);
        self.tasks.place(world, shared, &self.plan.tasks, reporter);
        watch.lap(world, &mut shared.spent.move_ns);
        Ok(())
    }

    /// Where things stand.
    pub fn status(&mut self, world: &mut dyn World) -> Status {
        let counts = self.shared.counts;
        let (told, told_local) = counts.told;
        self.shared.counts.told = (counts.samples, counts.local);
        let (fresh, local) = (counts.samples - told, counts.local - told_local);
        let (cpu_ns, elapsed_ns) = (world.own_cpu_ns(), world.now_ns());
        let Spent {
            refresh_ns,
            protect_ns,
            samples_ns,
            locate_ns,
            decide_ns,
            move_ns,
        } = self.shared.spent;
        let own = refresh_ns + protect_ns + samples_ns + locate_ns + decide_ns + move_ns;
        let since = cpu_ns.saturating_sub(self.cpu_before_ns) as f64;
        let percent = 100.0 * since / (elapsed_ns as f64).max(1e6);
        let balancing = BalanceStatus {
            source: source_name(world, self.source),
            tasks: self.tasks.threads.len(),
            samples: counts.samples,
            local_samples: counts.local,
            local_permille: (local * 1000).checked_div(fresh),
            invalid_windows: counts.invalid_windows,
            period: world.source_status(self.source).period,
            moved_pages: counts.moved,
            forbidden_pages: counts.stays.immovable,
            no_room_pages: counts.stays.no_room,
            placed_tasks: world.lent() + counts.proposed,
            cpu_percent: (percent * 100.0).round() / 100.0,
            cpu_limit_percent: f64::from(self.shared.config.cpu_permille) / 10.0,
            rested_ms: self.credit.rested_ms(),
            spent: self.shared.spent,
            ns_per_moved_page: own.checked_div(counts.moved),
        };
        Status {
            at_ms: world.now().0,
            processes: self.shared.ledger.processes.len(),
            failed_pages: counts.failed,
            lost: counts.lost,
            cpu: Duration::from_nanos(cpu_ns),
            tiering: None,
            balancing: Some(balancing),
        }
    }

    /// Ends observation, and gives back what was lent. How many threads were
    /// freed.
    pub fn finish(&mut self, world: &mut dyn World) -> Result<usize, WorldError> {
        let closed = world.close();
        let freed = world.put_back()?;
        closed.map(|()| freed)
    }
}

/// Of `moves` those of pages that are on fast nodes now, whatever was known of them.
fn keep_fast(
    world: &mut dyn World,
    ledger: &mut Ledger,
    unknown: &mut Unknown,
    gap: u64,
    moves: &mut Vec<PageMove>,
) -> Result<(), WorldError> {
    for wanted in &*moves {
        if let Some((owner, page)) = ledger.space.locate(wanted.page) {
            unknown.add(owner, page);
        }
    }
    unknown.ask(world, ledger, gap)?;
    moves.retain(|wanted| {
        let place = ledger.placement.get(wanted.page);
        place.is_some_and(|place| ledger.topology.is_top_tier(place.node()))
    });
    Ok(())
}

fn source_name(world: &dyn World, source: SourceId) -> String {
    let info = world.sources().get(usize::from(source.0));
    info.map(|info| info.name.clone()).unwrap_or_default()
}

/// Says where processor time went.
struct Stopwatch {
    began_ns: u64,
    last_ns: u64,
}

impl Stopwatch {
    fn start(world: &mut dyn World) -> Stopwatch {
        let began_ns = world.own_cpu_ns();
        Stopwatch {
            began_ns,
            last_ns: began_ns,
        }
    }

    /// Adds what was used since the last lap, in ns, to `sum`, and returns it.
    fn lap(&mut self, world: &mut dyn World, sum: &mut u64) -> u64 {
        let now_ns = world.own_cpu_ns();
        let spent = now_ns.saturating_sub(self.last_ns);
        *sum += spent;
        self.last_ns = now_ns;
        spent
    }
}
