//! A seeded generator for hot sets and loads: the same seed gives the same test on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): a counter through a mixing function.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[must_use]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound` (at least 1). The bias of at most `bound / 2^64` does not matter here.
    #[must_use]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first output for seed 0.
    #[test]
    fn first_output_of_seed_zero() {
        assert_eq!(SplitMix::new(0).draw(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn below_stays_below() {
        let mut random = SplitMix::new(1);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
