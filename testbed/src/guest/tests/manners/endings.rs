//! Ways to end, and what is left behind.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::group::Group;
use super::reports::Told;
use super::settings::Settings;
use super::{PATIENCE, SMALL, is_promotion, until_home};
use crate::guest::late::within;
use crate::guest::memtide::{Ended, Line, Memtide, tier};
use crate::guest::pace::Stretch;
use crate::guest::subject::{KnownPages, Victim, census_cold, census_hot};
use crate::guest::tests::Context;

/// DAMON's number of kernel threads; memtide holds two.
const NR_KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
/// How soon after the last process memtide has to end.
const SOON: Duration = Duration::from_secs(5);

/// Told in sums: they agree with the number of pages that are on fast memory now.
pub(super) fn sigint(context: &mut Context) -> Result<()> {
    let dram = context.dram.clone();
    ended_by(context, Signal::INT, &[], |known, told| {
        let hot = census_hot(known, &dram)?.there;
        let cold = census_cold(known, &dram)?.there;
        ensure!(
            told.promoted - told.demoted == (hot + cold) as u64,
            "{} pages promoted and {} demoted, but {hot} hot and {cold} cold ones are on DRAM",
            told.promoted,
            told.demoted
        );
        Ok(())
    })
}

/// Told run by run: each page is where the last line about it says.
pub(super) fn sigterm(context: &mut Context) -> Result<()> {
    ended_by(context, Signal::TERM, &["--explain"], |_, told| {
        told.check_places()
    })
}

/// In the midst of its work: the promotions have begun and need not be complete.
fn ended_by(
    context: &mut Context,
    signal: Signal,
    words: &[&str],
    agrees: impl Fn(&[KnownPages], &Told) -> Result<()>,
) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start(SMALL, 1)?;
    let known = victim.known_pages();
    let mut memtide = Memtide::start(words, &victim.pids())?;
    memtide.wait_for("a promotion", PATIENCE, is_promotion)?;
    let asked = Instant::now();
    let ended = memtide.end(signal)?;
    let milliseconds = asked.elapsed().as_millis();
    let lines = ended.clean()?;
    before.check_unchanged()?;
    let told = Told::of(&known, &lines)?;
    agrees(&known, &told)?;
    let summary = summary(&lines)?;
    ensure!(
        summary == (told.promoted, told.demoted),
        "the summary counts {} up and {} down, the events {} and {}",
        summary.0,
        summary.1,
        told.promoted,
        told.demoted
    );
    context.note(format!(
        "ended {milliseconds} ms after the signal, {} pages promoted until then",
        told.promoted
    ))
}

/// Pages up and pages down, by the one summary, which comes last.
fn summary(lines: &[Line]) -> Result<(u64, u64)> {
    let summaries = lines
        .iter()
        .filter(|line| matches!(line, Line::Summary(_)))
        .count();
    ensure!(summaries == 1, "{summaries} summaries instead of one");
    match lines.last() {
        Some(Line::Summary(summary)) => Ok((summary.pgpromote_success, summary.pgdemote_proactive)),
        other => bail!("the last line is no summary: {other:?}"),
    }
}

/// Killed while it observes: the next one finds the note, puts things back, and works.
pub(super) fn crash(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start(SMALL, 1)?;
    let memtide = Memtide::start(&[], &victim.pids())?;
    until_observing()?;
    memtide.end(Signal::KILL)?;
    let left = Settings::now();
    ensure!(
        left.has_notes() && left.get(NR_KDAMONDS) != before.get(NR_KDAMONDS),
        "nothing was left of a memtide killed while it observed: nr_kdamonds {:?}",
        left.get(NR_KDAMONDS)
    );
    let mut next = Memtide::start(&[], &victim.pids())?;
    let says_so = |line: &Line| matches!(line, Line::Notice { text } if text.starts_with("putting back what a crashed memtide left"));
    next.wait_for("what it puts back", PATIENCE, says_so)?;
    let dram = context.dram.clone();
    until_home(&mut next, &victim.known_pages(), &dram, PATIENCE)?;
    next.end(Signal::TERM)?.clean()?;
    before.check_unchanged()
}

