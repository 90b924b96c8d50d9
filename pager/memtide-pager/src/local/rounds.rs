//! Which granules this process reads, as rounds of looks tell.
//!
//! Nobody tells of reads. But what is unmapped and mapped again was touched in between. So in a round the
//! keeper unmaps granules, of which the memory stays, and looks at the end which are mapped again. A
//! granule is *busy* that was touched in each of its last two rounds, and *idle* that was touched in none
//! of them. What is between is neither: what is read once in a while neither takes a place in a copy nor
//! loses it. So a sweep over more than fits moves nothing: if it comes back within a round, nothing is
//! idle, and if it takes longer, nothing is busy.
//!
//! Rounds cost faults, and they are there only while somebody finds no room for a copy.

use super::version::Identity;
use memtide_core::units::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// From a round to the next.
pub(crate) const ROUND: Duration = Duration::from_secs(10);
/// Granules of a round: 4 GiB.
pub(crate) const MOST: usize = 2048;

/// A granule of a file, and the node on which it is read.
pub(crate) type Key = (Identity, NodeId, u64);

/// Whether it was touched in the last round, and in the one before; `None` for a round that it was not in.
type History = [Option<bool>; 2];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    began: Option<Instant>,
    /// Those that were unmapped when this round began.
    asked: BTreeSet<Key>,
    /// Of them, those that were seen mapped again and may have been unmapped since.
    touched: BTreeSet<Key>,
    histories: BTreeMap<Key, History>,
    /// The last one that was asked for where not all could be.
    last: Option<Key>,
}

impl Rounds {
    /// Whether no round goes on, or one that may end.
    pub fn is_due(&self, now: Instant) -> bool {
        (self.began).is_none_or(|began| now.saturating_duration_since(began) >= ROUND)
    }

    /// Notes that a granule is touched that is about to be unmapped.
    pub fn touched(&mut self, granule: Key) {
        if self.asked.contains(&granule) {
            self.touched.insert(granule);
        }
    }

    /// Ends the round; `is_mapped` says which are mapped.
    pub fn end(&mut self, is_mapped: impl Fn(&Key) -> bool) {
        for granule in std::mem::take(&mut self.asked) {
            let touched = self.touched.contains(&granule) || is_mapped(&granule);
            let history = self.histories.entry(granule).or_default();
            *history = [Some(touched), history[0]];
        }
        self.touched.clear();
        self.began = None;
    }

    /// Begins one with `granules`, [`MOST`] of them and the others in the next; which ones.
    pub fn begin(&mut self, now: Instant, granules: &BTreeSet<Key>) -> BTreeSet<Key> {
        self.histories
            .retain(|granule, _| granules.contains(granule));
        let behind = granules.iter().filter(|one| Some(**one) > self.last);
        let before = granules.iter().filter(|one| Some(**one) <= self.last);
        let asked: Vec<Key> = behind.chain(before).take(MOST).copied().collect();
        self.last = asked
            .last()
            .copied()
            .filter(|_| asked.len() < granules.len());
        self.began = Some(now);
        self.asked = asked.into_iter().collect();
        self.asked.clone()
    }

    /// Forgets all.
    pub fn stop(&mut self) {
        *self = Rounds::default();
    }

    /// Granules that were touched in neither of their last two rounds.
    pub fn idle(&self) -> impl Iterator<Item = Key> + '_ {
        self.with([Some(false); 2])
    }

    /// Those that were in both.
    pub fn busy(&self) -> impl Iterator<Item = Key> + '_ {
        self.with([Some(true); 2])
    }

    fn with(&self, wanted: History) -> impl Iterator<Item = Key> + '_ {
        let all = self.histories.iter();
        all.filter(move |(_, history)| **history == wanted)
            .map(|(granule, _)| *granule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(granule: u64) -> Key {
        ((1, 2), NodeId(0), granule)
    }

    fn keys(granules: impl IntoIterator<Item = u64>) -> BTreeSet<Key> {
        granules.into_iter().map(key).collect()
    }

    /// Rounds over granules 0 to 3: 0 is touched in each, 1 in none, 2 in the first of two, 3 in the last.
    #[test]
    fn two_rounds_make_a_granule_busy_or_idle() {
        let mut rounds = Rounds::default();
        let (now, all) = (Instant::now(), keys(0..4));
        assert!(rounds.is_due(now));
        for mapped in [[0, 2], [0, 3]] {
            assert_eq!(rounds.begin(now, &all), all);
            assert!(!rounds.is_due(now) && rounds.is_due(now + ROUND));
            assert_eq!((rounds.idle().count(), rounds.busy().count()), (0, 0));
            rounds.end(|granule| mapped.contains(&granule.2));
        }
        assert_eq!(rounds.busy().collect::<Vec<_>>(), [key(0)]);
        assert_eq!(rounds.idle().collect::<Vec<_>>(), [key(1)]);
        // Who is no more in it is forgotten.
        rounds.begin(now, &keys([0]));
        assert_eq!(rounds.idle().count(), 0);
        rounds.stop();
        assert_eq!(rounds.busy().count(), 0);
    }

    #[test]
    fn what_was_seen_before_it_was_unmapped_anew_counts() {
        let mut rounds = Rounds::default();
        for _ in 0..2 {
            rounds.begin(Instant::now(), &keys([0, 1]));
            rounds.touched(key(0));
            rounds.touched(key(7));
            rounds.end(|_| false);
        }
        assert_eq!(rounds.busy().collect::<Vec<_>>(), [key(0)]);
        assert_eq!(rounds.idle().collect::<Vec<_>>(), [key(1)]);
    }

    /// 5,000 granules take three rounds, and then it begins again with the first.
    #[test]
    fn what_a_round_has_no_room_for_comes_in_the_next() {
        let mut rounds = Rounds::default();
        let all = keys(0..5000);
        let mut seen = BTreeSet::new();
        for round in 0..3 {
            let asked = rounds.begin(Instant::now(), &all);
            assert_eq!(asked.len(), MOST, "round {round}");
            seen.extend(asked);
            rounds.end(|_| false);
        }
        assert_eq!(seen, all);
        assert!(rounds.begin(Instant::now(), &all).contains(&key(2000)));
    }
}
