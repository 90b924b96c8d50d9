//! From a load and a mechanism to figures: how soon the hot pages are home, what else moved, and
//! what it cost.
//!
//! The hot pages are asked for ten times a second. When 99 % are on DRAM the clock is read, and the
//! watch goes on for [`SETTLE`], because a mechanism that then drags cold pages along, or drops hot
//! ones, must not look better than it is. The cold pages are asked for at both ends only.

use std::time::Duration;

use anyhow::Result;

use super::mechanism::Running;
use super::pace::Stretch;
use super::procfs::{vmstat, zoneinfo};
use super::subject::{KnownPages, census_cold, census_hot};

/// Between two looks.
const SAMPLE: Duration = Duration::from_millis(100);
/// How long the watch goes on after the goal.
pub const SETTLE: Duration = Duration::from_secs(2);
/// However slow the machine is, nothing is watched for longer: a silent guest counts as dead.
pub(super) const LONGEST: Duration = Duration::from_secs(150);
/// The share of hot pages that counts as home.
pub const GOAL: f64 = 0.99;

/// The figures of one case.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Seconds until [`GOAL`] of the hot pages were on DRAM; none if never.
    pub seconds: Option<f64>,
    /// How many times as slow as a quiet machine it was until then; see [`super::pace`].
    pub slowness: f64,
    /// Share of the hot pages on DRAM at the end.
    pub hot_share: f64,
    /// Share of the cold pages that came to DRAM.
    pub cold_share: f64,
    /// CPU seconds of the mechanism until the goal, or until the end if never.
    pub cpu_seconds: f64,
    /// Of these, CPU seconds of memtide's own process; none for the kernel's mechanism.
    pub own_cpu_seconds: Option<f64>,
    /// What memtide said.
    pub last_lines: Vec<String>,
    /// The largest share of the hot pages that was on DRAM and left it again.
    pub hot_lost: f64,
    /// Least free pages of the DRAM nodes over their low watermark; negative when below it.
    pub least_room: i64,
    /// NUMA hint faults in the meantime (`numa_hint_faults`).
    pub hint_faults: u64,
    /// Pages promoted by the kernel in the meantime (`pgpromote_success`).
    pub kernel_promoted: u64,
    /// Pages demoted by the kernel in the meantime.
    pub kernel_demoted: u64,
}

impl Figures {
    /// The cells of its row.
    #[must_use]
    pub fn cells(&self) -> Vec<(String, String)> {
        let seconds = self.seconds.map_or_else(
            || format!("never ({:.0} %)", self.hot_share * 100.0),
            |seconds| format!("{seconds:.1}"),
        );
        [
            ("s to 99 %", seconds),
            ("slowness", format!("{:.1}", self.slowness)),
            ("hot on DRAM %", format!("{:.1}", self.hot_share * 100.0)),
            ("cold moved %", format!("{:.1}", self.cold_share * 100.0)),
            ("hot lost %", format!("{:.1}", self.hot_lost * 100.0)),
            ("CPU s", format!("{:.2}", self.cpu_seconds)),
            (
                "own CPU s",
                self.own_cpu_seconds
                    .map_or("-".to_owned(), |own| format!("{own:.2}")),
            ),
            ("room over low", self.least_room.to_string()),
            ("hint faults", self.hint_faults.to_string()),
            ("pgpromote", self.kernel_promoted.to_string()),
            ("pgdemote", self.kernel_demoted.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// Watches until the goal and [`SETTLE`], at least for `at_least`, at most for `limit` of quiet time.
///
/// # Errors
/// When a process or the mechanism ended.
pub fn watch(
    known: &[KnownPages],
    dram: &[u32],
    running: &mut Running,
    at_least: Duration,
    limit: Duration,
) -> Result<Figures> {
    let counters = vmstat()?;
    let cold_before = census_cold(known, dram)?.there;
    let stretch = Stretch::begin();
    let mut most_hot = 0.0f64;
    let mut figures = Figures {
        least_room: i64::MAX,
        ..Figures::default()
    };
    loop {
        let hot = census_hot(known, dram)?;
        let elapsed = stretch.elapsed();
        figures.hot_share = hot.share();
        most_hot = most_hot.max(hot.share());
        figures.hot_lost = figures.hot_lost.max(most_hot - hot.share());
        figures.least_room = figures.least_room.min(room(dram)?);
        if figures.seconds.is_none() {
            figures.cpu_seconds = running.cpu_seconds();
            figures.own_cpu_seconds = running.own_cpu_seconds();
            figures.slowness = stretch.slowness();
            if hot.share() >= GOAL {
                figures.seconds = Some(elapsed.as_secs_f64());
            }
        }
        running.check()?;
        let settled = figures
            .seconds
            .is_some_and(|seconds| elapsed > Duration::from_secs_f64(seconds) + SETTLE);
        if stretch.is_over(limit) || elapsed > LONGEST || (settled && elapsed > at_least) {
            break;
        }
        // The grid of samples stands still even when a look takes long.
        let next = SAMPLE * (elapsed.as_millis() / SAMPLE.as_millis() + 1) as u32;
        std::thread::sleep(next.saturating_sub(stretch.elapsed()));
    }
    let cold = census_cold(known, dram)?;
    let came = cold.there.saturating_sub(cold_before);
    figures.cold_share = came as f64 / cold.asked.max(1) as f64;
    let now = vmstat()?;
    let grown = |names: &dyn Fn(&str) -> bool| -> u64 {
        now.iter()
            .filter(|(name, _)| names(name))
            .map(|(name, value)| value - counters.get(name).copied().unwrap_or(0))
            .sum()
    };
    figures.hint_faults = grown(&|name| name == "numa_hint_faults");
    figures.kernel_promoted = grown(&|name| name == "pgpromote_success");
    figures.kernel_demoted = grown(&|name| name.starts_with("pgdemote_"));
    Ok(figures)
}

/// The smallest distance of a DRAM node's free pages from its low watermark.
fn room(dram: &[u32]) -> Result<i64> {
    let nodes = zoneinfo()?;
    Ok(dram
        .iter()
        .filter_map(|node| nodes.get(node))
        .map(|water| water.free.cast_signed() - water.low.cast_signed())
        .min()
        .unwrap_or(i64::MAX))
}
