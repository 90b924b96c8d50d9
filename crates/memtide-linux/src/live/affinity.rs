//! Threads are taken to their memory by affinity, which is lent and put back.
//!
//! Moving a thread is cheaper than moving the gigabytes that it uses. From user
//! space that means `sched_setaffinity(2)`, and that is somebody's setting:
//!
//! - A thread that may not run on every CPU of its cpuset was pinned by
//!   somebody, and stays as it is. (Where cgroups are of version 1 the cpuset is
//!   not looked up, so a thread in a narrow one counts as pinned.)
//! - Before a thread is changed, its number, its start time and the CPUs that
//!   it gets are noted in the journal ([`crate::lent`]). At the end every thread that still
//!   has what it was given is free again; one that somebody has changed since
//!   is left alone. What a killed run leaves, the next one puts back.
//! - *Free* means all possible CPUs, of which the kernel takes what the cpuset
//!   allows, then and after every change of the cpuset.
//!
//! Threads and children inherit an affinity. So at the end the threads of the
//! same processes and of their children are looked at, too, and those with
//! just such CPUs are freed.

use crate::fs::cgroup;
use crate::fs::list;
use crate::fs::proc::{self, Process, stat, status};
use crate::fs::{FsError, Root};
use crate::lent::{Journal, Kind, LentError, Turn};
use memtide_loop::world::{Kept, ThreadId};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where what is lent is noted, and who may lend.
pub fn journal(root: &Root) -> Journal {
    Journal::new(root, Kind::Affinity)
}

/// Why threads may not be as they were.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// A file of the kernel.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The note.
    #[error(transparent)]
    Lent(#[from] LentError),
    /// A thread still has what it was given. It stays noted.
    #[error(
        "thread {tid} keeps the CPUs that memtide gave it: {why}; memtide doctor --restore tries again"
    )]
    Kept {
        /// The thread.
        tid: u32,
        /// Why.
        why: Kept,
    },
}

/// The thread that has `tid` in `pid` now.
pub fn find(root: &Root, pid: u32, tid: u32) -> Result<Option<ThreadId>, FsError> {
    Ok(look(root, pid, tid)?.map(|(thread, _)| thread))
}

/// As [`find`], and the CPU time that it has used, in ns.
pub fn look(root: &Root, pid: u32, tid: u32) -> Result<Option<(ThreadId, u64)>, FsError> {
    let stat = root.parse(path(pid, tid, "stat"), stat::parse);
    let Some(stat) = gone_is_none(stat)? else {
        return Ok(None);
    };
    let thread = ThreadId {
        pid,
        tid,
        start_ticks: stat.start_ticks,
    };
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let ticks = stat.user_ticks.saturating_add(stat.system_ticks);
    Ok(Some((thread, ticks.saturating_mul(tick_ns))))
}

/// Whether `thread` still lives.
fn is_alive(root: &Root, thread: ThreadId) -> Result<bool, FsError> {
    Ok(find(root, thread.pid, thread.tid)? == Some(thread))
}

/// The CPUs that `thread` may run on.
fn allowed_cpus(root: &Root, thread: ThreadId) -> Result<Option<BTreeSet<u32>>, FsError> {
    let status = root.parse(path(thread.pid, thread.tid, "status"), status::parse);
    Ok(gone_is_none(status)?.and_then(|status| status.cpus_allowed))
}

fn path(pid: u32, tid: u32, file: &str) -> String {
    format!("proc/{pid}/task/{tid}/{file}")
}

/// A thread that ends while its file is read is one that has ended.
fn gone_is_none<T>(read: Result<Option<T>, FsError>) -> Result<Option<T>, FsError> {
    match read {
        Err(error) if error.is_errno(Errno::SRCH) => Ok(None),
        other => other,
    }
}

/// What is written down of a thread's changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lent {
    thread: ThreadId,
    /// Each that it was given, in turn: killed between the note and the call,
    /// it has the one before the last.
    given: Vec<Given>,
}

/// CPUs that a thread was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    cpus: BTreeSet<u32>,
    /// When, in clock ticks since boot: who started later may have inherited.
    at_ticks: u64,
}

impl Lent {
    /// Whether the thread has the mask `now` from here.
    fn gave(&self, now: &BTreeSet<u32>) -> bool {
        self.given.iter().any(|given| given.cpus == *now)
    }

    /// Whether `thread`, which has the mask `now`, may have it from here.
    fn is_inherited(&self, thread: &ThreadId, now: &BTreeSet<u32>) -> bool {
        let mut given = self.given.iter();
        given.any(|given| thread.start_ticks > given.at_ticks && *now == given.cpus)
    }
}

/// Clock ticks since boot.
fn now_ticks() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    boot.tv_sec as u64 * ticks + boot.tv_nsec as u64 * ticks / 1_000_000_000
}

/// The note, as it is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    lent: Vec<Lent>,
}

/// The note, as it is written.
#[derive(Debug, Serialize)]
struct NoteOf<'a> {
    lent: Vec<&'a Lent>,
}

