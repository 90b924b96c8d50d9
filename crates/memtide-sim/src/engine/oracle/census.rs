//! The census: lines that memory served, by groups of pages and by kinds of threads.
//!
//! An access may be to several lines. Streaming stores go past caches: memory serves each of their lines.
//! The others are looked for in a cache, and it is luck which of them share a set ([`Counts::kept`]).

use super::super::PS;
use crate::hardware::Hardware;
use crate::hardware::llc::Place;
use crate::workload::{Access, Pattern};

/// Standard deviations of cache hits that another placement may be luckier.
const LUCK: f64 = 4.0;

/// Threads that wait equally long for the same line.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The nodes on whose CPUs they may run.
    pub nodes: Vec<u16>,
    pub pattern: Pattern,
    /// As in a thread's plan.
    pub misses_at_once: Option<f64>,
}

impl Kind {
    /// Picoseconds that an access path charges for a line that takes `ns`.
    pub fn price(&self, hw: &Hardware, ns: f64) -> f64 {
        (ns / hw.mlp(self.pattern, self.misses_at_once) * PS as f64).floor()
    }
}

/// What an access does with the lines that memory serves: it reads them; it reads them and writes them back
/// later; it writes them without reading. An index into counts.
pub const LOAD: usize = 0;
pub const STORE: usize = 1;
pub const STREAM: usize = 2;

/// Counts of an access path.
pub struct Census<'a> {
    pub(super) group_of: &'a [u32],
    pub(super) counts: &'a mut Counts,
    pub(super) kinds: usize,
    pub(super) kind: usize,
}

impl Census<'_> {
    /// Memory served `lines` lines to an access, of which the first is at `place` of a cache.
    #[inline]
    pub fn count(&mut self, access: Access, lines: u64, place: Place) {
        let group = self.group_of[access.slot() as usize] as usize;
        let way = match access.is_streaming() {
            true => STREAM,
            false if access.is_write() => STORE,
            false => LOAD,
        };
        self.counts.lines[group * self.kinds + self.kind][way] += lines;
        if way != STREAM {
            let block = &mut self.counts.blocks[place.block(BLOCKS)];
            block.looked_for += u64::from(access.lines());
            block.missed += lines;
        }
    }
}

/// Blocks of a cache's sets, to see how much sets differ.
const BLOCKS: usize = 64;

/// Lines that were looked for in a block of sets, and those that were not there.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    looked_for: u64,
    missed: u64,
}

/// What was counted.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Lines of data that memory served, by group, then kind.
    pub lines: Vec<[u64; 3]>,
    /// Lines of page tables that memory served, by kind.
    pub walked: Vec<u64>,
    blocks: [Block; BLOCKS],
    /// Time of the threads, memory included, in picoseconds times the scale.
    pub spent_ps: u64,
    pub accesses: u64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            lines: Vec::new(),
            walked: Vec::new(),
            blocks: [Block::default(); BLOCKS],
            spent_ps: 0,
            accesses: 0,
        }
    }
}

impl Counts {
    pub fn clear(&mut self, groups: usize, kinds: usize) {
        self.lines.clear();
        self.lines.resize(groups * kinds, [0; 3]);
        self.walked.clear();
        self.walked.resize(kinds, 0);
        self.blocks.fill(Block::default());
        (self.spent_ps, self.accesses) = (0, 0);
    }

    pub fn add(&mut self, other: &Counts) {
        for (sum, more) in self.lines.iter_mut().zip(&other.lines) {
            *sum = std::array::from_fn(|way| sum[way] + more[way]);
        }
        for (sum, more) in self.walked.iter_mut().zip(&other.walked) {
            *sum += more;
        }
        for (sum, more) in self.blocks.iter_mut().zip(&other.blocks) {
            sum.looked_for += more.looked_for;
            sum.missed += more.missed;
        }
        self.spent_ps += other.spent_ps;
        self.accesses += other.accesses;
    }

