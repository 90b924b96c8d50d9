//! Balancing from access samples, in batches.
//!
//! The IBS balancing series feeds balancing with hardware samples in
//! place of hint faults and acts on each at once: one sample, one look at the
//! page, one move. Its reviewers had two objections. A page that was sampled was
//! used *recently*, which does not say that it is used *often*; and nobody knew
//! what a page that moves costs. Here
//!
//! - a sample only counts: for its task, as a hint fault would, and for its page
//!   in the [hotness store](crate::hotness), which forgets what is older than a
//!   window. Pages that the gate lets move queue up, in room of fixed size;
//! - now and then a batch *acts* ([`Sampled::act`]): pages that are still seen
//!   often enough, last by the node to which they would go, and that did not just
//!   move, become a [`Plan`], which the backend carries out with one call for
//!   many pages;
//! - every nanosecond that the backend reports is booked by cause in an
//!   [`Account`], so that the cost of a page is a division.
//!
//! [`Sampled::sample`] allocates nothing once a page's section exists, and asks
//! nobody. Who does not know where a page lies leaves [`SampledAccess::node`]
//! empty; the gate is then asked when the batch acts, which looks the page up.
//!
//! What stays true: a page is queued at most once; no page goes where its owner
//! forbids; a page that has moved rests, twice as long each time, so that two
//! nodes that want the same page cannot play with it.

mod account;
mod act;
mod config;
mod notes;
mod plan;

pub use account::{Account, Cause, Entry};
pub use config::{SampledConfig, SampledError};
pub use plan::{PageMove, Plan, Stay, Stays, TaskMove};

use super::balancer::{Balancer, Clock, Outcome, Recorded, SpaceId, TaskId, Touch};
use super::gate::Verdict;
use super::pacing::Pacing;
use crate::hotness::Store;
use crate::units::{Millis, NodeId, PageNumber};
use notes::Notes;

/// Samples whose pages' cache misses overlap.
const LOOK_AHEAD: usize = 32;

/// A sampled access of a task to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledAccess {
    /// Who.
    pub task: TaskId,
    /// On which CPU.
    pub cpu: u32,
    /// The first page of the folio, in the space of [`SampledConfig::pages`].
    pub page: PageNumber,
    /// Base pages of the folio.
    pub pages: u32,
    /// The node that holds the page, if the source says so.
    pub node: Option<NodeId>,
    /// Whether the mapping allows stores: tasks do not group over what they only read.
    pub writable: bool,
    /// Whether several processes map the page, in a shared mapping.
    pub shared: bool,
}

/// What a sample did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighted {
    /// Whether it counted: not before the start delay is over, not for a task or
    /// CPU that is unknown.
    pub counted: bool,
    /// The gate's verdict, if the page's node was known.
    pub verdict: Option<Verdict>,
    /// What became of the task's statistics, if the page's node was known.
    pub recorded: Recorded,
    /// Whether the page is queued by it.
    pub queued: bool,
}

/// A page that waits for the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The folio's first page.
    pub page: PageNumber,
    /// Base pages of the folio.
    pub pages: u32,
    /// Who touched it.
    pub task: TaskId,
    /// From this node, where it would go.
    pub to: NodeId,
    /// The gate's verdict; `None` if the page's node was not known.
    pub verdict: Option<Verdict>,
    touch: Touch,
    clock: Clock,
}

/// See the module.
#[derive(Debug)]
pub struct Sampled {
    config: SampledConfig,
    balancer: Balancer,
    store: Store,
    notes: Notes,
    pending: Vec<Pending>,
    /// The latest wish of a task to run elsewhere, by task.
    wishes: Vec<Option<NodeId>>,
    /// Tasks with a wish, each once.
    wishing: Vec<TaskId>,
    task_rest_ms: Vec<u64>,
    dropped: u64,
    allowance: act::Allowance,
    account: Account,
}

