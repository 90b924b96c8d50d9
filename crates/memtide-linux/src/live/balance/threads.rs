//! Which thread is which task of the balancer's.
//!
//! A sample names a thread by its number, and numbers come back: a thread ends,
//! and another one, perhaps of another process, has its number a moment later.
//! The balancer must not take the one's history for the other's. So a thread is
//! known by number, process and start time, is looked at again once a second while
//! samples of it come, and forgotten when it was not heard of for a while.
//!
//! Looking up a known thread allocates nothing and reads nothing.

use super::affinity::Thread;
use crate::fs::{FsError, Root};
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
pub struct Known {
    /// Who it is.
    pub thread: Thread,
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
pub enum Resolved {
    /// This task, and how long it has run, in ns.
    Task(TaskId, u64),
    /// A thread that is not known yet, and how long it has run; [`Threads::add`]
    /// it.
    New(Thread, u64),
    /// It has ended already.
    Gone,
}

/// The threads that were heard of.
#[derive(Debug, Default)]
pub struct Threads {
    by_tid: BTreeMap<u32, Known>,
    ended: Vec<TaskId>,
}

impl Threads {
    /// Who `tid` of process `pid` is at `now`.
    pub fn resolve(
        &mut self,
        root: &Root,
        (pid, tid): (u32, u32),
        now: Millis,
    ) -> Result<Resolved, FsError> {
        if let Some(known) = self.by_tid.get_mut(&tid)
            && known.thread.pid == pid
        {
            known.heard = now;
            if now.since(known.checked) < HOLDS_MS {
                return Ok(Resolved::Task(known.task, known.runtime_ns));
            }
            if let Some((thread, runtime_ns)) = Thread::look(root, pid, tid)?
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
        Ok(match Thread::look(root, pid, tid)? {
            Some((thread, runtime_ns)) => Resolved::New(thread, runtime_ns),
            None => Resolved::Gone,
        })
    }

    /// `thread`, which has run for so long, is `task` from `now` on.
    pub fn add(
        &mut self,
        thread: Thread,
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
    pub fn sweep(&mut self, root: &Root, now: Millis) -> Result<(), FsError> {
        let quiet = self.by_tid.values_mut();
        let quiet = quiet.filter(|known| now.since(known.heard) >= QUIET_MS);
        let mut gone = Vec::new();
        for known in quiet.filter(|known| now.since(known.checked) >= QUIET_MS) {
            known.checked = now;
            if !known.thread.is_alive(root)? {
                gone.push(known.thread.tid);
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_tid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::proc::stat;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> (Machine, Root) {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::new(dir.path());
            (Machine(dir), root)
        }

        fn thread(&self, pid: u32, tid: u32, start: u64) {
            let folder = self.0.path().join(format!("proc/{pid}/task/{tid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let line = stat::tests::line(tid, "x", 0, start);
            std::fs::write(folder.join("stat"), line).unwrap();
        }

        fn end(&self, pid: u32, tid: u32) {
            let folder = self.0.path().join(format!("proc/{pid}/task/{tid}"));
            std::fs::remove_dir_all(folder).unwrap();
        }
    }

    /// The line says 14 ticks of user and 15 of system time, a hundred a second.
    const RAN: u64 = 290_000_000;

    fn add(threads: &mut Threads, root: &Root, at: u64, task: u32) -> Resolved {
        let found = threads.resolve(root, (7, 8), Millis(at)).unwrap();
        if let Resolved::New(thread, ran) = found {
            threads.add(thread, OwnerId(0), TaskId(task), ran, Millis(at));
        }
        found
    }

    #[test]
    fn a_number_that_comes_back_is_another_task() {
        let (machine, root) = Machine::new();
        let mut threads = Threads::default();
        machine.thread(7, 8, 100);
        assert!(matches!(add(&mut threads, &root, 0, 1), Resolved::New(..)));
        // Within the second nothing is read.
        machine.thread(7, 8, 200);
        assert_eq!(
            add(&mut threads, &root, 999, 2),
            Resolved::Task(TaskId(1), RAN)
        );
        let Resolved::New(other, _) = add(&mut threads, &root, 1000, 2) else {
            panic!("the same");
        };
        assert_eq!(other.start_ticks, 200);
        assert_eq!(threads.ended(), [TaskId(1)]);
        // Another process has the number: seen at once.
        machine.thread(9, 8, 300);
        let found = threads.resolve(&root, (9, 8), Millis(1001)).unwrap();
        assert!(matches!(found, Resolved::New(thread, _) if thread.pid == 9));
        assert_eq!(threads.ended(), [TaskId(2)]);
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let (machine, root) = Machine::new();
        let mut threads = Threads::default();
        machine.thread(7, 8, 100);
        add(&mut threads, &root, 0, 1);
        machine.end(7, 8);
        threads.sweep(&root, Millis(QUIET_MS - 1)).unwrap();
        assert_eq!(threads.len(), 1);
        threads.sweep(&root, Millis(QUIET_MS)).unwrap();
        assert!(threads.is_empty());
        assert_eq!(threads.ended(), [TaskId(1)]);
        let found = threads.resolve(&root, (7, 8), Millis(QUIET_MS)).unwrap();
        assert_eq!(found, Resolved::Gone);
    }
}