/// Waits until one of memtide's kernel threads is at work.
pub(super) fn until_observing() -> Result<()> {
    let folder = NR_KDAMONDS.trim_end_matches("/nr_kdamonds");
    let stretch = Stretch::begin();
    let on = |n: u32| {
        let state = std::fs::read_to_string(format!("{folder}/{n}/state"));
        state.is_ok_and(|state| state.trim() == "on")
    };
    while !on(0) && !on(1) {
        within(&stretch, PATIENCE, || "memtide did not observe".to_owned())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Its only process is killed; it says so to people as well.
pub(super) fn process_ends(_: &mut Context) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start(SMALL, 1)?;
    let mut memtide = Memtide::spawn(tier(&[], &victim.pids()))?;
    until_observing()?;
    std::thread::sleep(Duration::from_secs(1));
    memtide.check()?;
    drop(victim);
    let Ended {
        status,
        lines,
        errors,
    } = memtide.wait(SOON)?;
    ensure!(
        status.success() && errors.is_empty(),
        "memtide ended with {status}: {errors:?}"
    );
    ensure!(
        lines
            .iter()
            .any(|line| line.contains("all processes have ended")),
        "memtide does not say why it ended: {lines:?}"
    );
    before.check_unchanged()
}

/// The last one's pages come home all the same, and only its end is memtide's.
///
/// Several end, at moments that fall differently into memtide's turns: each of them is a chance to
/// ask the kernel for a process that is no longer there.
pub(super) fn others_end(context: &mut Context) -> Result<()> {
    const APART: Duration = Duration::from_millis(230);
    let before = Settings::now();
    let start = |seed: u32| Victim::start(&format!("{SMALL} --seed {seed}"), 1);
    let others: Vec<Victim> = (2..6).map(start).collect::<Result<_>>()?;
    let last = start(1)?;
    let pids: Vec<u32> = others
        .iter()
        .chain([&last])
        .flat_map(Victim::pids)
        .collect();
    let mut memtide = Memtide::start(&[], &pids)?;
    until_observing()?;
    for other in others {
        std::thread::sleep(APART);
        drop(other);
    }
    let dram = context.dram.clone();
    until_home(&mut memtide, &last.known_pages(), &dram, PATIENCE)?;
    drop(last);
    let lines = memtide.wait(SOON)?.clean()?;
    summary(&lines)?;
    let mut ends: Vec<u32> = lines
        .iter()
        .filter_map(|line| match line {
            Line::ProcessGone { pid } => Some(*pid),
            _ => None,
        })
        .collect();
    ends.sort_unstable();
    ensure!(ends == pids, "of {pids:?} memtide says that {ends:?} ended");
    before.check_unchanged().context("after all have ended")
}

/// A cgroup in which processes come and go all the time, as those of a shell script do: the pages of
/// the one that stays come home, and memtide goes on when the cgroup is empty.
pub(super) fn churn(context: &mut Context) -> Result<()> {
    const SHORT_LIVED: usize = 24;
    let before = Settings::now();
    let group = Group::create()?;
    let stays = Victim::start(SMALL, 1)?;
    stays
        .pids()
        .iter()
        .try_for_each(|&pid| group.take_in(pid))?;
    let mut command = tier(&[], &[]);
    command.arg("--json").arg("--cgroup").arg(group.path());
    let mut memtide = Memtide::spawn(command)?;
    until_observing()?;
    for _ in 0..SHORT_LIVED {
        let short = Victim::start("--size 8 --hot 1 --scattered", 1)?;
        short
            .pids()
            .iter()
            .try_for_each(|&pid| group.take_in(pid))?;
        std::thread::sleep(Duration::from_millis(100));
        memtide.check()?;
    }
    let dram = context.dram.clone();
    until_home(&mut memtide, &stays.known_pages(), &dram, PATIENCE)?;
    let [pid] = stays.pids()[..] else {
        bail!("one process is expected");
    };
    drop(stays);
    let gone = |line: &Line| matches!(line, Line::ProcessGone { pid: gone } if *gone == pid);
    memtide.wait_for("that the last process is gone", PATIENCE, gone)?;
    std::thread::sleep(Duration::from_millis(500));
    memtide.end(Signal::TERM)?.clean()?;
    drop(group);
    before.check_unchanged()
}
