//! Updates at random, most of them to a hot part: the GUPS of the papers on tiering (HeMem's, and with
//! objects of a line Colloid's).
//!
//! An update reads a word or a line and writes it back. So many of 100 go to the hot part, the others
//! to all of the memory. The hot part is a mapping of its own behind the rest: a targeted interleave
//! takes it alone, so that a row can say by hand what share of it lies on which node. The run lasts as
//! long as it is told to; how many updates were made is its measure.

use super::checks::{some_operations, some_threads};
use super::random::share_of_65536;
use super::{Access, Acts, Filled, Pattern, Places, Plan, ThreadPlan, Truth, Wrong, pages, want};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// Lines of a page.
const LINES: u32 = 64;

/// The workload's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GupsSpec {
    /// How many threads.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The memory they share, the hot part included.
    pub memory: Bytes,
    /// The node it is populated on.
    pub on: u16,
    /// Whether it has huge pages.
    #[serde(default)]
    pub huge: bool,
    /// The size of the hot part.
    pub hot: Bytes,
    /// How many of 100 updates go to it.
    pub hot_percent: u32,
    /// How long.
    pub time: Nanos,
    /// Operations that retire per update.
    pub ops_per_access: u32,
    /// Time per update that needs no memory.
    pub think: Nanos,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

impl GupsSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("on", self.on)?;
        places.fit("memory", self.memory.0)?;
        let fits = self.hot.0 > 0 && self.hot.0 < self.memory.0;
        want(
            fits,
            "hot",
            "all of `memory` or more, or nothing; make it smaller than `memory`",
        )?;
        want(
            self.hot_percent <= 100,
            "hot_percent",
            "at most 100 of 100 updates",
        )?;
        want(self.time.0 >= 1e6, "time", "give at least 1 ms")?;
        some_threads(self.threads)?;
        some_operations(self.ops_per_access)
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Gups) {
        let hot = pages(self.hot, scale, self.huge);
        let rest = pages(Bytes(self.memory.0 - self.hot.0), scale, self.huge);
        let mut regions = [("rest", rest), ("hot", hot)].map(|(name, pages)| {
            let mut region = places.region(name, pages, self.node, self.on);
            region.bandwidth = name == "hot";
            region.in_huge_pages(self.huge)
        });
        regions[1].start_vpn += u64::from(rest).next_multiple_of(512);
        let plan = Plan {
            regions: regions.into(),
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
        let gups = Gups {
            rest_base: 0,
            hot_base: 0,
            rest,
            hot,
            hot_share: share_of_65536(self.hot_percent),
            node: self.node,
        };
        (plan, gups)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Gups {
    rest_base: Slot,
    hot_base: Slot,
    /// Pages of each.
    rest: u32,
    hot: u32,
    hot_share: u32,
    node: u16,
}

impl Acts for Gups {
    fn mapped(&mut self, slots: &[Slot]) {
        [self.rest_base, self.hot_base] = [slots[0], slots[1]];
    }

    fn fill(&mut self, _: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        for access in &mut *batch {
            let bits = rng.bits();
            let page = match (bits as u32 & 0xffff) < self.hot_share {
                true => self.rest + rng.below(self.hot),
                false => rng.below(self.rest + self.hot),
            };
            let slot = match page.checked_sub(self.rest) {
                Some(hot) => self.hot_base + hot,
                None => self.rest_base + page,
            };
            *access = Access::new(slot, (bits >> 32) as u32 % LINES, 1, true);
        }
        Filled::Accesses(batch.len())
    }

    fn done(&self) -> f64 {
        0.0
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        let anywhere = (65_536 - self.hot_share) as f32 / (self.rest + self.hot) as f32;
        let hot = self.hot_share as f32 / self.hot as f32;
        Truth {
            rate: anywhere + if region == 1 { hot } else { 0.0 },
            node: self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::small_machine;

    #[test]
    fn updates_go_to_the_hot_part_as_often_as_told_and_only_it_is_targeted() {
        let places = Places::new(&small_machine());
        let text = "threads = 2\nnode = 0\nmemory = '4 MiB'\non = 0\nhot = '1 MiB'\nhot_percent = 90\n\
            time = '1 s'\nops_per_access = 1\nthink = '0 ns'";
        let spec: GupsSpec = toml::from_str(text).unwrap();
        spec.check(&places).unwrap();
        let (plan, mut gups) = spec.build(&places, 1);
        let kinds: Vec<(&str, u32, bool)> = (plan.regions.iter())
            .map(|region| (&*region.name, region.pages, region.bandwidth))
            .collect();
        assert_eq!(kinds, [("rest", 768, false), ("hot", 256, true)]);
        gups.mapped(&[0, 768]);
        let mut rng = Rng::new(1, 1);
        let mut counts = [0u32; 1024];
        let mut batch = [Access(0); 4096];
        for _ in 0..256 {
            assert_eq!(
                gups.fill(0, 0, &mut rng, &mut batch),
                Filled::Accesses(4096)
            );
            for access in batch {
                assert!(access.is_write() && access.is_one_line());
                counts[access.slot() as usize] += 1;
            }
        }
        // 90 of 100, and a quarter of the other ten: 92.5 of 100. A million draws: 0.03 points are one
        // standard deviation.
        let hot: u32 = counts[768..].iter().sum();
        let share = f64::from(hot) / f64::from(1 << 20);
        assert!((share - 0.925).abs() < 0.0015, "{share}");
        // The truth says the same.
        let rate = |region| f64::from(gups.truth(region, 0, 0).rate);
        let told = 256.0 * rate(1) / (256.0 * rate(1) + 768.0 * rate(0));
        assert!((told - 0.925).abs() < 1e-4, "{told}");
        assert!(counts.iter().all(|&count| count > 0));
        let all = GupsSpec {
            hot: Bytes(4 << 20),
            ..spec
        };
        assert_eq!(all.check(&places).unwrap_err().key, "hot");
    }
}
