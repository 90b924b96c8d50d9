//! A way through memory on which every step must wait for the one before.
//!
//! Problem. A processor that knows the next addresses asks for many lines at
//! once, and what is measured then is bandwidth. Latency needs a chain: each
//! line says where the next one is, in an order that no prefetcher guesses.
//!
//! Approach. One cycle through every second line, because processors like to
//! fetch a line's neighbour as well. The order is random within stretches of
//! 2 MiB, one stretch after another in random order: so the translation of
//! addresses stays out of the figure with huge pages, and costs one walk in
//! thirty steps without.

use crate::sys::node_memory::{LINE_BYTES, Line};

/// A step every so many lines.
const STRIDE: usize = 2;

/// Steps in a stretch.
const STRETCH: usize = (2 << 20) / LINE_BYTES / STRIDE;

/// A small generator; the order has to look random to a prefetcher only.
struct Random(u64);

impl Random {
    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * limit as u128) >> 64) as usize
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

/// Links the lines to one cycle; returns how many steps it has.
pub fn link(lines: &mut [Line]) -> usize {
    let steps = lines.len() / STRIDE;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut stretches: Vec<usize> = (0..steps.div_ceil(STRETCH)).collect();
    random.shuffle(&mut stretches);
    let mut first = None;
    let mut previous = 0;
    for stretch in stretches {
        let begin = stretch * STRETCH;
        let mut order: Vec<usize> = (begin..steps.min(begin + STRETCH)).collect();
        random.shuffle(&mut order);
        for step in order {
            let line = step * STRIDE;
            match first {
                None => first = Some(line),
                Some(_) => lines[previous].0[0] = line as u64,
            }
            previous = line;
        }
    }
    if let Some(first) = first {
        lines[previous].0[0] = first as u64;
    }
    steps
}

/// Takes `steps` steps from line `at`; where that leads to.
///
/// # Panics
///
/// If the lines are not linked.
#[inline]
pub fn follow(lines: &[Line], mut at: usize, steps: usize) -> usize {
    for _ in 0..steps {
        at = lines[at].0[0] as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cycle_visits_every_second_line() {
        for count in [2, 3, 64, 2 * STRETCH * 2 + 100] {
            let mut lines = vec![Line([u64::MAX; 8]); count];
            let steps = link(&mut lines);
            assert_eq!(steps, count / 2);
            let mut seen = vec![false; count];
            let mut at = 0;
            for _ in 0..steps {
                assert!(!std::mem::replace(&mut seen[at], true), "{at} twice");
                at = follow(&lines, at, 1);
            }
            assert_eq!(at, 0);
            assert!(seen.iter().step_by(2).take(steps).all(|seen| *seen));
            assert_eq!(follow(&lines, 0, steps), 0);
        }
        assert_eq!(link(&mut []), 0);
    }

    #[test]
    fn neighbours_do_not_follow_each_other() {
        let mut lines = vec![Line([0; 8]); 2 * STRETCH];
        link(&mut lines);
        let near = (0..STRETCH)
            .map(|step| step * STRIDE)
            .filter(|&line| follow(&lines, line, 1).abs_diff(line) <= 64)
            .count();
        // By chance 64 of 16384 steps lie within 32 steps: 1 in 256.
        assert!(near < STRETCH / 100, "{near}");
    }
}
