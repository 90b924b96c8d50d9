//! What a run will take, before it takes it: accesses, the host's memory, time.
//!
//! Time is the accesses over what this simulator does a second on an ordinary processor, which is off by
//! a factor of two either way and good enough to tell a minute from a day. A run that would take longer
//! than [`LONG_S`], or more memory than [`LARGE_BYTES`], is not started without `--yes`.

use super::words::{bytes, grouped};
use crate::shared::context::BadUsage;
use memtide_sim::scenario::{Options, Scenario, confidence};

/// Simulated accesses a second of one processor.
const RATE: f64 = 20e6;
/// Milliseconds of a recording in which nobody accesses anything, in a second of one processor.
const PAUSED_RATE: f64 = 5e5;
/// Ten minutes.
const LONG_S: f64 = 600.0;
/// A run of more is asked about.
const LARGE_BYTES: u64 = 16 << 30;
/// What a simulated page of the machine or of the program takes, on the host.
const BYTES_A_PAGE: u64 = 32;

/// Simulated pages that a recording may be spread over: 1 TiB. Where a row stands for half a mebibyte, a
/// small file would take all memory.
const MOST_RECORDED_PAGES: u64 = 1 << 28;

/// What a run takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Simulated accesses of all runs; 0 where only the run itself can tell.
    pub accesses: u64,
    /// Of the host, by the runs that are made at the same time.
    pub bytes: u64,
    /// On this host.
    pub seconds: f64,
    /// Pages that the recording is spread over; 0 without one.
    recorded_pages: u64,
    /// Whether most of the time goes into its pauses.
    pauses: bool,
}

/// Reckons it for `seeds` seeds, and the runs on a coarser machine if `again`.
pub fn of(scenario: &Scenario, options: &Options, (seeds, again): (u32, bool)) -> Estimate {
    let scale = options.scale.unwrap_or(scenario.scale).max(1);
    let runs = scenario.runs(options).unwrap_or_default();
    let runs_of = |case: &str| {
        let mine = runs.iter().filter(|(name, _)| name == case);
        // Those on the machine of rates make no accesses.
        mine.filter(|(case, configuration)| !scenario.is_of_rates(case, configuration))
            .count() as u128
    };
    let coarser = confidence::coarser(scenario, scale).filter(|_| again);
    let coarse = coarser.map(|scale| (scale, confidence::coarse_runs(seeds)));
    let made = || [(scale, seeds)].into_iter().chain(coarse);
    let accesses = scenario.cases.iter().map(|case| {
        let each = case.workload.accesses().map_or(0, |(_, accesses)| accesses);
        let of = |(scale, seeds): (u32, u32)| each / u128::from(scale) * u128::from(seeds);
        made().map(of).sum::<u128>() * runs_of(&case.name)
    });
    let accesses = u64::try_from(accesses.sum::<u128>()).unwrap_or(u64::MAX);
    // A pause takes as long at any scale.
    let times: f64 = made().map(|(_, seeds)| f64::from(seeds)).sum();
    let paused = scenario.paused_quanta(options).unwrap_or_default() as f64 * times;
    let capacity = scenario
        .machine
        .nodes
        .iter()
        .map(|node| node.capacity_bytes / 4096);
    let recorded_pages = scenario.recorded_pages(scale);
    let pages = (capacity.sum::<u64>() / u64::from(scale)).max(recorded_pages);
    let (working_s, pausing_s) = (accesses as f64 / RATE, paused / PAUSED_RATE);
    let at_once = options.jobs.min(runs.len()).max(1);
    Estimate {
        accesses,
        bytes: pages.saturating_mul(BYTES_A_PAGE * at_once as u64),
        seconds: (working_s + pausing_s) / at_once as f64,
        recorded_pages,
        pauses: pausing_s > working_s,
    }
}

/// That a run may start.
pub fn allow(
    scenario: &Scenario,
    options: &Options,
    runs: (u32, bool),
    yes: bool,
) -> anyhow::Result<()> {
    let estimate = of(scenario, options, runs);
    let pages = estimate.recorded_pages;
    if pages > MOST_RECORDED_PAGES {
        return Err(BadUsage(format!(
            "{}: the recording is spread over {} of simulated memory, more than {}; cut it, or give a \
             coarser --scale",
            scenario.name,
            bytes(pages * 4096),
            bytes(MOST_RECORDED_PAGES * 4096),
        ))
        .into());
    }
    if yes || (estimate.seconds <= LONG_S && estimate.bytes <= LARGE_BYTES) {
        return Ok(());
    }
    let otherwise = match estimate.pauses {
        true => "cut the pauses out of the recording",
        false => "give a coarser --scale",
    };
    Err(BadUsage(format!(
        "{}: about {} simulated accesses, {} of memory and {}; give --yes to start it, or {otherwise}",
        scenario.name,
        grouped(estimate.accesses),
        bytes(estimate.bytes),
        duration(estimate.seconds),
    ))
    .into())
}

