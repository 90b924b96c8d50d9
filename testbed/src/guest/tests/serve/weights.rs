//! Interleave weights in the service: the kernel's table, which is the whole machine's, and the memory of a
//! class, which is kept spread by weights of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::shares::{Slice, clear};
use super::{FOLDER, MAIN, Manager, PATIENCE, put, says, socket, start};
use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{NumaLine, numa_line};
use crate::guest::subject::Victim;
use crate::guest::tests::Context;
use crate::guest::tests::run::{belongs, placed_all, table};

/// What is spread: so much memory, that nobody uses.
const SUBJECT: &str = "--anywhere --hot 0 --size 64";
const PAGES: u64 = 64 << 8;
/// Three pages on node 0 for one on node 2.
const WEIGHTS: [(u32, u8); 2] = [(0, 3), (2, 1)];
/// How far from that it may be: two of a hundred pages.
const OFF: u64 = PAGES / 50;
/// How long it is watched that something stays as it is.
const WATCH: Duration = Duration::from_secs(5);

/// The weights of the nodes that the table has files of.
fn weights() -> Result<BTreeMap<String, String>> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let named = table()?.into_iter();
    let named = named.filter_map(|(path, value)| Some((name(&path)?, value)));
    Ok(named.filter(|(name, _)| name.starts_with("node")).collect())
}

/// That these nodes have these weights.
pub(in crate::guest::tests) fn reads(wanted: &[(u32, u8)]) -> Result<()> {
    let there = weights()?;
    for (node, weight) in wanted {
        ensure!(
            there.get(&format!("node{node}")) == Some(&weight.to_string()),
            "{there:?} instead of {wanted:?}"
        );
    }
    Ok(())
}

fn memtide(words: &[&str]) -> Result<Output> {
    let mut command = Command::new("memtide");
    let command = command.args(words);
    command.output().with_context(|| format!("{words:?}"))
}

/// The table reads as the service wants it while it runs, over reloads; it is put back at the end, and of
/// a service that was killed by the next start and by whoever is asked to.
pub(super) fn lent(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let before = table()?;
    put(MAIN, "[weights]\ntable = \"0=5,2=2\"\n")?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    reads(&[(0, 5), (2, 2)])?;
    says(
        &mut service,
        "weights are 0=5,2=2 until the service ends",
        "",
    )?;
    socket::says(&["status"], "\nweights   the kernel's table reads 0=5,2=2 ")?;
    // Nobody else has it meanwhile.
    let other = memtide(&["weights", "--set", "0=9"])?;
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    ensure!(
        !other.status.success() && said.contains("when it ends"),
        "{said}"
    );
    put(MAIN, "[weights]\ntable = \"0=3\"\n")?;
    socket::takes("weights.table was \"0=5,2=2\", is \"0=3\"")?;
    let weight_of_2 = before.iter().find(|(path, _)| path.ends_with("node2"));
    let weight_of_2 = weight_of_2.context("no node 2")?.1.parse()?;
    reads(&[(0, 3), (2, weight_of_2)])?;
    put(MAIN, "[weights]\ntable = \"0=3,7=1\"\n")?;
    socket::refuses("table: node 7 does not exist")?;
    reads(&[(0, 3), (2, weight_of_2)])?;
    put(MAIN, "[weights]\ntable = \"compute\"\n")?;
    socket::takes("is \"compute\"")?;
    let computed = weights()?;
    service.end(Signal::TERM)?.clean()?;
    ensure!(table()? == before, "{:?} instead of {before:?}", table()?);

    let killed = || -> Result<()> {
        put(MAIN, "[weights]\ntable = \"0=5,2=2\"\n")?;
        let manager = Manager::listen()?;
        let service = start()?;
        manager.wait_for("READY=1", 1)?;
        service.signal(Signal::KILL)?;
        service.wait(PATIENCE)?;
        reads(&[(0, 5), (2, 2)])
    };
    // By the next start, also of a service that wants no table.
    for text in ["[weights]\ntable = \"2=4\"\n", ""] {
        killed()?;
        put(MAIN, text)?;
        let manager = Manager::listen()?;
        let mut service = start()?;
        manager.wait_for("READY=1", 1)?;
        says(
            &mut service,
            "put back the interleave weights that a killed",
            "",
        )?;
        if !text.is_empty() {
            reads(&[(2, 4)])?;
        }
        service.end(Signal::TERM)?.clean()?;
        ensure!(table()? == before, "{:?} instead of {before:?}", table()?);
    }
    killed()?;
    let restored = memtide(&["doctor", "--restore"])?;
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    ensure!(
        restored.status.success()
            && said.contains("memtide run or service left the interleave weights"),
        "{restored:?}"
    );
    ensure!(table()? == before, "{:?} instead of {before:?}", table()?);
    clear()?;
    context.note(format!("computed {computed:?}; put back {before:?}"))
}

