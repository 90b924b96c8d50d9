//! The options of `memtide balance`.

use super::{CpuLimit, Rate, Size};
use serde::{Deserialize, Serialize};

/// How pages are brought to the nodes that use them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct BalanceOptions {
    /// How it is found out who uses what
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = BalanceOptions::DEFAULT.source))]
    pub source: BalanceSource,

    /// Have threads run on the node of their memory, until the end; `propose` only says so. Threads that somebody pinned stay
    #[cfg_attr(feature = "clap", arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "set", value_name = "HOW"))]
    pub tasks: Option<BalanceTasks>,

    /// Samples a second of each CPU that are wanted (1000); of writes: faults a second of each process (5000)
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", allow_negative_numbers = true)
    )]
    pub rate: Option<Rate>,

    /// Keep at least this much free on each node, above its high watermark
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value_t = BalanceOptions::DEFAULT.headroom, allow_negative_numbers = true))]
    pub headroom: Size,

    /// Share of one CPU that memtide itself may take in the long run, in percent, moves included; what 20 s of quiet leave may be spent at once
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT", default_value_t = BalanceOptions::DEFAULT.cpu_limit, allow_negative_numbers = true))]
    pub cpu_limit: CpuLimit,

    /// Decide and report, but change nothing
    #[cfg_attr(feature = "clap", arg(long))]
    pub dry_run: bool,

    /// Say of each range of pages why it moved or stayed
    #[cfg_attr(feature = "clap", arg(long))]
    pub explain: bool,
}

impl BalanceOptions {
    /// What nobody chose.
    pub const DEFAULT: BalanceOptions = BalanceOptions {
        source: BalanceSource::Auto,
        tasks: None,
        rate: None,
        headroom: Size(16 << 20),
        cpu_limit: CpuLimit::new(50),
        dry_run: false,
        explain: false,
    };
}

impl Default for BalanceOptions {
    fn default() -> BalanceOptions {
        BalanceOptions::DEFAULT
    }
}

/// What tells of accesses and of who made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum BalanceSource {
    /// The best that works here, except writes
    Auto,
    /// AMD's instruction-based sampling
    Ibs,
    /// Intel's load latency sampling
    Pebs,
    /// NUMA hint faults; needs bit 0 of kernel.numa_balancing
    Faults,
    /// Page faults on writes, provoked; takes soft-dirty bits away from others
    Writes,
}

impl BalanceSource {
    /// Whether it tells of page faults: each page comes once in a scan or a round, and no hardware samples.
    #[must_use]
    pub fn is_of_faults(self) -> bool {
        matches!(self, BalanceSource::Faults | BalanceSource::Writes)
    }
}

/// What happens to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum BalanceTasks {
    /// Set their affinity, and put it back at the end
    Set,
    /// Only say where they should run
    Propose,
}
