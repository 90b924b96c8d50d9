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
mod tests {
    use super::*;
    use crate::files::faults::{self, Fault};
    use crate::files::refusals::{self, Ended};
    use rustix::thread::sched_getaffinity;

    /// Process 7 with thread 8, on a machine of four CPUs.
    fn machine(allowed: &str, cpuset: Option<&str>) -> (tempfile::TempDir, Root) {
        let dir = faults::folder();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let line = |pid| stat::tests::line(pid, "x", 0, 5);
        write("proc/7/stat", &line(7));
        write("proc/7/cgroup", "0::/a/b\n");
        write("proc/7/task/8/stat", &line(8));
        let status = format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n");
        write("proc/7/task/8/status", &status);
        write("sys/devices/system/cpu/online", "0-3\n");
        write("sys/devices/system/cpu/possible", "0-7\n");
        write(
            "proc/self/mountinfo",
            "41 31 0:38 / /cg rw - cgroup2 none rw\n",
        );
        if let Some(cpuset) = cpuset {
            write("cg/a/cpuset.cpus.effective", cpuset);
        }
        let root = Root::new(dir.path());
        (dir, root)
    }

    const THREAD: ThreadId = ThreadId {
        pid: 7,
        tid: 8,
        start_ticks: 5,
    };

    fn proposed(allowed: &str, cpuset: Option<&str>) -> Result<BTreeSet<u32>, Kept> {
        let (_dir, root) = machine(allowed, cpuset);
        Affinities::new(root).propose(THREAD, &BTreeSet::from([2, 3]))
    }

    #[test]
    fn only_free_threads_are_taken_anywhere() {
        assert_eq!(proposed("0-3", None), Ok(BTreeSet::from([2, 3])));
        assert_eq!(proposed("0-7", None), Ok(BTreeSet::from([2, 3])));
        assert_eq!(proposed("1-3", None), Err(Kept::Own));
        assert_eq!(proposed("2", None), Err(Kept::Own));
    }

    #[test]
    fn a_cpuset_is_not_an_affinity() {
        // 1-2 is all that the cpuset of the cgroup above allows.
        assert_eq!(proposed("1-2", Some("1-2\n")), Ok(BTreeSet::from([2])));
        assert_eq!(proposed("1", Some("1-2\n")), Err(Kept::Own));
        assert_eq!(proposed("0-1", Some("0-1\n")), Err(Kept::Cpuset));
    }

    #[test]
    fn another_thread_with_the_number_is_left_alone() {
        let (_dir, root) = machine("0-3", None);
        let older = ThreadId {
            start_ticks: 4,
            ..THREAD
        };
        let answer = Affinities::new(root).propose(older, &BTreeSet::from([2]));
        assert_eq!(answer, Err(Kept::Gone));
    }

    /// A thread that pinned itself to the very CPUs that another one was given,
    /// before that, is not freed with it; one that started later inherited them.
    #[test]
    fn only_younger_threads_inherit() {
        let lent = Lent {
            thread: THREAD,
            given: vec![Given {
                cpus: BTreeSet::from([2, 3]),
                at_ticks: 700,
            }],
        };
        let started = |start_ticks| ThreadId {
            tid: 9,
            start_ticks,
            ..THREAD
        };
        assert!(!lent.is_inherited(&started(700), &BTreeSet::from([2, 3])));
        assert!(lent.is_inherited(&started(701), &BTreeSet::from([2, 3])));
        assert!(!lent.is_inherited(&started(701), &BTreeSet::from([2])));
    }

    /// A kernel whose threads are the files of the copy.
    fn set_in_copy(root: &Root, tid: u32, cpus: &BTreeSet<u32>) -> Result<(), Kept> {
        let asked = faults::ask(&format!("set the affinity of {tid}"));
        asked.map_err(|error| Kept::Refused(error.raw_os_error().unwrap_or(libc::EIO)))?;
        // What the kernel takes of it: all that are online, here.
        let given = list::format(cpus.iter().copied().filter(|cpu| *cpu < 4));
        let text = format!("Name:\tx\nCpus_allowed_list:\t{given}\n");
        std::fs::write(root.path(path(7, tid, "status")), text).unwrap();
        Ok(())
    }

    /// Two threads of process 7 that may run anywhere.
    fn two_threads() -> (tempfile::TempDir, Root) {
        let (dir, root) = machine("0-3", None);
        let second = dir.path().join("proc/7/task/9");
        std::fs::create_dir_all(&second).unwrap();
        std::fs::write(second.join("stat"), stat::tests::line(9, "x", 0, 5)).unwrap();
        std::fs::write(second.join("status"), "Name:\tx\nCpus_allowed_list:\t0-3\n").unwrap();
        (dir, root)
    }

    fn lends_three_times_and_puts_back(root: &Root) -> Result<usize, AffinityError> {
        let _turn = journal(root).turn()?.expect("nobody else is here");
        let mut lender = Affinities {
            set: set_in_copy,
            ..Affinities::new(root.clone())
        };
        let other = ThreadId { tid: 9, ..THREAD };
        for (thread, first) in [(THREAD, 2), (other, 2), (THREAD, 0)] {
            let _ = lender.lend(thread, &BTreeSet::from([first, first + 1]));
        }
        lender.put_back()
    }

