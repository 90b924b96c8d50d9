//! A hardware sampler: every so many operations it looks at one of them.
//!
//! After `period` operations, give or take up to a sixteenth, the sampler picks the operation at hand.
//! It is reported if it passes the filter, else dropped at no cost, as the sampling hardware does. A
//! report goes to a ring that is emptied once a quantum; what finds it full is lost and counted. The
//! interrupt is paid either way.
//!
//! What a program reads through perf may be *throttled*: after so many reports in a tick the kernel
//! stops the sampler until the next one. Nothing is sampled meanwhile, and nothing paid.

use super::Sample;
use crate::rng::Rng;

/// Quanta of a tick.
const TICK_QUANTA: u32 = 4;

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
    /// Reports in a tick after which the kernel stops the sampler until the next; 0: never.
    pub per_tick: u32,
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
    /// How often the sampler was stopped until the next tick.
    pub throttled: u64,
}

/// A sampler of one CPU.
pub struct Sampler {
    settings: SamplerSettings,
    left: i64,
    rng: Rng,
    ring: Vec<Sample>,
    /// Reports in this tick, and the quanta of it that are over.
    in_tick: u32,
    quanta: u32,
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
                per_tick: 0,
            },
            left: i64::MAX,
            rng: Rng::new(0, 0),
            ring: Vec::new(),
            in_tick: 0,
            quanta: 0,
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
        if period == 0 || self.is_stopped() {
            self.left = i64::MAX;
        }
    }

    /// What it is set to.
    #[must_use]
    pub fn settings(&self) -> SamplerSettings {
        self.settings
    }

    /// A quantum is over. With a tick's last one a sampler that was stopped goes on.
    pub fn quantum_over(&mut self) {
        self.quanta += 1;
        if self.quanta < TICK_QUANTA {
            return;
        }
        self.quanta = 0;
        let stopped = self.is_stopped();
        self.in_tick = 0;
        if stopped {
            self.left = self.next_interval();
        }
    }

    /// Whether the kernel has stopped it.
    fn is_stopped(&self) -> bool {
        self.settings.per_tick > 0 && self.in_tick >= self.settings.per_tick
    }

    fn next_interval(&mut self) -> i64 {
        if self.is_stopped() {
            return i64::MAX;
        }
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
            self.in_tick += 1;
            self.counters.throttled += u64::from(self.is_stopped());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::ServedBy;

    fn sampler(per_tick: u32) -> Sampler {
        let mut sampler = Sampler::default();
        sampler.seed(1, 0);
        sampler.set(SamplerSettings {
            period: 100,
            misses_only: true,
            loads: true,
            stores: true,
            ring: 64,
            per_tick,
        });
        sampler
    }

    fn missed() -> Sample {
        Sample {
            slot: 0,
            cpu: 0,
            thread: 0,
            write: false,
            latency_ns: 200,
            served: ServedBy::LocalDram,
        }
    }

    #[test]
    fn a_throttled_sampler_is_silent_until_the_next_tick() {
        let mut sampler = sampler(3);
        for n in 1..=3 {
            let (left, taken) = sampler.pick(missed());
            assert!(taken);
            // 100, give or take a sixteenth.
            assert_eq!((94..=106).contains(&left), n < 3, "{left}");
        }
        sampler.set_left(i64::MAX);
        assert_eq!(sampler.counters.throttled, 1);
        // Another period makes it go on no sooner.
        sampler.set_period(50);
        for _ in 0..3 {
            sampler.quantum_over();
            assert!(sampler.left() > 1 << 32, "{}", sampler.left());
        }
        sampler.quantum_over();
        assert!((47..=53).contains(&sampler.left()), "{}", sampler.left());
        assert!(sampler.pick(missed()).1);
        assert_eq!(sampler.counters.throttled, 1);
    }

    #[test]
    fn without_a_bound_it_never_stops() {
        let mut sampler = sampler(0);
        for _ in 0..1000 {
            assert!(sampler.pick(missed()).0 < 1000);
        }
        assert_eq!((sampler.counters.taken, sampler.counters.lost), (1000, 936));
        assert_eq!(sampler.counters.throttled, 0);
    }
}
