//! What balancing remembers of a task.

use super::faults::{Faults, Ran};
use super::group::GroupId;
use super::pacing::Pacing;
use super::timing::Periods;
use crate::units::NodeId;

/// A scheduler tick in nanoseconds.
pub(super) const TICK_NS: u64 = 1_000_000;
/// A scan delays its task's next one by so many times its own cost, which keeps
/// the cost at a thirty-third of the task's time.
pub(super) const SCAN_COST_FACTOR: u64 = 32;

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) pid: u32,
    pub(super) space: usize,
    pub(super) faults: Faults,
    pub(super) group: Option<GroupId>,
    pub(super) preferred: Option<NodeId>,
    pub(super) seen_seq: u64,
    pub(super) period_ms: u64,
    pub(super) period_max_ms: u64,
    /// CPU time from which the period counts; 0: not begun.
    pub(super) stamp_ns: u64,
    pub(super) retry_ms: u64,
    /// CPU time and time at the last placement.
    pub(super) placed: Option<(u64, u64)>,
    /// Where it runs.
    pub(super) cpu: Option<u32>,
    /// Operations between its samples.
    pub(super) sample_period: u64,
    /// Samples counted since its start, and since its last placement.
    pub(super) samples: u64,
    pub(super) window: u64,
}

impl Task {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its statistics.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Its group.
    #[must_use]
    pub fn group(&self) -> Option<GroupId> {
        self.group
    }

    /// The node where it should run.
    #[must_use]
    pub fn preferred(&self) -> Option<NodeId> {
        self.preferred
    }

    /// CPU time between its scans, in ms.
    #[must_use]
    pub fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// CPU time from which the running period counts, in ns.
    #[must_use]
    pub fn stamp_ns(&self) -> u64 {
        self.stamp_ns
    }

    /// Operations between its samples, where samples are what counts.
    #[must_use]
    pub fn sample_period(&self) -> u64 {
        self.sample_period
    }

    /// Its samples that counted towards placement.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether the gate no longer takes it for young.
    pub(super) fn is_settled(&self, pacing: &Pacing) -> bool {
        let old = match pacing {
            Pacing::Scans => self.seen_seq > super::gate::YOUNG_SCANS,
            Pacing::Samples(settings) => self.samples >= settings.young_samples(),
        };
        self.preferred.is_some() && old
    }

    /// Notes a placement at these times; how long the task ran since the last.
    pub(super) fn ran(&mut self, runtime_ns: u64, now_ns: u64) -> Ran {
        match self.placed.replace((runtime_ns, now_ns)) {
            None => Ran::ALWAYS,
            Some((ran, at)) => Ran {
                runtime: runtime_ns.saturating_sub(ran),
                period: now_ns.saturating_sub(at),
            },
        }
    }

    /// Whether a scan is due after `runtime_ns` of CPU time; moves on by a period.
    pub(super) fn tick(&mut self, runtime_ns: u64, periods: &Periods) -> bool {
        let period_ns = self.period_ms.saturating_mul(1_000_000);
        if runtime_ns <= self.stamp_ns.saturating_add(period_ns) {
            return false;
        }
        if self.stamp_ns == 0 {
            self.period_ms = periods.start_ms;
        }
        self.stamp_ns += period_ns;
        true
    }
}
