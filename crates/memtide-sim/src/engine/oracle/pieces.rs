//! Pieces of the run: how long each ran, how long it takes at least, and the result that they add up to.

use crate::result::{RunResult, Series};

/// A piece of the run, or a quantum that counts as it ran.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// How long it ran, in nanoseconds.
    pub ran_ns: f64,
    /// How long it takes; the same if the run's end is a time.
    pub takes_ns: f64,
    /// Accesses that fit into the time for each that ran; 1 if the run's end is no time.
    pub share: f64,
    /// Accesses that ran.
    pub accesses: u64,
    /// Whether no census was made of it.
    pub as_it_ran: bool,
}

/// The share of a run's time of which no census was made.
pub fn as_they_ran(pieces: &[Piece]) -> f64 {
    let ran = |piece: &Piece| piece.ran_ns;
    let all: f64 = pieces.iter().map(ran).sum();
    let uncounted = pieces.iter().filter(|piece| piece.as_it_ran).map(ran);
    uncounted.sum::<f64>() / all.max(1.0)
}

/// Makes the result of the run that of its pieces.
pub fn conclude(pieces: &[Piece], result: &mut RunResult) {
    let sum = |of: &dyn Fn(&Piece) -> f64| -> f64 { pieces.iter().map(of).sum() };
    let (ran, takes) = (sum(&|p| p.ran_ns), sum(&|p| p.takes_ns));
    let (made, counts) = (
        sum(&|p| p.accesses as f64),
        sum(&|p| p.accesses as f64 * p.share),
    );
    if ran <= 0.0 || made <= 0.0 {
        return;
    }
    let seconds = result.seconds + (takes - ran) / 1e9;
    let (longer, share) = (seconds / result.seconds, counts / made);
    result.seconds = seconds;
    result.accesses = (result.accesses as f64 * share) as u64;
    for seconds in &mut result.group_seconds {
        *seconds *= longer;
    }
    for rate in &mut result.bytes_per_s {
        *rate *= share / longer;
    }
    stretch(pieces, &mut result.series);
}

/// Brings a series from the times of the run to those of its pieces.
fn stretch(pieces: &[Piece], series: &mut Series) {
    let mut pieces = pieces.iter();
    let (mut ran, mut takes) = (0.0, 0.0);
    let mut now = pieces.next();
    for (at, seconds) in series.seconds.iter_mut().enumerate() {
        while let Some(piece) = now {
            if *seconds * 1e9 <= ran + piece.ran_ns {
                break;
            }
            (ran, takes) = (ran + piece.ran_ns, takes + piece.takes_ns);
            now = pieces.next();
        }
        let (longer, share) = now.map_or((1.0, 1.0), |p| (p.takes_ns / p.ran_ns, p.share));
        *seconds = (takes + (*seconds * 1e9 - ran) * longer) / 1e9;
        for rates in &mut series.bytes_per_s {
            rates[at] *= share / longer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_stretched_piece_by_piece() {
        // A second that takes two, and another that takes three; its second half ends at 2 + 1.5 + 1.5.
        let piece = |takes_s: f64, as_it_ran| Piece {
            ran_ns: 1e9,
            takes_ns: takes_s * 1e9,
            share: 1.0,
            accesses: 1,
            as_it_ran,
        };
        let pieces = [piece(2.0, true), piece(3.0, false)];
        let mut series = Series {
            seconds: vec![0.5, 1.0, 1.5, 2.0],
            bytes_per_s: vec![vec![6.0; 4]],
            ..Series::default()
        };
        stretch(&pieces, &mut series);
        assert_eq!(series.seconds, [1.0, 2.0, 3.5, 5.0]);
        assert_eq!(series.bytes_per_s[0], [3.0, 3.0, 2.0, 2.0]);
        assert_eq!(as_they_ran(&pieces), 0.5);
        assert_eq!(as_they_ran(&[]), 0.0);
    }
}
