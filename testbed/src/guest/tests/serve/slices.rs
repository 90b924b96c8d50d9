//! Three tenants on one machine with fast memory for half of what they use: a server that is protected, a
//! batch job with a bound, and a scanner that sweeps over all it has and would take everything.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::shares::{BOUND_AFTER, FAST, Slice, clear};
use super::{MAIN, Manager, put, start};
use crate::guest::late::{in_time, within};
use crate::guest::measure::GOAL;
use crate::guest::pace::Stretch;
use crate::guest::redis::Redis;
use crate::guest::subject::{Victim, census_hot};
use crate::guest::tests::Context;

/// The server's values, and what is protected: all that it has.
const VALUES_MIB: usize = 160;
const LOW_MIB: u64 = 220;
/// Of ten thousand values, those that nineteen of twenty requests ask for: 48 MiB.
const HOT_KEYS: usize = 3072;
/// The batch job has more than its bound on the fast node when the service begins.
const BATCH: &str = "--node 0 --size 168 --hot 48 --scattered";
const HIGH_MIB: u64 = 128;
const MOST: u64 = (HIGH_MIB << 20) / 100 * 102;
const SCANNER: &str = "--node 1 --size 640 --hot 640";
/// How long the others press.
const PRESSED_FOR: Duration = Duration::from_secs(20);
const SEED: u64 = 20;

pub(super) fn three(context: &mut Context) -> Result<()> {
    let slices = ["web", "batch", "scan"].map(Slice::create);
    let [web, batch, scan] = slices;
    let (web, batch, scan) = (web?, batch?, scan?);
    let server = web.start(|| Redis::start(VALUES_MIB))?;
    let hot_keys = server.draw_keys(HOT_KEYS, SEED);
    let known = [server.settle_on(FAST, &hot_keys)?];
    let load = server.load(hot_keys, SEED)?;
    let job = batch.victim(BATCH)?;
    let scanner = scan.victim(SCANNER)?;
    let classes = [
        web.class("web", &format!("fast.low = \"{LOW_MIB}MiB\"")),
        batch.class("batch", &format!("fast.high = \"{HIGH_MIB}MiB\"")),
    ];
    put(MAIN, &classes.concat())?;
    let home = || Ok::<f64, anyhow::Error>(census_hot(&known, &[FAST])?.share());
    ensure!(home()? >= GOAL, "the server's pages are not there at first");

    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    let stretch = Stretch::begin();
    while batch.used()? > MOST {
        within(&stretch, BOUND_AFTER, || {
            "the batch job was above its bound".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let (mut least, mut most) = (1.0f64, 0);
    let stretch = Stretch::begin();
    while !stretch.is_over(PRESSED_FOR) {
        least = least.min(home()?);
        ensure!(
            least >= GOAL,
            "{:.1} % of the server's hot pages are home, and {} MiB are protected",
            least * 100.0,
            LOW_MIB
        );
        most = most.max(batch.used()?);
        ensure!(
            most <= MOST,
            "the batch job uses {most} bytes of fast memory, and {MOST} are its bound and 2 %"
        );
        service.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let there = |victim: &Victim| {
        Ok::<f64, anyhow::Error>(census_hot(&victim.known_pages(), &[FAST])?.share() * 100.0)
    };
    let (scanned, worked) = (there(&scanner)?, there(&job)?);
    ensure!(
        scanned < 90.0,
        "{scanned:.1} % of what the scanner sweeps over is on the fast node"
    );
    // Or nobody pressed: how much came is a matter of time.
    in_time(scanned > 10.0, || {
        format!("{scanned:.1} % of what the scanner sweeps over is on the fast node, and no more")
    })?;
    service.end(Signal::TERM)?.clean()?;
    clear()?;
    let requests = load.finish()?;
    drop((server, job, scanner));
    drop((web, batch, scan));
    context.note(format!(
        "{:.1} % of the server's hot pages home or more, {requests} requests answered; the batch job used at most {:.2} of {HIGH_MIB} MiB and has {worked:.0} % of its hot pages home; of the scanner's, {scanned:.0} % are",
        least * 100.0,
        most as f64 / f64::from(1 << 20),
    ))
}
