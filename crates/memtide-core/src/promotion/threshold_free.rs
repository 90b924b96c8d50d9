//! A gate without thresholds: the hottest pages that the fast tier can hold.
//!
//! Three questions in place of a tuned number:
//!
//! 1. **Does it belong to the hot set?** The histogram says how hot a page must
//!    be to be among the hottest that just fill the fast tier. That is the *cut*;
//!    colder pages stay where they are. Of those exactly as hot, which nothing
//!    tells apart, the first that ask are let in, as many as fit.
//! 2. **Is it being tossed to and fro?** A page that moved within the damping
//!    time must beat the cut by a margin. Without it the pages near the cut
//!    change places at every pass.
//! 3. **Does the move pay?** Over the horizon the page saves (accesses) times
//!    (difference in latency); the move costs its copy, twice if another page
//!    has to leave for it. Saving below cost: it stays.
//!
//! The store's own threshold is no part of this: set it to 1, so that every page
//! that was seen asks. A folio counts as one page of the hot set, since it has
//! one record; the loop's room test keeps large folios from overfilling a node.

use super::recent::RecentMoves;
use super::verdict::{Admit, Candidate, Verdict};
use crate::hotness::{Cut, Heat, Histogram, Hotness};
use crate::pages::NodeSpace;
use crate::topology::{TierOrigin, Topology};
use crate::units::{Millis, PageSize};
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// What a move costs and what it saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Benefit {
    /// Latency of an access where the page is, in nanoseconds.
    pub slow_ns: u64,
    /// Latency of an access where it would go, in nanoseconds.
    pub fast_ns: u64,
    /// Time to move one base page, in nanoseconds.
    pub move_ns: u64,
    /// Accesses that stand behind one counted access: the sample period of a
    /// sampler, at least 1 for a scan.
    pub accesses_per_record: u64,
    /// How long the page is expected to stay as hot as it is, in ms.
    pub horizon_ms: u64,
}

/// What unmapping a base page and flushing its translations take, in
/// nanoseconds.
const UNMAP_NS: u64 = 4_000;
/// A page is copied at so many bytes a nanosecond, some gigabytes a second.
const COPY_BYTES_PER_NS: u64 = 4;
/// An accessed bit stands for all accesses of its interval: a page that is
/// touched at all by a running program is touched some hundred times.
const ACCESSES_PER_BIT: u64 = 100;
/// How long pages are expected to stay as hot as they are, in ms.
const HORIZON_MS: u64 = 60_000;
/// Latencies where the firmware tells none, in nanoseconds.
const SLOW_NS: u32 = 250;
const FAST_NS: u32 = 100;

impl Benefit {
    /// What moving a base page of this size takes, in nanoseconds, wherever
    /// nobody has measured it.
    pub fn usual_move_ns(page: PageSize) -> u64 {
        UNMAP_NS + page.bytes() / COPY_BYTES_PER_NS
    }

    /// What moves cost and save on a machine whose accesses are told by accessed
    /// bits, by the latencies that its firmware tells. Where tiers were given by hand
    /// and firmware contradicts them, its figures do not count.
    pub fn by_accessed_bits(topology: &Topology, page: PageSize) -> Benefit {
        let latency = |top: bool| {
            let nodes = topology.nodes().iter().filter(|node| node.top_tier == top);
            nodes.filter_map(|node| node.figures.read_latency_ns).min()
        };
        let slow = latency(false).unwrap_or(SLOW_NS);
        let fast = latency(true).unwrap_or(FAST_NS);
        let contradicted = topology.tier_origin() == TierOrigin::ByHand && slow <= fast;
        let (slow, fast) = match contradicted {
            true => (SLOW_NS, FAST_NS),
            false => (slow, fast),
        };
        Benefit {
            slow_ns: u64::from(slow),
            fast_ns: u64::from(fast),
            move_ns: Benefit::usual_move_ns(page),
            accesses_per_record: ACCESSES_PER_BIT,
            horizon_ms: HORIZON_MS,
        }
    }

    /// Nanoseconds that a page of this hotness saves over the horizon.
    pub fn saving_ns(&self, hotness: &Hotness, window_ms: u32) -> u64 {
        let faster = self.slow_ns.saturating_sub(self.fast_ns);
        let counted = u128::from(hotness.frequency) * u128::from(self.accesses_per_record);
        let expected = counted * u128::from(self.horizon_ms) / u128::from(window_ms.max(1));
        u64::try_from(expected * u128::from(faster)).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that the move of `pages` costs; a full destination makes
    /// somebody else move too.
    pub fn cost_ns(&self, pages: u64, destination_full: bool) -> u64 {
        let moves = if destination_full { 2 } else { 1 };
        self.move_ns.saturating_mul(pages).saturating_mul(moves)
    }
}

/// Settings of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdFree {
    /// What moves cost and save.
    pub benefit: Benefit,
    /// A page that moved within this many ms needs the margin.
    pub damping_ms: u64,
    /// The margin in age bins of the histogram; 32 bins are one access.
    pub margin: u16,
}

