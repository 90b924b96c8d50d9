//! What `memtide pager FILE` found; the document of `--json`.

use super::args::{Hold, Pattern, TrialArgs, Way};
use super::worker::Measured;
use serde::Serialize;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    pub file: String,
    pub file_bytes: u64,
    pub budget_bytes: u64,
    pub threads: usize,
    pub pattern: Pattern,
    pub mode: Hold,
    pub memory_policy: Option<String>,
    pub seconds: f64,
    /// Why plain mmap could not be limited, and is left out.
    pub no_limit: Option<String>,
    pub ways: Vec<WayReport>,
    pub lazy_against: Vec<Against>,
}

/// One way of reading.
#[derive(Debug, Serialize)]
pub struct WayReport {
    pub way: Way,
    /// Of its cgroup.
    pub limit_bytes: Option<u64>,
    pub reads_per_s: f64,
    pub shootdowns_per_evicted_page: Option<f64>,
    #[serde(flatten)]
    pub measured: Measured,
}

/// Lazy unmapping beside another way, in one number each.
#[derive(Debug, Serialize)]
pub struct Against {
    pub way: Way,
    /// Part of the shootdowns a page that is left: 0.05 is 95 % fewer.
    pub shootdowns_ratio: Option<f64>,
    /// 1.1 is 10 % more.
    pub reads_ratio: f64,
}

/// The document of `--make --json`.
#[derive(Debug, Serialize)]
pub struct Made {
    pub made: String,
    pub bytes: u64,
}

impl WayReport {
    pub fn new(way: Way, limit_bytes: Option<u64>, measured: Measured) -> WayReport {
        let pages = measured.evicted_pages.filter(|pages| *pages > 0);
        let each = measured.shootdowns.zip(pages);
        WayReport {
            way,
            limit_bytes,
            reads_per_s: measured.reads as f64 / measured.elapsed_s,
            shootdowns_per_evicted_page: each
                .map(|(interrupts, pages)| interrupts as f64 / pages as f64),
            measured,
        }
    }
}

impl Report {
    pub fn new(
        file: &str,
        file_bytes: u64,
        budget_bytes: u64,
        threads: usize,
        args: &TrialArgs,
        no_limit: Option<String>,
        ways: Vec<WayReport>,
    ) -> Report {
        let lazy = ways.iter().find(|way| way.way == Way::Lazy);
        let others = ways.iter().filter(|way| way.way != Way::Lazy);
        let lazy_against = lazy.map(|lazy| others.map(|other| Against::new(lazy, other)).collect());
        Report {
            file: file.to_owned(),
            file_bytes,
            budget_bytes,
            threads,
            pattern: args.pattern,
            mode: args.mode,
            memory_policy: args.memory_policy.as_ref().map(ToString::to_string),
            seconds: args.duration.as_secs_f64(),
            no_limit,
            lazy_against: lazy_against.unwrap_or_default(),
            ways,
        }
    }
}

impl Against {
    fn new(lazy: &WayReport, other: &WayReport) -> Against {
        let each = lazy
            .shootdowns_per_evicted_page
            .zip(other.shootdowns_per_evicted_page.filter(|each| *each > 0.0));
        Against {
            way: other.way,
            shootdowns_ratio: each.map(|(lazy, other)| lazy / other),
            reads_ratio: lazy.reads_per_s / other.reads_per_s,
        }
    }
}
