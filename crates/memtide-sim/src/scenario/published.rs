//! What a document reports of a configuration, and how far to trust it.

use crate::result::TlbCounts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A published row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of which configuration.
    pub configuration: String,
    /// Of which case; empty if there is one only.
    #[serde(default)]
    pub case: String,
    /// Seconds.
    pub seconds: Option<f64>,
    /// Gigabytes (10^9 bytes) a second.
    pub gb_per_s: Option<f64>,
    /// Where only a ratio to the first configuration was published: the value over the first's.
    pub ratio: Option<f64>,
    /// Pages promoted, or moved by balancing.
    pub pages_moved: Option<u64>,
    /// Pages demoted.
    pub pages_demoted: Option<u64>,
    /// Hint faults.
    pub hint_faults: Option<u64>,
    /// Pages by node of each mapping.
    #[serde(default)]
    pub pages: BTreeMap<String, Vec<u64>>,
    /// What balancing cost and how it went.
    pub balancing: Option<PublishedBalancing>,
    /// What TLBs did.
    pub tlb: Option<TlbCounts>,
    /// How far to trust it.
    pub mark: Option<Mark>,
    /// Why, or what else to know.
    #[serde(default)]
    pub note: String,
    /// Why this row is not run here, if it is not.
    pub not_run: Option<String>,
}

/// What a document reports of balancing's cost, in seconds of CPU time over all CPUs, and its way.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedBalancing {
    /// Hint faults, or the sampler's interrupts.
    pub fault_handling_s: f64,
    /// What tasks did on their way back to user mode.
    pub task_work_s: f64,
    /// Setting the sampler anew.
    #[serde(default)]
    pub context_switches_s: f64,
    /// Pages moved by then, at times in seconds that are equally far apart.
    #[serde(default)]
    pub pages_moved_every: Option<(f64, Vec<u64>)>,
}

/// How far to trust a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// Its author took it back.
    Withdrawn,
    /// Its author calls it noisy, or the measurement contradicts itself.
    Doubtful,
}

/// A published time, rate or ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Seconds.
    Seconds(f64),
    /// Bytes a second.
    BytesPerS(f64),
    /// Over the first configuration's.
    Ratio(f64),
    /// Pages only.
    Pages,
}

impl Published {
    /// Its main figure; `None` if it has none.
    #[must_use]
    pub fn figure(&self) -> Option<Figure> {
        match (self.seconds, self.gb_per_s, self.ratio) {
            (Some(seconds), None, None) => Some(Figure::Seconds(seconds)),
            (None, Some(gb), None) => Some(Figure::BytesPerS(gb * 1e9)),
            (None, None, Some(ratio)) => Some(Figure::Ratio(ratio)),
            (None, None, None) if !self.pages.is_empty() => Some(Figure::Pages),
            _ => None,
        }
    }
}
