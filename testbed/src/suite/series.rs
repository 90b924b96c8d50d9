//! The boots that one planned boot takes, when guests die.
//!
//! An emulated kernel dies now and then for reasons of its own, and what it had done by then is done:
//! its verdicts and rows stay, and the next boot runs only what is left. One rule holds for every
//! death, whatever it was (an oops, a hang, a broken QEMU):
//!
//! - The test that was running at it has one more chance, first thing in the next boot. At its second
//!   death it fails, with both reasons. So a dead guest costs one test at most.
//! - A death between tests is nobody's.
//! - A series ends after [`MOST_BOOTS`] boots, or after two boots in a row in which no test started:
//!   that machine is hopeless, and all that is left fails with the last reason.
//!
//! Nothing is hidden: each death is kept with what it was and where its console's log is.
//!
//! Pure: reports and ends in, what to boot next out.

use super::Results;
use crate::machine::Ending;
use crate::report::{Report, Verdict};

/// No planned boot is booted more often.
pub const MOST_BOOTS: usize = 6;
/// So many boots in a row without a test that started are the last.
const MOST_IDLE_BOOTS: usize = 2;
/// A test that was running at so many deaths fails.
const DEATHS_OF_A_TEST: usize = 2;

/// A guest that did not live to the end of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// Which boot of the series, from 1.
    pub boot: usize,
    /// The test that was running.
    pub during: Option<String>,
    /// A word or two, to count by.
    pub kind: &'static str,
    /// What is known, in one line.
    pub reason: String,
}

/// What has come of one planned boot so far.
#[derive(Debug)]
pub struct Series {
    planned: Vec<String>,
    results: Results,
    deaths: Vec<Death>,
    boots: usize,
    idle_boots: usize,
    started: bool,
}

impl Series {
    /// A series for these tests, in running order.
    #[must_use]
    pub fn new(planned: &[String]) -> Self {
        Self {
            planned: planned.to_vec(),
            results: Results::default(),
            deaths: Vec::new(),
            boots: 0,
            idle_boots: 0,
            started: false,
        }
    }

    /// The tests to boot for now; none when the series is over.
    #[must_use]
    pub fn next(&self) -> Option<Vec<String>> {
        let left = self.left();
        let hopeless = self.boots == MOST_BOOTS || self.idle_boots == MOST_IDLE_BOOTS;
        (!left.is_empty() && !hopeless).then_some(left)
    }

    /// Takes one report of the running boot.
    pub fn take(&mut self, report: &Report) {
        self.started |= matches!(report, Report::Started { .. });
        self.results.take(report);
    }

    /// Takes the end of a boot; the death, if it was one, and the verdict of the test that it cost.
    pub fn ended(&mut self, ending: &Ending) -> Option<(Death, Option<(String, Verdict)>)> {
        self.boots += 1;
        self.idle_boots = match std::mem::take(&mut self.started) {
            true => 0,
            false => self.idle_boots + 1,
        };
        let during = self.results.running.take();
        if self.left().is_empty() {
            return None;
        }
        let death = Death {
            boot: self.boots,
            during,
            kind: ending.kind(),
            reason: ending.to_string(),
        };
        self.deaths.push(death.clone());
        let cost = death.during.clone().and_then(|test| self.charge(test));
        Some((death, cost))
    }

    /// Fails a test that has had its deaths.
    fn charge(&mut self, test: String) -> Option<(String, Verdict)> {
        let reasons: Vec<&str> = self
            .deaths
            .iter()
            .filter(|death| death.during.as_ref() == Some(&test))
            .map(|death| death.reason.as_str())
            .collect();
        if reasons.len() < DEATHS_OF_A_TEST {
            return None;
        }
        let why = format!(
            "the guest died during this test: {}",
            reasons.join("; again: ")
        );
        let cost = (test, Verdict::Failed(why));
        self.results.verdicts.push(cost.clone());
        Some(cost)
    }

    /// Ends the series: what is left fails. Verdicts and rows, the deaths, and the new verdicts.
    #[must_use]
    pub fn close(mut self) -> (Results, Vec<Death>, Vec<(String, Verdict)>) {
        let last = self
            .deaths
            .last()
            .map_or("it was not booted", |death| &death.reason);
        let why = format!("no verdict after {} boots: {last}", self.boots);
        let missing: Vec<(String, Verdict)> = self
            .left()
            .into_iter()
            .map(|test| (test, Verdict::Failed(why.clone())))
            .collect();
        self.results.verdicts.extend(missing.clone());
        (self.results, self.deaths, missing)
    }

