//! `--tasks`: threads go to their memory, and may run anywhere again at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{PATIENCE, balance, end, events, number, sets, summary};
use crate::guest::late::within;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::tests::Context;
use crate::report::Verdict;

/// A set that may run anywhere, with its memory on node 1, and one that pinned itself there and so
/// leaves little of node 1's processors to the first.
const SETS: &str = "--size 8 --set any:1 --set 1:1";
/// Threads that happen to run beside their memory all the time are left alone, rightly.
const NO_CAUSE: &str = "every free thread ran beside its memory the whole time";
/// The CPUs of each node.
const NODES: [&str; 2] = ["0-1", "2-3"];

/// The CPUs that each thread of `pid` may run on.
pub(in crate::guest::tests) fn affinities(pid: u32) -> Result<BTreeMap<u32, String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(path.join("status"))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let tid = path.file_name().and_then(|name| name.to_str());
        let tid = tid
            .and_then(|name| name.parse().ok())
            .context("no thread")?;
        found.insert(tid, line.context("no affinity")?.trim().to_owned());
    }
    Ok(found)
}

/// The affinities once a set of two threads has pinned itself to `cpus`, which it does as it starts.
pub(in crate::guest::tests) fn with_a_set_on(
    cpus: &str,
    pid: u32,
) -> Result<BTreeMap<u32, String>> {
    let stretch = Stretch::begin();
    loop {
        let found = affinities(pid)?;
        if found.values().filter(|allowed| *allowed == cpus).count() == 2 {
            return Ok(found);
        }
        within(&stretch, PATIENCE, || {
            format!("no set is pinned to {cpus}: {found:?}")
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Threads that may run anywhere.
fn free(affinities: &BTreeMap<u32, String>) -> usize {
    affinities.values().filter(|cpus| *cpus == "0-3").count()
}

/// Waits until `done` likes the affinities; whether it did.
fn wait_for(
    pid: u32,
    memtide: &mut Memtide,
    done: impl Fn(&BTreeMap<u32, String>) -> bool,
) -> Result<bool> {
    let stretch = Stretch::begin();
    while !stretch.is_over(PATIENCE) {
        if done(&affinities(pid)?) {
            return Ok(true);
        }
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(false)
}

/// A free thread gets the CPUs of one node (its memory's: which of the two moves is for memtide to
/// choose), the pinned ones keep theirs; after SIGTERM everything is as before, and each change was
/// told of.
pub(super) fn set_and_put_back(context: &mut Context) -> Result<Verdict> {
    let victim = sets(SETS)?;
    let pid = victim.truth().pid;
    let before = with_a_set_on(NODES[1], pid)?;
    let pinned = |now: &BTreeMap<u32, String>| {
        let was = before.iter().filter(|(_, cpus)| *cpus == NODES[1]);
        was.clone().count() == 2 && was.clone().all(|(tid, cpus)| now.get(tid) == Some(cpus))
    };
    let words = ["--source", "writes", "--tasks", "--rate", "20000"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let lent = |now: &BTreeMap<u32, String>| free(now) < free(&before);
    if !wait_for(pid, &mut memtide, lent)? {
        return Ok(Verdict::Skipped(NO_CAUSE.to_owned()));
    }
    let meanwhile = affinities(pid)?;
    ensure!(pinned(&meanwhile), "a pinned thread was moved");
    let odd = |cpus: &&String| *cpus != "0-3" && !NODES.contains(&cpus.as_str());
    ensure!(
        meanwhile.values().find(odd).is_none(),
        "not a node's CPUs: {meanwhile:?}"
    );
    let lines = end(memtide)?;
    let after = affinities(pid)?;
    ensure!(after == before, "{after:?} instead of {before:?}");
    let told = lines
        .iter()
        .filter(|line| line["event"] == "task" && line["state"] == "set");
    let freed = number(summary(&lines)?, "freed_tasks")?;
    context.note(format!(
        "{} times a thread was told to run elsewhere, {freed} were put back",
        told.clone().count()
    ))?;
    ensure!(told.count() > 0 && freed > 0, "nobody was told: {lines:?}");
    Ok(Verdict::Passed)
}

/// Killed: the next one puts the affinities back, and says so.
pub(super) fn killed(_: &mut Context) -> Result<Verdict> {
    let victim = sets(SETS)?;
    let pid = victim.truth().pid;
    let before = with_a_set_on(NODES[1], pid)?;
    let words = ["--source", "writes", "--tasks", "--rate", "20000"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let lent = |now: &BTreeMap<u32, String>| free(now) < free(&before);
    if !wait_for(pid, &mut memtide, lent)? {
        return Ok(Verdict::Skipped(NO_CAUSE.to_owned()));
    }
    memtide.end(Signal::KILL)?;
    ensure!(lent(&affinities(pid)?), "who was killed put something back");
    let next = ["--source", "writes", "--duration", "1s"];
    let lines = events(&Memtide::spawn(balance(&next, &victim))?.wait(PATIENCE)?)?;
    let after = affinities(pid)?;
    ensure!(after == before, "{after:?} instead of {before:?}");
    let says_so = lines.iter().any(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.starts_with("put back what a killed memtide left")
    });
    ensure!(says_so, "it does not say what it put back: {lines:?}");
    Ok(Verdict::Passed)
}
