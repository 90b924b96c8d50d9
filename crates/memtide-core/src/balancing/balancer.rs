//! The state of all tasks, and the parts put together.

use super::cpupid::{Cpupid, CpupidFormat};
use super::faults::{Counted, Faults};
use super::gate::{self, Asker, Verdict};
use super::group::{Group, Groups, Join};
use super::machine::Machine;
use super::pacing::{Counting, Pacing};
use super::placement;
use super::scan::{Mapping, Progress, Scanned, Scanner};
use super::task::{SCAN_COST_FACTOR, TICK_NS, Task};
use super::timing::{FaultSums, Feedback, Periods, Settings, feedback};
use crate::units::NodeId;
use serde::Serialize;
use std::ops::Range;

/// Longest pause between two tries to run a task on its preferred node, in ms.
pub const RETRY_MS: u64 = 1000;

/// A task's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

/// An address space's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SpaceId(pub u32);

/// `kernel.numa_balancing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Modes {
    /// Bit 0: memory and tasks to each other.
    pub classic: bool,
    /// Bit 1: hot pages of slow memory up.
    pub tiering: bool,
}

impl Modes {
    /// The modes of a value of the setting.
    #[must_use]
    pub fn from_bits(bits: u8) -> Modes {
        Modes {
            classic: bits & 1 != 0,
            tiering: bits & 2 != 0,
        }
    }

    /// Whether anything is on.
    #[must_use]
    pub fn any(self) -> bool {
        self.classic || self.tiering
    }
}

/// What does not change.
#[derive(Clone, Debug)]
pub struct BalancerConfig {
    /// The scan settings.
    pub settings: Settings,
    /// Pages that a scan arms: `scan_size_mb` in pages, or less on a scaled machine.
    pub scan_pages: u64,
    /// A scan's chunks end at multiples of this.
    pub chunk_pages: u64,
    /// What is balanced.
    pub modes: Modes,
    /// How pages remember their touchers.
    pub format: CpupidFormat,
    /// The nodes.
    pub machine: Machine,
    /// The node of each CPU.
    pub node_of_cpu: Vec<NodeId>,
    /// What reports accesses, and so when tasks are placed.
    pub pacing: Pacing,
}

/// A time, seen two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Since the machine's start.
    pub now_ns: u64,
    /// Time that the task spent on a CPU.
    pub runtime_ns: u64,
}

impl Clock {
    /// Whole milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }
}

/// A task touched a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Who.
    pub task: TaskId,
    /// On which CPU.
    pub cpu: u32,
    /// The node that held the page.
    pub node: NodeId,
    /// Base pages that moved or stayed together.
    pub pages: u64,
    /// Who touched it before, as the page says; [`CpupidFormat::none`] for a page
    /// of slow memory in tiering mode, which holds a time there.
    pub last: Cpupid,
    /// Whether the entry allows stores: tasks do not group over what they only read.
    pub writable: bool,
    /// Whether several processes map it, in a shared mapping.
    pub shared: bool,
}

/// What became of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stayed, as it should.
    Stayed,
    /// It moved there.
    Moved(NodeId),
    /// It should have moved and could not.
    Failed,
}

/// What recording a touch led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// How it was counted, if it was.
    pub counted: Option<Counted>,
    /// What became of the group.
    pub join: Option<Join>,
    /// Whether the task was placed.
    pub placed: bool,
    /// Run the task there if there is room.
    pub run_on: Option<NodeId>,
}

#[derive(Clone, Debug)]
struct Space {
    progress: Progress,
    next_scan_ms: Option<u64>,
    born_ms: u64,
    threads: u64,
    resident_pages: u64,
    mappings: Vec<Mapping>,
}

/// See [`super`].
#[derive(Clone, Debug)]
pub struct Balancer {
    config: BalancerConfig,
    tasks: Vec<Option<Task>>,
    spaces: Vec<Space>,
    groups: Groups,
    /// The task on each CPU.
    running: Vec<Option<TaskId>>,
}

