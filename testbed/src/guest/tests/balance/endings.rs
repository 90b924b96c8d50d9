//! It ends when it should, goes on when it should, and says why where it cannot work.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{
    PATIENCE, PROMISED, TABLE, are_home, balance, cells, end, events, number, sets, shares,
    summary, until_home,
};
use crate::guest::late::{in_time, within};
use crate::guest::memtide::Memtide;
use crate::guest::pace::{self, Stretch};
use crate::guest::subject::Victim;
use crate::guest::tests::Context;

/// The user and group without any rights.
const NOBODY: u32 = 65534;

/// Until pages move.
fn until_moving(memtide: &mut Memtide, victim: &Victim) -> Result<()> {
    let stretch = Stretch::begin();
    while shares(&victim.known_pages(), &[0])?[0] < 0.1 {
        within(&stretch, PATIENCE, || "nothing moved".to_owned())?;
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Its process is killed while pages move: a clean end.
pub(super) fn process_ends(_: &mut Context) -> Result<()> {
    let victim = sets("--set 0:1 --set 1:0")?;
    let mut memtide = Memtide::spawn(balance(&["--source", "writes"], &victim))?;
    until_moving(&mut memtide, &victim)?;
    drop(victim);
    let lines = events(&memtide.wait(PATIENCE)?)?;
    let summary = summary(&lines)?;
    ensure!(
        summary["why"] == "all processes have ended",
        "it ended for another reason: {summary}"
    );
    ensure!(
        lines.iter().any(|line| line["event"] == "process_gone"),
        "it does not say that the process ended"
    );
    Ok(())
}

/// Threads live for a quarter of a second, so that their numbers come and go: the pages come home all
/// the same.
pub(super) fn churn(context: &mut Context) -> Result<()> {
    let victim = sets("--size 8 --churn 250 --set 0:1 --set 1:0")?;
    let mut memtide = Memtide::spawn(balance(&["--source", "writes"], &victim))?;
    let known = victim.known_pages();
    let (seconds, least) = until_home(&known, &[0, 1], PROMISED, || memtide.check())?;
    let lines = end(memtide)?;
    let summary = summary(&lines)?;
    context.note(format!(
        "home after {seconds:.1?} s; {} threads known in the end; rests of {} ms, processor time {}",
        number(summary, "tasks")?,
        number(summary, "rested_ms")?,
        summary["spent"],
    ))?;
    are_home((seconds, least))
}

/// One line, exit status 1, and it names what is missing.
pub(super) fn refusals(context: &mut Context) -> Result<()> {
    let victim = sets("--size 4 --set 0:1")?;
    let mut nobody = balance(&["--source", "writes"], &victim);
    nobody.uid(NOBODY).gid(NOBODY);
    refuses(context, nobody, &["CAP_SYS_"])?;
    // Neither hardware nor scans: each is named, and what could be done.
    let auto = balance(&["--source", "auto"], &victim);
    refuses(
        context,
        auto,
        &["ibs", "pebs", "numa_balancing", "--source writes"],
    )?;
    let faults = balance(&["--source", "faults"], &victim);
    refuses(context, faults, &["numa_balancing"])?;
    let pid = victim.truth().pid;
    drop(victim);
    let mut gone = Command::new("memtide");
    gone.args(["balance", "--source", "writes", "--pid", &pid.to_string()]);
    refuses(context, gone, &[&pid.to_string()])
}

fn refuses(context: &mut Context, command: Command, words: &[&str]) -> Result<()> {
    let ended = Memtide::spawn(command)?.wait(PATIENCE)?;
    let [line] = &ended.errors[..] else {
        anyhow::bail!("not one line but {:?}", ended.errors);
    };
    context.note(line.clone())?;
    ensure!(
        ended.status.code() == Some(1) && line.starts_with("memtide: "),
        "{} and {line:?}",
        ended.status
    );
    for word in words {
        ensure!(line.contains(word), "{line:?} does not name {word:?}");
    }
    Ok(())
}

/// Of one CPU, promised while nothing happens.
const IDLE_PERCENT: f64 = 1.0;

/// What it takes while nobody uses memory: told of two windows, judged over both.
pub(super) fn idle(context: &mut Context) -> Result<()> {
    const WINDOW: Duration = Duration::from_secs(4);
    let victim = Victim::start("--size 64 --hot 0 --node 1 --busy 1", 1)?;
    let memtide = Memtide::spawn(balance(&["--source", "writes"], &victim))?;
    pace::sleep(Duration::from_secs(3));
    let mut shares = Vec::new();
    let stretch = Stretch::begin();
    for _ in 0..2 {
        let (before, began) = (memtide.cpu_seconds(), Instant::now());
        std::thread::sleep(WINDOW);
        let spent = memtide.cpu_seconds() - before;
        shares.push(100.0 * spent / began.elapsed().as_secs_f64());
    }
    let slowness = stretch.slowness();
    end(memtide)?;
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let shown = shares.iter().map(|share| format!("{share:.2}"));
    let shown = shown.collect::<Vec<_>>().join(" and ");
    let row = [("own CPU %", shown), ("slowness", format!("{slowness:.1}"))];
    context.row(TABLE, cells("idle", &row))?;
    // Promised of a processor; kept even by an emulated one, which takes ten to twenty times as long.
    in_time(mean < IDLE_PERCENT * slowness, || {
        format!(
            "{mean:.2} % of a CPU while nothing happens, {IDLE_PERCENT} at most is promised, and the \
             machine is {slowness:.1} times as slow as a quiet one"
        )
    })
}

/// A CPU that is taken away, and given back at the end.
struct Away(String);

impl Away {
    fn take(cpu: u32) -> Result<Self> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        ensure!(Path::new(&path).exists(), "{path} is not there");
        std::fs::write(&path, "0").with_context(|| format!("cannot write {path}"))?;
        Ok(Self(path))
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, "1");
    }
}

/// A CPU of node 1 goes offline while pages move: they come home to the CPU that is left.
pub(super) fn cpu_offline(_: &mut Context) -> Result<()> {
    let victim = sets("--size 8 --set 0:1 --set 1:0")?;
    let known = victim.known_pages();
    let mut memtide = Memtide::spawn(balance(&["--source", "writes"], &victim))?;
    let away = Away::take(3)?;
    let (seconds, least) = until_home(&known, &[0, 1], PROMISED, || memtide.check())?;
    drop(away);
    std::thread::sleep(Duration::from_secs(1));
    memtide.check()?;
    end(memtide)?;
    are_home((seconds, least)).context("with a CPU offline")
}
