//! Arguments drawn at random: mostly sensible ones, and enough nonsense.

use super::calls::{Mask, NamedMask, Word};
use crate::guest::random::SplitMix;

/// Bits of the flags on a mode word.
pub const STATIC: i64 = 1 << 15;
/// See [`STATIC`].
pub const RELATIVE: i64 = 1 << 14;
/// See [`STATIC`].
pub const NUMA_BALANCING: i64 = 1 << 13;
/// The two modes that count.
pub const INTERLEAVES: [i64; 2] = [3, 6];

/// Random choices.
#[derive(Debug)]
pub struct Draw(SplitMix);

impl Draw {
    /// For `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True so many times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Every mode with every combination of flags, half of the time none; rarely no mode at all.
    pub fn mode_word(&mut self) -> i64 {
        if self.percent(4) {
            return self.one(&[-1, 7, 8, 0xff, 1 << 12, 1 << 16, 0x8000_0000, 3 | 1 << 16]);
        }
        let mode = self.below(7) as i64;
        if self.percent(50) {
            mode
        } else {
            mode | (self.below(8) as i64) << 13
        }
    }

    /// Flags that interleaving takes.
    pub fn nodes_flag(&mut self) -> i64 {
        self.one(&[0, 0, STATIC, RELATIVE])
    }

    /// A mask and maxnode for `mode`, mostly such that the call can succeed on a machine of `nodes`
    /// nodes.
    pub fn mask(&mut self, mode: i64, nodes: u64) -> (Mask, u64) {
        if self.percent(15) {
            return self.any_mask();
        }
        let flags = mode & (STATIC | RELATIVE);
        let maxnode = self.one(&[64, 64, 1024, 1024, 128, 1025, 65, nodes + 1]);
        match mode & 0xff {
            // DEFAULT and LOCAL want none, PREFERRED takes none for local.
            0 | 4 => self.no_nodes(maxnode),
            1 if flags == 0 && self.percent(30) => self.no_nodes(maxnode),
            _ => {
                let mut word = 1 + self.below((1 << nodes) - 1);
                if self.percent(20) || flags & RELATIVE != 0 && self.percent(60) {
                    word |= 1 << self.below(12);
                }
                (Mask::Words(vec![Word(word)]), maxnode)
            }
        }
    }

    fn no_nodes(&mut self, maxnode: u64) -> (Mask, u64) {
        let words = match self.below(3) {
            0 => Mask::Null,
            1 => Mask::Words(vec![]),
            _ => Mask::Words(vec![Word(0)]),
        };
        let maxnode = match self.percent(30) && words == Mask::Null {
            true => 0,
            false => maxnode,
        };
        (words, maxnode)
    }

    fn any_mask(&mut self) -> (Mask, u64) {
        let words = match self.below(9) {
            0 => Mask::Null,
            1 => Mask::Named(NamedMask::Unreadable),
            2 => Mask::Words(vec![]),
            3 => Mask::Words(vec![Word(0)]),
            4 => Mask::Words(vec![Word(u64::MAX)]),
            5 => Mask::Words(vec![Word(self.below(16)), Word(self.below(4))]),
            // A bit of the last word that a mask of 1024 nodes has, and of the first that it has not.
            6 => Mask::Words(self.far_bit(15)),
            7 => Mask::Words(self.far_bit(16)),
            _ => Mask::Words(vec![Word(1 << self.below(64))]),
        };
        (words, self.maxnode())
    }

    fn far_bit(&mut self, word: usize) -> Vec<Word> {
        let mut words = vec![Word(0); word + 1];
        words[0] = Word(self.below(8));
        words[word] = Word(1 << self.one(&[0, 1, 7, 63]));
        words
    }

    /// Every border there is.
    pub fn maxnode(&mut self) -> u64 {
        let borders = [
            0,
            1,
            2,
            3,
            4,
            5,
            63,
            64,
            65,
            66,
            128,
            1023,
            1024,
            1025,
            1026,
            1027,
            1031,
            1088,
            1089,
            1090,
            4096,
            32_767,
            32_768,
            32_769,
            32_770,
            1 << 31,
            1 << 32,
            u64::MAX - 64,
            u64::MAX,
        ];
        self.one(&borders)
    }

    /// mbind's flags: every combination of the three, seldom others.
    pub fn mbind_flags(&mut self) -> u32 {
        match self.below(20) {
            0..8 => 0,
            8..19 => self.below(8) as u32,
            _ => self.one(&[8, 9, 16, 1 << 31]),
        }
    }

    /// A text for a weight's file.
    pub fn weight(&mut self) -> String {
        let texts = [
            "0",
            "00",
            "0\n",
            "\n",
            "",
            "256",
            "-1",
            "3x",
            " 5",
            "5 ",
            "5\n\n",
            "+7",
            "0x10",
            "0X1f",
            "010",
            "08",
            "255",
            "255\n",
            "0xff",
            "0x100",
            "1e1",
            "--1",
            "+",
            "0x",
            "99999999999",
        ];
        match self.below(10) {
            0..5 => (1 + self.below(9)).to_string(),
            5 | 6 => format!("{}\n", 1 + self.below(255)),
            _ => self.one(&texts).to_owned(),
        }
    }

    /// A text for the table's `auto`.
    pub fn auto(&mut self) -> &'static str {
        self.one(&[
            "1", "1", "1\n", "0", "y", "n", "Y", "N", "true", "false", "on", "off", "ON", "oF",
            "o", "t", "f", "T", "F", "2", "", "\n", "x", "11", " 1", "enable", "e", "E", "disable",
            "d", "D",
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_comes_with_every_combination_of_flags() {
        let mut draw = Draw::new(1);
        let words: std::collections::BTreeSet<_> = (0..4000).map(|_| draw.mode_word()).collect();
        for mode in 0..7 {
            for flags in 0..8 {
                assert!(words.contains(&(mode | flags << 13)), "{mode} {flags}");
            }
        }
    }

    #[test]
    fn masks_are_mostly_sensible() {
        let mut draw = Draw::new(2);
        let sensible = |mask: &(Mask, u64)| matches!(&mask.0, Mask::Words(words) if words.len() == 1 && words[0].0 & 7 != 0);
        let masks = (0..1000).map(|_| draw.mask(2, 3)).filter(sensible).count();
        assert!((800..1000).contains(&masks), "{masks}");
    }
}
