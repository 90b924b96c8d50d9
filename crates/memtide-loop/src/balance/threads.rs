//! Which thread is which task of the balancer's.
//!
//! A sample names a thread by its number, and numbers come back: a thread ends,
//! and another one, perhaps of another process, has its number a moment later.
//! The balancer must not take the one's history for the other's. So a thread is
//! known by number, process and start time, is looked at again once a second while
//! samples of it come, and forgotten when it was not heard of for a while.
//!
//! Looking up a known thread allocates nothing and reads nothing.

use crate::world::{ThreadId, ThreadSeen, World, WorldError};
use memtide_core::balancing::TaskId;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::Millis;
use std::collections::BTreeMap;

/// How long a look at a thread's start time holds, in ms.
const HOLDS_MS: u64 = 1000;
/// A thread that nothing was heard of for so long is looked at, in ms.
const QUIET_MS: u64 = 10_000;

/// A known thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Who it is.
    pub thread: ThreadId,
    /// Whose process it is of.
    pub owner: OwnerId,
    /// What the balancer calls it.
    pub task: TaskId,
    /// CPU time that it has used, at the last look.
    runtime_ns: u64,
    checked: Millis,
    heard: Millis,
}

/// What a number means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// This task, and how long it has run, in ns.
    Task(TaskId, u64),
    /// A thread that is not known yet, and how long it has run; [`Threads::add`]
    /// it.
    New(ThreadId, u64),
    /// It has ended already.
    Gone,
}

/// The threads that were heard of.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_tid: BTreeMap<u32, Known>,
    ended: Vec<TaskId>,
}

impl Threads {
    /// Who `tid` of process `pid` is at `now`.
    pub fn resolve(
        &mut self,
        world: &mut dyn World,
        (pid, tid): (u32, u32),
        now: Millis,
    ) -> Result<Resolved, WorldError> {
        if let Some(known) = self.by_tid.get_mut(&tid)
            && known.thread.pid == pid
        {
            known.heard = now;
            if now.since(known.checked) < HOLDS_MS {
                return Ok(Resolved::Task(known.task, known.runtime_ns));
            }
            let seen = world.thread(pid, tid)?;
            if let Some(ThreadSeen { thread, runtime_ns }) = seen
                && thread == known.thread
            {
                known.checked = now;
                known.runtime_ns = runtime_ns;
                return Ok(Resolved::Task(known.task, runtime_ns));
            }
        }
        if let Some(before) = self.by_tid.remove(&tid) {
            self.ended.push(before.task);
        }
        Ok(match world.thread(pid, tid)? {
            Some(ThreadSeen { thread, runtime_ns }) => Resolved::New(thread, runtime_ns),
            None => Resolved::Gone,
        })
    }

    /// `thread`, which has run for so long, is `task` from `now` on.
    pub fn add(
        &mut self,
        thread: ThreadId,
        owner: OwnerId,
        task: TaskId,
        runtime_ns: u64,
        now: Millis,
    ) {
        let known = Known {
            thread,
            owner,
            task,
            runtime_ns,
            checked: now,
            heard: now,
        };
        self.by_tid.insert(thread.tid, known);
    }

    /// Forgets the threads of a process that is gone.
    pub fn forget(&mut self, owner: OwnerId) {
        let ended = &mut self.ended;
        self.by_tid.retain(|_, known| {
            let keep = known.owner != owner;
            if !keep {
                ended.push(known.task);
            }
            keep
        });
    }

    /// Looks at threads that have been quiet for a while, and forgets those
    /// that have ended.
    pub fn sweep(&mut self, world: &mut dyn World, now: Millis) -> Result<(), WorldError> {
        let quiet = self.by_tid.values_mut();
        let quiet = quiet.filter(|known| now.since(known.heard) >= QUIET_MS);
        let mut gone = Vec::new();
        for known in quiet.filter(|known| now.since(known.checked) >= QUIET_MS) {
            known.checked = now;
            let ThreadId { pid, tid, .. } = known.thread;
            let seen = world.thread(pid, tid)?;
            if seen.map(|seen| seen.thread) != Some(known.thread) {
                gone.push(tid);
            }
        }
        for tid in gone {
            self.ended
                .extend(self.by_tid.remove(&tid).map(|known| known.task));
        }
        Ok(())
    }

    /// Tasks that have ended since the last time.
    pub fn ended(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.ended)
    }

    /// Who `task` is.
    pub fn of_task(&self, task: TaskId) -> Option<&Known> {
        self.by_tid.values().find(|known| known.task == task)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_tid.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeWorld;

    const RAN: u64 = 290_000_000;

    fn thread(world: &mut FakeWorld, pid: u32, tid: u32, start_ticks: u64) {
        let thread = ThreadId {
            pid,
            tid,
            start_ticks,
        };
        let runtime_ns = RAN;
        world.threads.retain(|seen| seen.thread.tid != tid);
        world.threads.push(ThreadSeen { thread, runtime_ns });
    }

    fn add(threads: &mut Threads, world: &mut FakeWorld, at: u64, task: u32) -> Resolved {
        let found = threads.resolve(world, (7, 8), Millis(at)).unwrap();
        if let Resolved::New(thread, ran) = found {
            threads.add(thread, OwnerId(0), TaskId(task), ran, Millis(at));
        }
        found
    }

    #[test]
    fn a_number_that_comes_back_is_another_task() {
        let mut world = FakeWorld::two_tiers(100, 100);
        let mut threads = Threads::default();
        thread(&mut world, 7, 8, 100);
        assert!(matches!(
            add(&mut threads, &mut world, 0, 1),
            Resolved::New(..)
        ));
        // Within the second nothing is read.
        thread(&mut world, 7, 8, 200);
        assert_eq!(
            add(&mut threads, &mut world, 999, 2),
            Resolved::Task(TaskId(1), RAN)
        );
        let Resolved::New(other, _) = add(&mut threads, &mut world, 1000, 2) else {
            panic!("the same");
        };
        assert_eq!(other.start_ticks, 200);
        assert_eq!(threads.ended(), [TaskId(1)]);
        // Another process has the number: seen at once.
        thread(&mut world, 9, 8, 300);
        let found = threads.resolve(&mut world, (9, 8), Millis(1001)).unwrap();
        assert!(matches!(found, Resolved::New(thread, _) if thread.pid == 9));
        assert_eq!(threads.ended(), [TaskId(2)]);
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let mut world = FakeWorld::two_tiers(100, 100);
        let mut threads = Threads::default();
        thread(&mut world, 7, 8, 100);
        add(&mut threads, &mut world, 0, 1);
        world.threads.clear();
        threads.sweep(&mut world, Millis(QUIET_MS - 1)).unwrap();
        assert_eq!(threads.len(), 1);
        threads.sweep(&mut world, Millis(QUIET_MS)).unwrap();
        assert_eq!(threads.len(), 0);
        assert_eq!(threads.ended(), [TaskId(1)]);
        let found = threads
            .resolve(&mut world, (7, 8), Millis(QUIET_MS))
            .unwrap();
        assert_eq!(found, Resolved::Gone);
    }
}
