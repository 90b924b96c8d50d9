//! How sure a comparison is: the same experiment with other seeds, and on a coarser machine.
//!
//! One seed is one throw. With several, each row has a median and an interval: Student's, of the mean,
//! which holds the true value in 95 of 100 such experiments. A ratio is taken seed by seed, so that what
//! a seed does to both rows alike falls out; a row whose interval of ratios holds 1 is not different from
//! the first at 95 %, whatever its ratio says.
//!
//! What a coarse scale loses (`docs/simulator.md`) no seed shows. So the experiment is made once more on
//! a machine [`COARSER`] times as coarse, where a run takes that much less time: how far a ratio moves is
//! the error of its scale, as far as one can see it. One seed alone cannot tell that from chance. So with
//! one seed the coarser machine runs with the next one, too: how far these two are apart is the error of
//! the seed. Two draws may agree by luck; several seeds tell more, and their medians are compared. A
//! coarser machine that cannot run the scenario is not asked.

use super::{Comparison, Options, Progress, RunError, Scenario, run};
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
    /// How far it moves on the coarser machine with the next seed, where the experiment has one seed.
    pub seed_error: Option<f64>,
}

/// A ratio that moves further than this on a coarser machine, or with another seed, is not to be relied on.
pub const MOST_SCALE_ERROR: f64 = 0.02;

/// Why a ratio is not to be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is another one with another seed: more seeds tell.
    Seed,
    /// It is another one on a coarser machine: a finer one tells.
    Scale,
}

impl Confidence {
    /// Whether the scale or the seed moves the ratio by more than [`MOST_SCALE_ERROR`], as far as that was
    /// tried. The seed explains what moves no further than that beyond its own error.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        let chance = self.seed_error.filter(|error| *error > MOST_SCALE_ERROR);
        let scale = self.scale_error.filter(|error| *error > MOST_SCALE_ERROR);
        match (chance, scale) {
            (Some(chance), Some(scale)) if scale > chance + MOST_SCALE_ERROR => Some(Doubt::Scale),
            (Some(_), _) => Some(Doubt::Seed),
            (None, Some(_)) => Some(Doubt::Scale),
            (None, None) => None,
        }
    }

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
    // Nothing was left out: there is no error of scale.
    if scale == 1 {
        return None;
    }
    // On the machine of rates everything is at full size.
    let scaled = scenario.cases.iter().any(|case| {
        let all = scenario.configurations_of(case);
        all.iter()
            .any(|of| !scenario.is_of_rates(&case.name, &of.name))
    });
    if !scaled {
        return None;
    }
    let limit = scenario.max_scale();
    let coarser = scale.checked_mul(COARSER)?;
    (coarser <= limit && scenario.recording_fits(coarser)).then_some(coarser)
}

/// A scenario that was run, and how sure each of its rows is.
#[derive(Debug)]
pub struct Surely {
    /// That of the first seed.
    pub comparison: Comparison,
    /// One for each of its rows.
    pub confidence: Vec<Confidence>,
    /// What all runs simulated, on the coarser machine too.
    pub accesses: u64,
}

/// How many runs the coarser machine makes of each row, beside those of so many seeds.
#[must_use]
pub fn coarse_runs(seeds: u32) -> u32 {
    seeds.max(2)
}

/// The ratio of a row by seed; there is none of what never came home.
fn ratios(all: &[Comparison], at: usize) -> Vec<Option<f64>> {
    all.iter().map(|one| one.rows[at].ratio).collect()
}

fn known(ratios: &[Option<f64>]) -> Vec<f64> {
    ratios.iter().copied().flatten().collect()
}

fn apart(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some((one? - other?).abs())
}

/// How far a ratio moves from the experiment's `own` seeds to the same `there`, and there with the next.
fn errors(own: &[Option<f64>], there: &[Option<f64>]) -> (Option<f64>, Option<f64>) {
    let at = |of: &[Option<f64>], seed: usize| of.get(seed).copied().flatten();
    if own.len() == 1 {
        let (same, next) = (at(there, 0), at(there, 1));
        return (apart(at(own, 0), same), apart(same, next));
    }
    let median = |ratios| spread(&known(ratios)).map(|spread| spread.median);
    (apart(median(own), median(there)), None)
}