impl ThresholdFree {
    /// The gate for one pass. `histogram` holds the pages that compete, which is
    /// those of the slow tier, as top-tier pages are not recorded; `room` is how
    /// many of them the fast tier can take, see [`room`].
    pub fn pass<'a>(
        &self,
        histogram: &'a Histogram,
        room: u64,
        recent: &'a RecentMoves,
    ) -> HotSet<'a> {
        let Cut { heat, equals } = histogram.cut(room);
        HotSet {
            rules: *self,
            histogram,
            cut: heat,
            equals: Cell::new(equals),
            recent,
        }
    }
}

/// How many pages a destination can take: what is free beyond its high watermark,
/// which is all that a promotion asks for, and its `idle` pages, which demotion can
/// send away. What reclaim frees up to the promotion watermark is for promotions.
pub fn room(space: &NodeSpace, idle: u64) -> u64 {
    let free = space.free.saturating_sub(space.high.saturating_add(1));
    free.saturating_add(idle)
}

/// The gate for one pass: the hot set is fixed while it lasts.
#[derive(Clone, Debug)]
pub struct HotSet<'a> {
    rules: ThresholdFree,
    histogram: &'a Histogram,
    cut: Heat,
    /// Pages exactly as hot as the cut that are still let in, wherever they go; also those that are refused
    /// for something else in the end.
    equals: Cell<u64>,
    recent: &'a RecentMoves,
}

impl HotSet<'_> {
    /// How hot a page must be.
    pub fn cut(&self) -> Heat {
        self.cut
    }
}