impl Balancer {
    /// A balancer without tasks.
    #[must_use]
    pub fn new(config: BalancerConfig) -> Balancer {
        let cpus = config.node_of_cpu.len();
        Balancer {
            config,
            tasks: Vec::new(),
            spaces: Vec::new(),
            groups: Groups::new(),
            running: vec![None; cpus],
        }
    }

    /// What does not change.
    #[must_use]
    pub fn config(&self) -> &BalancerConfig {
        &self.config
    }

    /// A new address space at `now_ms`; `mappings` ascend by address.
    pub fn add_space(&mut self, mappings: Vec<Mapping>, now_ms: u64) -> SpaceId {
        let delay = u64::from(self.config.settings.scan_delay_ms);
        self.spaces.push(Space {
            progress: Progress::default(),
            next_scan_ms: Some(now_ms + delay),
            born_ms: now_ms,
            threads: 0,
            resident_pages: 0,
            mappings,
        });
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// How many pages of the space have memory; decides how many scans a pass takes.
    pub fn set_resident(&mut self, space: SpaceId, pages: u64) {
        self.spaces[space.0 as usize].resident_pages = pages;
    }

    /// A new task: the first of its space, or a thread that `parent` started.
    pub fn add_task(&mut self, space: SpaceId, pid: u32, parent: Option<TaskId>) -> TaskId {
        let own = &mut self.spaces[space.0 as usize];
        own.threads += 1;
        let users = own.threads;
        let delay = u64::from(self.config.settings.scan_delay_ms);
        let kin = parent
            .and_then(|p| self.task(p))
            .filter(|t| t.space == space.0 as usize);
        let (preferred, stamp_ns) = match kin {
            None => (None, 0),
            Some(task) => {
                // Milliseconds are compared with nanoseconds here, as in the
                // kernel, so the pause is next to nothing.
                let wide = task.period_ms.saturating_mul(users * 1_000_000);
                let stamp = self.periods(task).max_ms.min(wide) + 2 * TICK_NS;
                (task.preferred, stamp)
            }
        };
        self.tasks.push(Some(Task {
            pid,
            space: space.0 as usize,
            faults: Faults::new(self.config.machine.slots()),
            group: None,
            preferred,
            seen_seq: self.spaces[space.0 as usize].progress.seq(),
            period_ms: delay,
            period_max_ms: u64::from(self.config.settings.scan_period_max_ms),
            stamp_ns,
            retry_ms: 0,
            placed: None,
            cpu: None,
            sample_period: match &self.config.pacing {
                Pacing::Scans => 0,
                Pacing::Samples(settings) => u64::from(settings.period),
            },
            samples: 0,
            window: 0,
        }));
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// The task ended.
    pub fn remove_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks[id.0 as usize].take() else {
            return;
        };
        self.spaces[task.space].threads -= 1;
        if let Some(group) = task.group {
            self.groups.leave(group, task.faults.averages());
        }
        self.vacate(task.cpu, id);
    }

    /// Empties a CPU if the task is what is noted there.
    fn vacate(&mut self, cpu: Option<u32>, id: TaskId) {
        if let Some(on) = cpu.and_then(|cpu| self.running.get_mut(cpu as usize))
            && *on == Some(id)
        {
            *on = None;
        }
    }

    /// `task` runs on `cpu` from now on, and no more where it ran before.
    pub fn runs(&mut self, task: TaskId, cpu: u32) {
        if self.running.get(cpu as usize) == Some(&Some(task)) {
            return;
        }
        let Some(own) = self.tasks.get_mut(task.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let before = own.cpu.replace(cpu);
        self.vacate(before, task);
        if let Some(on) = self.running.get_mut(cpu as usize) {
            *on = Some(task);
        }
    }

    /// A task that has not ended.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.0 as usize)?.as_ref()
    }

    /// A task's group.
    #[must_use]
    pub fn group_of(&self, id: TaskId) -> Option<&Group> {
        self.groups.get(self.task(id)?.group?)
    }

    /// All groups, oldest first.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// How far a space's scans have come.
    #[must_use]
    pub fn progress(&self, space: SpaceId) -> Progress {
        self.spaces[space.0 as usize].progress
    }

    /// The scan periods of a task now.
    #[must_use]
    pub fn periods_of(&self, id: TaskId) -> Option<Periods> {
        Some(self.periods(self.task(id)?))
    }

    /// Whether the task's accesses are sampled yet: a new space is left alone for
    /// the start delay.
    #[must_use]
    pub fn samples(&self, id: TaskId, now_ms: u64) -> bool {
        let Pacing::Samples(settings) = &self.config.pacing else {
            return false;
        };
        let space = self.task(id).map(|task| &self.spaces[task.space]);
        space.is_some_and(|space| now_ms >= space.born_ms + u64::from(settings.delay_ms))
    }

    /// The gate's verdict on moving a page to its toucher's node. For a page of
    /// slow memory in tiering mode ask the promotion gate instead.
    #[must_use]
    pub fn should_move(&self, touch: &Touch) -> Verdict {
        let Some(task) = self.task(touch.task) else {
            return Verdict::Stale;
        };
        let Some(node) = self.node_of_cpu(touch.cpu) else {
            return Verdict::NoMemory;
        };
        let asker = Asker {
            pid: task.pid,
            node,
            settled: task.is_settled(&self.config.pacing),
            group: task.group.and_then(|id| self.groups.get(id)),
        };
        gate::should_move(
            &asker,
            touch.node,
            touch.last,
            self.config.modes.tiering,
            &self.config.format,
            &self.config.machine,
            |cpu| self.node_of_cpu(cpu),
        )
    }

    /// What the page shall say after the touch.
    #[must_use]
    pub fn signature(&self, touch: &Touch) -> Cpupid {
        let pid = self.task(touch.task).map_or(0, |t| t.pid);
        self.config.format.pack(touch.cpu, pid)
    }

    /// Counts a touch, and places the task if it is time.
    pub fn record(&mut self, touch: &Touch, outcome: Outcome, clock: &Clock) -> Recorded {
        let mut report = Recorded::default();
        let Some(cpu_node) = self.node_of_cpu(touch.cpu) else {
            return report;
        };
        let Some(pid) = self.task(touch.task).map(|t| t.pid) else {
            return report;
        };
        let mem = match outcome {
            Outcome::Moved(node) => node,
            Outcome::Stayed | Outcome::Failed => touch.node,
        };
        let format = self.config.format;
        let slow = !self.config.machine.is_top_tier(mem);
        if slow && (self.config.modes.tiering || !format.is_valid(touch.last)) {
            return report;
        }
        let mut private = touch.last == format.none() || format.matches(touch.last, pid);
        if !private && touch.writable {
            let join = self.meet(touch);
            private = join == Join::Stranger;
            report.join = Some(join);
        }
        let mut local = touch.node == cpu_node;
        if !private && !local {
            local = self
                .group_of(touch.task)
                .is_some_and(|g| g.active_nodes() > 1 && g.is_active(cpu_node) && g.is_active(mem));
        }
        let every = self.config.pacing.counts(Counting::Every);
        if every && let Some(task) = &mut self.tasks[touch.task.0 as usize] {
            task.samples += 1;
            task.window += 1;
        }
        if clock.now_ms() > self.task(touch.task).map_or(0, |t| t.retry_ms) {
            report.placed = self.place(touch.task, clock);
            report.run_on = self.try_preferred(touch.task, cpu_node, clock.now_ms());
        }
        let counted = Counted {
            pages: touch.pages,
            mem,
            cpu: cpu_node,
            private,
            local,
            failed: outcome == Outcome::Failed,
        };
        if let Some(task) = &mut self.tasks[touch.task.0 as usize] {
            task.faults.count(&counted);
        }
        report.counted = Some(counted);
        report
    }

    /// Pages that were counted as moved could not be, as a batch found out later.
    pub fn failed(&mut self, id: TaskId, pages: u64) {
        if let Some(Some(task)) = self.tasks.get_mut(id.0 as usize) {
            task.faults.count_failed(pages);
        }
    }

    /// Notes in the mapping around `page` that the task faulted there.
    pub fn faulted_in(&mut self, id: TaskId, mapping: usize) {
        if let Some(task) = &self.tasks[id.0 as usize]
            && let Some(mapping) = self.spaces[task.space].mappings.get_mut(mapping)
        {
            mapping.touched(task.pid);
        }
    }

    /// A tick while the task ran: whether it should scan on its way back to
    /// user mode.
    pub fn tick(&mut self, id: TaskId, clock: &Clock) -> bool {
        let Some(periods) = self.periods_of(id) else {
            return false;
        };
        let Some(task) = &mut self.tasks[id.0 as usize] else {
            return false;
        };
        let next = self.spaces[task.space].next_scan_ms;
        task.tick(clock.runtime_ns, &periods) && next.is_none_or(|at| clock.now_ms() >= at)
    }

    /// Whether the task is the one that scans now. Of several that are due the
    /// first wins and moves the space's next scan away.
    pub fn begin_scan(&mut self, id: TaskId, clock: &Clock) -> bool {
        let Some(periods) = self.periods_of(id) else {
            return false;
        };
        let delay = u64::from(self.config.settings.scan_delay_ms);
        let Some(task) = &mut self.tasks[id.0 as usize] else {
            return false;
        };
        let space = &mut self.spaces[task.space];
        let now = clock.now_ms();
        if now < *space.next_scan_ms.get_or_insert(now + delay) {
            return false;
        }
        if task.period_ms == 0 {
            task.period_max_ms = periods.max_ms;
            task.period_ms = periods.start_ms;
        }
        space.next_scan_ms = Some(now + task.period_ms);
        task.stamp_ns += 2 * TICK_NS;
        true
    }

    /// The scan itself, by the winner of [`Balancer::begin_scan`]: `arm` gets a
    /// mapping's position and a range of its pages and returns the entries changed.
    pub fn scan(
        &mut self,
        id: TaskId,
        clock: &Clock,
        arm: impl FnMut(usize, Range<u64>) -> u64,
    ) -> Scanned {
        let Some(task) = self.tasks.get(id.0 as usize).and_then(Option::as_ref) else {
            return Scanned::default();
        };
        let space = &mut self.spaces[task.space];
        let scanner = Scanner {
            pid: task.pid,
            threads: space.threads,
            now_ms: clock.now_ms(),
            pages: self.config.scan_pages,
            chunk_pages: self.config.chunk_pages,
        };
        let settings = &self.config.settings;
        let (progress, mappings) = (&mut space.progress, &mut space.mappings);
        super::scan::pass(progress, mappings, &scanner, settings, arm)
    }

    /// The scan cost the task this much CPU time.
    pub fn end_scan(&mut self, id: TaskId, cost_ns: u64) {
        if let Some(task) = &mut self.tasks[id.0 as usize] {
            task.stamp_ns += SCAN_COST_FACTOR * cost_ns;
        }
    }

    fn node_of_cpu(&self, cpu: u32) -> Option<NodeId> {
        self.config.node_of_cpu.get(cpu as usize).copied()
    }

    fn periods(&self, task: &Task) -> Periods {
        let pages = self.spaces[task.space].resident_pages;
        let windows = Settings::windows(pages, self.config.scan_pages);
        let group = task.group.and_then(|id| self.groups.get(id));
        let share = group.map(Group::share);
        self.config.settings.periods(windows, share)
    }

    /// A shared fault: the task and the last toucher may belong together.
    fn meet(&mut self, touch: &Touch) -> Join {
        let format = self.config.format;
        let last_cpu = format.cpu(touch.last) as usize;
        let there = self.running.get(last_cpu).copied().flatten();
        let Some(task) = &mut self.tasks[touch.task.0 as usize] else {
            return Join::Stays;
        };
        let mine = match task.group {
            Some(group) => group,
            None => *task.group.insert(self.groups.found(task.faults.averages())),
        };
        let space = task.space;
        let other = there
            .and_then(|id| self.task(id))
            .filter(|other| format.matches(touch.last, other.pid));
        let Some((other, kin)) = other.and_then(|t| Some((t.group?, t.space == space))) else {
            return Join::Stays;
        };
        let Some(task) = &mut self.tasks[touch.task.0 as usize] else {
            return Join::Stays;
        };
        let kin = kin || touch.shared;
        let join = self.groups.meet(mine, task.faults.averages(), other, kin);
        if let Join::Joined(group) = join {
            task.group = Some(group);
        }
        join
    }

    /// Places the task if it is time: a sequence of scans ended since the last
    /// time, or enough samples came.
    fn place(&mut self, id: TaskId, clock: &Clock) -> bool {
        let Some(mut task) = self.tasks[id.0 as usize].take() else {
            return false;
        };
        let due = self.is_due(&mut task);
        if due {
            if self.config.pacing == Pacing::Scans {
                task.period_max_ms = self.periods(&task).max_ms;
            }
            let ran = task.ran(clock.runtime_ns, clock.now_ns);
            if let Some(group) = task.group {
                self.groups.withdraw(group, task.faults.averages());
            }
            let sums = task.faults.fold(ran);
            if let Some(group) = task.group {
                self.groups.deposit(group, task.faults.averages());
            }
            self.prefer(&mut task);
            self.adjust(&mut task, &sums, clock.now_ms());
        }
        self.tasks[id.0 as usize] = Some(task);
        due
    }

    fn is_due(&self, task: &mut Task) -> bool {
        match &self.config.pacing {
            Pacing::Scans => {
                let seq = self.spaces[task.space].progress.seq();
                std::mem::replace(&mut task.seen_seq, seq) != seq
            }
            Pacing::Samples(settings) => {
                if settings.counting == Counting::BetweenRetries {
                    task.samples += 1;
                    task.window += 1;
                }
                let due = task.window >= u64::from(settings.placement_samples);
                if due {
                    task.window = 0;
                }
                due
            }
        }
    }

    /// The period after what was seen since the last placement.
    fn adjust(&mut self, task: &mut Task, sums: &FaultSums, now_ms: u64) {
        let next = match &self.config.pacing {
            Pacing::Scans => {
                let limits = self.periods(task);
                let next = feedback(task.period_ms, task.period_max_ms, &limits, sums);
                task.period_ms = next.period();
                if let Feedback::BackOff { period } = next {
                    self.spaces[task.space].next_scan_ms = Some(now_ms + period);
                }
                next
            }
            Pacing::Samples(settings) => {
                let next = settings.feedback(task.sample_period, sums);
                task.sample_period = next.period();
                next
            }
        };
        if matches!(next, Feedback::Adjusted { .. }) {
            task.faults.forget_locality();
        }
    }

    /// Chooses the task's preferred node anew.
    fn prefer(&mut self, task: &mut Task) {
        let machine = &self.config.machine;
        let group = task.group.and_then(|id| self.groups.get_mut(id));
        let most = match &group {
            Some(group) => group.sums().mem.most(),
            None => task.faults.averages().mem.most(),
        };
        let busiest = most.map(|(node, _)| machine.nearest_with_cpus(node));
        if let Some(group) = group {
            group.count_active(machine);
            if let Some(busiest) = busiest {
                task.preferred = Some(placement::group_node(group, busiest, machine));
            }
        } else if busiest.is_some() {
            task.preferred = busiest;
        }
    }

    /// Whether the task should be taken to its preferred node, and when to ask again.
    fn try_preferred(&mut self, id: TaskId, here: NodeId, now_ms: u64) -> Option<NodeId> {
        let task = self.tasks[id.0 as usize].as_mut()?;
        let preferred = task.preferred?;
        // Samples' operations pass for milliseconds here, as in the document.
        let period = match &self.config.pacing {
            Pacing::Scans => task.period_ms,
            Pacing::Samples(_) => task.sample_period,
        };
        task.retry_ms = now_ms + RETRY_MS.min(period / 16);
        (preferred != here).then_some(preferred)
    }
}

#[cfg(test)]
#[path = "balancer_tests.rs"]
mod tests;