/// Runs a scenario with `seeds` seeds from the options' own on, and again on a coarser machine if `again`
/// and there is one. `progress` is told of the first.
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
) -> Result<Surely, RunError> {
    let seeded = |more: u32, scale: Option<u32>| Options {
        seed: options.seed.wrapping_add(more.into()),
        scale,
        ..options.clone()
    };
    let mut all = vec![run(scenario, options, progress)?];
    for more in 1..seeds {
        all.push(run(scenario, &seeded(more, options.scale), progress)?);
    }
    let coarse = coarser(scenario, all[0].scale).filter(|_| again);
    let coarse = coarse.map(|scale| {
        let run = |more| run(scenario, &seeded(more, Some(scale)), &super::Quiet).ok();
        (0..coarse_runs(seeds)).map_while(run).collect::<Vec<_>>()
    });
    let coarse = coarse.unwrap_or_default();
    let confidence = (0..all[0].rows.len()).map(|at| {
        let values: Vec<f64> = all.iter().map(|one| one.rows[at].value).collect();
        let own = ratios(&all, at);
        let (scale_error, seed_error) = errors(&own, &ratios(&coarse, at));
        Confidence {
            value: spread(&values),
            ratio: spread(&known(&own)),
            scale_error,
            seed_error,
        }
    });
    let confidence = confidence.collect();
    let rows = all.iter().chain(&coarse).flat_map(|one| &one.rows);
    let accesses = rows.map(|row| row.result.accesses).sum();
    Ok(Surely {
        comparison: all.swap_remove(0),
        confidence,
        accesses,
    })
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
        let quiet = &crate::scenario::Quiet;
        let surely = run_surely(&scenario, &options, 3, true, quiet).unwrap();
        let (comparison, sure) = (surely.comparison, surely.confidence);
        assert_eq!((comparison.rows.len(), sure.len()), (2, 2));
        // Three runs, and three of a quarter of each.
        let one: u64 = comparison.rows.iter().map(|row| row.result.accesses).sum();
        let runs = surely.accesses as f64 / one as f64;
        assert!((runs - 3.75).abs() < 0.01, "{runs}");
        // The first is what the others are compared with: its ratio is 1 for every seed and scale.
        let ratio = sure[0].ratio.unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.0, 1.0, 1.0));
        assert_eq!(sure[0].scale_error, Some(0.0));
        let value = sure[1].value.unwrap();
        assert!(value.low <= value.median && value.median <= value.high);
        assert!(sure[1].scale_error.is_some());
        // Of several seeds the interval tells of chance.
        assert_eq!(sure[1].seed_error, None);
        assert_eq!(coarser(&scenario, 512), Some(2048));
        assert_eq!(coarser(&scenario, 1 << 15), None);
        // At full size nothing is left out.
        assert_eq!(coarser(&scenario, 1), None);
    }
    #[test]
    fn one_seed_is_thrown_twice_on_the_coarser_machine() {
        let name = "pointer-chase";
        let scenario = crate::scenario::shipped(name).unwrap().read().unwrap();
        let only = ["NUMAB0", "NUMAB2"].map(str::to_owned).to_vec();
        let at = |seed, scale| Options {
            seed,
            scale: Some(scale),
            only: only.clone(),
            ..Options::default()
        };
        let quiet = &crate::scenario::Quiet;
        let ratio = |seed, scale| run(&scenario, &at(seed, scale), quiet).unwrap().rows[1].ratio;
        let ratio = |seed, scale| ratio(seed, scale).unwrap();
        let surely = run_surely(&scenario, &at(7, 512), 1, true, quiet).unwrap();
        let sure = surely.confidence;
        assert_eq!(sure[1].ratio, None);
        let of_scale = (ratio(7, 512) - ratio(7, 2048)).abs();
        assert_eq!(sure[1].scale_error, Some(of_scale));
        let of_seed = (ratio(7, 2048) - ratio(8, 2048)).abs();
        assert_eq!(sure[1].seed_error, Some(of_seed));
    }

    #[test]
    fn what_chance_moves_is_no_matter_of_the_scale() {
        let of = |seed_error, scale_error| Confidence {
            seed_error,
            scale_error,
            ..Confidence::default()
        };
        assert_eq!(of(Some(0.03), Some(0.05)).doubt(), Some(Doubt::Seed));
        assert_eq!(of(Some(0.03), Some(0.051)).doubt(), Some(Doubt::Scale));
        assert_eq!(of(Some(0.02), Some(0.05)).doubt(), Some(Doubt::Scale));
        assert_eq!(of(Some(0.03), None).doubt(), Some(Doubt::Seed));
        assert_eq!(of(None, Some(0.021)).doubt(), Some(Doubt::Scale));
        assert_eq!(of(Some(0.02), Some(0.02)).doubt(), None);
        assert_eq!(Confidence::default().doubt(), None);
    }

    #[test]
    fn each_seed_is_compared_with_itself() {
        let is = |(scale, seed): (Option<f64>, Option<f64>), wanted: [Option<f64>; 2]| {
            for (is, wanted) in [scale, seed].iter().zip(wanted) {
                let near = match (is, wanted) {
                    (Some(is), Some(wanted)) => (is - wanted).abs() < 1e-9,
                    (is, wanted) => is.is_none() && wanted.is_none(),
                };
                assert!(near, "{scale:?}, {seed:?}");
            }
        };
        let some = Some;
        is(
            errors(&[some(0.5)], &[some(0.6), some(0.8)]),
            [some(0.1), some(0.2)],
        );
        // What never came home on the coarser machine says nothing, whatever the next seed did.
        is(errors(&[some(0.5)], &[None, some(0.8)]), [None, None]);
        is(errors(&[some(0.5)], &[some(0.6), None]), [some(0.1), None]);
        is(errors(&[some(0.5)], &[some(0.6)]), [some(0.1), None]);
        is(errors(&[some(0.5)], &[]), [None, None]);
        let own = [some(0.4), None, some(0.6)];
        let there = [some(0.4), some(0.8), some(0.7)];
        is(errors(&own, &there), [some(0.2), None]);
    }
}
