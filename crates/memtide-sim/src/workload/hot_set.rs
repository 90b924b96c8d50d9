//! A small hot set in a large memory: what whoever watches memory has to find.
//!
//! All accesses go to the hot set, at random and to all of its lines, without a pause. It lies in one
//! piece behind the first quarter of the memory, or in pieces of a given size spread over all of it, as
//! evenly as whole huge pages allow where it has these. The run lasts as long as it is told to; how many accesses were made is its measure.

use super::checks::{some_operations, some_threads, stores_of_100};
use super::random::share_of_65536;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::{HUGE_PAGES, Slot};
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// Lines of a page.
const LINES: u32 = 64;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotSetSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory they share.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// What of it is hot.
    pub hot: Bytes,
    /// The size of the pieces in which that lies; one if left out.
    pub piece: Option<Bytes>,
    /// How long.
    pub time: Nanos,
    /// How many of 100 accesses store.
    pub stores_percent: u32,
    /// Operations that retire per access.
    pub ops_per_access: u32,
    /// Time per access that needs no memory.
    pub think: Nanos,
    /// Whether its memory has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

impl HotSetSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        let fits = self.hot.0 > 0 && self.hot.0 <= self.memory.0;
        want(
            fits,
            "hot",
            "more than `memory`, or nothing; make it smaller",
        )?;
        let piece = self.piece.unwrap_or(self.hot).0;
        let fits = piece > 0 && piece <= self.hot.0;
        want(
            fits,
            "piece",
            "more than `hot`, or nothing; make it smaller",
        )?;
        want(self.time.0 >= 1e6, "time", "give at least 1 ms")?;
        some_threads(self.threads)?;
        some_operations(self.ops_per_access)?;
        stores_of_100(self.stores_percent)
    }

    /// Where the hot set lies at scale 1/`scale`.
    pub(crate) fn layout(&self, scale: u32) -> Layout {
        let count = pages(self.memory, scale, self.huge);
        let hot = pages(self.hot, scale, self.huge).min(count);
        let piece = self
            .piece
            .map_or(hot, |piece| pages(piece, scale, self.huge))
            .min(hot);
        let pieces = (hot / piece).max(1);
        // Pieces of huge pages begin with one.
        let whole = match self.huge && piece >= HUGE_PAGES {
            true => HUGE_PAGES,
            false => 1,
        };
        let every = (count / pieces / whole * whole).max(piece);
        let first = match pieces {
            1 => (count / 4 / whole * whole).min(count - hot),
            _ => 0,
        };
        Layout {
            count,
            first,
            pieces,
            piece,
            every,
        }
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, HotSet) {
        let Layout {
            count,
            first,
            pieces,
            piece,
            every,
        } = self.layout(scale);
        let plan = Plan {
            regions: vec![
                places
                    .region("memory", count, self.node, self.on)
                    .in_huge_pages(self.huge),
            ],
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Random,
                    self.ops_per_access,
                    self.think
                );
                self.threads as usize
            ],
            ends_at_ns: Some(self.time.0 as u64),
        };
        let set = HotSet {
            base: 0,
            first,
            pieces,
            piece,
            every,
            stores: share_of_65536(self.stores_percent),
            node: self.node,
        };
        (plan, set)
    }
}

/// Where a hot set lies, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// All of the memory.
    pub count: u32,
    /// The first hot page.
    pub first: u32,
    /// Pieces of hot pages, the length of each, and from one's first page to the next one's.
    pub pieces: u32,
    pub piece: u32,
    pub every: u32,
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct HotSet {
    base: Slot,
    first: u32,
    pieces: u32,
    piece: u32,
    every: u32,
    stores: u32,
    node: u16,
}

impl Acts for HotSet {
    fn mapped(&mut self, slots: &[Slot]) {
        self.base = slots[0];
    }

    fn fill(&mut self, _: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        for access in &mut *batch {
            let page = rng.below(self.pieces * self.piece);
            let page = self.first + page / self.piece * self.every + page % self.piece;
            let bits = rng.bits();
            let (line, stores) = ((bits >> 32) as u32 % LINES, (bits & 0xffff) as u32);
            *access = Access::new(self.base + page, line, 1, stores < self.stores);
        }
        Filled::Accesses(batch.len())
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn truth(&self, _: usize, page: u32, _: u64) -> Truth {
        let at = page.wrapping_sub(self.first);
        let hot =
            page >= self.first && at / self.every < self.pieces && at % self.every < self.piece;
        Truth {
            rate: if hot { 1.0 } else { 0.0 },
            node: self.node,
        }
    }
}