    /// Killed before and after each single change: the next start mends it.
    #[test]
    fn whenever_it_is_killed_the_next_start_frees_every_thread() {
        let (_dir, root) = two_threads();
        let (freed, trail) = faults::trail(|| lends_three_times_and_puts_back(&root));
        assert_eq!(freed.unwrap(), 2);
        assert_eq!(
            trail
                .iter()
                .filter(|what| what.contains("affinity"))
                .count(),
            5
        );
        let errnos = [Fault::Fail(libc::ENOSPC), Fault::Fail(libc::EPERM)];
        for (nth, what) in trail.iter().enumerate() {
            for fault in [Fault::Die].into_iter().chain(errnos) {
                let (_dir, root) = two_threads();
                let _ = faults::with(nth, fault, || lends_three_times_and_puts_back(&root));
                let turn = journal(&root).turn().unwrap().unwrap();
                Affinities::put_back_by(&root, &turn, set_in_copy).unwrap();
                let at = format!("{fault:?} at {nth}: {what}");
                for tid in [8, 9] {
                    let thread = ThreadId { tid, ..THREAD };
                    let now = allowed_cpus(&root, thread).unwrap().unwrap();
                    assert_eq!(now, BTreeSet::from([0, 1, 2, 3]), "thread {tid}, {at}");
                }
                drop(turn);
                assert!(!Affinities::is_left(&root).unwrap(), "{at}");
            }
        }
    }

    /// Ended by an allocation that is refused, or without what it was refused: the next start frees
    /// every thread.
    #[test]
    fn whichever_allocation_is_refused_the_next_start_frees_every_thread() {
        const NAME: &str = "live::affinity::tests::whichever_allocation_is_refused_the_next_start_frees_every_thread";
        if let Some(place) = refusals::place() {
            let root = Root::new(place);
            refusals::begin();
            let _ = lends_three_times_and_puts_back(&root);
            std::process::exit(0);
        }
        let library = tempfile::tempdir().unwrap();
        let ended = refusals::Library::build(library.path()).each(
            two_threads,
            |(dir, _)| refusals::itself(NAME, dir.path()),
            |(_, root), ended, at| {
                let turn = journal(root).turn().unwrap().unwrap();
                Affinities::put_back_by(root, &turn, set_in_copy).unwrap();
                for tid in [8, 9] {
                    let thread = ThreadId { tid, ..THREAD };
                    let now = allowed_cpus(root, thread).unwrap().unwrap();
                    let all = BTreeSet::from([0, 1, 2, 3]);
                    assert_eq!(now, all, "thread {tid}, {at}: {ended:?}");
                }
                drop(turn);
                assert!(!Affinities::is_left(root).unwrap(), "{at}: {ended:?}");
                assert!(!matches!(ended, Ended::Failed(_)), "{at}");
            },
        );
        assert!(ended > 50, "only {ended}");
    }

    #[test]
    fn a_note_that_makes_no_sense_is_said_and_not_forgotten() {
        let (_dir, root) = two_threads();
        let turn = journal(&root).turn().unwrap().unwrap();
        std::fs::write(journal(&root).path(), "[{").unwrap();
        let error = Affinities::put_back_left(&root, &turn).unwrap_err();
        assert!(
            error.to_string().contains("not a note of memtide's"),
            "{error}"
        );
        assert!(journal(&root).path().exists());
    }

