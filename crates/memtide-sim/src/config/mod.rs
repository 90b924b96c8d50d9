//! What one run does with the machine and the workload: the configurations that a scenario compares.

mod read;
mod words;

pub(crate) use read::ConfigurationText;

use memtide_core::access::SourceSet;
use memtide_core::balancing::SampleSettings;
use memtide_core::hotness::Layout;
use memtide_loop::options::{BalanceOptions, Classes, TierOptions};

/// A configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Its name in tables.
    pub name: String,
    /// What it means, in words.
    pub about: String,
    /// `kernel.numa_balancing`: 0 to 3.
    pub numa_balancing: u8,
    /// `demotion_enabled`.
    pub demotion: bool,
    /// How pages age.
    pub lru: Lru,
    /// Hot-page tracking, if on.
    pub pghot: Option<Pghot>,
    /// Where new pages of the workload go instead of where it says.
    pub interleave: Option<Interleave>,
    /// A bound instead of a kernel.
    pub bound: Option<Bound>,
    /// `scan_period_min_ms`.
    pub scan_period_min_ms: u32,
    /// `scan_period_max_ms`.
    pub scan_period_max_ms: u32,
    /// `scan_delay_ms`.
    pub scan_delay_ms: u32,
    /// `scan_size_mb`, of the real machine.
    pub scan_size_mb: u32,
    /// `hot_threshold_ms`.
    pub hot_threshold_ms: u32,
    /// Promotion's budget, of the real machine.
    pub rate_limit_mbps: u64,
    /// Whether bind policies carry `MPOL_F_NUMA_BALANCING`.
    pub bind_balancing: bool,
    /// Hardware samples in place of hint faults, if balancing is on.
    pub samples: Option<BySamples>,
    /// Lazy unmap flush, if on.
    pub luf: Option<Luf>,
    /// `memtide tier` beside the workload, if it runs.
    pub tier: Option<TierOptions>,
    /// Classes of programs with shares of fast memory, for `memtide tier`.
    pub classes: Classes,
    /// `memtide balance` beside the workload, if it runs.
    pub balance: Option<BalanceOptions>,
    /// Whether every access is checked for the content that it finds.
    pub check: bool,
}

/// Balancing by hardware samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BySamples {
    /// Periods, placement, start delay.
    pub settings: SampleSettings,
    /// When pages move.
    pub acts: Acts,
    /// Whether the sampler reports misses of the last-level cache only.
    pub misses_only: bool,
}

/// When samples move pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// Each at once, in its task's time: the IBS balancing series.
    Each,
    /// Batches of a kernel thread: what was seen often enough.
    Batches {
        /// Between batches.
        interval_ms: u32,
        /// Samples within the window for a page to move.
        threshold: u8,
        /// The window.
        window_ms: u32,
        /// Whether a young task's own pages move at first sight.
        young_at_once: bool,
    },
}

/// Lazy unmap flush: over what its generations of unmaps count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Luf {
    /// The whole machine.
    Machine,
    /// Each node by itself.
    Zones,
}

/// How pages age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lru {
    /// Active and inactive lists.
    Classic,
    /// Generations.
    Multigenerational,
}

/// Hot-page tracking.
#[derive(Clone, Debug, PartialEq)]
pub struct Pghot {
    /// What feeds it.
    pub sources: SourceSet,
    /// Bytes a page.
    pub layout: Layout,
    /// Accesses in the window that make a page hot.
    pub threshold: u8,
    /// The window.
    pub window_ms: u32,
    /// Who lets pages in.
    pub gate: PromotionGate,
    /// Interval of accessed-bit scans.
    pub page_table_scan_ms: u32,
    /// Operations between hardware samples.
    pub sample_period: u32,
    /// Whether the sampler reports misses of the last-level cache only.
    pub sample_misses_only: bool,
}

/// Who lets pages in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionGate {
    /// The kernel's: space, threshold, rate.
    Kernel,
    /// Ours, without thresholds.
    ThresholdFree,
}

/// An interleave.
#[derive(Clone, Debug, PartialEq)]
pub struct Interleave {
    /// Nodes and weights; all 1 is plain.
    pub weights: Vec<(u16, u8)>,
    /// Only regions that the workload marks as bandwidth-driving.
    pub targeted: bool,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing moves.
    Static,
    /// True rates known, moves free.
    Oracle,
}

impl Configuration {
    /// Whether a loop of memtide reads the hardware's samples.
    #[must_use]
    pub fn reads_samples(&self) -> bool {
        let samples =
            |tier: &TierOptions| tier.source.named().iter().any(|source| source.samples());
        self.balance.is_some() || self.tier.as_ref().is_some_and(samples)
    }

    /// A kernel that balances nothing.
    #[must_use]
    pub fn off(name: &str) -> Configuration {
        Configuration {
            name: name.to_owned(),
            about: String::new(),
            numa_balancing: 0,
            demotion: true,
            lru: Lru::Multigenerational,
            pghot: None,
            interleave: None,
            bound: None,
            scan_period_min_ms: 1000,
            scan_period_max_ms: 60_000,
            scan_delay_ms: 1000,
            scan_size_mb: 256,
            hot_threshold_ms: 1000,
            rate_limit_mbps: 65_536,
            bind_balancing: false,
            samples: None,
            luf: None,
            tier: None,
            classes: Classes::new(),
            balance: None,
            check: false,
        }
    }
}
