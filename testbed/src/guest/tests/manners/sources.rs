//! Each source of accesses that can be asked for by name works.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::settings::Settings;
use super::{PATIENCE, SLOW, SMALL, TABLE, cells, until_home};
use crate::guest::memtide::{Line, Memtide};
use crate::guest::subject::{Victim, census_cold};
use crate::guest::tests::Context;

/// Accessed bits that memtide reads itself: the hot set is home in 4 s, and alone.
pub(super) fn page_table(context: &mut Context) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(4);
    const MOST_COLD: f64 = 0.01;
    let before = Settings::now();
    let victim = Victim::start(&format!("--scattered --node {SLOW}"), 1)?;
    let known = victim.known_pages();
    let mut memtide = Memtide::start(&["--source", "page-table"], &victim.pids())?;
    let dram = context.dram.clone();
    let seconds = until_home(&mut memtide, &known, &dram, LIMIT)?;
    std::thread::sleep(Duration::from_secs(2));
    let cold = census_cold(&known, &dram)?.share();
    memtide.end(Signal::TERM)?.clean()?;
    context.row(
        TABLE,
        cells(
            "page-table",
            &[
                ("s to 99 %", format!("{seconds:.1}")),
                ("cold moved %", format!("{:.1}", cold * 100.0)),
            ],
        ),
    )?;
    ensure!(
        cold <= MOST_COLD,
        "{:.1} % of the cold pages came along",
        cold * 100.0
    );
    before.check_unchanged()
}

/// The kernel's own hint faults, beside the kernel's own promotion: memtide records what it sees.
pub(super) fn hint_faults(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let victim = Victim::start(&format!("{SMALL} --node {SLOW}"), 1)?;
    let mut memtide = Memtide::start(&["--source", "hint-faults"], &victim.pids())?;
    let recorded =
        |line: &Line| matches!(line, Line::Status(status) if status.pghot_recorded_accesses > 0);
    memtide.wait_for("that it recorded an access", PATIENCE, recorded)?;
    let lines = memtide.end(Signal::TERM)?.clean()?;
    let accesses = match lines.last() {
        Some(Line::Summary(summary)) => summary.pghot_recorded_accesses,
        other => anyhow::bail!("the last line is no summary: {other:?}"),
    };
    context.note(format!("{accesses} accesses recorded"))?;
    ensure!(accesses > 0, "the summary has forgotten the accesses");
    before.check_unchanged()
}
