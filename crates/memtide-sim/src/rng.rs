//! The one source of chance: a small generator that a seed decides.
//!
//! xoshiro256++ (Blackman and Vigna), seeded through SplitMix64, with integer-only ranges, so that
//! the same seed gives the same numbers on every platform.

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator for stream `stream` of `seed`; streams do not overlap in practice.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut state = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng([next(), next(), next(), next()])
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `limit`, which is at least 1 (multiply and shift; the bias is below 2^-32).
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// Whether a chance of `share` out of 65,536 came.
    #[inline]
    pub fn chance(&mut self, share: u32) -> bool {
        ((self.bits() >> 48) as u32) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_other_stream_others() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            (0..8).map(|_| rng.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn below_is_uniform_enough() {
        let mut rng = Rng::new(7, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        // Standard deviation sqrt(100,000 * 0.1 * 0.9) = 95; five of them.
        assert!(
            counts.iter().all(|&count| count.abs_diff(10_000) < 475),
            "{counts:?}"
        );
    }
}
