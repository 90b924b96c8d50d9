//! From what users chose to what the parts of tiering want to know.

use super::budgets::Class;
use crate::options::{
    Amount, ClassOptions, IdleOnly, IdleTime, Pressure, TierGate, TierOptions, Tiered, fast_bytes,
};
use memtide_core::hotness::{self, Layout};
use memtide_core::promotion::{Benefit, GateConfig, ThresholdFree};
use memtide_core::tiering::cadence::CadenceConfig;
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;

/// How tiering works. [`TierConfig::new`] makes it of the options; what they do
/// not name is the same for all.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// When a page counts as hot.
    pub hotness: hotness::Config,
    /// The gate's settings.
    pub gate: GateConfig,
    /// Choose the pages that just fill the fast tier, if moving them pays,
    /// instead of all that are hot.
    pub threshold_free: Option<ThresholdFree>,
    /// Pages that stay free on each node beyond its high watermark.
    pub headroom: u64,
    /// How much observing may cost.
    pub cadence: CadenceConfig,
    /// Samples a second of each CPU that are wanted of sources that sample.
    pub sample_rate: u32,
    /// The length of a pass of a look, in ms.
    pub look_every_ms: u64,
    /// The length of a pass of a glance, in ms.
    pub glance_every_ms: u64,
    /// Single pages of the lower tiers that a glance observes.
    pub samples: u64,
    /// Stretches of the top tier that a glance observes when room is scarce.
    pub stretches: u64,
    /// The most pages that one look takes in.
    pub look_pages: u64,
    /// What a page costs in a pass of a look, in pieces of a glance: 1, and S on a machine at scale 1/S,
    /// where a page stands for S and a piece for one.
    pub page_cost: u64,
    /// Complete observations in a row that must find a page untouched before it
    /// may be demoted.
    pub idle_passes: u8,
    /// And how long these must reach back.
    pub idle_ms: u64,
    /// A page stays on the fast tier at least this long after its promotion.
    pub settle_ms: u64,
    /// What moves cost and save, by figures that nobody measured.
    pub benefit: Benefit,
    /// Pages of the machine that one page stands for: more than 1 where a simulated
    /// machine is scaled.
    pub page_weight: u64,
    /// Which pages leave the fast tier although there is room, if any do.
    pub idle: Option<IdleRule>,
    /// Classes of processes with shares of fast memory, by their numbers.
    pub classes: Vec<Class>,
    /// What is done for processes of no class.
    pub others: Tiered,
    /// Pages that one turn may move in one direction, if there is time for so many: signals are heard, and no
    /// source waits for long until somebody reads what it reports.
    pub turn_pages: u64,
    /// Heed that programs wait for memory, where the world tells of it.
    pub heed_pressure: bool,
    /// Keep an account, and rest where promotion does not pay.
    pub rest: bool,
    /// Decide and report, but move nothing.
    pub dry_run: bool,
    /// Report of pages that stay, too.
    pub explain: bool,
    /// Where random choices start.
    pub seed: u64,
}

/// Pages leave the fast tier because nobody touched them for so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleRule {
    /// How long.
    pub after: IdleTime,
    /// So many base pages a second, at most.
    pub rate_pages: u64,
    /// Only pages of this kind.
    pub only: Option<IdleOnly>,
    /// Only pages of mappings of at least so many base pages.
    pub least_pages: u64,
}

impl IdleRule {
    fn new(options: &TierOptions, page: PageSize) -> Option<IdleRule> {
        Some(IdleRule {
            after: options.demote_idle?,
            rate_pages: page.pages(options.demote_idle_rate.0),
            only: options.demote_idle_only,
            least_pages: page.pages(options.demote_idle_min.0),
        })
    }
}

impl TierConfig {
    /// `options` on a machine with these nodes and pages.
    ///
    /// # Errors
    ///
    /// A threshold or window that the records cannot hold; not with options
    /// that were read from text.
    pub fn new(
        options: &TierOptions,
        topology: &Topology,
        page: PageSize,
        seed: u64,
    ) -> Result<TierConfig, hotness::ConfigError> {
        let window_ms = options.window.ms();
        let hotness = hotness::Config::new(Layout::Precise)
            .with_threshold(options.threshold.get())?
            .with_window_ms(window_ms)?;
        let gate = GateConfig {
            rate_limit_mbps: options.rate_limit.0 >> 20,
            page_size: page,
            ..GateConfig::new(window_ms)
        };
        let benefit = Benefit::by_accessed_bits(topology, page);
        let usual = CadenceConfig::default();
        let passes_min = usual.passes_min.max(u32::from(options.threshold.get()));
        let threshold_free = (options.gate == TierGate::ThresholdFree).then_some(ThresholdFree {
            benefit,
            damping_ms: 10_000,
            margin: 32,
        });
        Ok(TierConfig {
            hotness,
            gate,
            threshold_free,
            headroom: page.pages(options.headroom.0),
            cadence: CadenceConfig {
                share_permille: options.observe_cpu.permille(),
                passes_min,
                passes_max: usual.passes_max.max(passes_min + 1),
                ..usual
            },
            sample_rate: options.sample_rate.get(),
            look_every_ms: 50,
            glance_every_ms: 250,
            samples: 256,
            stretches: 256,
            look_pages: 262_144,
            page_cost: 1,
            idle_passes: 4,
            idle_ms: 1000,
            settle_ms: 60_000,
            benefit,
            page_weight: 1,
            idle: IdleRule::new(options, page),
            classes: Vec::new(),
            others: Tiered::default(),
            turn_pages: 16_384,
            heed_pressure: options.pressure == Pressure::Heed,
            rest: options.rest,
            dry_run: options.dry_run,
            explain: options.explain,
            seed,
        })
    }

    /// After how long idle pages leave, if they do.
    pub(super) fn idle_after(&self) -> Option<IdleTime> {
        self.idle.as_ref().map(|rule| rule.after)
    }

    /// The same, which does so much for processes of no class, and of those that do not say.
    #[must_use]
    pub fn with_others(self, others: Tiered) -> TierConfig {
        TierConfig { others, ..self }
    }

    /// The same for a loop that tiers nobody, and knows the classes and the machine all the same. It
    /// needs no source.
    #[must_use]
    pub fn resting(mut self) -> TierConfig {
        self.others.tier = false;
        let classes = self.classes.iter_mut();
        classes.for_each(|class| class.tiered.tier = false);
        self
    }

    /// The same with these classes by their names, which [`ClassId`] counts in this
    /// order; what is done for processes of none, and of classes that do not say, is
    /// [`TierConfig::others`].
    ///
    /// [`ClassId`]: crate::world::ClassId
    #[must_use]
    pub fn with_classes<'a>(
        self,
        classes: impl IntoIterator<Item = (&'a String, &'a ClassOptions)>,
        topology: &Topology,
        page: PageSize,
    ) -> TierConfig {
        let fast = fast_bytes(topology);
        let class = |(name, options): (&String, &ClassOptions)| {
            let pages = |amount: Option<Amount>| Some(amount?.of(fast) >> page.shift());
            Class {
                name: name.clone(),
                low: pages(options.fast.low),
                high: pages(options.fast.high),
                leave_alone: options.leave_alone,
                tiered: options.tiered(self.others),
                heed_pressure: options.pressure == Pressure::Heed,
            }
        };
        TierConfig {
            classes: classes.into_iter().map(class).collect(),
            ..self
        }
    }
}
