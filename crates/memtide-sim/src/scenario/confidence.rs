//! How sure a comparison is: the same experiment with other seeds, and on a coarser machine.
//!
//! One seed is one throw. With several, each row has a median and an interval: Student's, of the mean,
//! which holds the true value in 95 of 100 such experiments. A ratio is taken seed by seed, so that what
//! a seed does to both rows alike falls out; a row whose interval of ratios holds 1 is not different from
//! the first at 95 %, whatever its ratio says.
//!
//! What a coarse scale loses (`docs/simulator.md`) no seed shows. So the experiment is made once more on
//! a machine [`COARSER`] times as coarse, which takes that much less time: how far a ratio moves is the
//! error of its scale, as far as one can see it. A coarser machine that cannot run the scenario is
//! not asked.

use super::{Comparison, Options, Progress, Row, RunError, Scenario, run};
use serde::Serialize;

/// How much coarser the second machine is.
pub const COARSER: u32 = 4;

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The interval's beginning.
    pub low: f64,
    /// Its end.
    pub high: f64,
}

/// How sure a row is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Confidence {
    /// Its value over the seeds, in the row's unit.
    pub value: Option<Spread>,
    /// Its ratio over the seeds.
    pub ratio: Option<Spread>,
    /// How far the ratio moves on the coarser machine.
    pub scale_error: Option<f64>,
}

impl Confidence {
    /// Whether the row is not different from the first at 95 %; `None` where that is not known.
    #[must_use]
    pub fn is_alike(&self) -> Option<bool> {
        self.ratio
            .map(|ratio| ratio.low <= 1.0 && 1.0 <= ratio.high)
    }
}

/// Where Student's distribution of so many degrees of freedom leaves a fortieth on each side.
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Beyond, the last one: a little too wide.
    TABLE[degrees.clamp(1, TABLE.len()) - 1]
}

/// Median and interval of figures; `None` for fewer than two.
#[must_use]
pub fn spread(figures: &[f64]) -> Option<Spread> {
    let n = figures.len();
    if n < 2 {
        return None;
    }
    let mean = figures.iter().sum::<f64>() / n as f64;
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    let half = student(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt();
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Spread {
        median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
        low: mean - half,
        high: mean + half,
    })
}

/// The scale of the second machine, if there is one that means something.
#[must_use]
pub fn coarser(scenario: &Scenario, scale: u32) -> Option<u32> {
    // On the machine of rates everything is at full size.
    let scaled = scenario.cases.iter().any(|case| {
        let all = scenario.configurations_of(case);
        all.iter()
            .any(|of| !scenario.is_of_rates(&case.name, &of.name))
    });
    if !scaled {
        return None;
    }
    let limits = scenario.cases.iter().map(|case| case.workload.max_scale());
    let limit = limits.min()?;
    scale
        .checked_mul(COARSER)
        .filter(|&coarser| coarser <= limit)
}

/// Runs a scenario with `seeds` seeds from the options' own on, and once on a coarser machine if `again`
/// and there is one. The comparison is that of the first seed; beside it how sure each of its rows is.
/// `progress` is told of the first.
///
/// # Errors
///
/// As [`run`](fn@run). A coarser machine that cannot run the scenario is no error: then nothing is known of the
/// scale.
pub fn run_surely(
    scenario: &Scenario,
    options: &Options,
    seeds: u32,
    again: bool,
    progress: &dyn Progress,
) -> Result<(Comparison, Vec<Confidence>), RunError> {
    let first = run(scenario, options, progress)?;
    let mut all = Vec::new();
    for more in 1..u64::from(seeds) {
        let options = Options {
            seed: options.seed.wrapping_add(more),
            ..options.clone()
        };
        all.push(run(scenario, &options, progress)?.rows);
    }
    let coarse = coarser(scenario, first.scale).filter(|_| again);
    let coarse = coarse.and_then(|scale| {
        let options = Options {
            scale: Some(scale),
            ..options.clone()
        };
        run(scenario, &options, &super::Quiet).ok()
    });
    let rows = first.rows.iter().enumerate();
    let confidence = rows.map(|(at, row)| {
        let own = |of: &dyn Fn(&Row) -> Option<f64>| -> Vec<f64> {
            let more = all.iter().filter_map(|rows| of(&rows[at]));
            of(row).into_iter().chain(more).collect()
        };
        let there = coarse.as_ref().and_then(|coarse| coarse.rows[at].ratio);
        Confidence {
            value: spread(&own(&|row| Some(row.value))),
            ratio: spread(&own(&|row| row.ratio)),
            scale_error: row
                .ratio
                .zip(there)
                .map(|(ratio, there)| (there - ratio).abs()),
        }
    });
    let confidence = confidence.collect();
    Ok((first, confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_interval_of_five_figures() {
        // Mean 10, squares 2.5 over 4 degrees: 2.776 * sqrt(0.625 / 5) = 0.9815.
        let spread = spread(&[9.0, 9.5, 10.0, 10.5, 11.0]).unwrap();
        assert_eq!(spread.median, 10.0);
        assert!((spread.low - (10.0 - 0.9815)).abs() < 1e-4, "{spread:?}");
        assert!((spread.high - (10.0 + 0.9815)).abs() < 1e-4, "{spread:?}");
        assert_eq!(super::spread(&[1.0]), None);
        assert_eq!(super::spread(&[2.0, 4.0]).unwrap().median, 3.0);
    }

    #[test]
    fn a_ratio_whose_interval_holds_one_is_not_different() {
        let of = |low, high| Confidence {
            ratio: Some(Spread {
                median: 1.0,
                low,
                high,
            }),
            ..Confidence::default()
        };
        assert_eq!(of(0.99, 1.01).is_alike(), Some(true));
        assert_eq!(of(0.97, 0.99).is_alike(), Some(false));
        assert_eq!(Confidence::default().is_alike(), None);
    }

    #[test]
    fn seeds_and_a_coarser_machine_say_how_sure_a_row_is() {
        let scenario = crate::scenario::shipped("pointer-chase")
            .unwrap()
            .read()
            .unwrap();
        let options = Options {
            scale: Some(512),
            only: vec!["NUMAB0".to_owned(), "NUMAB2".to_owned()],
            ..Options::default()
        };
        let (comparison, sure) =
            run_surely(&scenario, &options, 3, true, &crate::scenario::Quiet).unwrap();
        assert_eq!((comparison.rows.len(), sure.len()), (2, 2));
        // The first is what the others are compared with: its ratio is 1 for every seed and scale.
        let ratio = sure[0].ratio.unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.0, 1.0, 1.0));
        assert_eq!(sure[0].scale_error, Some(0.0));
        let value = sure[1].value.unwrap();
        assert!(value.low <= value.median && value.median <= value.high);
        assert!(sure[1].scale_error.is_some());
        assert_eq!(coarser(&scenario, 512), Some(2048));
        assert_eq!(coarser(&scenario, 1 << 15), None);
    }
}
