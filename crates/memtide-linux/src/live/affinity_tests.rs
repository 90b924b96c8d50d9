//! Affinities in a copy of procfs.

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
    const NAME: &str =
        "live::affinity::tests::whichever_allocation_is_refused_the_next_start_frees_every_thread";
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
