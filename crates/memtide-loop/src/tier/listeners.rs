//! Sources that tell of single accesses: beside the one that looks at every page,
//! or without it.
//!
//! Hardware that samples and hint faults name pages that are in use, one access at
//! a time, in all memory at once and without a pass. What they tell is recorded as
//! a glance's findings are: in the one store, each under its own source's counter.
//! Two accesses to a page make it hot, whoever saw them. They never say that a page
//! is idle; a page of fast memory that they name is in use.
//!
//! # What samples may cost
//!
//! A sample costs its interrupt, and reading it costs us. Both are known only as
//! they come, so the bound has two parts. The *rate* that is asked for is the one
//! that was wanted, or as much of it as fits into three quarters of the budget at
//! the price of a record so far; the period follows, within a quarter. The *credit*
//! holds whatever the rate does: it earns the budget, pays for each record, and a
//! source that overdraws it is off until it is repaid.
//!
//! Beside a source that looks, samples have half of the budget at most; what they
//! used of it lately is less for looks.

use super::broken::Broken;
use crate::ledger::Ledger;
use crate::report::{Event, Reporter};
use crate::world::{Invalid, ProcessId, SourceId, SourceStatus, Span, Subject, World, WorldError};
use memtide_core::access;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::Millis;

/// How often periods are set, and threads and CPUs looked for, in ms.
const STEER_MS: u64 = 500;
/// The interval that looks of a source without passes are told, in ms. It has no
/// meaning to them.
const INTERVAL_MS: u64 = 1_000;
/// Earnings that the credit holds, in ms of elapsed time.
const BURST_MS: u64 = 2_000;
/// The part of the budget at which the rate aims, in percent.
const AIM_PERCENT: u64 = 75;
/// How often people are told of lost samples, in ms.
const TELL_INVALID_MS: u64 = 10_000;

/// One source.
#[derive(Debug)]
struct Listener {
    source: SourceId,
    kind: access::Source,
    /// Whether it samples; else it is told to look, and reports what it sees.
    samples: bool,
    /// Whether it is off until the credit is repaid.
    rests: bool,
    told_starved: bool,
    /// What it had cost when it was last asked.
    status: SourceStatus,
}

/// See the module's essay.
#[derive(Debug)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Whether they must be told anew to whom to listen.
    outdated: bool,
    /// Whose pages a process's are, ascending.
    owners: Vec<(u32, OwnerId)>,
    /// What observing may use in all, in thousandths of a CPU.
    permille: u64,
    /// Samples a second that are wanted of all CPUs.
    wanted: u64,
    /// In microseconds of CPU time; negative when overdrawn.
    credit_us: i64,
    /// What records have cost until now, and how many they were.
    spent_ns: u64,
    records: u64,
    /// Our own processor time that recording took, not yet charged.
    own_ns: u64,
    steered: Millis,
    told_invalid: Option<Millis>,
}

