//! While nothing on slow memory is in use, memtide costs next to nothing.
//!
//! Its own time is judged; that of DAMON's threads, which observe for it, is told beside it. Both are
//! an emulated processor's, on which everything takes ten to twenty times as long.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::{SLOW, TABLE, cells};
use crate::guest::late::in_time;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::procfs::{cpu_time, node_free_mib, threads_named};
use crate::guest::subject::{Victim, census_hot};
use crate::guest::sys::move_pages_to;
use crate::guest::tests::Context;

/// Until memtide has seen that there is nothing to do. By the clock, as its periodic looks are, so that
/// these fall into the same window on any machine.
const SETTLE: Duration = Duration::from_secs(5);
/// For how long its time is taken, and how often: shorter in all than from one periodic look to the
/// next (30 s), so that one window at most holds one.
const WATCH: Duration = Duration::from_secs(9);
const WATCHES: usize = 3;
/// The most of one processor that it may take, in percent of quiet time, in every window but one.
const MOST: f64 = 0.5;
/// The most in the one that may hold a periodic look.
const MOST_WITH_A_LOOK: f64 = 1.0;

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
    let percent = |spent: f64, of: &Stretch| 100.0 * spent / of.elapsed().as_secs_f64();
    let mut own = Vec::new();
    let observed = observers();
    let all = Stretch::begin();
    for _ in 0..WATCHES {
        let (before, stretch) = (memtide.cpu_seconds(), Stretch::begin());
        std::thread::sleep(WATCH);
        memtide.check()?;
        let spent = memtide.cpu_seconds() - before;
        own.push(percent(spent, &stretch) / stretch.slowness());
    }
    // A look's kernel thread is gone after it and its time with it.
    let kernel = percent((observers() - observed).max(0.0), &all);
    let slowness = all.slowness();
    memtide.end(Signal::TERM)?.clean()?;
    let share = |percent: f64| format!("{percent:.2}");
    let shown: Vec<String> = own.iter().copied().map(share).collect();
    context.row(
        TABLE,
        cells(
            case,
            &[
                ("memtide CPU % of quiet time", shown.join(", ")),
                ("kdamond CPU %", share(kernel)),
                ("slowness", format!("{slowness:.1}")),
            ],
        ),
    )?;
    in_time(is_idle(&own), || {
        format!(
            "memtide takes {} % of a processor with nothing to do, promised are {MOST} %, and \
             {MOST_WITH_A_LOOK} % where it looks",
            shown.join(", ")
        )
    })
}

/// All windows are judged.
fn is_idle(own: &[f64]) -> bool {
    own.iter().all(|&own| own < MOST_WITH_A_LOOK)
        && own.iter().filter(|&&own| own >= MOST).count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_may_hold_a_look() {
        assert!(is_idle(&[0.4, 0.9, 0.3]));
        assert!(!is_idle(&[0.4, 0.6, 0.6]));
        assert!(!is_idle(&[0.4, 1.1, 0.3]));
    }
}
