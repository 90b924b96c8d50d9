//! A program that touches each of its pages once and stops; where they lie is the result (the
//! distribution check of the weighted interleave series' thread).
//!
//! It maps one large block, fills it, then takes small blocks from the heap, a page each.

use super::{
    Access, Acts, Filled, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth, Wrong, want,
};
use crate::page::Slot;
use crate::rng::Rng;
use serde::Deserialize;

/// The program's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCountSpec {
    /// The node on whose CPU it runs.
    pub node: u16,
    /// Its mappings, in the order in which they are filled.
    pub mappings: Vec<Mapping>,
}

/// A mapping.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Its name.
    pub name: String,
    /// Its address, which decides where an interleave begins.
    pub address: u64,
    /// Base pages.
    pub pages: u32,
}

impl PageCountSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        want(!self.mappings.is_empty(), "mappings", "give at least one")?;
        for mapping in &self.mappings {
            places.fit("pages", u64::from(mapping.pages) * 4096)?;
            let aligned = mapping.address % 4096 == 0;
            want(
                aligned,
                "address",
                "is not at a page's beginning; give a multiple of 0x1000",
            )?;
        }
        let mut ranges: Vec<(u64, u64, &str)> = self
            .mappings
            .iter()
            .map(|mapping| {
                let first = mapping.address / 4096;
                (
                    first,
                    first + u64::from(mapping.pages),
                    mapping.name.as_str(),
                )
            })
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((_, end, one), (first, _, other)) = (pair[0], pair[1]);
            let why = format!("\"{one}\" and \"{other}\" overlap; move one of them");
            want(end <= first, "mappings", why)?;
        }
        Ok(())
    }

    pub(super) fn build(&self, places: &Places) -> (Plan, PageCount) {
        let regions = self.mappings.iter().map(|mapping| RegionPlan {
            start_vpn: mapping.address >> 12,
            policy: places.default_policy(),
            policy_after: None,
            populated_from: None,
            ..places.region(&mapping.name, mapping.pages, self.node, self.node)
        });
        let plan = Plan {
            regions: regions.collect(),
            threads: vec![ThreadPlan {
                space: 0,
                nodes: vec![self.node],
                pattern: Pattern::Sequential,
                ops_per_access: 64,
                think_ns: 0.0,
                misses_at_once: None,
                group: 0,
            }],
            ends_at_ns: None,
        };
        let page_count = PageCount {
            slots: Vec::new(),
            pages: self.mappings.iter().map(|mapping| mapping.pages).collect(),
            at: (0, 0),
            touched: 0,
            node: self.node,
        };
        (plan, page_count)
    }
}

/// The program, running.
#[derive(Clone, Debug)]
pub(super) struct PageCount {
    slots: Vec<Slot>,
    pages: Vec<u32>,
    /// Mapping and page.
    at: (usize, u32),
    touched: u64,
    node: u16,
}

impl Acts for PageCount {
    fn mapped(&mut self, slots: &[Slot]) {
        self.slots = slots.to_vec();
    }

    fn fill(&mut self, _: usize, _: u64, _: &mut Rng, batch: &mut [Access]) -> Filled {
        let mut count = 0;
        while count < batch.len() && self.at.0 < self.pages.len() {
            let (mapping, page) = self.at;
            if page == self.pages[mapping] {
                self.at = (mapping + 1, 0);
                continue;
            }
            batch[count] = Access::new(self.slots[mapping] + page, 0, 1, true);
            self.at.1 += 1;
            count += 1;
        }
        self.touched += count as u64;
        Filled::of(count)
    }

    fn done(&self) -> f64 {
        let all: u64 = self.pages.iter().map(|&pages| u64::from(pages)).sum();
        self.touched as f64 / all.max(1) as f64
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth {
            rate: 1.0,
            node: self.node,
        }
    }
}
