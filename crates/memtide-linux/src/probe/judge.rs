//! Whether what a source reports is what happened.
//!
//! It is told which pages are touched, takes the source's reports as its
//! [`Sink`], and gives a verdict. A source with passes proves itself by
//! [`EXACT_PASSES`] passes that show every touched page and no other; one
//! inexact pass says nothing yet, because the first pass begins in the middle
//! and the touching thread may not have had a processor. A source without passes
//! proves itself once every touched page was reported, and disproves itself by
//! one page that nobody touched.

use crate::source::observe::{Abilities, Sink, View};
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use std::collections::BTreeSet;
use std::time::Duration;

/// Passes without error that make a proof.
pub const EXACT_PASSES: u64 = 2;

/// What was seen of the expected pages, and what else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Touched pages that were reported.
    pub seen: u64,
    /// Pages that were reported and not touched.
    pub unexpected: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sightings {
    /// Pages in the span.
    pub pages: u64,
    /// Pages that were touched.
    pub touched: u64,
    /// The pass that came nearest, or all reports of a source without passes.
    pub best: Tally,
    /// Complete passes; `None` of a source that has none.
    pub passes: Option<u64>,
    /// Those without error.
    pub exact: u64,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet.
    Wait,
    /// It reports what happens.
    Proved,
    /// It does not, or not within the limit.
    Failed,
}

/// Compares reports with what is known.
#[derive(Debug)]
pub struct Judge {
    owner: OwnerId,
    first: u64,
    hot: Vec<bool>,
    touched: u64,
    passes: bool,
    reported: BTreeSet<u64>,
    best: Option<Tally>,
    complete: u64,
    exact: u64,
}

impl Judge {
    /// Expects of the `pages` pages from `first` on that exactly those at the
    /// offsets `hot` are touched.
    pub fn new(
        owner: OwnerId,
        first: VirtualPage,
        pages: usize,
        hot: &[usize],
        abilities: Abilities,
    ) -> Judge {
        let mut expected = vec![false; pages];
        for offset in hot {
            expected[*offset] = true;
        }
        Judge {
            owner,
            first: first.0,
            touched: expected.iter().filter(|hot| **hot).count() as u64,
            hot: expected,
            passes: abilities.passes,
            reported: BTreeSet::new(),
            best: None,
            complete: 0,
            exact: 0,
        }
    }

    /// How it stands after `elapsed` of at most `limit`.
    pub fn verdict(&self, elapsed: Duration, limit: Duration) -> Verdict {
        let proved = match self.passes {
            true => self.exact >= EXACT_PASSES,
            false => self.is_exact(self.tally()),
        };
        let disproved = !self.passes && self.tally().unexpected > 0;
        match (proved, disproved || elapsed >= limit) {
            (true, _) => Verdict::Proved,
            (false, true) => Verdict::Failed,
            (false, false) => Verdict::Wait,
        }
    }

    /// The figures.
    pub fn sightings(&self) -> Sightings {
        let best = match self.passes {
            true => self.best.unwrap_or_default(),
            false => self.tally(),
        };
        Sightings {
            pages: self.hot.len() as u64,
            touched: self.touched,
            best,
            passes: self.passes.then_some(self.complete),
            exact: self.exact,
        }
    }

    fn tally(&self) -> Tally {
        let is_hot = |offset: &&u64| self.hot[**offset as usize];
        let seen = self.reported.iter().filter(is_hot).count() as u64;
        Tally {
            seen,
            unexpected: self.reported.len() as u64 - seen,
        }
    }

    fn is_exact(&self, tally: Tally) -> bool {
        tally.unexpected == 0 && tally.seen == self.touched
    }

    /// How many pages are wrong in a pass.
    fn errors(&self, tally: Tally) -> u64 {
        self.touched - tally.seen + tally.unexpected
    }
}

impl Sink for Judge {
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64) {
        if view != View::Look || owner != self.owner {
            return;
        }
        // Other pages of this process are touched too; of them nothing is known.
        let within = |page: u64| {
            let offset = page.checked_sub(self.first)?;
            (offset < self.hot.len() as u64).then_some(offset)
        };
        let offsets = (first.0..first.0.saturating_add(pages)).filter_map(within);
        self.reported.extend(offsets);
    }

    fn pass_complete(&mut self, view: View) {
        if view != View::Look || !self.passes {
            return;
        }
        let tally = self.tally();
        self.reported.clear();
        self.complete += 1;
        self.exact += u64::from(self.is_exact(tally));
        if self
            .best
            .is_none_or(|best| self.errors(tally) < self.errors(best))
        {
            self.best = Some(tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: OwnerId = OwnerId(3);
    const LIMIT: Duration = Duration::from_secs(10);
    const SOON: Duration = Duration::from_secs(1);

    /// Pages 100..116, of which 102 and 110 are touched.
    fn judge(passes: bool) -> Judge {
        let abilities = Abilities {
            passes,
            ..Abilities::default()
        };
        Judge::new(ME, VirtualPage(100), 16, &[2, 10], abilities)
    }

    fn touch(judge: &mut Judge, first: u64, pages: u64) {
        judge.touched(View::Look, ME, VirtualPage(first), pages);
    }

    #[test]
    fn two_exact_passes_are_a_proof() {
        let mut judge = judge(true);
        // The first pass began in the middle: one page of two.
        touch(&mut judge, 102, 1);
        judge.pass_complete(View::Look);
        for pass in 0..2 {
            assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Wait, "pass {pass}");
            touch(&mut judge, 110, 1);
            touch(&mut judge, 102, 1);
            judge.pass_complete(View::Look);
        }
        assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Proved);
        let sightings = judge.sightings();
        assert_eq!((sightings.passes, sightings.exact), (Some(3), 2));
        assert_eq!((sightings.pages, sightings.touched), (16, 2));
    }

    #[test]
    fn a_source_that_blurs_fails_at_the_limit() {
        let mut judge = judge(true);
        for wide in [16, 9] {
            // From 102 on: with 9 pages 102..111, both touched and 7 others.
            touch(&mut judge, 102, wide);
            judge.pass_complete(View::Look);
        }
        assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Wait);
        assert_eq!(judge.verdict(LIMIT, LIMIT), Verdict::Failed);
        let best = judge.sightings().best;
        assert_eq!((best.seen, best.unexpected), (2, 7));
    }

    #[test]
    fn a_silent_source_fails_at_the_limit() {
        for passes in [true, false] {
            let judge = judge(passes);
            assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Wait);
            assert_eq!(judge.verdict(LIMIT, LIMIT), Verdict::Failed);
            assert_eq!(judge.sightings().best, Tally::default());
        }
    }

    #[test]
    fn single_accesses_add_up_and_one_wrong_page_disproves() {
        let mut judge = judge(false);
        touch(&mut judge, 110, 1);
        touch(&mut judge, 110, 1);
        assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Wait);
        touch(&mut judge, 102, 1);
        assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Proved);
        touch(&mut judge, 103, 1);
        assert_eq!(judge.verdict(SOON, LIMIT), Verdict::Failed);
        assert_eq!(judge.sightings().passes, None);
    }

    #[test]
    fn other_pages_owners_and_views_are_nobodys_business() {
        let mut judge = judge(false);
        touch(&mut judge, 90, 10);
        touch(&mut judge, 116, 10);
        judge.touched(View::Look, OwnerId(4), VirtualPage(105), 1);
        judge.touched(View::Glance, ME, VirtualPage(100), 16);
        assert_eq!(judge.sightings().best, Tally::default());
    }
}