fn line(victim: &Victim) -> Result<NumaLine> {
    numa_line(victim.truth().pid, victim.truth().start)
}

/// Waits until the subject's pages are spread; how long that took, and how many are elsewhere.
fn until_spread(victim: &Victim) -> Result<(f64, u64)> {
    let stretch = Stretch::begin();
    let wanted = belongs(victim.truth().start, PAGES, &WEIGHTS);
    loop {
        let line = line(victim)?;
        let off = |(at, wanted): (&(u32, u8), &u64)| line.on(at.0).abs_diff(*wanted);
        let off = WEIGHTS.iter().zip(&wanted).map(off).max().unwrap_or(PAGES);
        if off <= OFF {
            return Ok((stretch.elapsed().as_secs_f64(), off));
        }
        within(&stretch, PATIENCE, || {
            format!("{line:?} instead of {wanted:?}; {}", socket::status())
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// That nothing of the subject moves for a while.
fn stays(victim: &Victim) -> Result<()> {
    let (stretch, before) = (Stretch::begin(), placed_all(victim, PAGES)?.pages);
    while !stretch.is_over(WATCH) {
        let now = placed_all(victim, PAGES)?.pages;
        ensure!(now == before, "{now:?} instead of {before:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The memory of a class comes to its weights and new memory does, too; that of another class and of a class
/// that is paused stays.
pub(super) fn spread(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let slice = Slice::create("spread")?;
    let other = Slice::create("other")?;
    let early = slice.victim(SUBJECT)?;
    let left = other.victim(SUBJECT)?;
    let there = placed_all(&left, PAGES)?.pages;
    let classes = [
        slice.class("spread", "tier = false\nweights = \"0=3,2=1\""),
        other.class("other", "tier = false"),
    ];
    put(MAIN, &classes.concat())?;
    let manager = Manager::listen()?;
    let service = start()?;
    manager.wait_for("READY=1", 1)?;
    let (first, first_off) = until_spread(&early)?;
    let late = slice.victim(SUBJECT)?;
    let (second, second_off) = until_spread(&late)?;
    let stretch = Stretch::begin();
    while !socket::status().contains("; 2 processes are spread, 0 of them cannot be; moved ") {
        within(&stretch, PATIENCE, socket::status)?;
        std::thread::sleep(Duration::from_millis(200));
    }
    socket::says(&["pause", "spread"], "paused")?;
    let paused = slice.victim(SUBJECT)?;
    // It has been listed by the time that it is counted.
    let stretch = Stretch::begin();
    while !socket::status().contains("; 3 processes are spread, ") {
        within(&stretch, PATIENCE, socket::status)?;
        std::thread::sleep(Duration::from_millis(200));
    }
    stays(&paused)?;
    socket::says(&["status"], "paused, spread")?;
    socket::says(&["resume", "spread"], "resumed")?;
    until_spread(&paused)?;
    let now = placed_all(&left, PAGES)?.pages;
    ensure!(
        now == there,
        "the other class was spread: {now:?} instead of {there:?}"
    );

    put(MAIN, &classes.concat().replace("2=1", "7=1"))?;
    socket::refuses("weights: node 7 does not exist")?;
    put(
        MAIN,
        &classes.concat().replace("tier = false\nweights", "weights"),
    )?;
    socket::refuses("weights: the class is tiered")?;
    let told: serde_json::Value = serde_json::from_slice(&memtide(&["status", "--json"])?.stdout)?;
    let (own, all) = (&told["weights"]["cpu_ms"], &told["run_ms"]);
    let ended = service.end(Signal::TERM)?;
    ended.clean()?;
    let says = |line: &String| line.contains("weights: moved ");
    ensure!(ended.lines.iter().any(says), "no line says what moved");
    clear()?;
    drop((early, late, paused, left));
    drop((slice, other));
    context.note(format!(
        "3:1 after {first:.1} s, {first_off} of {PAGES} pages off, and of new memory after {second:.1} s, {second_off} off; its thread took {own} of {all} ms"
    ))
}
