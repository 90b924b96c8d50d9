//! How `memtide tier` behaves towards the machine and towards people.
//!
//! That it brings hot pages home is tested elsewhere; here is what it promises besides: it ends when
//! it should and leaves the kernel as it was, also after a crash; it touches nothing that it may not
//! touch; what it says is what happened; it costs nothing while there is nothing to do; and where it
//! cannot work it says so in one line. Each test is one such promise, short enough to run them all in
//! two minutes.

mod all;
mod bounds;
mod demote_idle;
mod doctor;
mod endings;
pub(super) mod group;
mod idle;
mod metrics;
mod refusals;
mod reports;
pub(super) mod settings;
mod sources;
mod tiers;

use std::time::Duration;

use anyhow::Result;

use super::{BootClass, Context, Test};
use crate::guest::late::within;
use crate::guest::measure::GOAL;
use crate::guest::memtide::{Line, Memtide};
use crate::guest::pace::Stretch;
use crate::guest::subject::{KnownPages, census_hot};

/// The slow node of the topology `cxl`.
pub(super) const SLOW: u32 = 2;
/// A victim that is quick to start; its hot pages lie apart.
pub(super) const SMALL: &str = "--size 64 --hot 8 --scattered";
/// How long anything that memtide is expected to do may take, in quiet time as all limits here.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The table that these tests fill.
const TABLE: &str = "manners";

/// A promise: an error says how it was broken.
type Promise = fn(&mut Context) -> Result<()>;

const QUIET: [(&str, &str, Promise); 26] = [
    ("sigint", "cxl", endings::sigint),
    ("sigterm", "cxl", endings::sigterm),
    ("crash", "cxl", endings::crash),
    ("process-ends", "cxl", endings::process_ends),
    ("others-end", "cxl", endings::others_end),
    ("churn", "cxl", endings::churn),
    ("all", "cxl", all::comes_home),
    ("doctor", "cxl", doctor::proves),
    ("doctor/interrupted", "cxl", doctor::interrupted),
    ("doctor/offline-block", "cxl", doctor::offline_block),
    ("demote-idle", "cxl", demote_idle::leaves),
    ("dry-run", "cxl", reports::dry_run),
    ("explain", "cxl", reports::explain),
    ("nobody-reads", "cxl", reports::nobody_reads),
    ("metrics", "cxl", metrics::metrics),
    ("bound/mempolicy", "cxl", bounds::mempolicy),
    ("bound/cpuset", "cxl", bounds::cpuset),
    ("unknown-pid", "cxl", refusals::unknown_pid),
    ("not-root", "cxl", refusals::not_root),
    ("other-damon-user", "cxl", refusals::other_damon_user),
    ("sources/page-table", "cxl", sources::page_table),
    ("idle/sleeping", "cxl", idle::sleeping),
    ("idle/settled", "cxl", idle::settled),
    ("one-tier", "two-socket", refusals::one_tier),
    ("tiers", "two-socket", tiers::by_hand),
    ("rate-limit", "small-dram", bounds::rate_limit),
];

const KERNEL_TIERING: [(&str, &str, Promise); 3] = [
    ("sources/hint-faults", "cxl", sources::hint_faults),
    ("sources/faults", "cxl", sources::faults),
    ("sources/together", "cxl", sources::together),
];

pub(super) fn tests() -> Vec<Test> {
    let test = |class: BootClass, (name, topology, promise): (&str, &'static str, Promise)| {
        Test::promise(format!("manners/{name}"), topology, class, promise)
    };
    let quiet = QUIET.map(|row| test(BootClass::Quiet, row));
    let tiering = KERNEL_TIERING.map(|row| test(BootClass::KernelTiering, row));
    quiet.into_iter().chain(tiering).collect()
}

fn is_promotion(line: &Line) -> bool {
    matches!(
        line,
        Line::Moved { direction, .. } | Line::MovedPages { direction, .. } if direction == "promotion"
    )
}

/// Waits until 99 % of the hot pages are on DRAM; the seconds that it took.
pub(super) fn until_home(
    memtide: &mut Memtide,
    known: &[KnownPages],
    dram: &[u32],
    limit: Duration,
) -> Result<f64> {
    let stretch = Stretch::begin();
    loop {
        let share = census_hot(known, dram)?.share();
        if share >= GOAL {
            return Ok(stretch.elapsed().as_secs_f64());
        }
        within(&stretch, limit, || {
            format!(
                "{:.1} % of the hot pages on DRAM and no more",
                share * 100.0
            )
        })?;
        memtide.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A row of the table of these tests.
fn cells(case: &str, figures: &[(&str, String)]) -> Vec<(String, String)> {
    let case = ("case".to_owned(), case.to_owned());
    let figures = figures
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    std::iter::once(case).chain(figures).collect()
}
