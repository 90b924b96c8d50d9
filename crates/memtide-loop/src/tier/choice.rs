//! Which pages a look takes in, where it cannot take all.

use crate::random::Random;
use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::OwnerId;

/// The pages of one process that a look would take in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Whose.
    pub owner: OwnerId,
    /// In order of address.
    pub runs: Vec<Run>,
}

/// Begins with a random process and there with a random run.
#[derive(Clone, Debug)]
pub struct AnyRun {
    random: Random,
}

impl AnyRun {
    /// Begins with `seed`.
    pub fn new(seed: u64) -> AnyRun {
        AnyRun {
            random: Random::new(seed),
        }
    }

    /// Leaves at most `budget` pages in `candidates`, in order of address; a
    /// process without any is left out.
    pub fn choose(&mut self, candidates: &mut Vec<Candidate>, mut budget: u64) {
        if candidates.is_empty() {
            return;
        }
        let first = self.random.below(candidates.len() as u64) as usize;
        candidates.rotate_left(first);
        for candidate in candidates.iter_mut() {
            budget = cut(&mut candidate.runs, budget, &mut self.random);
        }
        candidates.retain(|candidate| !candidate.runs.is_empty());
    }
}

/// Cuts `runs` to `budget` pages, beginning at a random one; what is left of
/// the budget.
fn cut(runs: &mut Vec<Run>, budget: u64, random: &mut Random) -> u64 {
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    if total <= budget {
        return budget - total;
    }
    if !runs.is_empty() {
        let start = random.below(runs.len() as u64) as usize;
        runs.rotate_left(start);
    }
    let mut left = budget;
    runs.retain_mut(|run| {
        run.pages = run.pages.min(left);
        left -= run.pages;
        run.pages > 0
    });
    runs.sort_by_key(|run| run.first);
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::tiering::space::VirtualPage;

    fn candidate(owner: u32, runs: &[(u64, u64)]) -> Candidate {
        let run = |&(first, pages): &(u64, u64)| Run {
            first: VirtualPage(first),
            pages,
        };
        Candidate {
            owner: OwnerId(owner),
            runs: runs.iter().map(run).collect(),
        }
    }

    #[test]
    fn what_fits_is_left_whole_and_no_more_than_fits_is_left() {
        let all = vec![
            candidate(0, &[(0, 100), (200, 50)]),
            candidate(1, &[(0, 300)]),
        ];
        for seed in 0..50 {
            let mut choice = AnyRun::new(seed);
            let mut whole = all.clone();
            choice.choose(&mut whole, 450);
            whole.sort_by_key(|candidate| candidate.owner);
            assert_eq!(whole, all);
            let mut part = all.clone();
            choice.choose(&mut part, 120);
            let pages = |candidate: &Candidate| candidate.runs.iter().map(|r| r.pages).sum::<u64>();
            assert_eq!(part.iter().map(pages).sum::<u64>(), 120);
            for candidate in &part {
                assert!(candidate.runs.is_sorted_by_key(|run| run.first));
                assert!(!candidate.runs.is_empty());
            }
        }
    }
}
