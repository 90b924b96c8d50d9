//! Cross-section lookups: XSBench's pattern (the weighted interleave series).
//!
//! A lookup draws an energy and a material. It searches the unionised energy grid by halves (the first
//! halvings stay in caches, the last ones go to memory), reads the row of indices that belongs to the
//! energy, and then gathers two neighbouring points, 96 bytes, from the grid of each nuclide of the
//! material. Fuel, 14 % of lookups, has 321 nuclides; the other eleven materials have 4 to 27,
//! 12.5 on average by their shares. The lookups of a thread do not depend on each other.

use super::checks::{some_operations, some_threads};
use super::pace::Pace;
use super::places::START_VPN;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The benchmark's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XsbenchSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run, and where memory comes from first.
    pub node: u16,
    /// The unionised grid with its rows of indices.
    pub unionised_grid: Bytes,
    /// The grids of all nuclides.
    pub nuclide_grids: Bytes,
    /// Lookups of all threads.
    pub lookups: u64,
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

/// Halvings that go to memory: the grid of the largest problem has 2^26.3 energies of 8 bytes; the
/// first 2^18 of the search tree, a line each, fit into caches.
const PROBES: u32 = 8;
/// A row has 355 indices of 4 bytes; the nuclides of fuel lie all over it.
const ROW_LINES: u32 = 22;
const FUEL_NUCLIDES: u32 = 321;
const FUEL_SHARE: u32 = 65_536 * 14 / 100;
/// 12.5 on average: 12 or 13.
const OTHER_NUCLIDES: u32 = 12;

impl XsbenchSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("node", self.node)?;
        some_threads(self.threads)?;
        want(
            self.lookups > 0,
            "lookups",
            "0 lookups do nothing; give at least 1",
        )?;
        some_operations(self.ops_per_access)?;
        places.fit(
            "unionised_grid",
            self.unionised_grid.0.saturating_add(self.nuclide_grids.0),
        )
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Xsbench) {
        let sizes = [
            pages(self.unionised_grid, scale, self.huge),
            pages(self.nuclide_grids, scale, self.huge),
        ];
        let region = |name, count| {
            let region = places.region(name, count, self.node, self.node);
            region.in_huge_pages(self.huge)
        };
        let mut regions = vec![
            region("unionised grid", sizes[0]),
            region("nuclide grids", sizes[1]),
        ];
        regions[1].start_vpn = START_VPN + u64::from(sizes[0]).next_multiple_of(512);
        for region in &mut regions {
            region.policy = places.default_policy();
            region.policy_after = None;
        }
        let threads = self.threads as usize;
        let plan = Plan {
            regions,
            threads: vec![
                ThreadPlan::on(
                    self.node,
                    Pattern::Random,
                    self.ops_per_access,
                    self.think
                );
                threads
            ],
            ends_at_ns: None,
        };
        let each = self.lookups * MEAN_ACCESSES_100 / 100 / u64::from(scale) / threads as u64;
        let xsbench = Xsbench {
            bases: [0, 0],
            pages: sizes,
            left: vec![Lookup::default(); threads],
            node: self.node,
            pace: Pace::new(threads, each),
        };
        (plan, xsbench)
    }
}

/// Accesses of 100 lookups: 8 probes, a row, and 0.14 * 321 + 0.86 * 12.5 = 55.7 gathers each.
const MEAN_ACCESSES_100: u64 = 6470;

/// What is left of a thread's lookup.
#[derive(Clone, Copy, Debug, Default)]
struct Lookup {
    probes: u32,
    row: bool,
    fuel: bool,
    gathers: u32,
}

/// The benchmark, running.
#[derive(Clone, Debug)]
pub(super) struct Xsbench {
    bases: [Slot; 2],
    pages: [u32; 2],
    left: Vec<Lookup>,
    node: u16,
    pace: Pace,
}

/// A random page and line out of `pages`, by one random number.
#[inline]
fn somewhere(bits: u64, base: Slot, pages: u32, lines: u32) -> Access {
    let page = ((bits >> 32) * u64::from(pages)) >> 32;
    let line = (bits as u32 >> 16 & 63).min(64 - lines);
    Access::new(base + page as u32, line, lines, false)
}

impl Acts for Xsbench {
    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = [slots[0], slots[1]];
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let count = self.pace.take(thread, batch.len());
        let mut lookup = self.left[thread];
        for access in &mut batch[..count] {
            let bits = rng.bits();
            if lookup.gathers == 0 {
                let fuel = (bits as u32 & 0xffff) < FUEL_SHARE;
                lookup = Lookup {
                    probes: PROBES,
                    row: true,
                    fuel,
                    gathers: match fuel {
                        true => FUEL_NUCLIDES,
                        false => OTHER_NUCLIDES + (bits as u32 >> 14 & 1),
                    },
                };
            }
            *access = if lookup.probes > 0 {
                lookup.probes -= 1;
                somewhere(bits, self.bases[0], self.pages[0], 1)
            } else if lookup.row {
                lookup.row = false;
                let lines = if lookup.fuel {
                    ROW_LINES
                } else {
                    OTHER_NUCLIDES
                };
                somewhere(bits, self.bases[0], self.pages[0], lines)
            } else {
                lookup.gathers -= 1;
                somewhere(bits, self.bases[1], self.pages[1], 2)
            };
        }
        self.left[thread] = lookup;
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        self.pace.done()
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        // Lines a lookup: 8 + 0.14 * 22 + 0.86 * 12 = 21.4 and 2 * 55.7 = 111.4.
        let lines = if region == 0 { 21.4 } else { 111.4 };
        Truth {
            rate: lines / self.pages[region.min(1)] as f32,
            node: self.node,
        }
    }
}