impl Sampled {
    /// A balancer without tasks.
    ///
    /// # Errors
    ///
    /// Settings that do not fit each other.
    pub fn new(config: SampledConfig) -> Result<Sampled, SampledError> {
        let config = config.checked()?;
        Ok(Sampled {
            balancer: Balancer::new(config.balancer.clone()),
            store: Store::new(config.hotness, config.pages),
            notes: Notes::new(config.pages, config.balancer.format.none()),
            pending: Vec::with_capacity(config.queue),
            wishes: Vec::new(),
            wishing: Vec::new(),
            task_rest_ms: Vec::new(),
            dropped: 0,
            allowance: act::Allowance::default(),
            account: Account::default(),
            config,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &SampledConfig {
        &self.config
    }

    /// Tasks and groups.
    #[must_use]
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The same, for a backend that moves tasks about by itself.
    pub fn balancer_mut(&mut self) -> &mut Balancer {
        &mut self.balancer
    }

    /// How often pages are seen.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A new address space; its start delay begins.
    pub fn add_space(&mut self, now_ms: u64) -> SpaceId {
        self.balancer.add_space(Vec::new(), now_ms)
    }

    /// A new task: the first of its space, or a thread that `parent` started.
    pub fn add_task(&mut self, space: SpaceId, pid: u32, parent: Option<TaskId>) -> TaskId {
        let task = self.balancer.add_task(space, pid, parent);
        let tasks = task.0 as usize + 1;
        self.wishes.resize(tasks.max(self.wishes.len()), None);
        self.wishing
            .reserve(tasks.saturating_sub(self.wishing.len()));
        self.task_rest_ms
            .resize(tasks.max(self.task_rest_ms.len()), 0);
        task
    }

    /// The task ended; what it asked for is forgotten.
    pub fn remove_task(&mut self, task: TaskId) {
        self.balancer.remove_task(task);
        self.wishing.retain(|&wishing| wishing != task);
        if let Some(wish) = self.wishes.get_mut(task.0 as usize) {
            *wish = None;
        }
        let notes = &mut self.notes;
        self.pending.retain(|pending| {
            let stays = pending.task != task;
            if !stays {
                notes.unqueue(pending.page);
            }
            stays
        });
    }

    /// `task` runs on `cpu` from now on.
    pub fn runs(&mut self, task: TaskId, cpu: u32) {
        self.balancer.runs(task, cpu);
    }

    /// The page is no more what it was: freed, or mapped anew.
    pub fn forget(&mut self, page: PageNumber) {
        self.store.forget(page);
        self.notes.forget(page);
    }

    /// Pages that wait for the next batch, in the order in which they came: what
    /// a backend looks up before [`Sampled::act`].
    #[must_use]
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Samples whose pages found the queue full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What balancing has cost so far.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// To book what the backend spent.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Operations between samples of a task; `None` while its space's start delay
    /// lasts, and for a task that has ended.
    #[must_use]
    pub fn task_period(&self, task: TaskId, now_ms: u64) -> Option<u64> {
        let samples = self.balancer.samples(task, now_ms);
        let task = self.balancer.task(task).filter(|_| samples)?;
        Some(task.sample_period())
    }

    /// Operations between samples if one period serves all: the mean over the
    /// tasks that have not ended, or the first period without tasks.
    #[must_use]
    pub fn period(&self) -> u64 {
        let tasks = (0..self.wishes.len() as u32).filter_map(|id| self.balancer.task(TaskId(id)));
        let (mut sum, mut count) = (0, 0);
        for task in tasks {
            sum += task.sample_period();
            count += 1;
        }
        match (sum, &self.config.balancer.pacing) {
            (0, Pacing::Samples(settings)) => u64::from(settings.period),
            _ => sum / count.max(1),
        }
    }

    /// Counts samples that came together: what a sampler's buffer held. Cheaper a
    /// sample than [`Sampled::sample`], which it is otherwise, where pages are many.
    pub fn sample_batch(&mut self, accesses: &[(SampledAccess, Clock)]) {
        for chunk in accesses.chunks(LOOK_AHEAD) {
            let pages = || chunk.iter().map(|(access, _)| access.page);
            self.store.glance(pages());
            self.notes.glance(pages());
            for (access, clock) in chunk {
                self.sample(access, clock);
            }
        }
    }

    /// Counts a sample; `clock` is its time and its task's.
    pub fn sample(&mut self, access: &SampledAccess, clock: &Clock) -> Sighted {
        let mut sighted = Sighted::default();
        let node = self.config.balancer.node_of_cpu.get(access.cpu as usize);
        let Some(&to) = node else {
            return sighted;
        };
        if !self.balancer.samples(access.task, clock.now_ms()) || !self.notes.holds(access.page) {
            return sighted;
        }
        sighted.counted = true;
        self.balancer.runs(access.task, access.cpu);
        self.store
            .record(access.page, Some(to), Millis(clock.now_ms()));
        let mut touch = Touch {
            task: access.task,
            cpu: access.cpu,
            node: access.node.unwrap_or(to),
            pages: u64::from(access.pages),
            last: self.config.balancer.format.none(),
            writable: access.writable,
            shared: access.shared,
        };
        let signature = self.balancer.signature(&touch);
        let (last, queued) = self.notes.touch(access.page, signature);
        touch.last = last;
        let mut wanted = true;
        if access.node.is_some() {
            let (verdict, recorded) = self.judge(&touch, to, clock);
            sighted.verdict = Some(verdict);
            sighted.recorded = recorded;
            wanted = verdict.moves() && touch.node != to;
        }
        if wanted && !queued {
            sighted.queued = self.queue(Pending {
                page: access.page,
                pages: access.pages,
                task: access.task,
                to,
                verdict: sighted.verdict,
                touch,
                clock: *clock,
            });
        }
        sighted
    }

    /// Asks the gate and counts for the task. A page that may move counts where it
    /// would go, as a page that a hint fault moves does.
    fn judge(&mut self, touch: &Touch, to: NodeId, clock: &Clock) -> (Verdict, Recorded) {
        let verdict = self.balancer.should_move(touch);
        let outcome = match verdict.moves() && touch.node != to {
            true => Outcome::Moved(to),
            false => Outcome::Stayed,
        };
        let recorded = self.balancer.record(touch, outcome, clock);
        if let Some(node) = recorded.run_on {
            self.wish(touch.task, node);
        }
        (verdict, recorded)
    }

    fn wish(&mut self, task: TaskId, node: NodeId) {
        if let Some(wish) = self.wishes.get_mut(task.0 as usize)
            && self.config.tasks
            && wish.replace(node).is_none()
        {
            self.wishing.push(task);
        }
    }

    fn queue(&mut self, pending: Pending) -> bool {
        let room = self.pending.len() < self.config.queue;
        match room {
            true => {
                self.notes.queue(pending.page);
                self.pending.push(pending);
            }
            false => self.dropped += 1,
        }
        room
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
