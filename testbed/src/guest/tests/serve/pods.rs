//! A thousand pods in which nothing happens, and what it costs to know.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::shares::{Slice, clear};
use super::{MAIN, Manager, put, start};
use crate::guest::late::in_time;
use crate::guest::pace::Stretch;
use crate::guest::tests::Context;

const PODS: usize = 1_000;
/// Until what is in use was found and is home.
const SETTLE: Duration = Duration::from_secs(15);
const WATCH: Duration = Duration::from_secs(20);
/// The most of one processor that an idle service may take, in percent of quiet time.
const MOST: f64 = 0.5;
/// A program of which nothing is in use.
const IDLE: &str = "--hot 0 --size 16";

/// Idle pods cost next to nothing, whether it is asked if they wait for memory or how much fast memory they
/// use. An emulated processor takes ten to twenty times as long for everything: what one thousand of them add
/// to one alone is judged, and all of it told.
pub(super) fn thousand(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = clear();
    let manager = Manager::listen()?;
    let all = Slice::create("pods")?;
    let pods: Vec<Slice> = (0..PODS)
        .map(|n| all.below(&format!("pod-{n}")))
        .collect::<Result<_>>()?;
    let program = pods[0].victim(IDLE)?;
    let one = pods[0].class("pods", "");
    let many = |keys: &str| format!("[class.pods]\ncgroup = \"/pods/*\"\n{keys}\n");
    let cases = [
        ("one", one),
        ("pressure ignored", many("pressure = \"ignore\"")),
        ("pressure heeded", many("")),
        ("a bound", many("fast.high = \"50%\"")),
    ];
    let mut costs = Vec::new();
    for (name, class) in cases {
        put(MAIN, &class)?;
        let mut service = start()?;
        std::thread::sleep(SETTLE);
        service.check()?;
        let (before, stretch) = (service.cpu_seconds(), Stretch::begin());
        std::thread::sleep(WATCH);
        service.check()?;
        let spent = service.cpu_seconds() - before;
        let percent = 100.0 * spent / stretch.elapsed().as_secs_f64() / stretch.slowness();
        service.end(Signal::TERM)?.clean()?;
        context.note(format!("{name}: {percent:.2} % of a processor"))?;
        costs.push(percent);
    }
    drop(program);
    drop(pods);
    drop(all);
    drop(manager);
    clear()?;
    let adds = costs[2] - costs[1];
    in_time(adds <= MOST, || {
        format!("to ask {PODS} pods whether they wait costs {adds:.2} % of a processor")
    })
}