    #[test]
    fn a_real_thread_is_lent_and_put_back() {
        let root = Root::default();
        let dir = tempfile::tempdir().unwrap();
        let online = Affinities::new(root.clone());
        let online = online.cpus("sys/devices/system/cpu/online").unwrap();
        let before = sched_getaffinity(None).unwrap();
        let free = online.iter().all(|cpu| before.is_set(*cpu as usize));
        if !free || online.len() < 2 {
            println!("skipped: this test may not run on every CPU, or there is one only");
            return;
        }
        // All of /proc and /sys, and a /run of its own.
        for name in ["proc", "sys"] {
            std::os::unix::fs::symlink(format!("/{name}"), dir.path().join(name)).unwrap();
        }
        let root = Root::new(dir.path());
        let (told, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            told.send(rustix::thread::gettid()).unwrap();
            let _ = ended.recv();
        });
        let tid = tid.recv().unwrap();
        let own = std::process::id();
        let thread = find(&root, own, tid.as_raw_nonzero().get().cast_unsigned());
        let thread = thread.unwrap().unwrap();
        let first = *online.first().unwrap();
        let mut lender = Affinities::new(root.clone());
        match lender.lend(thread, &BTreeSet::from([first])) {
            Ok(given) => assert_eq!(given, BTreeSet::from([first])),
            Err(Kept::Own | Kept::Cpuset) => {
                println!("skipped: a cpuset of this machine narrows what may be given");
                drop(end);
                worker.join().unwrap();
                return;
            }
            Err(why) => panic!("{why}"),
        }
        assert_eq!(sched_getaffinity(Some(tid)).unwrap().count(), 1);
        assert!(Affinities::is_left(&root).unwrap());
        // As if this run had been killed.
        drop(lender);
        let turn = journal(&root).turn().unwrap().unwrap();
        assert_eq!(Affinities::put_back_left(&root, &turn).unwrap(), Some(1));
        let after = sched_getaffinity(Some(tid)).unwrap();
        assert_eq!(after.count(), before.count());
        drop(turn);
        assert!(!Affinities::is_left(&root).unwrap());
        drop(end);
        worker.join().unwrap();
    }

    /// Killed at any change, and the next start, which frees the threads and lends
    /// them again, at any of its own: the one after that frees every thread.
    #[test]
    fn whenever_the_mending_is_killed_the_next_start_mends() {
        let pairs = faults::mended(
            two_threads,
            |(_dir, root)| {
                let _ = lends_three_times_and_puts_back(root);
            },
            |(_dir, root)| {
                let Ok(Some(turn)) = journal(root).turn() else {
                    return;
                };
                if Affinities::put_back_by(root, &turn, set_in_copy).is_ok() {
                    drop(turn);
                    let _ = lends_three_times_and_puts_back(root);
                }
            },
            |(_dir, root), at| {
                let turn = journal(root).turn().unwrap().unwrap();
                Affinities::put_back_by(root, &turn, set_in_copy)
                    .unwrap_or_else(|error| panic!("{at}: {error}"));
                for tid in [8, 9] {
                    let thread = ThreadId { tid, ..THREAD };
                    let now = allowed_cpus(root, thread).unwrap().unwrap();
                    assert_eq!(now, BTreeSet::from([0, 1, 2, 3]), "thread {tid}, {at}");
                }
                drop(turn);
                assert!(!Affinities::is_left(root).unwrap(), "{at}");
            },
        );
        assert!(pairs > 25 * 25, "only {pairs}");
    }

    /// A note of what was never given would free a thread that somebody pins later
    /// to the same CPUs.
    #[test]
    fn nothing_stays_noted_of_a_thread_that_could_not_be_changed() {
        let (_dir, root) = two_threads();
        let turn = journal(&root).turn().unwrap().unwrap();
        let mut lender = Affinities {
            set: |_, _, _| Err(Kept::Refused(libc::EPERM)),
            ..Affinities::new(root.clone())
        };
        let lent = lender.lend(THREAD, &BTreeSet::from([2, 3]));
        assert_eq!(lent, Err(Kept::Refused(libc::EPERM)));
        assert_eq!(lender.put_back().unwrap(), 0);
        drop(turn);
        assert!(!Affinities::is_left(&root).unwrap());
    }

    /// Thread 8 is of process 7; thread 9 of another one, which keeps what it was given.
    #[test]
    fn one_process_is_freed_and_the_others_keep_what_they_were_given() {
        let (dir, root) = two_threads();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let _turn = journal(&root).turn().unwrap().unwrap();
        let mut lender = Affinities {
            set: set_in_copy,
            ..Affinities::new(root.clone())
        };
        let second = ThreadId { tid: 9, ..THREAD };
        for thread in [THREAD, second] {
            lender.lend(thread, &BTreeSet::from([2, 3])).unwrap();
        }
        // As if it were one of process 9.
        lender.lent.get_mut(&9).unwrap().thread.pid = 9;
        assert_eq!(lender.put_back_of(70).unwrap(), 0);
        write("proc/9/stat", &stat::tests::line(9, "x", 0, 5));
        assert_eq!(lender.put_back_of(7).unwrap(), 1);
        let now = |tid| allowed_cpus(&root, ThreadId { tid, ..THREAD }).unwrap();
        assert_eq!(now(8), Some(BTreeSet::from([0, 1, 2, 3])));
        assert_eq!(now(9), Some(BTreeSet::from([2, 3])));
        // The note has the other one still.
        assert_eq!(lender.lent(), 1);
        assert!(lender.journal.noted::<Note>().unwrap().is_some());
        assert_eq!(lender.put_back_of(7).unwrap(), 0);
        // Nothing of it is left once the last one has gone.
        std::fs::remove_dir_all(dir.path().join("proc/9")).unwrap();
        assert_eq!(lender.put_back_of(9).unwrap(), 0);
        assert!(lender.journal.noted::<Note>().unwrap().is_none());
        assert_eq!(lender.put_back().unwrap(), 0);
    }

    /// Who only proposes has no turn, and may not remove another one's note.
    #[test]
    fn who_has_noted_nothing_forgets_nothing() {
        let (_dir, root) = two_threads();
        let mut lender = Affinities {
            set: set_in_copy,
            ..Affinities::new(root.clone())
        };
        lender.lend(THREAD, &BTreeSet::from([2, 3])).unwrap();
        let mut proposer = Affinities::new(root.clone());
        proposer.propose(THREAD, &BTreeSet::from([2])).unwrap_err();
        assert_eq!(proposer.put_back().unwrap(), 0);
        assert!(Affinities::is_left(&root).unwrap());
    }
}