/// How a thread gets its CPUs.
type Set = fn(&Root, u32, &BTreeSet<u32>) -> Result<(), Kept>;

/// All that was changed and will be put back.
#[derive(Debug)]
pub struct Affinities {
    root: Root,
    journal: Journal,
    lent: BTreeMap<u32, Lent>,
    /// Whether there may be a note of ours.
    noted: bool,
    set: Set,
}

impl Affinities {
    /// Nothing is changed yet.
    pub fn new(root: Root) -> Affinities {
        Affinities {
            journal: journal(&root),
            root,
            lent: BTreeMap::new(),
            noted: false,
            set,
        }
    }

    /// The CPUs of `node` that `thread` would get, or why it stays as it is.
    /// Changes nothing.
    pub fn propose(&self, thread: ThreadId, node: &BTreeSet<u32>) -> Result<BTreeSet<u32>, Kept> {
        let unreadable = |_| Kept::Gone;
        if !is_alive(&self.root, thread).map_err(unreadable)? {
            return Err(Kept::Gone);
        }
        let allowed = allowed_cpus(&self.root, thread).map_err(unreadable)?;
        let allowed = allowed.ok_or(Kept::Gone)?;
        let ours = self.lent.get(&thread.tid);
        let ours = ours.is_some_and(|lent| lent.thread == thread && lent.gave(&allowed));
        let cpuset = self.cpuset(thread.pid).map_err(unreadable)?;
        if !ours && !cpuset.is_subset(&allowed) {
            return Err(Kept::Own);
        }
        let given: BTreeSet<u32> = cpuset.intersection(node).copied().collect();
        if given.is_empty() {
            return Err(Kept::Cpuset);
        }
        Ok(given)
    }

    /// Has `thread` run on the CPUs of `node`; which ones, or why not.
    pub fn lend(&mut self, thread: ThreadId, node: &BTreeSet<u32>) -> Result<BTreeSet<u32>, Kept> {
        let given = self.propose(thread, node)?;
        let before = self.lent.get(&thread.tid).cloned();
        let earlier = before.iter().filter(|lent| lent.thread == thread);
        let mut given_yet: Vec<Given> = earlier.flat_map(|lent| lent.given.clone()).collect();
        if !given_yet.iter().any(|yet| yet.cpus == given) {
            given_yet.push(Given {
                cpus: given.clone(),
                at_ticks: now_ticks(),
            });
        }
        let lent = Lent {
            thread,
            given: given_yet,
        };
        self.lent.insert(thread.tid, lent);
        self.noted = true;
        // The note comes first: what is not noted is not changed.
        let done = match self.note() {
            Ok(()) => (self.set)(&self.root, thread.tid, &given),
            Err(_) => Err(Kept::NotNoted),
        };
        if let Err(why) = done {
            match before {
                Some(before) => self.lent.insert(thread.tid, before),
                None => self.lent.remove(&thread.tid),
            };
            return Err(why);
        }
        Ok(given)
    }

    /// How many threads have what they were given.
    pub fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Frees every thread that has what it was given, and those that have
    /// inherited it. How many were freed.
    ///
    /// # Errors
    ///
    /// The first reason why a thread may not be free. The rest are, and the
    /// note stays for another try.
    pub fn put_back(&mut self) -> Result<usize, AffinityError> {
        // A thread that could not be changed is noted all the same.
        if self.lent.is_empty() && !self.noted {
            return Ok(0);
        }
        let pids = self.lent.values().map(|lent| lent.thread.pid).collect();
        let freed = self.free(&pids)?;
        self.journal.forget()?;
        self.lent.clear();
        self.noted = false;
        Ok(freed)
    }

    /// Frees every thread of process `pid` that has what it was given, and those that have
    /// inherited it. How many were freed.
    ///
    /// # Errors
    ///
    /// As [`Affinities::put_back`].
    pub fn put_back_of(&mut self, pid: u32) -> Result<usize, AffinityError> {
        if !self.lent.values().any(|lent| lent.thread.pid == pid) {
            return Ok(0);
        }
        // Of one that has ended nobody can tell any more who its children are.
        let lives = self.root.path(format!("proc/{pid}")).exists();
        let freed = match lives {
            true => self.free(&BTreeSet::from([pid]))?,
            false => 0,
        };
        self.lent.retain(|_, lent| lent.thread.pid != pid);
        self.noted = !self.lent.is_empty();
        match self.noted {
            true => self.note()?,
            false => self.journal.forget()?,
        }
        Ok(freed)
    }