impl Listeners {
    /// All sources of `world` that tell of single accesses, but for `main`, which the
    /// observer tells what to do, unless that samples.
    pub fn new(
        world: &dyn World,
        main: SourceId,
        permille: u32,
        rate: u32,
        now: Millis,
    ) -> Listeners {
        let listener = |(n, info): (u8, &crate::world::SourceInfo)| {
            let (source, abilities) = (SourceId(n), info.abilities);
            let listens = abilities.samples || (!abilities.passes && source != main);
            listens.then_some(Listener {
                source,
                kind: info.kind,
                samples: abilities.samples,
                rests: false,
                told_starved: false,
                status: SourceStatus::default(),
            })
        };
        let all = (0..).zip(world.sources()).filter_map(listener).collect();
        let cpus = world.topology().nodes().iter();
        let cpus: usize = cpus.map(|node| node.cpus.len()).sum();
        Listeners {
            all,
            outdated: true,
            owners: Vec::new(),
            permille: u64::from(permille),
            wanted: u64::from(rate) * cpus.max(1) as u64,
            credit_us: 0,
            spent_ns: 0,
            records: 0,
            own_ns: 0,
            steered: now,
            told_invalid: None,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The first that is not `source`.
    pub fn other_than(&self, source: SourceId) -> Option<SourceId> {
        let mut others = self.all.iter().filter(|one| one.source != source);
        others.next().map(|one| one.source)
    }

    /// What `source` had come to when it was last asked, if it is one of them.
    pub fn last_known(&self, source: SourceId) -> Option<Broken> {
        let one = self.all.iter().find(|one| one.source == source)?;
        Some(Broken {
            kernel_cpu_ns: one.status.kernel_cpu_ns,
            lost: one.status.lost,
        })
    }

    /// Whether `source` is one of them.
    pub fn has(&self, source: SourceId) -> bool {
        self.kind(source).is_some()
    }

    /// Under which name accesses of `source` are counted, if it is one of them.
    pub fn kind(&self, source: SourceId) -> Option<access::Source> {
        let one = self.all.iter().find(|one| one.source == source);
        one.map(|one| one.kind)
    }

    /// `source` broke, or somebody else tells it what to do now. Whether it was one of them.
    pub fn remove(&mut self, source: SourceId) -> bool {
        let before = self.all.len();
        self.all.retain(|one| one.source != source);
        self.all.len() < before
    }

    /// Observing may use so many thousandths of a CPU in all.
    pub fn set_budget(&mut self, permille: u32) {
        self.permille = u64::from(permille);
    }

    /// Processes came or went, or their memory changed.
    pub fn changed(&mut self) {
        self.outdated = true;
    }

    /// Whose pages those of `pid` are.
    pub fn owner(&self, pid: u32) -> Option<OwnerId> {
        let at = self.owners.binary_search_by_key(&pid, |(pid, _)| *pid);
        Some(self.owners[at.ok()?].1)
    }

    /// Recording took so much of our own processor time.
    pub fn worked(&mut self, own_ns: u64) {
        self.own_ns += own_ns;
    }

    /// What the sources have cost the kernel, and how much of it was lost.
    pub fn status(&self, world: &mut dyn World) -> (u64, u64) {
        self.all.iter().fold((0, 0), |(cpu_ns, lost), one| {
            let status = world.source_status(one.source);
            (cpu_ns + status.kernel_cpu_ns, lost + status.lost)
        })
    }

    /// Says of samples that were lost, now and then.
    pub fn tell_invalid(&mut self, invalid: &[Invalid], now: Millis, reporter: &mut dyn Reporter) {
        let told = self.told_invalid;
        let due = told.is_none_or(|told| now.since(told) >= TELL_INVALID_MS);
        if let Some(one) = invalid.first().filter(|_| due) {
            self.told_invalid = Some(now);
            let (lost, throttled) = (one.lost, one.throttled);
            reporter.event(now, Event::WindowInvalid { lost, throttled });
        }
    }

    /// Has the sources listen to all managed processes, at a rate that fits the
    /// budget, of which there are looks beside them. Thousandths of a CPU that are
    /// left for these, if that is to be said anew.
    pub fn follow(
        &mut self,
        world: &mut dyn World,
        ledger: &Ledger,
        looks: bool,
        now: Millis,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<u32>, WorldError> {
        if self.all.is_empty() {
            return Ok(None);
        }
        let resting = |all: &[Listener]| all.iter().filter(|one| one.rests).count();
        let rested = resting(&self.all);
        let elapsed_ms = now.since(self.steered);
        let steers = elapsed_ms >= STEER_MS;
        let mut left = None;
        if steers {
            self.steered = now;
            left = Some(self.account(world, elapsed_ms, looks));
        }
        if std::mem::take(&mut self.outdated) || resting(&self.all) != rested {
            self.tell(world, ledger)?;
        }
        if steers {
            self.steer(world, elapsed_ms, looks, now, reporter)?;
        }
        Ok(left)
    }

    /// Thousandths of a CPU that samples may use.
    fn share(&self, looks: bool) -> u64 {
        match looks {
            true => self.permille.div_ceil(2),
            false => self.permille,
        }
    }

    /// Charges what samples have cost since the last time. What is left for looks, in
    /// thousandths of a CPU.
    fn account(&mut self, world: &mut dyn World, elapsed_ms: u64, looks: bool) -> u32 {
        let mut used_ns = std::mem::take(&mut self.own_ns);
        for one in self.all.iter_mut().filter(|one| one.samples) {
            let status = world.source_status(one.source);
            let since = |now: u64, then: u64| now.saturating_sub(then);
            used_ns += since(status.kernel_cpu_ns, one.status.kernel_cpu_ns);
            used_ns += since(status.own_cpu_ns, one.status.own_cpu_ns);
            self.records += since(status.records, one.status.records);
            one.status = status;
        }
        self.spent_ns += used_ns;
        // A thousandth of a millisecond is a microsecond.
        let share = self.share(looks);
        let most = (share * BURST_MS) as i64;
        self.credit_us = (self.credit_us + (share * elapsed_ms) as i64).min(most);
        self.credit_us -= (used_ns / 1_000) as i64;
        for one in self.all.iter_mut().filter(|one| one.samples) {
            one.rests = match one.rests {
                true => self.credit_us <= 0,
                false => self.credit_us < -most,
            };
        }
        let used_permille = (used_ns / 1_000).div_ceil(elapsed_ms.max(1));
        (self.permille - used_permille.min(share)).max(1) as u32
    }

    /// Has each listen to whom it should.
    fn tell(&mut self, world: &mut dyn World, ledger: &Ledger) -> Result<(), WorldError> {
        let watched = || ledger.processes.iter();
        self.owners = watched().map(|of| (of.process.pid, of.owner)).collect();
        self.owners.sort_unstable();
        let processes: Vec<ProcessId> = watched().map(|of| of.process).collect();
        for one in &self.all {
            let told = match (one.samples, one.rests) {
                (true, false) => world.sample(one.source, &processes),
                (true, true) => world.sample(one.source, &[]),
                (false, _) => {
                    let subjects: Vec<Subject> = watched().map(whole).collect();
                    (world.look(one.source, &subjects, INTERVAL_MS)).map(drop)
                }
            };
            // The others are told next time, when this one is no more.
            self.outdated |= told.is_err();
            told?;
        }
        Ok(())
    }

    /// Sets periods by what came, and looks for threads and CPUs.
    fn steer(
        &mut self,
        world: &mut dyn World,
        elapsed_ms: u64,
        looks: bool,
        now: Millis,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let percent = self.percent(looks);
        for one in self.all.iter_mut().filter(|one| one.samples && !one.rests) {
            let before_ns = world.own_cpu_ns();
            let starved = world.attend(one.source)?;
            if starved && !std::mem::replace(&mut one.told_starved, true) {
                let name = &world.sources()[usize::from(one.source.0)].name;
                let text = format!(
                    "{name}: another program keeps the unit busy, nothing is sampled; stop it"
                );
                reporter.event(now, Event::Notice { text });
            }
            world.adapt(one.source, elapsed_ms, percent);
            self.own_ns += world.own_cpu_ns().saturating_sub(before_ns);
        }
        Ok(())
    }

    /// How much of the wanted rate fits into the budget, in percent.
    fn percent(&self, looks: bool) -> u32 {
        let Some(price_ns) = self.spent_ns.checked_div(self.records) else {
            return 100;
        };
        // Thousandths of a CPU are microseconds of it in a millisecond: so many
        // nanoseconds in a second.
        let budget_ns = self.share(looks) * 1_000_000 * AIM_PERCENT / 100;
        let affordable = budget_ns / price_ns.max(1);
        (affordable * 100 / self.wanted.max(1)).clamp(1, 100) as u32
    }
}

/// All memory of a process.
fn whole(watched: &crate::ledger::Watched) -> Subject {
    let areas = watched.memory.areas.iter();
    Subject {
        owner: watched.owner,
        process: watched.process,
        spans: areas
            .map(|area| Span {
                first: area.first,
                pages: area.pages,
            })
            .collect(),
    }
}
