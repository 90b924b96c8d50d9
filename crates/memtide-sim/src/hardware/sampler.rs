//! A hardware sampler: every so many operations it looks at one of them.
//!
//! After `period` operations, give or take up to a sixteenth, the sampler picks the operation at hand.
//! It is reported if it passes the filter, else dropped at no cost, as the sampling hardware does. A
//! report goes to a ring that is emptied once a quantum; what finds it full is lost and counted. The
//! interrupt is paid either way.

use super::Sample;
use crate::rng::Rng;

/// What the sampler is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerSettings {
    /// Operations between samples; 0: off.
    pub period: u32,
    /// Only accesses that the last-level cache missed.
    pub misses_only: bool,
    /// Loads are sampled.
    pub loads: bool,
    /// Stores are sampled.
    pub stores: bool,
    /// Samples that the ring holds.
    pub ring: u32,
}

/// Counts of one sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerCounters {
    /// Operations that were picked.
    pub picked: u64,
    /// Samples that passed the filter.
    pub taken: u64,
    /// Of these, lost as the ring was full.
    pub lost: u64,
}

/// A sampler of one CPU.
pub struct Sampler {
    settings: SamplerSettings,
    left: i64,
    rng: Rng,
    ring: Vec<Sample>,
    /// Counts.
    pub counters: SamplerCounters,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler {
            settings: SamplerSettings {
                period: 0,
                misses_only: false,
                loads: true,
                stores: true,
                ring: 0,
            },
            left: i64::MAX,
            rng: Rng::new(0, 0),
            ring: Vec::new(),
            counters: SamplerCounters::default(),
        }
    }
}

impl Sampler {
    /// Sets the seed of the jitter.
    pub fn seed(&mut self, seed: u64, cpu: u64) {
        self.rng = Rng::new(seed, 0x5a4d_0000_0000 + cpu);
    }

    /// Turns it on or off.
    pub fn set(&mut self, settings: SamplerSettings) {
        self.settings = settings;
        self.ring = Vec::with_capacity(settings.ring as usize);
        self.left = self.next_interval();
        // CPUs do not sample in step.
        if settings.period > 0 {
            self.left = 1 + i64::from(self.rng.below(settings.period));
        }
    }

    /// Another thread runs, or the same with other needs: operations between samples from now on. What
    /// was counted towards the next sample stays, as far as it fits.
    pub fn set_period(&mut self, period: u32) {
        if period == self.settings.period {
            return;
        }
        let was_off = self.settings.period == 0;
        self.settings.period = period;
        let next = self.next_interval();
        self.left = match was_off && period > 0 {
            // CPUs do not sample in step.
            true => 1 + i64::from(self.rng.below(period)),
            false => self.left.clamp(1, next.max(1)),
        };
        if period == 0 {
            self.left = i64::MAX;
        }
    }

    /// What it is set to.
    #[must_use]
    pub fn settings(&self) -> SamplerSettings {
        self.settings
    }

    fn next_interval(&mut self) -> i64 {
        match self.settings.period {
            0 => i64::MAX,
            period => {
                let jitter = period / 16;
                i64::from(period - jitter) + i64::from(self.rng.below(2 * jitter + 1))
            }
        }
    }

    /// Operations until the next pick; the engine counts down in a copy.
    #[inline]
    #[must_use]
    pub fn left(&self) -> i64 {
        self.left
    }

    /// Takes the engine's copy back.
    #[inline]
    pub fn set_left(&mut self, left: i64) {
        self.left = left;
    }

    /// An operation was picked. Returns the operations until the next, and whether the sample was
    /// taken, so that its interrupt must be paid.
    #[cold]
    pub fn pick(&mut self, sample: Sample) -> (i64, bool) {
        self.counters.picked += 1;
        let wanted = if sample.write {
            self.settings.stores
        } else {
            self.settings.loads
        };
        let missed = sample.served != super::ServedBy::Cache;
        let taken = wanted && (missed || !self.settings.misses_only);
        if taken {
            self.counters.taken += 1;
            if self.ring.len() < self.settings.ring as usize {
                self.ring.push(sample);
            } else {
                self.counters.lost += 1;
            }
        }
        (self.next_interval(), taken)
    }

    /// Moves what is in the ring to `into`.
    pub fn drain(&mut self, into: &mut Vec<Sample>) {
        into.append(&mut self.ring);
    }
}