    /// The planned tests without a verdict.
    fn left(&self) -> Vec<String> {
        let has = |name: &String| self.results.verdicts.iter().any(|(have, _)| have == name);
        let left = self.planned.iter().filter(|name| !has(name));
        left.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(names: &[&str]) -> Series {
        Series::new(
            &names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    fn start(series: &mut Series, test: &str) {
        series.take(&Report::Started { test: test.into() });
    }

    fn pass(series: &mut Series, test: &str) {
        start(series, test);
        series.take(&Report::Verdict {
            test: test.into(),
            verdict: Verdict::Passed,
            seconds: 1.0,
        });
    }

    fn oops() -> Ending {
        Ending::Oops("BUG: a".into())
    }

    #[test]
    fn an_orderly_boot_is_the_only_one() {
        let mut series = series(&["a", "b"]);
        assert_eq!(series.next(), Some(vec!["a".to_owned(), "b".to_owned()]));
        pass(&mut series, "a");
        pass(&mut series, "b");
        assert_eq!(series.ended(&Ending::Orderly(0)), None);
        assert_eq!(series.next(), None);
        let (results, deaths, missing) = series.close();
        assert_eq!(results.tally().to_string(), "2 passed, 0 failed, 0 skipped");
        assert!(deaths.is_empty() && missing.is_empty());
    }

    /// Dies in b, passes b and c at the next boot: nothing is lost, and a runs once.
    #[test]
    fn one_death_costs_nothing() {
        let mut series = series(&["a", "b", "c"]);
        pass(&mut series, "a");
        start(&mut series, "b");
        let (death, cost) = series.ended(&oops()).unwrap();
        assert_eq!((death.boot, death.during.as_deref()), (1, Some("b")));
        assert_eq!(cost, None);
        assert_eq!(series.next(), Some(vec!["b".to_owned(), "c".to_owned()]));
        pass(&mut series, "b");
        pass(&mut series, "c");
        assert_eq!(series.ended(&Ending::Orderly(0)), None);
        let (results, deaths, missing) = series.close();
        assert_eq!(results.tally().to_string(), "3 passed, 0 failed, 0 skipped");
        assert_eq!((deaths.len(), missing.len()), (1, 0));
    }

    /// b kills the guest twice and fails; c still runs.
    #[test]
    fn the_second_death_fails_the_test() {
        let mut series = series(&["a", "b", "c"]);
        pass(&mut series, "a");
        start(&mut series, "b");
        series.ended(&oops());
        start(&mut series, "b");
        let hang = Ending::Hang("no report for 240 s".into());
        let (_, cost) = series.ended(&hang).unwrap();
        assert_eq!(
            cost,
            Some((
                "b".to_owned(),
                Verdict::Failed(
                    "the guest died during this test: the kernel died: BUG: a; \
                     again: the guest hung: no report for 240 s"
                        .into()
                )
            ))
        );
        assert_eq!(series.next(), Some(vec!["c".to_owned()]));
        pass(&mut series, "c");
        assert_eq!(series.ended(&Ending::Orderly(0)), None);
        let (results, deaths, _) = series.close();
        assert_eq!(results.tally().to_string(), "2 passed, 1 failed, 0 skipped");
        assert_eq!(deaths.len(), 2);
    }

    /// The last test's second death leaves nothing to boot for.
    #[test]
    fn the_last_test_may_die_last() {
        let mut series = series(&["a"]);
        for _ in 0..2 {
            assert_eq!(series.next().map(|tests| tests.len()), Some(1));
            start(&mut series, "a");
            assert!(series.ended(&oops()).is_some());
        }
        assert_eq!(series.next(), None);
        assert!(series.close().2.is_empty());
    }

    /// A death after the verdict of a and before b is neither's: b may still die once.
    #[test]
    fn a_death_between_tests_is_nobodys() {
        let mut series = series(&["a", "b"]);
        pass(&mut series, "a");
        let (death, cost) = series.ended(&oops()).unwrap();
        assert_eq!((death.during, cost), (None, None));
        start(&mut series, "b");
        let (_, cost) = series.ended(&oops()).unwrap();
        assert_eq!(cost, None);
        assert_eq!(series.next(), Some(vec!["b".to_owned()]));
    }

    #[test]
    fn a_machine_that_never_comes_up_is_given_two_boots() {
        let mut series = series(&["a", "b"]);
        let broken = Ending::Broken("no such file".into());
        for _ in 0..2 {
            assert!(series.next().is_some());
            series.ended(&broken);
        }
        assert_eq!(series.next(), None);
        let (results, _, missing) = series.close();
        assert_eq!(results.tally().failed, 2);
        assert_eq!(
            missing[0].1,
            Verdict::Failed("no verdict after 2 boots: the machine broke: no such file".into())
        );
    }

    /// Every test kills its guest: 6 boots cost 3 tests their two deaths each, the fourth never ran.
    #[test]
    fn boots_are_bounded() {
        let names = ["a", "b", "c", "d"];
        let mut series = series(&names);
        let mut boots = 0;
        while let Some(tests) = series.next() {
            start(&mut series, &tests[0]);
            series.ended(&oops());
            boots += 1;
        }
        assert_eq!(boots, MOST_BOOTS);
        let (results, deaths, missing) = series.close();
        assert_eq!((results.tally().failed, deaths.len()), (4, 6));
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].0, "d");
    }

    /// An end that looks orderly and lacks a verdict is a death too.
    #[test]
    fn a_lost_verdict_is_run_again() {
        let mut series = series(&["a", "b"]);
        pass(&mut series, "b");
        let (death, _) = series.ended(&Ending::Orderly(0)).unwrap();
        assert_eq!(death.during, None);
        assert_eq!(series.next(), Some(vec!["a".to_owned()]));
    }
}
