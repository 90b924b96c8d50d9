//! The options of `memtide tier`.

use super::{IdleTime, Percent, Rate, Size, Threshold, TierSources, Window};
use memtide_core::topology::HandTiers;
use serde::{Deserialize, Serialize};

/// How pages are tiered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct TierOptions {
    /// How accesses are observed; several with commas between, as in damon,ibs
    #[cfg_attr(feature = "clap", arg(long, value_name = "SOURCES", default_value_t = TierOptions::DEFAULT.source))]
    pub source: TierSources,

    /// Of ibs and pebs: samples a second of each CPU that are wanted, as far as --observe-cpu lets them
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = TierOptions::DEFAULT.sample_rate, allow_negative_numbers = true))]
    pub sample_rate: Rate,

    /// Which rule admits hot pages to fast memory
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = TierOptions::DEFAULT.gate))]
    pub gate: TierGate,

    /// Promote at most this much a second
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value_t = TierOptions::DEFAULT.rate_limit, allow_negative_numbers = true))]
    pub rate_limit: Size,

    /// Keep at least this much free on each fast node, above its high watermark
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value_t = TierOptions::DEFAULT.headroom, allow_negative_numbers = true))]
    pub headroom: Size,

    /// Accesses within the window that make a page hot
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = TierOptions::DEFAULT.threshold, allow_negative_numbers = true))]
    pub threshold: Threshold,

    /// How far apart two accesses may be to count together
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", default_value_t = TierOptions::DEFAULT.window, allow_negative_numbers = true))]
    pub window: Window,

    /// Long-run share of one CPU that observing may take, in percent
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT", default_value_t = TierOptions::DEFAULT.observe_cpu, allow_negative_numbers = true))]
    pub observe_cpu: Percent,

    /// Demote what nobody touched for so long, as in 10m, even where there is room
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", allow_negative_numbers = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote_idle: Option<IdleTime>,

    /// With --demote-idle: demote at most this much of it a second
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value_t = TierOptions::DEFAULT.demote_idle_rate, allow_negative_numbers = true))]
    pub demote_idle_rate: Size,

    /// With --demote-idle: only pages of this kind
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "KIND"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote_idle_only: Option<IdleOnly>,

    /// With --demote-idle: only pages of mappings of at least this size
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value_t = TierOptions::DEFAULT.demote_idle_min, allow_negative_numbers = true))]
    pub demote_idle_min: Size,

    /// Tiers of nodes from fast to slow, as in 0,1/2/3, instead of the machine's own
    #[cfg_attr(feature = "clap", arg(long, value_name = "NODES/NODES..."))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiers: Option<HandTiers>,

    /// What becomes of it that programs wait for memory
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = TierOptions::DEFAULT.pressure))]
    pub pressure: Pressure,

    /// On trial: keep an account of what promotion wins and costs, and rest where it does not pay
    #[cfg_attr(feature = "clap", arg(long))]
    pub rest: bool,

    /// Decide and report, but move nothing
    #[cfg_attr(feature = "clap", arg(long))]
    pub dry_run: bool,

    /// Say of each page or range why it moved or stayed
    #[cfg_attr(feature = "clap", arg(long))]
    pub explain: bool,
}

impl TierOptions {
    /// What nobody chose.
    pub const DEFAULT: TierOptions = TierOptions {
        source: TierSources::AUTO,
        sample_rate: Rate::new(1000),
        gate: TierGate::Pghot,
        rate_limit: Size(4 << 30),
        headroom: Size(16 << 20),
        threshold: Threshold::new(2),
        window: Window::new(5000),
        observe_cpu: Percent::new(5),
        demote_idle: None,
        demote_idle_rate: Size(64 << 20),
        demote_idle_only: None,
        demote_idle_min: Size(0),
        tiers: None,
        pressure: Pressure::Heed,
        rest: false,
        dry_run: false,
        explain: false,
    };

    /// Whether a loop by these options can go on by `next` and forget nothing. It cannot where sources,
    /// what is hot or what is done with it are others.
    pub fn goes_on_with(&self, next: &TierOptions) -> bool {
        let followed = TierOptions {
            rate_limit: next.rate_limit,
            headroom: next.headroom,
            observe_cpu: next.observe_cpu,
            demote_idle: next.demote_idle,
            demote_idle_rate: next.demote_idle_rate,
            demote_idle_only: next.demote_idle_only,
            demote_idle_min: next.demote_idle_min,
            pressure: next.pressure,
            explain: next.explain,
            ..self.clone()
        };
        followed == *next
    }
}

impl Default for TierOptions {
    fn default() -> TierOptions {
        TierOptions::DEFAULT
    }
}

/// Which pages leave because nobody touched them for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum IdleOnly {
    /// Programs' own memory, and shared memory without a file
    Anon,
    /// Pages of files
    File,
}

/// What becomes of it that programs wait for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Promote less, and demote idle pages faster
    #[default]
    Heed,
    /// Nothing
    Ignore,
}

/// Which rule admits pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum TierGate {
    /// Every page that is touched often enough, within the rate limit
    Pghot,
    /// The hottest pages that fit into fast memory, if moving them pays
    ThresholdFree,
}
