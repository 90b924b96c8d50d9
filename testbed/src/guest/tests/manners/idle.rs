//! While nothing on slow memory is in use, memtide costs next to nothing.
//!
//! Its own time is judged; that of DAMON's threads, which observe for it, is told beside it. Both are
//! an emulated processor's, on which everything takes ten to twenty times as long.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::{SLOW, TABLE, cells};
use crate::guest::memtide::Memtide;
use crate::guest::procfs::{cpu_time, node_free_mib, threads_named};
use crate::guest::subject::{Victim, census_hot};
use crate::guest::sys::move_pages_to;
use crate::guest::tests::Context;

/// Until memtide has seen that there is nothing to do.
const SETTLE: Duration = Duration::from_secs(5);
/// For how long its time is taken, and how often: an emulated processor's time passes while the
/// shared host does other things, so the least is the nearest to the truth.
const WATCH: Duration = Duration::from_secs(9);
const WATCHES: usize = 3;
/// The most of one processor that it may take, in percent.
const MOST: f64 = 0.5;

/// 256 MiB of slow memory whose owner sleeps.
pub(super) fn sleeping(context: &mut Context) -> Result<()> {
    let free = node_free_mib(SLOW)?;
    let filler = Victim::start(&format!("--node {SLOW} --leave-free {}", free - 256), 1)?;
    costs_nothing(context, "idle, sleeping", &filler)
}

/// 256 MiB of which the 32 in use are on DRAM already, as after memtide's own work.
pub(super) fn settled(context: &mut Context) -> Result<()> {
    let victim = Victim::start(&format!("--scattered --node {SLOW}"), 1)?;
    let known = victim.known_pages();
    move_pages_to(known[0].pid, &known[0].hot, context.dram[0])?;
    let hot = census_hot(&known, &context.dram)?;
    ensure!(
        hot.there == hot.asked,
        "the hot pages cannot be put on DRAM: {hot:?}"
    );
    costs_nothing(context, "idle, settled", &victim)
}

fn costs_nothing(context: &mut Context, case: &str, victim: &Victim) -> Result<()> {
    let mut memtide = Memtide::start(&[], &victim.pids())?;
    std::thread::sleep(SETTLE);
    let observers = || -> f64 {
        let threads = threads_named(&["kdamond"]);
        let times = threads.into_iter().filter_map(cpu_time);
        times.map(|time| time.total).sum()
    };
    memtide.check()?;
    let percent = |seconds: f64| 100.0 * seconds / WATCH.as_secs_f64();
    let mut own = Vec::new();
    let observed = observers();
    for _ in 0..WATCHES {
        let before = memtide.cpu_seconds();
        std::thread::sleep(WATCH);
        memtide.check()?;
        own.push(percent(memtide.cpu_seconds() - before));
    }
    // A look's kernel thread is gone after it and its time with it.
    let kernel = percent((observers() - observed).max(0.0)) / WATCHES as f64;
    own.sort_by(f64::total_cmp);
    let (own, most) = (own[0], own[WATCHES - 1]);
    memtide.end(Signal::TERM)?.clean()?;
    let share = |percent: f64| format!("{percent:.2}");
    context.row(
        TABLE,
        cells(
            case,
            &[
                ("memtide CPU %", share(own)),
                ("at most", share(most)),
                ("kdamond CPU %", share(kernel)),
            ],
        ),
    )?;
    ensure!(
        own < MOST,
        "memtide takes {own:.2} % of a processor with nothing to do, promised are {MOST} %"
    );
    Ok(())
}