/// `12 minutes`, `3.5 hours`.
fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 120.0 => format!("{short:.0} seconds"),
        short if short < 7200.0 => format!("{:.0} minutes", short / 60.0),
        long if long < 172_800.0 => format!("{:.1} hours", long / 3600.0),
        long => format!("{} days", grouped((long / 86_400.0) as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_sim::workload::TraceRow;

    /// 2^19 rows, each 512 pages from the one before, and one page more than is allowed.
    #[test]
    fn a_few_rows_may_not_spread_over_all_memory() {
        let row = |row: u64| TraceRow {
            time_ns: row,
            thread: 0,
            address: (row * 512) << 12,
            write: false,
        };
        let scenario = memtide_sim::scenario::shipped("zipf-drift").unwrap();
        let of = |rows: u64, scale| {
            let scenario = scenario.read().unwrap();
            let scenario = scenario.with_trace((0..rows).map(row).collect());
            let options = Options {
                scale: Some(scale),
                ..Options::default()
            };
            allow(&scenario, &options, (1, false), true)
        };
        assert!(of(1 << 19, 1).is_ok());
        let error = of((1 << 19) + 1, 1).unwrap_err().to_string();
        let told = "zipf-drift: the recording is spread over 1.0 TiB of simulated memory, more than 1 TiB; ";
        assert!(error.starts_with(told), "{error}");
        assert!(of((1 << 19) + 1, 2).is_ok());
    }

    /// A row every four seconds for a hundred days: each pause is simulated for two. With pages that leave
    /// after a day of idleness the loop attends to all of the pauses.
    #[test]
    fn pauses_of_a_recording_take_time() {
        let row = |row: u64| TraceRow {
            time_ns: row * 4_000_000_000,
            thread: 0,
            address: (row % 100) << 12,
            write: false,
        };
        let scenario = memtide_sim::scenario::shipped("pghot-mode1").unwrap();
        let rows = |of: Scenario, rows: u64| of.with_trace((0..rows).map(row).collect());
        let options = Options {
            scale: Some(64),
            only: vec!["memtide tier".to_owned()],
            ..Options::default()
        };
        let scenario = scenario.read().unwrap();
        let short = rows(scenario.clone(), 1000);
        let seconds =
            of(&short, &options, (1, false)).seconds - of(&scenario, &options, (1, false)).seconds;
        assert!(
            (seconds - 999.0 * 2000.0 / PAUSED_RATE).abs() < 1e-6,
            "{seconds}"
        );
        let long = rows(scenario.clone(), 100 * 86_400 / 4);
        let error = allow(&long, &options, (3, false), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("or cut the pauses out of the recording"),
            "{error}"
        );
        let mut idle = short.clone();
        for configuration in &mut idle.configurations {
            if let Some(tier) = &mut configuration.tier {
                tier.demote_idle = Some("1d".parse().unwrap());
            }
        }
        let more =
            of(&idle, &options, (1, false)).seconds - of(&scenario, &options, (1, false)).seconds;
        assert!((more / seconds - 2.0).abs() < 1e-3, "{more}");
    }

    #[test]
    fn long_runs_are_asked_about() {
        let scenario = memtide_sim::scenario::shipped("zipf-drift")
            .unwrap()
            .read()
            .unwrap();
        let options = |scale| Options {
            scale: Some(scale),
            jobs: 2,
            ..Options::default()
        };
        // 8 threads of 300 million accesses in eight runs, at 1/64.
        let estimate = of(&scenario, &options(64), (1, false));
        assert_eq!(estimate.accesses, 8 * 300_000_000 / 64 * 8);
        // And twice on a machine four times as coarse.
        let again = of(&scenario, &options(64), (1, true));
        assert_eq!(again.accesses, estimate.accesses / 2 * 3);
        assert_eq!(estimate.bytes, (40 << 30) / 4096 / 64 * BYTES_A_PAGE * 2);
        assert!(allow(&scenario, &options(64), (1, false), false).is_ok());
        let whole = allow(&scenario, &options(1), (5, false), false)
            .unwrap_err()
            .to_string();
        assert!(
            whole.starts_with("zipf-drift: about 96,000,000,000 simulated accesses"),
            "{whole}"
        );
        assert!(whole.contains("--yes"), "{whole}");
        assert!(allow(&scenario, &options(1), (5, false), true).is_ok());
        assert_eq!(duration(5400.0), "90 minutes");
        assert_eq!(duration(864_000.0), "10 days");
    }
}
