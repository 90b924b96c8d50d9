//! One [`LazyFlush`] for each zone of memory.
//!
//! Memory that is taken from one zone says nothing about unmaps in another, so
//! each zone has generations of its own: a page of a slow, crowded node does not
//! make the fast one's unmaps flush early. (The later versions of the original do
//! so.) Events that cannot wait concern content, not places: they flush all zones,
//! in one flush.

use super::pending::{Cause, LazyFlush, Pending, Tally};

/// One of them for each zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zoned<B, const BITS: u32 = 16> {
    zones: Vec<LazyFlush<B, BITS>>,
    /// Forced flushes concern all zones.
    forced: Tally,
}

impl<B: Pending, const BITS: u32> Zoned<B, BITS> {
    /// With nothing pending in `zones` zones. One zone is the original's way.
    #[must_use]
    pub fn new(zones: usize) -> Zoned<B, BITS> {
        Zoned {
            zones: (0..zones).map(|_| LazyFlush::new()).collect(),
            forced: Tally::default(),
        }
    }

    /// A zone's; stamps of a page are those of its zone.
    ///
    /// # Panics
    ///
    /// If there is no such zone.
    pub fn zone(&mut self, zone: usize) -> &mut LazyFlush<B, BITS> {
        &mut self.zones[zone]
    }

    /// To be called before something happens that cannot wait: flushes what is
    /// pending in all zones, in one flush. Returns whether there was anything.
    ///
    /// # Panics
    ///
    /// If a flush that a zone's [`LazyFlush::begin`] began is under way.
    pub fn force(&mut self, cause: Cause, flush: impl FnOnce(B)) -> bool {
        let mut all = B::default();
        let mut rounds = Vec::with_capacity(self.zones.len());
        for (index, zone) in self.zones.iter_mut().enumerate() {
            assert!(!zone.in_flight(), "a flush is under way: wait for its end");
            if let Some((round, what)) = zone.begin() {
                all.fold(what);
                rounds.push((index, round));
            }
        }
        if rounds.is_empty() {
            return false;
        }
        flush(all);
        for (index, round) in rounds {
            self.zones[index].end(round);
        }
        self.forced.forced[cause as usize] += 1;
        true
    }

    /// A flush of somebody else did part of what is pending, in every zone.
    pub fn covered(&mut self, drop: impl Fn(&mut B)) {
        for zone in &mut self.zones {
            zone.covered(&drop);
        }
    }

    /// What was done so far, in all zones.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut sum = self.forced;
        for zone in &self.zones {
            sum.add(zone.tally());
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lazy_flush::pending::Due;

    #[derive(Default, Clone, Debug, PartialEq)]
    struct Pages(Vec<u32>);

    impl Pending for Pages {
        fn fold(&mut self, other: Pages) {
            self.0.extend(other.0);
        }
        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn a_zone_flushes_its_own_and_an_event_all() {
        let mut zoned: Zoned<Pages> = Zoned::new(2);
        let here = zoned.zone(0).defer(Pages(vec![1])).unwrap();
        let there = zoned.zone(1).defer(Pages(vec![2])).unwrap();
        let mut flushed = Pages::default();
        assert!(zoned.zone(0).take(here, |what| flushed = what));
        assert_eq!(flushed, Pages(vec![1]));
        assert_eq!(zoned.zone(1).due(there), Due::Flush);

        let again = zoned.zone(0).defer(Pages(vec![3])).unwrap();
        let mut flushes = vec![];
        assert!(zoned.force(Cause::ContentWritten, |what| flushes.push(what)));
        assert_eq!(flushes, [Pages(vec![3, 2])], "one flush for all zones");
        assert_eq!(zoned.zone(0).due(again), Due::Nothing);
        assert_eq!(zoned.zone(1).due(there), Due::Nothing);
        assert!(!zoned.force(Cause::Poison, |_| panic!("nothing is pending")));
        let tally = zoned.tally();
        assert_eq!((tally.deferred, tally.at_use, tally.flushes()), (3, 1, 2));
    }

    #[test]
    fn a_flush_of_somebody_else_counts_in_every_zone() {
        let mut zoned: Zoned<Pages> = Zoned::new(2);
        let here = zoned.zone(0).defer(Pages(vec![1])).unwrap();
        let there = zoned.zone(1).defer(Pages(vec![1, 2])).unwrap();
        zoned.covered(|pending| pending.0.retain(|&page| page != 1));
        assert_eq!(zoned.zone(0).due(here), Due::Nothing);
        assert_eq!(zoned.zone(1).due(there), Due::Flush);
    }
}
