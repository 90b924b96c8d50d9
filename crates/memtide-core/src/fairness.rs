//! How equally something is shared.

/// Jain's index of fairness of n shares: the square of their sum over n times the sum of their squares
/// (Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984). 1 if all are
/// equal, 1/n if one has everything; nobody is treated unfairly where nobody has anything.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    match squares > 0.0 {
        true => sum * sum / (shares.len() as f64 * squares),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn fairness_by_hand() {
        assert_eq!(jain(&[0.5, 0.5, 0.5]), 1.0);
        // One has everything: 1 / 4.
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        // (1 + 0.5)^2 / (2 * (1 + 0.25)) = 2.25 / 2.5.
        assert!((jain(&[1.0, 0.5]) - 0.9).abs() < 1e-12);
        assert_eq!((jain(&[0.0, 0.0]), jain(&[])), (1.0, 1.0));
    }
}
