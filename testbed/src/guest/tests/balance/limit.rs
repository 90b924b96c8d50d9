//! `--cpu-limit`: the share of a CPU that memtide may take, moves included.
//!
//! A run begins with what 20 s save up in hand. What a turn hears of is not cut and may cost more than
//! is in hand; what it cost too much is repaid by rests. So again and again, before a turn, memtide has
//! used at most limit * (t + 20 s) at time t after the start. Of moves a turn makes what is in hand pays
//! for, or a huge page: they alone stay within that however much is out of place.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{TABLE, balance, cells, end, number, sets, summary};
use crate::guest::late::in_time;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::sys::move_pages_to;
use crate::guest::tests::Context;

/// Of one CPU.
const LIMIT: f64 = 0.02;
/// What a run begins with, as the time that saves it up.
const SAVED: Duration = Duration::from_secs(20);
/// How long it runs, in quiet time; over the last part of it the share is judged.
const RUN: Duration = Duration::from_secs(25);
const JUDGED: Duration = Duration::from_secs(18);
/// How long it runs with much out of place, in quiet time.
const MUCH: Duration = Duration::from_secs(7);
/// In base pages.
const HUGE_PAGE: u64 = 512;
/// What the kernel counts CPU time in.
const TICK: f64 = 0.01;

pub(super) fn cpu_limit(context: &mut Context) -> Result<()> {
    more_than_it_may(context)?;
    much_at_once(context)
}

/// 128 MiB on the wrong nodes. To move what one turn hears of would take seconds.
fn much_at_once(context: &mut Context) -> Result<()> {
    let victim = sets("--size 64 --set 0:1 --set 1:0")?;
    let words = ["--source", "writes", "--cpu-limit", "2"];
    let began = Instant::now();
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    let stretch = Stretch::begin();
    while !stretch.is_over(MUCH) {
        std::thread::sleep(Duration::from_millis(300));
        memtide.check()?;
    }
    let lines = end(memtide)?;
    let may_ns = (LIMIT * (began.elapsed() + SAVED).as_nanos() as f64) as u64;
    let summary = summary(&lines)?;
    let moved = number(summary, "moved_pages")?;
    let move_ns = number(&summary["spent"], "move_ns")?;
    let row = [
        ("moves CPU s", format!("{:.2}", move_ns as f64 / 1e9)),
        ("may s", format!("{:.2}", may_ns as f64 / 1e9)),
        ("moved", moved.to_string()),
        ("slowness", format!("{:.1}", stretch.slowness())),
    ];
    context.row(TABLE, cells("--cpu-limit 2, 128 MiB", &row))?;
    ensure!(moved > 0, "nothing was moved");
    let turn_ns = HUGE_PAGE * move_ns / moved;
    // What moves will cost is known from those before; a machine that becomes slower
    // meanwhile makes them dearer.
    in_time(move_ns <= may_ns + turn_ns, || {
        format!(
            "moving {moved} pages took {move_ns} ns; {may_ns} ns and {HUGE_PAGE} pages are allowed"
        )
    })
}

/// Few pages, put away again and again: what it uses in the long run.
fn more_than_it_may(context: &mut Context) -> Result<()> {
    // Few pages, so that a turn is soon repaid, and yet more than it may move: whatever came home is
    // put away again, and with 2 or 3 MiB it sometimes got by on what it may use.
    let victim = sets("--size 4 --set 0:1 --set 1:0")?;
    let known = victim.known_pages();
    let words = ["--source", "writes", "--cpu-limit", "2"];
    let mut memtide = Memtide::spawn(balance(&words, &victim))?;
    // What it takes until it works is not of this.
    while memtide.last_words() == "silently" {
        std::thread::sleep(Duration::from_millis(10));
        memtide.check()?;
    }
    let began = memtide.cpu_seconds();
    let stretch = Stretch::begin();
    // The least that it was above what it may use, while that is judged.
    let mut least = f64::INFINITY;
    let mut most = 0.0_f64;
    while !stretch.is_over(RUN) {
        for (set, away) in known.iter().zip([1, 0]) {
            move_pages_to(set.pid, &set.hot, away)?;
        }
        std::thread::sleep(Duration::from_millis(300));
        memtide.check()?;
        let may = LIMIT * (stretch.elapsed() + SAVED).as_secs_f64();
        let above = memtide.cpu_seconds() - began - may;
        if stretch.is_over(RUN - JUDGED) {
            least = least.min(above);
            most = most.max(above);
        }
    }
    let used = memtide.cpu_seconds() - began;
    let elapsed = stretch.elapsed().as_secs_f64();
    let lines = end(memtide)?;
    let summary = summary(&lines)?;
    let rested = number(summary, "rested_ms")?;
    let row = [
        ("own CPU s", format!("{used:.2} in {elapsed:.1}")),
        ("most above", format!("{most:.2}")),
        ("moved", number(summary, "moved_pages")?.to_string()),
        ("rested s", format!("{:.1}", rested as f64 / 1e3)),
        ("slowness", format!("{:.1}", stretch.slowness())),
    ];
    context.row(TABLE, cells("--cpu-limit 2", &row))?;
    in_time(rested > 0, || {
        format!("the limit was never reached: {used:.2} s of CPU time")
    })?;
    in_time(least <= TICK, || {
        format!(
            "always {least:.2} s of CPU time and more above {} % of the time and what 20 s save up",
            LIMIT * 100.0
        )
    })
}
