//! Each source of accesses that can be asked for by name works.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::settings::Settings;
use super::{PATIENCE, SLOW, SMALL, TABLE, cells, until_home};
use crate::guest::memtide::{Line, Memtide};
use crate::guest::procfs::{refresh_counters, vmstat};
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

/// Kernel files that have each page fault a few times a second, and the kernel promote none.
const QUICK: [(&str, &str); 4] = [
    (
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
        "0",
    ),
    ("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "10"),
    (
        "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
        "100",
    ),
    (
        "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
        "100",
    ),
];

/// Files with what they held before; they hold it again when this is dropped.
struct Changed(Vec<(&'static str, String)>);

impl Changed {
    fn quick() -> Result<Self> {
        let mut changed = Self(Vec::new());
        for (path, value) in QUICK {
            let before = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
            std::fs::write(path, value).with_context(|| path.to_owned())?;
            changed.0.push((path, before.trim().to_owned()));
        }
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // The shortest period may be no longer than the longest, at any time.
        for (path, before) in self.0.iter().rev() {
            let _ = std::fs::write(path, before);
        }
    }
}

/// Hint faults alone: the kernel makes them and promotes nothing, memtide brings the hot set home.
pub(super) fn faults(context: &mut Context) -> Result<()> {
    comes_home(context, "faults", "faults", &[])
}

/// DAMON and hint faults at once, and hardware that no emulator has: that is told by name, and the
/// others go on.
pub(super) fn together(context: &mut Context) -> Result<()> {
    comes_home(
        context,
        "damon,faults,ibs",
        "DAMON and hint faults",
        &["ibs", "going on with damon, hint-faults"],
    )
}

fn comes_home(context: &mut Context, source: &str, case: &str, notice: &[&str]) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(20);
    const MOST_COLD: f64 = 0.01;
    let before = Settings::now();
    let quick = Changed::quick()?;
    let victim = Victim::start(&format!("{SMALL} --node {SLOW}"), 1)?;
    let known = victim.known_pages();
    let promoted = || -> Result<u64> {
        refresh_counters()?;
        Ok(vmstat()?.get("pgpromote_success").copied().unwrap_or(0))
    };
    let by_kernel = promoted()?;
    let mut memtide = Memtide::start(&["--source", source], &victim.pids())?;
    let dram = context.dram.clone();
    let seconds = until_home(&mut memtide, &known, &dram, LIMIT)?;
    let cold = census_cold(&known, &dram)?.share();
    let by_kernel = promoted()? - by_kernel;
    let lines = memtide.end(Signal::TERM)?.clean()?;
    context.row(
        TABLE,
        cells(
            case,
            &[
                ("s to 99 %", format!("{seconds:.1}")),
                ("cold moved %", format!("{:.1}", cold * 100.0)),
            ],
        ),
    )?;
    let (moved, accesses) = match lines.last() {
        Some(Line::Summary(summary)) => {
            (summary.pgpromote_success, summary.pghot_recorded_accesses)
        }
        other => anyhow::bail!("the last line is no summary: {other:?}"),
    };
    context.note(format!(
        "memtide promoted {moved} pages by {accesses} accesses, the kernel {by_kernel}"
    ))?;
    let told = |line: &Line| matches!(line, Line::Notice { text } if notice.iter().all(|word| text.contains(word)));
    ensure!(
        notice.is_empty() || lines.iter().any(told),
        "no notice has all of {notice:?}"
    );
    ensure!(
        cold <= MOST_COLD,
        "{:.1} % of the cold pages came along",
        cold * 100.0
    );
    ensure!(moved > 0 && by_kernel == 0, "the kernel promoted them");
    drop(quick);
    before.check_unchanged()
}
