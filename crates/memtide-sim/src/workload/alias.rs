//! Draws by weights, in constant time: Walker's alias table ("An efficient method for generating discrete random
//! variables with general distributions", 1977), which Vose's method fills.

/// Units of a column, so that small differences of libraries of mathematics round away.
const ONE: u64 = 1 << 24;

/// A table of weights.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    /// By column: stay below this remainder, else take the other.
    columns: Vec<(u32, u16)>,
}

impl Alias {
    /// Of `weights`, at most 65,536, not all of them 0.
    pub fn new(weights: &[f64]) -> Alias {
        let sum: f64 = weights.iter().sum();
        let n = weights.len();
        let mut left: Vec<u64> = weights
            .iter()
            .map(|w| (w / sum * n as f64 * ONE as f64).round() as u64)
            .collect();
        // What rounding leaves over has a column of its own.
        let mut columns: Vec<(u32, u16)> = (0..n).map(|column| (u32::MAX, column as u16)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|&column| left[column] < ONE);
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            columns[s] = ((left[s] << 8).min(u64::from(u32::MAX)) as u32, l as u16);
            left[l] = (left[l] + left[s]).saturating_sub(ONE);
            if left[l] < ONE {
                large.pop();
                small.push(l);
            }
        }
        Alias { columns }
    }

    /// The number of a weight, by the high half of random `bits`.
    #[inline]
    pub fn pick(&self, bits: u64) -> usize {
        let product = (bits >> 32) * self.columns.len() as u64;
        let column = (product >> 32) as usize;
        let (stay, other) = self.columns[column];
        match (product as u32) < stay {
            true => column,
            false => usize::from(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value of the high half once would take minutes; one of 4096 tells shares to 1/1000.
    #[test]
    fn each_is_drawn_by_its_weight() {
        let weights = [3.0, 0.0, 1.0, 0.5, 5.5];
        let alias = Alias::new(&weights);
        let mut counts = [0u32; 5];
        for high in 0..1u64 << 20 {
            counts[alias.pick(high << 44)] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let share = f64::from(*count) / f64::from(1 << 20);
            assert!((share - weight / 10.0).abs() < 1e-3, "{counts:?}");
        }
        assert_eq!(counts[1], 0);
    }

    #[test]
    fn nothing_without_a_weight_is_drawn() {
        // Ninety-seven ninths of 2^24 do not add up to a whole.
        let weights: Vec<f64> = (0..97).map(|n| f64::from(n % 9)).collect();
        let alias = Alias::new(&weights);
        for high in 0..1u64 << 16 {
            let drawn = alias.pick(high << 48);
            assert!(weights[drawn] > 0.0, "{drawn}");
        }
    }
}