    /// The share of the misses that no luck takes away, in caches of `sets` sets.
    ///
    /// Frames decide which lines share a set. Other frames decide otherwise, for as long as pages stay; so
    /// more sets even it out, and more accesses do not. Four standard deviations of the misses are granted.
    /// They are taken from blocks of sets: a block differs from the average as luck would have it, and the
    /// squares of what blocks differ by add up to that of the whole.
    ///
    /// That they cannot exceed: a set's share of hits lies between 0 and 1, so if it is p on average, the
    /// average over n sets varies by at most sqrt(p (1 - p) / n).
    pub fn kept(&self, sets: usize) -> f64 {
        let used = self.blocks.iter().filter(|block| block.looked_for > 0);
        let sum = |of: &dyn Fn(&Block) -> f64| -> f64 { used.clone().map(of).sum() };
        let looked_for = sum(&|block| block.looked_for as f64);
        let missed = sum(&|block| block.missed as f64);
        let hits = looked_for - missed;
        if sets == 0 || missed == 0.0 || hits <= 0.0 {
            return 1.0;
        }
        let most = (hits / missed / looked_for.min(sets as f64)).sqrt();
        // By how much blocks miss more than average, beside what follows from more lines being looked for
        // there: how many are in all does not change with frames.
        let count = used.clone().count() as f64;
        let apart = |block: &Block| {
            let more = block.looked_for as f64 - looked_for / count;
            (more, block.missed as f64 - missed / count)
        };
        let spread = sum(&|block| apart(block).0.powi(2));
        let together = sum(&|block| apart(block).0 * apart(block).1);
        let slope = if spread > 0.0 { together / spread } else { 0.0 };
        let squares = sum(&|block| (apart(block).1 - slope * apart(block).0).powi(2));
        let luck = match count > 8.0 {
            true => most.min((squares * count / (count - 2.0)).sqrt() / missed),
            false => most,
        };
        (1.0 - LUCK * luck).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::llc::Llc;
    use crate::rng::Rng;

    /// Blocks that each looked for `lines`, of which those that a number of the block says missed.
    fn counts(lines: u64, missed: impl Fn(usize) -> u64) -> Counts {
        Counts {
            blocks: std::array::from_fn(|at| Block {
                looked_for: lines,
                missed: missed(at),
            }),
            ..Counts::default()
        }
    }

    #[test]
    fn luck_depends_on_sets_and_not_on_accesses() {
        // Half of the lines hit, 0.4 or 0.6 of a block. Of 64 blocks that is 0.1 / 8 of all lines, and
        // 0.025 of the misses; with 62 in place of 64 0.0254. Four times that.
        for lines in [100, 10_000] {
            let kept = counts(lines, |at| lines * (4 + at as u64 % 2 * 2) / 10).kept(1024);
            assert!((kept - (1.0 - 4.0 * 0.0254)).abs() < 1e-4, "{kept}");
        }
        // All or nothing: no more than sqrt(1 / 6400) for 6400 sets, which is 0.05 in all.
        let kept = counts(10_000, |at| at as u64 % 2 * 10_000).kept(6400);
        assert!((kept - 0.95).abs() < 1e-12, "{kept}");
        // Without a cache there is no luck, and where all hit there is nothing to gain.
        assert_eq!(counts(100, |at| at as u64).kept(0), 1.0);
        assert_eq!(counts(100, |_| 0).kept(1600), 1.0);
    }

    #[test]
    fn luck_is_what_other_frames_bring() {
        // A thousand lines at random in 256 sets of four, from frames that differ from case to case: none
        // is luckier than what is granted, and that is less than three tenths.
        let run = |first: u32| {
            let mut cache = Llc::new(256 * 256);
            let mut counts = Counts::default();
            counts.clear(1, 1);
            let rng = &mut Rng::new(1, 0);
            for _ in 0..40_000 {
                let (page, line) = (rng.below(16), rng.below(64));
                let place = cache.place(first + page, line);
                let missed = u64::from(!cache.access(place));
                let mut census = Census {
                    group_of: &[0],
                    counts: &mut counts,
                    kinds: 1,
                    kind: 0,
                };
                census.count(Access::new(0, line, 1, false), missed, place);
            }
            (counts.lines[0][LOAD] as f64, counts.kept(cache.sets()))
        };
        let cases: Vec<(f64, f64)> = (0..40).map(|case| run(case * 1000)).collect();
        let mean = cases.iter().map(|case| case.0).sum::<f64>() / 40.0;
        for (missed, kept) in cases {
            assert!(
                missed > mean * kept && kept > 0.7,
                "{missed} of {mean}, {kept}"
            );
        }
    }

    #[test]
    fn lines_count_and_not_accesses() {
        let mut counts = Counts::default();
        counts.clear(1, 1);
        let mut census = Census {
            group_of: &[0],
            counts: &mut counts,
            kinds: 1,
            kind: 0,
        };
        // Eight lines were looked for, and four missed.
        census.count(Access::new(0, 0, 8, false), 4, Place::default());
        // Streaming stores are neither hits nor misses.
        census.count(Access::streaming(0, 0, 64), 64, Place::default());
        let block = counts.blocks[0];
        assert_eq!((block.looked_for, block.missed), (8, 4));
        assert_eq!(counts.lines[0], [4, 0, 64]);
        // One block, which says nothing of others: at most sqrt(1 / 8) of the misses, four times.
        assert_eq!(counts.kept(400), 0.0);
    }
}
