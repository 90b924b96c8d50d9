//! Balancing beside tiering, for the class that wants it and for nobody else, and balancing alone.
//!
//! The subjects are those of `memtide balance` ([`super::super::balance`]), and so is the source: a guest
//! has no hardware that samples, so the service says first that it has none, and is then told of write
//! faults.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::shares::Slice;
use super::{DROP_IN, FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, says, socket, start};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::tests::Context;
use crate::guest::tests::balance::tasks::{affinities, with_a_set_on};
use crate::guest::tests::balance::{PROMISED, are_home, number, sets, shares, until_home};

/// Threads on each node with their memory on the other one.
const SWAPPED: &str = "--set 0:1 --set 1:0";
/// A set that may run anywhere, and whose memory is on node 1.
const FREE: &str = "--size 8 --set any:1 --set 1:1";
/// The CPUs of node 1 of the topology `cxl`.
const CPU: &str = "1";
/// How long threads that may run anywhere are watched, in quiet time.
const PLACING: Duration = Duration::from_secs(15);

/// The sets of the class come to their threads' nodes, those of the other class stay where they are,
/// threads get an affinity at most in the class, and after SIGTERM all of them have their own.
pub(super) fn beside_tiering(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let balanced = Slice::create("balanced")?;
    let other = Slice::create("other")?;
    let swapped = balanced.start(|| sets(SWAPPED))?;
    let left = other.start(|| sets(SWAPPED))?;
    let classes = [
        balanced.class("balanced", "balance = true"),
        other.class("other", ""),
    ];
    put(MAIN, &classes.concat())?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    says(&mut service, "nothing is balanced: ", "; tiering goes on")?;
    socket::says(&["status"], "\nbalancing nothing is balanced: ")?;

    put(DROP_IN, "[balance]\nsource = \"writes\"\n")?;
    socket::takes("balance.source was \"auto\", is \"writes\"")?;
    let (known, stays) = (swapped.known_pages(), left.known_pages());
    let found = until_home(&known, &[0, 1], PROMISED, || service.check())?;
    are_home(found).with_context(socket::status)?;
    // Tiering moves a cold page now and then to have translations flushed.
    let there = shares(&stays, &[1, 0])?;
    ensure!(
        there.iter().all(|share| *share >= 0.99),
        "the other class was balanced: {there:?}"
    );
    // It is told about once a second.
    let shown = " | balancing 1 processes, source write faults; moved ";
    let stretch = Stretch::begin();
    while !socket::status().contains(shown) || socket::status().contains("; moved 0 KiB") {
        within(&stretch, PATIENCE, socket::status)?;
        std::thread::sleep(Duration::from_millis(200));
    }
    let home = found.0.unwrap_or_default();
    drop((swapped, left));

    let free = balanced.start(|| sets(FREE))?;
    let left = other.start(|| sets(FREE))?;
    let pids = [&free, &left].map(|victim| victim.truth().pid);
    let of_both = || {
        let of_each = pids.map(affinities);
        of_each.into_iter().collect::<Result<Vec<_>>>()
    };
    let pinned = pids.map(|pid| with_a_set_on(CPU, pid));
    let before = pinned.into_iter().collect::<Result<Vec<_>>>()?;
    put(
        DROP_IN,
        "[balance]\nsource = \"writes\"\ntasks = \"set\"\nrate = 20000\n",
    )?;
    socket::takes("balance.tasks was nothing, is \"set\"")?;
    // Whether a thread is placed depends on where the kernel runs it.
    let stretch = Stretch::begin();
    let mut placed = false;
    while !placed && !stretch.is_over(PLACING) {
        let now = of_both()?;
        placed = now != before;
        ensure!(
            now[1] == before[1],
            "a thread of the other class was placed"
        );
        service.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let ended = service.end(Signal::TERM)?;
    ended.clean()?;
    let after = of_both()?;
    ensure!(after == before, "{after:?} instead of {before:?}");
    let lines = ended.lines.iter();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).context("a line"))
        .collect::<Result<_>>()?;
    let summaries = lines
        .iter()
        .filter(|line| line["event"] == "balancing_summary");
    let summaries: Vec<&Value> = summaries.collect();
    ensure!(summaries.len() == 2, "of two runs: {summaries:?}");
    let moved = number(summaries[0], "moved_pages")?;
    let freed = number(summaries[1], "freed_tasks")?;
    ensure!(moved > 0, "it says that nothing moved: {summaries:?}");
    ensure!(!placed || freed > 0, "nobody was freed: {summaries:?}");
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    drop((free, left));
    context.note(format!(
        "{home:.1} s until {moved} pages were home; {freed} threads were placed"
    ))
}

/// On a machine with one tier the sets of the class come to their threads' nodes, and those of the other
/// class stay.
pub(super) fn alone(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let balanced = Slice::create("balanced")?;
    let other = Slice::create("other")?;
    let swapped = balanced.start(|| sets(SWAPPED))?;
    let left = other.start(|| sets(SWAPPED))?;
    let classes = [
        balanced.class("balanced", "balance = true"),
        other.class("other", ""),
        "[balance]\nsource = \"writes\"\n".to_owned(),
    ];
    put(MAIN, &classes.concat())?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    says(&mut service, "nothing is tiered: ", "one tier of memory")?;
    socket::says(
        &["status"],
        "\ndoing     tiers nothing: this machine has one",
    )?;
    let (known, stays) = (swapped.known_pages(), left.known_pages());
    let found = until_home(&known, &[0, 1], PROMISED, || service.check())?;
    are_home(found).with_context(socket::status)?;
    let there = shares(&stays, &[1, 0])?;
    ensure!(
        there.iter().all(|share| *share >= 0.99),
        "the other class was balanced: {there:?}"
    );
    // What is turned off by hand is refused where nothing is left to do.
    put(DROP_IN, "[class.balanced]\nbalance = false\n")?;
    socket::refuses("this machine has one tier of memory")?;
    service.end(Signal::TERM)?.clean()?;
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    drop((swapped, left));
    let home = found.0.unwrap_or_default();
    context.note(format!("{home:.1} s until they were home"))
}
