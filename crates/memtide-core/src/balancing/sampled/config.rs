//! The settings, checked once.

use super::super::balancer::BalancerConfig;
use super::super::pacing::{Pacing, SampleSettings, SampleSettingsError};
use crate::hotness::{Config as HotnessConfig, Layout};

/// Settings of [`super::Sampled`].
#[derive(Clone, Debug)]
pub struct SampledConfig {
    /// Machine, tasks and pacing, which must be [`Pacing::Samples`].
    pub balancer: BalancerConfig,
    /// How often a page must be seen within which window before it moves.
    pub hotness: HotnessConfig,
    /// Pages in the space, numbered from 0.
    pub pages: u64,
    /// Whether a young task's own pages move at their first sight. At document
    /// 004's rates a page is sampled about once a minute, so asking for two sights
    /// of every page moves next to nothing of a program that has just begun
    /// (measured in `docs/reproduction.md`); at higher rates it can be turned off.
    pub young_at_once: bool,
    /// Pages that can wait for a batch.
    pub queue: usize,
    /// Most pages of a batch.
    pub batch_pages: u64,
    /// Most pages a second, over time.
    pub pages_per_s: u64,
    /// How long a page rests after its first move, in ms; doubled at each further one.
    pub rest_ms: u32,
    /// Whether tasks are told to run elsewhere.
    pub tasks: bool,
    /// How long a task rests after it was told so, in ms.
    pub task_rest_ms: u32,
}

/// What is wrong with the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampledError {
    /// The balancer waits for scans.
    #[error("balancing by samples: the balancer is paced by scans; set `pacing` to samples")]
    Pacing,
    /// The periods or the placement.
    #[error(transparent)]
    Samples(#[from] SampleSettingsError),
    /// A queue or a batch of nothing.
    #[error("balancing by samples: {0} is 0, so that no page would ever move; give at least 1")]
    Nothing(&'static str),
}

impl SampledConfig {
    /// The defaults for `balancer`, paced by samples, over `pages` pages.
    #[must_use]
    pub fn new(balancer: BalancerConfig, pages: u64) -> SampledConfig {
        let pacing = match balancer.pacing {
            Pacing::Samples(settings) => settings,
            Pacing::Scans => SampleSettings::default(),
        };
        SampledConfig {
            balancer: BalancerConfig {
                pacing: Pacing::Samples(pacing),
                ..balancer
            },
            hotness: HotnessConfig::new(Layout::Precise),
            pages,
            young_at_once: true,
            queue: 1 << 16,
            batch_pages: 1 << 14,
            // 4 GiB/s.
            pages_per_s: 1 << 20,
            rest_ms: 1000,
            tasks: false,
            task_rest_ms: 4000,
        }
    }

    /// The settings, if they can be.
    ///
    /// # Errors
    ///
    /// See [`SampledError`].
    pub fn checked(self) -> Result<SampledConfig, SampledError> {
        match self.balancer.pacing {
            Pacing::Samples(settings) => settings.checked()?,
            Pacing::Scans => return Err(SampledError::Pacing),
        };
        for (name, amount) in [
            ("queue", self.queue as u64),
            ("batch_pages", self.batch_pages),
            ("pages_per_s", self.pages_per_s),
            ("pages", self.pages),
        ] {
            if amount == 0 {
                return Err(SampledError::Nothing(name));
            }
        }
        Ok(self)
    }
}
