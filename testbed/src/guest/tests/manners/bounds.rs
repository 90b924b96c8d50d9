//! What memtide may not do: move what its owner has bound, and move faster than told.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::group::Group;
use super::{PATIENCE, SLOW, SMALL, TABLE, cells, until_home};
use crate::guest::memtide::{Line, Memtide};
use crate::guest::subject::{KnownPages, Victim, census_cold, census_hot};
use crate::guest::tests::Context;

/// Memory whose owner bound it to the slow node.
pub(super) fn mempolicy(context: &mut Context) -> Result<()> {
    let victim = Victim::start(&format!("{SMALL} --keep-policy"), 1)?;
    stays_by(context, &victim, "mempolicy")
}

/// A process whose cpuset has the slow node only.
pub(super) fn cpuset(context: &mut Context) -> Result<()> {
    let group = Group::create()?;
    group.allow_nodes(&SLOW.to_string())?;
    let victim = Victim::start(SMALL, 1)?;
    for pid in victim.pids() {
        group.take_in(pid)?;
    }
    stays_by(context, &victim, "cpuset")
}

/// None of the pages leaves, and the reason names what forbids it.
fn stays_by(context: &mut Context, victim: &Victim, who: &str) -> Result<()> {
    let known = victim.known_pages();
    all_on_slow(&known).context("before memtide runs")?;
    let hot = &known[0].hot;
    let mut memtide = Memtide::start(&["--explain"], &victim.pids())?;
    let told = RefCell::new(BTreeSet::new());
    let enough = |line: &Line| {
        let mut told = told.borrow_mut();
        told.extend(forbidden(hot, line).map(|(page, _)| page));
        are_nearly_all(told.len(), hot)
    };
    memtide.wait_for("that something forbids these moves", PATIENCE, enough)?;
    // Time to move them all the same.
    std::thread::sleep(Duration::from_secs(2));
    let lines = memtide.end(Signal::TERM)?.clean()?;
    all_on_slow(&known)?;
    let mut told = BTreeSet::new();
    for line in &lines {
        if let Some((address, by)) = forbidden(hot, line) {
            ensure!(by.contains(who), "the reason names no {who}: {line:?}");
            told.insert(address);
        }
    }
    context.note(format!(
        "{} of {} hot pages stay by {who}",
        told.len(),
        hot.len()
    ))?;
    ensure!(
        are_nearly_all(told.len(), hot),
        "of only {} of {} hot pages memtide says that {who} forbids their move",
        told.len(),
        hot.len()
    );
    Ok(())
}

/// A hot page of which the line says that something forbids its move, and what does.
fn forbidden<'a>(hot: &[usize], line: &'a Line) -> Option<(usize, &'a str)> {
    match line {
        Line::Stayed { range, why, .. } if why.reason == "forbidden" => {
            let is_hot = hot.binary_search(&range.address).is_ok();
            is_hot.then(|| (range.address, why.by.as_deref().unwrap_or_default()))
        }
        _ => None,
    }
}

fn are_nearly_all(pages: usize, hot: &[usize]) -> bool {
    pages * 100 >= hot.len() * 99
}

fn all_on_slow(known: &[KnownPages]) -> Result<()> {
    let (hot, cold) = (census_hot(known, &[SLOW])?, census_cold(known, &[SLOW])?);
    ensure!(
        hot.there == hot.asked && cold.there == cold.asked,
        "pages left node {SLOW}: hot {hot:?}, cold {cold:?}"
    );
    Ok(())
}

/// 32 MiB at 8 MiB a second: the first 8 at once, then 8 more in each of the three following
/// seconds, so that 99 % are home after 3 s at the earliest.
pub(super) fn rate_limit(context: &mut Context) -> Result<()> {
    const FASTEST: f64 = 3.0;
    // Beyond the 27 MiB at which the kernel calls the node full and memtide's own 16, there is room
    // for the hot set, but none to spare.
    let (dram, slow) = (context.dram.clone(), 1);
    let filler = Victim::start(&format!("--node {} --leave-free 100", dram[0]), 1)?;
    let victim = Victim::start(&format!("--node {slow} --size 64 --hot 32"), 1)?;
    let known = victim.known_pages();
    let mut memtide = Memtide::start(&["--rate-limit", "8MiB"], &victim.pids())?;
    let seconds = until_home(&mut memtide, &known, &dram, 3 * PATIENCE)?;
    let lines = memtide.end(Signal::TERM)?.clean()?;
    drop(filler);
    let counted = match lines.last() {
        Some(Line::Summary(summary)) => summary.pgpromote_candidate,
        _ => 0,
    };
    let home = census_hot(&known, &dram)?.there as u64;
    context.row(
        TABLE,
        cells(
            "rate-limit",
            &[
                ("s to 99 %", format!("{seconds:.1}")),
                ("pgpromote_candidate", counted.to_string()),
            ],
        ),
    )?;
    ensure!(
        seconds >= FASTEST,
        "32 MiB came home in {seconds:.1} s, at 8 MiB a second"
    );
    ensure!(
        counted >= home,
        "{counted} pages counted as pgpromote_candidate, {home} came home"
    );
    Ok(())
}
