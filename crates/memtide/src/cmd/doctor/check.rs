//! A check, how it ended, and what all of them together mean.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was tried or is evident, and it does what it should.
    Works,
    /// A setting; neither good nor bad by itself.
    Set,
    /// A setting that usually costs something; what to do is in the detail. It may be
    /// meant to be so.
    Advice,
    /// It was not tried. Nothing that was read speaks against it.
    NotProbed,
    /// It is there and does not do what it should.
    Broken,
    /// This kernel or machine has not got it, or it is turned off.
    Unavailable,
    /// The caller lacks a right.
    NotPermitted,
    /// Somebody else has it.
    Busy,
}

/// A state with its reason or its figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub state: State,
    /// In a sentence: the figures that prove it, or what is wrong and what to do.
    pub detail: String,
    /// The figures of a proof, where pages were compared.
    pub proof: Option<Figures>,
}

impl Finding {
    pub fn new(state: State, detail: impl Into<String>) -> Finding {
        Finding {
            state,
            detail: detail.into(),
            proof: None,
        }
    }

    pub fn proved(detail: String, proof: Figures) -> Finding {
        Finding {
            proof: Some(proof),
            ..Finding::new(State::Works, detail)
        }
    }
}

/// What was compared, in base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Pages that should be seen, or moved.
    pub expected: u64,
    /// Those of them that were.
    pub seen: u64,
    /// Others that were.
    pub unexpected: u64,
    /// Complete passes, of a source that has passes.
    pub passes: Option<u64>,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub name: &'static str,
    #[serde(flatten)]
    pub finding: Finding,
    #[serde(rename = "elapsed_s", serialize_with = "as_seconds")]
    pub elapsed: Duration,
}

impl Check {
    /// A check that took no time to speak of.
    pub fn named(name: &'static str, finding: Finding) -> Check {
        Check {
            name,
            finding,
            elapsed: Duration::ZERO,
        }
    }
}

/// What the command says; the document of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    pub verdict: Verdict,
    pub probed: bool,
    #[serde(rename = "elapsed_s", serialize_with = "as_seconds")]
    pub elapsed: Duration,
    pub checks: Vec<Check>,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A source and the mover are proved, and there is a tier to promote from.
    Ready,
    /// Nothing speaks against it, and nothing was tried.
    Unproved,
    /// There is one tier of memory, and nothing is broken.
    OneTier,
    /// Nothing is broken, but no source or no mover can be had.
    NotReady,
    /// Something that should work does not.
    Broken,
}

impl Verdict {
    /// The exit status of the command.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Ready | Verdict::Unproved | Verdict::OneTier => 0,
            Verdict::NotReady | Verdict::Broken => 1,
        }
    }
}

/// The names of the checks that try sources.
pub const SOURCES: [&str; 3] = ["damon", "hint_faults", "page_table"];
/// The names of the checks that try sampled accesses, which balancing takes and
/// tiering does without.
pub const SAMPLES: [&str; 3] = ["ibs", "pebs", "page_faults"];
/// The name of the check that tries the mover.
pub const MOVER: &str = "mover";

/// Weighs the checks. Missing rights or a source that is off are no breakage,
/// but without any source and a mover a machine with two tiers is not ready.
pub fn verdict(checks: &[Check], two_tiers: bool) -> Verdict {
    let any = |names: &[&str], state| {
        let named = checks.iter().filter(|check| names.contains(&check.name));
        named.into_iter().any(|check| check.finding.state == state)
    };
    let works = |names: &[&str]| any(names, State::Works);
    let hopeful = |names: &[&str]| works(names) || any(names, State::NotProbed);
    let broken = checks
        .iter()
        .any(|check| check.finding.state == State::Broken);
    match (broken, two_tiers) {
        (true, _) => Verdict::Broken,
        (false, false) => Verdict::OneTier,
        (false, true) if works(&SOURCES) && works(&[MOVER]) => Verdict::Ready,
        (false, true) if hopeful(&SOURCES) && hopeful(&[MOVER]) => Verdict::Unproved,
        (false, true) => Verdict::NotReady,
    }
}

fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::State::*;
    use super::*;

    fn weigh(states: &[(&'static str, State)], two_tiers: bool) -> (Verdict, u8) {
        let check = |&(name, state)| Check::named(name, Finding::new(state, ""));
        let checks: Vec<Check> = states.iter().map(check).collect();
        let verdict = verdict(&checks, two_tiers);
        (verdict, verdict.exit_status())
    }

    #[test]
    fn one_source_and_the_mover_are_enough() {
        let mut checks = [
            ("damon", Busy),
            ("hint_faults", Unavailable),
            ("page_table", Works),
            ("mover", Works),
        ];
        assert_eq!(weigh(&checks, true), (Verdict::Ready, 0));
        checks[2].1 = NotPermitted;
        assert_eq!(weigh(&checks, true), (Verdict::NotReady, 1));
        assert_eq!(weigh(&checks, false), (Verdict::OneTier, 0));
    }

    #[test]
    fn whatever_is_broken_counts_everywhere() {
        let checks = [("damon", Works), ("mover", Works), ("left_over", Broken)];
        assert_eq!(weigh(&checks, true), (Verdict::Broken, 1));
        assert_eq!(weigh(&checks, false), (Verdict::Broken, 1));
    }

    #[test]
    fn what_was_not_tried_is_not_held_against_the_machine() {
        let checks = [("damon", NotProbed), ("mover", NotProbed)];
        assert_eq!(weigh(&checks, true), (Verdict::Unproved, 0));
        let checks = [("damon", NotProbed), ("mover", Unavailable)];
        assert_eq!(weigh(&checks, true), (Verdict::NotReady, 1));
    }
}
