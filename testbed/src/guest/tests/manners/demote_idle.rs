//! `--demote-idle`: what nobody touched for so long leaves DRAM although there is room, and what is
//! in use stays.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::{TABLE, cells};
use crate::guest::late::within;
use crate::guest::memtide::{Memtide, tier};
use crate::guest::pace::Stretch;
use crate::guest::subject::{Victim, census_cold, census_hot};
use crate::guest::tests::Context;

/// The shortest time that the option takes.
const IDLE: &str = "10s";
/// Before this nothing was idle for so long.
const EARLIEST: Duration = Duration::from_secs(9);
/// Nine eighths of it, the second that the rate makes of 56 MiB, and as much again for a slow start.
const LATEST: Duration = Duration::from_secs(25);
/// Pages of a process that may be away at any time: one commutes, so that accesses do not hide.
const COMMUTER: usize = 1;
/// Of the cold pages, in percent.
const MOST_OF_THEM: usize = 95;

pub(super) fn leaves(context: &mut Context) -> Result<()> {
    let dram = context.dram.clone();
    let victim = Victim::start(&format!("--node {} --size 64 --hot 8", dram[0]), 1)?;
    let known = victim.known_pages();
    let mut memtide = Memtide::spawn(tier(&["--json", "--demote-idle", IDLE], &victim.pids()))?;
    let stretch = Stretch::begin();
    loop {
        let cold = census_cold(&known, &dram)?;
        // A page that is just being moved, by whomever, is on no node for a moment.
        let left = cold.asked - cold.there - cold.nowhere;
        if left * 100 >= cold.asked * MOST_OF_THEM {
            break;
        }
        ensure!(
            left <= COMMUTER || stretch.elapsed() >= EARLIEST,
            "{left} pages left after {:.1} s",
            stretch.elapsed().as_secs_f64()
        );
        within(&stretch, LATEST, || {
            format!("{left} of {} idle pages left DRAM and no more", cold.asked)
        })?;
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let seconds = stretch.elapsed().as_secs_f64();
    let hot = census_hot(&known, &dram)?;
    memtide.end(Signal::TERM)?.clean()?;
    // Those beside idle ones in one piece may go with them; they come back, and are on no node while they do.
    ensure!(
        (hot.there + hot.nowhere) * 100 >= hot.asked * 95,
        "only {} of {} pages in use are still on DRAM",
        hot.there,
        hot.asked
    );
    let row = [
        ("s until 95 % left", format!("{seconds:.1}")),
        ("in use and there", format!("{:.1} %", hot.share() * 100.0)),
    ];
    context.row(TABLE, cells("--demote-idle 10s", &row))
}