impl Admit for HotSet<'_> {
    fn admit(&self, candidate: &Candidate, now: Millis) -> Verdict {
        let (cut, folio) = (self.cut, candidate.folio);
        let heat = self.histogram.heat(&candidate.hotness);
        if heat < cut || heat == cut && self.equals.get() == 0 {
            return Verdict::BelowCut { heat, cut };
        }
        if let Some((_, moved_ms_ago)) = self.recent.last(folio.first, now)
            && moved_ms_ago <= self.rules.damping_ms
            && heat < cut.raised(self.rules.margin)
        {
            return Verdict::Damped { moved_ms_ago };
        }
        let pages = u64::from(folio.pages);
        // A target without room above its promotion watermark makes another
        // page leave for this one.
        let full = candidate
            .space
            .is_none_or(|s| s.free <= s.promo.saturating_add(pages));
        let window_ms = self.histogram.window_ms();
        let saving_ns = self.rules.benefit.saving_ns(&candidate.hotness, window_ms);
        let cost_ns = self.rules.benefit.cost_ns(pages, full);
        if saving_ns < cost_ns {
            return Verdict::NoBenefit { saving_ns, cost_ns };
        }
        if heat == cut {
            self.equals.update(|equals| equals.saturating_sub(1));
        }
        Verdict::HotSet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotness::{Config, Layout, Store};
    use crate::pages::Folio;
    use crate::promotion::Moved;
    use crate::topology::{AccessFigures, NodeInput, TopologyInput};
    use crate::units::{NodeId, PageNumber};

    const BENEFIT: Benefit = Benefit {
        slow_ns: 250,
        fast_ns: 100,
        move_ns: 3000,
        accesses_per_record: 10,
        horizon_ms: 10_000,
    };
    const RULES: ThresholdFree = ThresholdFree {
        benefit: BENEFIT,
        damping_ms: 1000,
        margin: 32,
    };

    #[test]
    fn tiers_by_hand_win_over_what_firmware_tells() {
        let node = |id, cpus: &[u32], read_latency_ns| NodeInput {
            id: NodeId(id),
            online: true,
            memory_bytes: 1 << 30,
            cpus: cpus.to_vec(),
            distances: None,
            figures: AccessFigures {
                read_latency_ns,
                ..AccessFigures::default()
            },
            tier: None,
        };
        let latencies = |first, second, tiers: Option<&str>| {
            let nodes = vec![node(0, &[0], first), node(1, &[], second)];
            let own = Topology::try_from(TopologyInput::new(nodes)).unwrap();
            let topology = tiers.map_or(own.clone(), |tiers| {
                own.with_tiers(&tiers.parse().unwrap()).unwrap()
            });
            let benefit = Benefit::by_accessed_bits(&topology, PageSize::KIB_4);
            (benefit.slow_ns, benefit.fast_ns)
        };
        assert_eq!(latencies(Some(90), Some(300), None), (300, 90));
        assert_eq!(latencies(Some(90), Some(300), Some("0/1")), (300, 90));
        // Equal, the other way round, and one that is not told.
        for (first, second, tiers) in [
            (Some(90), Some(90), "0/1"),
            (Some(90), Some(300), "1/0"),
            (Some(400), None, "0/1"),
        ] {
            let (slow, fast) = latencies(first, second, Some(tiers));
            assert!(slow > fast, "{tiers}: {slow} {fast}");
        }
    }

    /// Pages 0..4 with 1 to 4 accesses, all at 1 s.
    fn store() -> Store {
        let store = Store::new(Config::new(Layout::Precise), 100);
        for page in 0..4 {
            for _ in 0..=page {
                store.record(PageNumber(page), None, Millis(1000));
            }
        }
        store
    }

    fn candidate(store: &Store, page: u64) -> Candidate {
        Candidate {
            folio: Folio {
                first: PageNumber(page),
                pages: 1,
            },
            hotness: store.peek(PageNumber(page), Millis(1000)).unwrap(),
            target: NodeId(0),
            space: Some(NodeSpace {
                free: 100,
                high: 10,
                promo: 20,
                present: 1000,
            }),
        }
    }

    #[test]
    fn the_hottest_that_fit_are_let_in() {
        let store = store();
        let histogram = store.histogram(Millis(1000));
        let recent = RecentMoves::new(16);
        // Room for two: the pages with 3 and 4 accesses.
        let gate = RULES.pass(&histogram, 2, &recent);
        let verdicts: Vec<bool> = (0..4)
            .map(|p| gate.admit(&candidate(&store, p), Millis(1000)).admitted())
            .collect();
        assert_eq!(verdicts, [false, false, true, true]);
        // Room for all: none is too cold, and the floor on benefit decides.
        let gate = RULES.pass(&histogram, 4, &recent);
        assert_eq!(gate.cut(), Heat::COLDEST);
        // No room: none is hot enough.
        let gate = RULES.pass(&histogram, 0, &recent);
        assert!(!gate.admit(&candidate(&store, 3), Millis(1000)).admitted());
    }

    /// Pages that cannot be told from each other.
    #[test]
    fn of_equals_more_than_fit_some_are_let_in() {
        let store = Store::new(Config::new(Layout::Precise), 100);
        for page in 0..4 {
            store.record(PageNumber(page), None, Millis(1000));
        }
        let histogram = store.histogram(Millis(1000));
        let recent = RecentMoves::new(16);
        let let_in = |gate: &HotSet<'_>| -> Vec<u64> {
            let admits = |&page: &u64| {
                gate.admit(&candidate(&store, page), Millis(1000))
                    .admitted()
            };
            (0..4).filter(admits).collect()
        };
        for room in 0..=5 {
            let gate = RULES.pass(&histogram, room, &recent);
            assert_eq!(let_in(&gate).len() as u64, room.min(4));
        }
        // A hotter one comes first, whenever it asks.
        store.record(PageNumber(3), None, Millis(1000));
        let histogram = store.histogram(Millis(1000));
        for (room, expected) in [(1, vec![3]), (2, vec![0, 3]), (3, vec![0, 1, 3])] {
            let gate = RULES.pass(&histogram, room, &recent);
            assert_eq!(let_in(&gate), expected);
        }
    }

    #[test]
    fn room_is_what_is_free_and_what_is_idle() {
        let space = candidate(&store(), 0).space.unwrap();
        // 100 free, 10 of them the high watermark, which a promotion leaves one page above.
        assert_eq!(room(&space, 7), 96);
        assert!(space.takes(89) && !space.takes(90));
        assert_eq!(room(&space.less(89), 7), 7);
        assert_eq!(room(&space.less(95), 7), 7);
    }

    #[test]
    fn a_move_must_pay() {
        // One access recorded is 10 made; in a window of 5000 ms that is
        // 10 * 10000 / 5000 = 20 over the horizon, each 150 ns faster: 3000 ns.
        let store = store();
        let one = candidate(&store, 0);
        assert_eq!(BENEFIT.saving_ns(&one.hotness, 5000), 3000);
        let histogram = store.histogram(Millis(1000));
        let recent = RecentMoves::new(16);
        let gate = RULES.pass(&histogram, 4, &recent);
        assert_eq!(gate.admit(&one, Millis(1000)), Verdict::HotSet);
        // Into a full node another page must leave: 6000 ns.
        let full = Candidate { space: None, ..one };
        let refused = Verdict::NoBenefit {
            saving_ns: 3000,
            cost_ns: 6000,
        };
        assert_eq!(gate.admit(&full, Millis(1000)), refused);
        let huge = Candidate {
            folio: Folio {
                pages: 2,
                ..one.folio
            },
            ..one
        };
        assert_eq!(gate.admit(&huge, Millis(1000)), refused);
    }

    #[test]
    fn a_page_that_just_moved_needs_a_margin() {
        let store = store();
        let histogram = store.histogram(Millis(1000));
        let mut recent = RecentMoves::new(16);
        for first in [PageNumber(2), PageNumber(3)] {
            recent.note(Folio { first, pages: 1 }, Moved::Down, Millis(500));
        }
        let gate = RULES.pass(&histogram, 2, &recent);
        // The cut lies just above page 1's two accesses; a margin of 32 bins, one
        // access, lifts it above page 2's three and not above page 3's four.
        let damped = Verdict::Damped { moved_ms_ago: 500 };
        assert_eq!(gate.admit(&candidate(&store, 2), Millis(1000)), damped);
        assert_eq!(
            gate.admit(&candidate(&store, 3), Millis(1000)),
            Verdict::HotSet
        );
        let later = gate.admit(&candidate(&store, 2), Millis(1501));
        assert_eq!(later, Verdict::HotSet);
    }
}
