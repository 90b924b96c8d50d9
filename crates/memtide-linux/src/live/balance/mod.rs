//! The loop that brings pages to the nodes that use them.
//!
//! One [`Balancing::step`] is one turn: hear who touched what ([`ears`]), find
//! out where those pages are ([`whereabouts`]), count, and now and then let the
//! core decide on what has come together (`memtide_core::balancing::sampled`);
//! then move pages ([`carry`]) and, if asked to, threads ([`affinity`]). What
//! the loop costs is measured by cause and bounded ([`ration`]).
//!
//! What stays true:
//!
//! - A page goes nowhere that its mempolicy or cpuset excludes, and to no node
//!   without room above its watermark: the same code as tiering.
//! - A process or thread is told from a later one with its number by its start
//!   time, before each move.
//! - Samples of a moment of which some were lost are not used: what is missing
//!   may all be of one kind.
//! - Where the source is missing something (CPUs that went offline, a process
//!   that ended), the rest goes on.

pub mod affinity;
pub mod carry;
pub mod ears;
mod listen;
mod people;
pub mod ration;
mod refresh;
pub mod report;
pub mod threads;
pub mod whereabouts;

use super::kernel::RunningKernel;
use super::processes::{Processes, Selection};
use super::survey::Surveyor;
use super::view::{Machine, Rooms};
use crate::fs::{FsError, Root, zoneinfo};
use crate::mover::{self, Mover, SharedPages};
use affinity::Affinities;
use carry::Books;
use ears::{Ears, EarsError, Heard};
use memtide_core::balancing::sampled::{
    Plan, Sampled, SampledAccess, SampledConfig, SampledError, Stays,
};
use memtide_core::balancing::{
    self, BalancerConfig, Clock, CpupidFormat, Modes, Pacing, SampleSettings, Settings, SpaceId,
    TaskId,
};
use memtide_core::hotness::{self, SECTION_PAGES};
use memtide_core::tiering::placement::Placement;
use memtide_core::tiering::space::{OwnerId, Space};
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, NodeId, PageSize};
use ration::Ration;
use report::{Reporter, Spent, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use threads::Threads;
use whereabouts::{Unknown, WhereError};

/// What happens to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// Nothing.
    Leave,
    /// It is said where they should run.
    Propose,
    /// They get an affinity, until the end.
    Set,
}

/// How the loop works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which processes.
    pub selection: Selection,
    /// Whether threads are placed.
    pub tasks: Tasks,
    /// How often a page must be seen within which window before it moves.
    pub hotness: hotness::Config,
    /// Pages that stay free on each node beyond its high watermark.
    pub headroom: u64,
    /// Most pages a second, in the long run.
    pub pages_per_s: u64,
    /// Share of one CPU that the loop may take in the long run, in thousandths.
    pub cpu_permille: u32,
    /// Decide and report, but move nothing.
    pub dry_run: bool,
    /// Report of each run of pages.
    pub explain: bool,
}