    /// Frees the threads of processes `pids` that have what they were given, and those that have
    /// inherited it. How many were freed.
    fn free(&self, pids: &BTreeSet<u32>) -> Result<usize, AffinityError> {
        let possible = self.cpus("sys/devices/system/cpu/possible")?;
        let mut freed = 0;
        let mut kept = None;
        for pid in self.with_children(pids)? {
            // An inherited mask is told by being one that was given, in a thread
            // that started after that. Who was there before has its mask from
            // somebody else, even if it is the same.
            for thread in threads(&self.root, pid)? {
                let known = self.lent.get(&thread.tid);
                let known = known.filter(|lent| lent.thread == thread);
                let Some(now) = allowed_cpus(&self.root, thread)? else {
                    continue;
                };
                let ours = match known {
                    // Of a child it is its own process's.
                    Some(lent) => pids.contains(&pid) && lent.gave(&now),
                    None => self
                        .lent
                        .values()
                        .filter(|lent| pids.contains(&lent.thread.pid))
                        .any(|lent| lent.is_inherited(&thread, &now)),
                };
                if !ours {
                    continue;
                }
                match (self.set)(&self.root, thread.tid, &possible) {
                    Ok(()) => freed += 1,
                    Err(Kept::Gone) => {}
                    Err(why) => kept = kept.or(Some((thread.tid, why))),
                }
            }
        }
        if let Some((tid, why)) = kept {
            return Err(AffinityError::Kept { tid, why });
        }
        Ok(freed)
    }

    /// What a killed run left, put back; how many threads were freed. None
    /// if there is nothing of the kind.
    ///
    /// # Errors
    ///
    /// As [`Affinities::put_back`], and if the note makes no sense.
    pub fn put_back_left(root: &Root, turn: &Turn) -> Result<Option<usize>, AffinityError> {
        Affinities::put_back_by(root, turn, set)
    }

    fn put_back_by(root: &Root, _turn: &Turn, set: Set) -> Result<Option<usize>, AffinityError> {
        let journal = journal(root);
        let Some(noted) = journal.noted::<Note>()? else {
            return Ok(None);
        };
        let lent = noted.lent.into_iter().map(|lent| (lent.thread.tid, lent));
        let mut left = Affinities {
            lent: lent.collect(),
            set,
            ..Affinities::new(root.clone())
        };
        let freed = left.put_back()?;
        journal.forget()?;
        Ok(Some(freed))
    }

    /// Whether a killed run has left something.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn is_left(root: &Root) -> Result<bool, LentError> {
        let journal = journal(root);
        Ok(!journal.is_held()? && journal.noted::<Note>()?.is_some())
    }

    fn note(&self) -> Result<(), LentError> {
        self.journal.note(&NoteOf {
            lent: self.lent.values().collect(),
        })
    }

    /// `pids` and the processes that they started.
    fn with_children(&self, pids: &BTreeSet<u32>) -> Result<BTreeSet<u32>, FsError> {
        let mut all = pids.clone();
        for listed in proc::list(&self.root)? {
            if pids.contains(&listed.stat.parent) {
                all.insert(listed.process.pid);
            }
        }
        Ok(all)
    }

    /// The CPUs on which the process's threads may run by its cpuset: those of
    /// the nearest cgroup that says, and otherwise all that are online.
    fn cpuset(&self, pid: u32) -> Result<BTreeSet<u32>, FsError> {
        let online = self.cpus("sys/devices/system/cpu/online")?;
        let process = Process::find(&self.root, pid)?;
        let (Ok(Some(mount)), Some(path)) =
            (cgroup::mount(&self.root), process.cgroup(&self.root)?)
        else {
            return Ok(online);
        };
        let mut at = mount.join(path.strip_prefix("/").unwrap_or(&path));
        while at.starts_with(&mount) {
            let parsed = self
                .root
                .parse(at.join("cpuset.cpus.effective"), list::parse);
            if let Some(cpus) = parsed? {
                let cpus: BTreeSet<u32> = cpus;
                return Ok(cpus.intersection(&online).copied().collect());
            }
            if !at.pop() {
                break;
            }
        }
        Ok(online)
    }

    fn cpus(&self, path: &str) -> Result<BTreeSet<u32>, FsError> {
        let cpus = self.root.parse(path, list::parse)?;
        cpus.ok_or_else(|| FsError::Missing {
            path: self.root.path(path),
            needed_for: "the CPUs on which threads may run; is sysfs mounted?",
        })
    }
}

/// The threads of a process; none if it is gone.
fn threads(root: &Root, pid: u32) -> Result<Vec<ThreadId>, FsError> {
    let names = root.names(format!("proc/{pid}/task"))?.unwrap_or_default();
    let tids = names.iter().filter_map(|name| name.parse().ok());
    let found = tids.map(|tid| find(root, pid, tid));
    found.filter_map(Result::transpose).collect()
}

/// The running kernel's.
fn set(_: &Root, tid: u32, cpus: &BTreeSet<u32>) -> Result<(), Kept> {
    let mut wanted = CpuSet::new();
    let mut any = false;
    for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU as u32) {
        wanted.set(cpu as usize);
        any = true;
    }
    if !any {
        return Err(Kept::TooManyCpus);
    }
    match sched_setaffinity(Pid::from_raw(tid.cast_signed()), &wanted) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(Kept::Gone),
        // A cpuset that changed just now.
        Err(Errno::INVAL) => Err(Kept::Cpuset),
        Err(errno) => Err(Kept::Refused(errno.raw_os_error())),
    }
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
