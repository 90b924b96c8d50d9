//! `--tasks`: threads go to their memory, and may run anywhere again at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{PATIENCE, balance, end, events, number, sets, summary};
use crate::guest::memtide::Memtide;
use crate::guest::tests::Context;

/// A set that may run anywhere, with its memory on node 1, and one that pinned itself.
const SETS: &str = "--size 8 --set any:1 --set 0:0";
/// The CPUs of each node.
const NODES: [&str; 2] = ["0-1", "2-3"];

/// The CPUs that each thread of `pid` may run on.
fn affinities(pid: u32) -> Result<BTreeMap<u32, String>> {
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

/// Waits until `done` likes the affinities.
fn wait_for(
    pid: u32,
    what: &str,
    memtide: &mut Memtide,
    done: impl Fn(&BTreeMap<u32, String>) -> bool,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = affinities(pid)?;
        if done(&now) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < 2 * PATIENCE,
            "{what} did not happen: {now:?}; memtide says {}",
            memtide.last_words()
        );
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A free thread gets the CPUs of one node (its memory's: which of the two moves is for memtide to
/// choose), the pinned ones keep theirs; after SIGTERM everything is as before, and each change was
/// told of.
pub(super) fn set_and_put_back(context: &mut Context) -> Result<()> {
    let victim = sets(SETS)?;
    let pid = victim.truth().pid;
    let before = affinities(pid)?;
    let free = |now: &BTreeMap<u32, String>| now.values().filter(|cpus| *cpus == "0-3").count();
    let pinned = |now: &BTreeMap<u32, String>| {
        let was = before.iter().filter(|(_, cpus)| *cpus == "0-1");
        was.clone().count() == 2 && was.clone().all(|(tid, cpus)| now.get(tid) == Some(cpus))
    };
    ensure!(pinned(&before), "the second set is not pinned: {before:?}");
    let words = ["--source", "writes", "--tasks", "--rate", "20000"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let lent = |now: &BTreeMap<u32, String>| free(now) < free(&before);
    wait_for(pid, "a move of a thread", &mut memtide, lent)?;
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
    Ok(())
}

/// Killed: the next one puts the affinities back, and says so.
pub(super) fn killed(_: &mut Context) -> Result<()> {
    let victim = sets("--size 8 --set any:1")?;
    let pid = victim.truth().pid;
    let before = affinities(pid)?;
    let words = ["--source", "writes", "--tasks", "--rate", "20000"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let lent =
        |now: &BTreeMap<u32, String>| now.values().any(|cpus| NODES.contains(&cpus.as_str()));
    wait_for(pid, "a move of a thread", &mut memtide, lent)?;
    memtide.end(Signal::KILL)?;
    ensure!(lent(&affinities(pid)?), "who was killed put something back");
    let next = ["--source", "writes", "--seconds", "1"];
    let lines = events(&Memtide::spawn(balance(&next, &victim))?.wait(PATIENCE)?)?;
    let after = affinities(pid)?;
    ensure!(after == before, "{after:?} instead of {before:?}");
    let says_so = lines.iter().any(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.starts_with("put back what a killed memtide left")
    });
    ensure!(says_so, "it does not say what it put back: {lines:?}");
    Ok(())
}