/// Why the loop cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BalancingError {
    /// A file of the kernel's.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// What was lent.
    #[error(transparent)]
    Affinity(#[from] affinity::AffinityError),
    /// The source.
    #[error(transparent)]
    Ears(#[from] EarsError),
    /// Where pages are.
    #[error(transparent)]
    Where(#[from] WhereError),
    /// Settings that do not fit.
    #[error(transparent)]
    Sampled(#[from] SampledError),
}

/// The largest space: 2 TiB of sampled addresses.
const SECTIONS: u32 = 16_384;
/// The longest wait of a turn while samples come.
const PATIENCE: Duration = Duration::from_millis(50);
/// The longest wait of a turn while none do.
const IDLE_PATIENCE: Duration = Duration::from_millis(1000);
/// How long samples come together before something is decided, in ms.
const BATCH_MS: u64 = 200;
/// How often the source's period is set anew.
const STEER_EVERY: Duration = Duration::from_millis(250);
/// The same while nothing is heard.
const QUIET_STEER_EVERY: Duration = Duration::from_millis(4000);
/// Nothing heard for so long is quiet.
const QUIET_AFTER_MS: u64 = 2000;
/// Pages that one turn may move, so that signals are heard.
const TURN_PAGES: u64 = 16_384;

/// The loop. See the module's essay.
pub struct Balancing {
    root: Root,
    topology: Topology,
    page: PageSize,
    options: Options,
    start: Instant,
    /// Boot to start, in ms: the core's clock runs since boot, so that a process
    /// that is older than this run has its start delay behind it.
    boot_ms: u64,
    ears: Ears,
    processes: Processes,
    /// Managed processes by pid, ascending.
    owners: Vec<(u32, OwnerId)>,
    spaces: BTreeMap<OwnerId, SpaceId>,
    threads: Threads,
    /// Who stands for the threads of a process that have ended, by node.
    departed: BTreeMap<(OwnerId, NodeId), TaskId>,
    affinities: Affinities,
    space: Space,
    placement: Placement,
    sampled: Sampled,
    plan: Plan,
    rooms: Rooms,
    surveyor: Surveyor<RunningKernel>,
    mover: Mover<RunningKernel>,
    heard: Vec<Heard>,
    /// Of what was heard, what counts.
    found: Vec<(SampledAccess, Clock)>,
    unknown: Unknown,
    /// When the source's period was set.
    steered: Instant,
    ration: Ration,
    /// What it took to begin.
    cpu_before: Duration,
    refreshed: Option<Millis>,
    reread: BTreeMap<OwnerId, refresh::Reread>,
    relocated: Millis,
    unstuck: Millis,
    expired: Millis,
    acted: Millis,
    /// When something was heard last.
    heard_at: Millis,
    told_invalid: Option<Millis>,
    told_starved: bool,
    /// Threads of which people know.
    told_tasks: BTreeSet<(affinity::Thread, NodeId, report::TaskState)>,
    counts: Counts,
    spent: Spent,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    samples: u64,
    local: u64,
    lost: u64,
    invalid_windows: u64,
    moved: u64,
    failed: u64,
    stays: Stays,
    proposed: usize,
    /// Samples and local ones at the last status.
    told: (u64, u64),
    /// Samples of the last turn.
    turn: u64,
}

impl Balancing {
    /// A loop over the machine under `root` that listens with `ears`.
    ///
    /// # Errors
    ///
    /// Settings that do not fit each other, or an unreadable machine.
    pub fn new(
        root: Root,
        topology: Topology,
        page: PageSize,
        ears: Ears,
        options: Options,
    ) -> Result<Balancing, BalancingError> {
        let kernel = RunningKernel::new(root.clone());
        let pages = u64::from(SECTIONS) * SECTION_PAGES as u64;
        let mover = mover::Config {
            // Calls as short as threads that use the pages want them.
            batch: 1024,
            base: page,
            shared: SharedPages::Leave,
            ..Default::default()
        };
        let sampled = SampledConfig {
            hotness: options.hotness,
            batch_pages: TURN_PAGES,
            pages_per_s: options.pages_per_s,
            tasks: options.tasks != Tasks::Leave,
            ..SampledConfig::new(balancer_config(&topology), pages)
        };
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let boot_ms = boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000;
        let mut ration = Ration::new(options.cpu_permille, Millis(0));
        let cpu_before = own_cpu();
        ration.begin(cpu_before.as_micros() as u64);
        Ok(Balancing {
            processes: Processes::new(root.clone(), page, options.selection.clone()),
            owners: Vec::new(),
            spaces: BTreeMap::new(),
            threads: Threads::default(),
            departed: BTreeMap::new(),
            affinities: Affinities::new(root.clone()),
            space: Space::new(SECTIONS),
            placement: Placement::new(),
            sampled: Sampled::new(sampled)?,
            plan: Plan::default(),
            rooms: Rooms::default(),
            surveyor: Surveyor::new(kernel.clone(), page),
            mover: Mover::new(kernel, mover),
            heard: Vec::with_capacity(1 << 16),
            found: Vec::with_capacity(1 << 16),
            unknown: Unknown::default(),
            steered: Instant::now(),
            ration,
            cpu_before,
            refreshed: None,
            reread: BTreeMap::new(),
            relocated: Millis(0),
            unstuck: Millis(0),
            expired: Millis(0),
            acted: Millis(0),
            heard_at: Millis(0),
            told_invalid: None,
            told_starved: false,
            told_tasks: BTreeSet::new(),
            counts: Counts::default(),
            spent: Spent::default(),
            start: Instant::now(),
            boot_ms,
            root,
            topology,
            page,
            options,
            ears,
        })
    }

    /// One turn, which waits for something to happen, at most a second.
    /// Returns whether any managed process is left.
    pub fn step(&mut self, reporter: &mut dyn Reporter) -> Result<bool, BalancingError> {
        self.refresh(reporter)?;
        let began = Instant::now();
        self.ears.provoke(self.at())?;
        self.spent.protect_ns += nanos(began);
        self.tell_left_out(reporter);
        self.ears.wait(self.patience())?;
        self.steer(reporter)?;
        self.listen(reporter)?;
        if self.counts.turn > 0 {
            self.heard_at = self.at();
        }
        if self.at().since(self.acted) >= BATCH_MS {
            self.acted = self.at();
            self.act(reporter)?;
        }
        let rest = self.ration.account(self.at(), own_cpu().as_micros() as u64);
        if rest > 0 {
            std::thread::sleep(Duration::from_millis(rest));
        }
        Ok(!self.processes.is_empty())
    }

    /// Puts back what was changed. How many threads were freed.
    pub fn finish(&mut self) -> Result<usize, BalancingError> {
        // Whatever becomes of the source: the threads are somebody else's.
        let freed = self.affinities.put_back();
        self.ears.listen_to(&[])?;
        Ok(freed?)
    }

    /// Where things stand.
    pub fn status(&mut self) -> Status {
        let counts = self.counts;
        let (told, told_local) = counts.told;
        self.counts.told = (counts.samples, counts.local);
        let (fresh, local) = (counts.samples - told, counts.local - told_local);
        let (cpu, elapsed) = (own_cpu(), self.start.elapsed());
        let own: u64 = {
            let Spent {
                refresh_ns,
                protect_ns,
                samples_ns,
                locate_ns,
                decide_ns,
                move_ns,
            } = self.spent;
            refresh_ns + protect_ns + samples_ns + locate_ns + decide_ns + move_ns
        };
        let since = cpu.saturating_sub(self.cpu_before);
        let percent = 100.0 * since.as_secs_f64() / elapsed.as_secs_f64().max(0.001);
        Status {
            at_ms: self.at().0,
            source: self.ears.name(),
            processes: self.processes.len(),
            tasks: self.threads.len(),
            samples: counts.samples,
            local_samples: counts.local,
            local_permille: (local * 1000).checked_div(fresh),
            lost: counts.lost,
            invalid_windows: counts.invalid_windows,
            period: self.ears.period(),
            moved_pages: counts.moved,
            failed_pages: counts.failed,
            forbidden_pages: counts.stays.immovable,
            no_room_pages: counts.stays.no_room,
            placed_tasks: self.affinities.lent() + counts.proposed,
            cpu,
            cpu_percent: (percent * 100.0).round() / 100.0,
            cpu_limit_percent: f64::from(self.options.cpu_permille) / 10.0,
            rested_ms: self.ration.rested_ms(),
            spent: self.spent,
            ns_per_moved_page: own.checked_div(counts.moved),
        }
    }

    fn tell_left_out(&mut self, reporter: &mut dyn Reporter) {
        for (pid, bytes) in self.ears.left_out() {
            let gib = bytes >> 30;
            let text = format!(
                "process {pid} is left out: it holds {gib} GiB, and all that it writes would fault at once"
            );
            reporter.event(self.at(), report::Event::Notice { text });
        }
    }

    fn patience(&self) -> Duration {
        match self.counts.turn {
            0 => IDLE_PATIENCE,
            _ => PATIENCE,
        }
    }

    /// Whether nothing was heard for a while: then there is time for everything.
    fn is_quiet(&self) -> bool {
        self.at().since(self.heard_at) >= QUIET_AFTER_MS
    }

    /// Milliseconds since the start, for people.
    fn at(&self) -> Millis {
        Millis(self.start.elapsed().as_millis() as u64)
    }

    /// Milliseconds since boot, for the core.
    fn now(&self) -> Millis {
        Millis(self.boot_ms + self.at().0)
    }

    /// Sets the source's period by what came since the last time, and looks for
    /// threads and CPUs that came or went.
    fn steer(&mut self, reporter: &mut dyn Reporter) -> Result<(), BalancingError> {
        let elapsed = self.steered.elapsed();
        let pause = match self.is_quiet() {
            true => QUIET_STEER_EVERY,
            false => STEER_EVERY,
        };
        if elapsed < pause {
            return Ok(());
        }
        self.steered = Instant::now();
        let began = Instant::now();
        let starved = self.ears.refresh()?;
        if starved && !std::mem::replace(&mut self.told_starved, true) {
            let name = self.ears.name();
            let text =
                format!("{name}: another program keeps the unit busy, nothing is sampled; stop it");
            reporter.event(self.at(), report::Event::Notice { text });
        }
        // The document's feedback, as a share of its first period: who has less to
        // learn wants fewer samples.
        let first = u64::from(SampleSettings::default().period);
        let percent = (first * 100)
            .checked_div(self.sampled.period())
            .unwrap_or(100);
        self.ears.adapt(elapsed, percent.clamp(50, 200) as u32);
        self.spent.refresh_ns += nanos(began);
        Ok(())
    }

    /// Decides about what has come together, and does it.
    fn act(&mut self, reporter: &mut dyn Reporter) -> Result<(), BalancingError> {
        let queued = !self.sampled.pending().is_empty();
        if !queued && self.options.tasks == Tasks::Leave {
            return Ok(());
        }
        let began = Instant::now();
        if queued {
            let zones = zoneinfo::read(&self.root)?;
            self.rooms = Rooms::new(&self.topology, &zones, self.options.headroom);
        }
        let now = self.now();
        let machine = Machine {
            space: &self.space,
            placement: &self.placement,
            processes: &self.processes,
            rooms: &self.rooms,
        };
        self.sampled.act(now, &machine, &mut self.plan);
        self.counts.add_stays(&self.plan.stays);
        self.spent.decide_ns += nanos(began);
        let began = Instant::now();
        let plan = std::mem::take(&mut self.plan);
        let mut books = Books {
            processes: &self.processes,
            space: &self.space,
            placement: &mut self.placement,
            mover: &mut self.mover,
            page: self.page,
            at: Millis(self.start.elapsed().as_millis() as u64),
            dry_run: self.options.dry_run,
            explain: self.options.explain,
        };
        let sampled = &mut self.sampled;
        let sums = books.carry_out(&plan.moves, reporter, |wanted, moved| {
            sampled.outcome(wanted, moved, now);
        });
        self.counts.moved += sums.moved;
        self.counts.failed += sums.failed;
        self.place_tasks(&plan.tasks, reporter);
        self.plan = plan;
        self.spent.move_ns += nanos(began);
        Ok(())
    }
}

impl Counts {
    fn add_stays(&mut self, more: &Stays) {
        self.stays.immovable += more.immovable;
        self.stays.no_room += more.no_room;
    }
}

/// The kernel's defaults on this machine, fed by samples.
fn balancer_config(topology: &Topology) -> BalancerConfig {
    let machine = balancing::Machine::new(topology);
    let mut node_of_cpu: Vec<NodeId> = Vec::new();
    for node in topology.nodes() {
        for &cpu in &node.cpus {
            let cpus = cpu as usize + 1;
            node_of_cpu.resize(node_of_cpu.len().max(cpus), node.id);
            node_of_cpu[cpu as usize] = node.id;
        }
    }
    let cpus = (node_of_cpu.len() as u32).max(1);
    // One more than the CPUs need, so that "none" is no CPU.
    let cpu_bits = (u32::BITS - cpus.leading_zeros()).max(1);
    let format = CpupidFormat::new(cpu_bits, 31 - cpu_bits, cpus);
    BalancerConfig {
        settings: Settings::default(),
        scan_pages: 1 << 16,
        chunk_pages: 512,
        modes: Modes::from_bits(1),
        format: format.expect("31 bits hold any machine's CPUs"),
        machine,
        node_of_cpu,
        pacing: Pacing::Samples(SampleSettings::default()),
    }
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// Processor time that this process has used.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
