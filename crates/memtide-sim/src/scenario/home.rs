//! Cases that are measured by when their hot set is home: found, and moved to fast memory.
//!
//! What a search of memory is worth shows in the time that it takes, by how much memory there is and in
//! which pieces the hot part lies. Such a case may say what `memtide tier` promises for its size, and
//! have that row run on the machine of rates, which is always at full size.

use super::{Case, Scenario};
use crate::config::Configuration;
use crate::result::{HOME_SHARE, Home, RunResult};
use crate::units::Nanos;
use crate::workload::about::time;
use crate::workload::{HotSetSpec, WorkloadSpec};
use serde::Deserialize;

/// How a case is measured by when its hot set is home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeSpec {
    /// The time that memtide promises.
    pub promise: Option<Nanos>,
    /// Or so many times what two passes over every page take at the share of a CPU that observing may
    /// use.
    pub promise_bounds: Option<f64>,
    /// Whether rows of `memtide tier` run on the machine of rates.
    #[serde(default)]
    pub rates: bool,
}

impl HomeSpec {
    /// What is wrong with it for this workload: the key, and why.
    pub(super) fn wrong(&self, workload: &WorkloadSpec) -> Option<(&'static str, &'static str)> {
        let positive = |figure: f64| figure.is_finite() && figure > 0.0;
        if !matches!(workload, WorkloadSpec::HotSet(_)) {
            return Some((
                "home",
                "only a hot set has a home; make it workload.hot-set",
            ));
        }
        if self.promise.is_some() && self.promise_bounds.is_some() {
            return Some((
                "promise_bounds",
                "there is a promise already; leave one out",
            ));
        }
        match (self.promise, self.promise_bounds) {
            (Some(promise), _) if !positive(promise.0) => Some(("promise", "give more than 0 s")),
            (_, Some(bounds)) if !positive(bounds) => Some(("promise_bounds", "give more than 0")),
            _ => None,
        }
    }

    /// What it measures, in sentences.
    pub fn about(&self) -> String {
        let promise = match (self.promise, self.promise_bounds) {
            (Some(promise), _) => format!(" memtide promises {}.", time(promise)),
            (None, Some(bounds)) => format!(
                " memtide promises {bounds} times what two passes over every page take, at the share of a CPU \
                 that observing may use."
            ),
            (None, None) => String::new(),
        };
        let rates = match self.rates {
            true => " Rows of memtide tier run on the machine of rates, at full size.",
            false => "",
        };
        format!(
            "Measured is the time until fast memory serves nine tenths of the accesses to it.{promise}{rates}"
        )
    }

    /// The promise in seconds, where the bound is so many.
    fn promise_s(&self, bound_s: Option<f64>) -> Option<f64> {
        match (self.promise, self.promise_bounds) {
            (Some(promise), _) => Some(promise.0 * 1e-9),
            (None, bounds) => Some(bounds? * bound_s?),
        }
    }
}

impl Case {
    /// Its hot set, if it is measured by when that is home.
    pub(super) fn home(&self) -> Option<(&HomeSpec, &HotSetSpec)> {
        match (&self.home, &self.workload) {
            (Some(home), WorkloadSpec::HotSet(spec)) => Some((home, spec)),
            _ => None,
        }
    }

    /// Adds to a run under `configuration` when the hot set was home, where the case asks for that.
    pub(super) fn note_home(&self, configuration: &Configuration, result: &mut RunResult) {
        let Some((home, spec)) = self.home() else {
            return;
        };
        let mut noted = result.home.take().unwrap_or_else(|| seen(result));
        noted.memory_bytes = spec.memory.0;
        noted.piece_bytes = spec.piece.unwrap_or(spec.hot).0;
        if configuration.tier.is_some() {
            noted.promise_s = home.promise_s(noted.bound_s);
        }
        result.home = Some(noted);
    }
}

/// What a run of the engine says: all of its accesses are to hot pages.
fn seen(result: &RunResult) -> Home {
    let series = &result.series;
    let mut points = series.seconds.iter().zip(&series.fast_share);
    let home = points.find(|(_, share)| **share >= HOME_SHARE);
    Home {
        seconds: home.map(|(at, _)| *at),
        ..Home::default()
    }
}

impl Scenario {
    /// Whether the run of that case and configuration is on the machine of rates, which makes no
    /// accesses.
    #[must_use]
    pub fn is_of_rates(&self, case: &str, configuration: &str) -> bool {
        let case = self.cases.iter().find(|of| of.name == case);
        let of_rates = case.is_some_and(|case| case.home.is_some_and(|home| home.rates));
        let mut all = self.configurations.iter();
        of_rates && all.any(|of| of.name == configuration && of.tier.is_some())
    }
}
