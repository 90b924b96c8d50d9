//! How the pages spread over frequencies and ages.
//!
//! The pages are ordered by *heat*: a higher frequency first, then a younger
//! age. [`Histogram::cut`] asks how hot a page must be to be among the hottest
//! that fit into a given room, which is how promotion works without a threshold.

use super::config::{Config, Layout};
use super::record::Hotness;
use serde::Serialize;

/// Bins of age: 128 ms each for compact records, 512 ms for precise ones.
pub const AGE_BINS: usize = 32;
const FREQUENCIES: usize = 8;

/// Page counts by frequency and age.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    bin_ms: u32,
    window_ms: u32,
    counts: [[u64; AGE_BINS]; FREQUENCIES],
}

/// A place in the order of heat: greater is hotter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Heat(u16);

impl Heat {
    /// Colder than every page.
    pub const COLDEST: Heat = Heat(0);
    /// Hotter than every page.
    pub const BEYOND: Heat = Heat((FREQUENCIES * AGE_BINS) as u16);

    /// The heat `steps` age bins hotter.
    pub fn raised(self, steps: u16) -> Heat {
        Heat(self.0.saturating_add(steps).min(Heat::BEYOND.0))
    }
}

/// The end of the hottest pages that fit into a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How hot a page must be. All that are hotter fit.
    pub heat: Heat,
    /// Of those that are just as hot, so many fit: nothing tells them apart. `u64::MAX` if all do.
    pub equals: u64,
}

impl std::fmt::Display for Heat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Histogram {
    pub(super) fn new(config: &Config) -> Histogram {
        Histogram {
            bin_ms: match config.layout() {
                Layout::Compact => 128,
                Layout::Precise => 512,
            },
            window_ms: config.window_ms(),
            counts: [[0; AGE_BINS]; FREQUENCIES],
        }
    }

    pub(super) fn add(&mut self, hotness: &Hotness) {
        let bin = self.bin(hotness.age_ms);
        self.counts[usize::from(hotness.frequency & 7)][bin] += 1;
    }

    fn bin(&self, age_ms: u32) -> usize {
        ((age_ms / self.bin_ms) as usize).min(AGE_BINS - 1)
    }

    /// The width of an age bin in milliseconds.
    pub fn bin_ms(&self) -> u32 {
        self.bin_ms
    }

    /// The store's window in milliseconds.
    pub fn window_ms(&self) -> u32 {
        self.window_ms
    }

    /// Pages by frequency; index 0 is always empty.
    pub fn by_frequency(&self) -> [u64; 8] {
        self.counts.map(|ages| ages.iter().sum())
    }

    /// Pages by age, youngest bin first.
    pub fn by_age(&self) -> [u64; AGE_BINS] {
        std::array::from_fn(|bin| self.counts.iter().map(|ages| ages[bin]).sum())
    }

    /// Pages counted.
    pub fn pages(&self) -> u64 {
        self.by_frequency().iter().sum()
    }

    /// The heat of a page. A page beyond the window is as cold as can be.
    pub fn heat(&self, hotness: &Hotness) -> Heat {
        if hotness.age_ms > self.window_ms {
            return Heat::COLDEST;
        }
        let youth = AGE_BINS - 1 - self.bin(hotness.age_ms);
        Heat((usize::from(hotness.frequency & 7) * AGE_BINS + youth) as u16)
    }

    /// Where the hottest pages that fit into `room` end.
    pub fn cut(&self, room: u64) -> Cut {
        let mut hotter = 0u64;
        for heat in (1..Heat::BEYOND.0).rev() {
            let frequency = usize::from(heat) / AGE_BINS;
            let bin = AGE_BINS - 1 - usize::from(heat) % AGE_BINS;
            if bin as u32 * self.bin_ms > self.window_ms {
                continue;
            }
            let pages = self.counts[frequency][bin];
            if hotter.saturating_add(pages) > room {
                return match room - hotter {
                    0 => Cut {
                        heat: Heat(heat + 1),
                        equals: u64::MAX,
                    },
                    equals => Cut {
                        heat: Heat(heat),
                        equals,
                    },
                };
            }
            hotter += pages;
        }
        Cut {
            heat: Heat::COLDEST,
            equals: u64::MAX,
        }
    }
}
