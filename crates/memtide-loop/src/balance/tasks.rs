//! Which thread is which task, and where tasks should run.

use super::config::Tasks as What;
use super::shared::Shared;
use super::threads::{Resolved, Threads};
use crate::report::{Event, Reporter, TaskMove, TaskState};
use crate::world::{Affinity, Kept, Lend, ProcessId, Sample, ThreadId, World, WorldError};
use memtide_core::balancing::{SpaceId, TaskId, sampled};
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// The threads of managed processes as tasks of the core's.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub threads: Threads,
    spaces: BTreeMap<OwnerId, SpaceId>,
    /// Who stands for the threads of a process that have ended, by node.
    departed: BTreeMap<(OwnerId, NodeId), TaskId>,
    /// Threads of which people know.
    told: BTreeSet<(ThreadId, NodeId, TaskState)>,
}

impl Tasks {
    /// A process is managed from now on; it was `born` so long after boot.
    pub fn came(&mut self, shared: &mut Shared, owner: OwnerId, born: Millis) {
        self.spaces.insert(owner, shared.sampled.add_space(born.0));
    }

    /// Whether a thread of `process` was given an affinity.
    pub fn has_lent(&self, process: ProcessId) -> bool {
        let set = |(thread, _, state): &(ThreadId, NodeId, TaskState)| {
            thread.pid == process.pid && *state == TaskState::Set
        };
        self.told.iter().any(set)
    }

    /// Forgets a process whose slot another one may get.
    pub fn went(&mut self, shared: &mut Shared, owner: OwnerId, process: ProcessId) {
        self.spaces.remove(&owner);
        self.threads.forget(owner);
        let sampled = &mut shared.sampled;
        self.departed.retain(|(of, _), task| {
            if *of == owner {
                sampled.remove_task(*task);
            }
            *of != owner
        });
        self.told.retain(|(thread, _, _)| thread.pid != process.pid);
        self.remove_ended(shared);
    }

    /// Tells the core which tasks have ended.
    pub fn remove_ended(&mut self, shared: &mut Shared) {
        for task in self.threads.ended() {
            shared.sampled.remove_task(task);
        }
    }

    /// The core's name for the thread that made an access, and how long it has
    /// run, in ns.
    ///
    /// A thread that has ended by now has used its pages all the same, and its
    /// like will: those that ended are one task for each node on which they ran.
    pub fn resolve(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        owner: OwnerId,
        access: &Sample,
        at: Millis,
    ) -> Result<Option<(TaskId, u64)>, WorldError> {
        let Some(&space) = self.spaces.get(&owner) else {
            return Ok(None);
        };
        let number = (access.pid, access.tid);
        let sampled = &mut shared.sampled;
        Ok(match self.threads.resolve(world, number, at)? {
            Resolved::Task(task, runtime_ns) => Some((task, runtime_ns)),
            Resolved::New(thread, runtime_ns) => {
                let task = sampled.add_task(space, thread.tid, None);
                self.threads.add(thread, owner, task, runtime_ns, at);
                Some((task, runtime_ns))
            }
            Resolved::Gone => {
                let nodes = &sampled.config().balancer.node_of_cpu;
                let Some(&node) = nodes.get(access.cpu as usize) else {
                    return Ok(None);
                };
                let task = self.departed.entry((owner, node)).or_insert_with(|| {
                    let number = access.pid.wrapping_add(u32::from(node.0) << 22);
                    sampled.add_task(space, number, None)
                });
                Some((*task, 0))
            }
        })
    }

    /// Has threads run elsewhere, or says that they should.
    pub fn place(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        wanted: &[sampled::TaskMove],
        reporter: &mut dyn Reporter,
    ) {
        for task_move in wanted {
            self.place_one(world, shared, task_move, reporter);
        }
    }

    fn place_one(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        wanted: &sampled::TaskMove,
        reporter: &mut dyn Reporter,
    ) {
        let Some(known) = self.threads.of_task(wanted.task) else {
            return;
        };
        if shared.is_paused(known.owner) {
            return;
        }
        let thread = known.thread;
        let only_said = shared.config.dry_run || shared.config.tasks == What::Propose;
        let how = match only_said {
            true => Lend::Propose,
            false => Lend::Set,
        };
        let done = world.lend_affinity(thread, wanted.to, how);
        let share = (wanted.there * 100).checked_div(wanted.all).unwrap_or(0);
        let whose = match wanted.group {
            Some(_) => "its group's",
            None => "its",
        };
        let used = format!(
            "{share} % of {whose} accesses go to memory of node {}",
            wanted.to
        );
        let (state, cpus, why) = match done {
            Affinity::Given(cpus) if only_said => (TaskState::Proposed, cpus, used),
            Affinity::Given(cpus) => (TaskState::Set, cpus, used),
            // There is nothing to tell of who is gone.
            Affinity::Kept(Kept::Gone) => return,
            Affinity::Kept(why) => (TaskState::Kept, Vec::new(), format!("{used}, but {why}")),
        };
        // Whoever is left alone is told of once.
        let fresh = self.told.insert((thread, wanted.to, state));
        if state == TaskState::Set || fresh {
            shared.counts.proposed += usize::from(state == TaskState::Proposed);
            let event = TaskMove {
                pid: thread.pid,
                tid: thread.tid,
                node: wanted.to,
                state,
                cpus: cpus.into_iter().collect(),
                why,
            };
            reporter.event(world.now(), Event::Task(event));
        }
    }
}
