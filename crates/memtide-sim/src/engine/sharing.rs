//! Lines that several caches want: how often a cached line is stale, and how often a missing one is in
//! another cache.
//!
//! Each cache of the machine is simulated for itself, by tags. What stores elsewhere do to its lines is
//! reckoned: of the accesses to a region a share w are stores, and they come from K caches alike. Going
//! back in time from an access, the line is still valid if one of the own cache's accesses comes before
//! a store of another's: (1/K) / (1/K + (1-1/K) w). And a line that one has not is with another if any
//! of the K w storing caches kept it: 1 - (1-h)^(K w), h being the share of look-ups that find their own
//! tag. With one cache, or without stores, nothing changes.

use super::access::{Seen, Shared};
use crate::hardware::Hardware;
use crate::workload::Plan;

/// How much of an estimate a quantum's figure replaces.
const WEIGHT: f64 = 1.0 / 8.0;
/// Quanta after which a cache that did not access a region is forgotten.
const WINDOW: u32 = 16;

/// Sharing of all regions.
pub struct Sharing {
    /// For the access path; empty if one cache is all there is.
    pub shared: Vec<Shared>,
    /// What the access path saw this quantum.
    pub seen: Vec<Seen>,
    before: Vec<u64>,
    regions: Vec<Region>,
    quanta: u32,
}

#[derive(Clone, Debug, Default)]
struct Region {
    /// Caches in this window and in the one before it, as bits.
    caches: [u128; 2],
    hit_share: Option<f64>,
    store_share: Option<f64>,
}

impl Sharing {
    /// Nothing is known of the regions of `plan` yet.
    pub fn new(plan: &Plan, hw: &Hardware) -> Sharing {
        let mut caches = hw
            .running_threads()
            .map(|(_, cpu)| hw.cpus[cpu as usize].domain);
        let first = caches.next();
        let several = caches.any(|cache| Some(cache) != first) || movable(plan, hw);
        let regions = if several { plan.regions.len() } else { 0 };
        Sharing {
            shared: vec![chances(1.0, 0.0, 0.0); regions],
            seen: vec![Seen::default(); regions],
            before: vec![0; regions],
            regions: vec![Region::default(); regions],
            quanta: 0,
        }
    }

    /// A thread of cache `domain` ran: notes which regions it accessed.
    pub fn ran(&mut self, domain: u32) {
        for ((seen, before), region) in self
            .seen
            .iter()
            .zip(&mut self.before)
            .zip(&mut self.regions)
        {
            if seen.accesses != *before {
                *before = seen.accesses;
                region.caches[0] |= 1 << (domain % 128);
            }
        }
    }

    /// Estimates anew.
    pub fn end_quantum(&mut self) {
        self.quanta += 1;
        let turn = self.quanta.is_multiple_of(WINDOW);
        for (index, region) in self.regions.iter_mut().enumerate() {
            let seen = std::mem::take(&mut self.seen[index]);
            self.before[index] = 0;
            follow(&mut region.hit_share, seen.hits, seen.lines);
            follow(&mut region.store_share, seen.stores, seen.accesses);
            let caches = (region.caches[0] | region.caches[1]).count_ones().max(1);
            if turn {
                region.caches = [0, region.caches[0]];
            }
            let (h, w) = (region.hit_share, region.store_share);
            self.shared[index] = chances(f64::from(caches), w.unwrap_or(0.0), h.unwrap_or(0.0));
        }
    }
}

fn movable(plan: &Plan, hw: &Hardware) -> bool {
    let mut nodes = plan.threads.iter().flat_map(|thread| &thread.nodes);
    let first = nodes.next();
    hw.caches.len() > 1 && nodes.any(|node| Some(node) != first)
}

fn follow(estimate: &mut Option<f64>, part: u64, of: u64) {
    if of > 0 {
        let now = part as f64 / of as f64;
        let old = estimate.unwrap_or(now);
        *estimate = Some(old + WEIGHT * (now - old));
    }
}

/// The chances for `k` caches, store share `w`, own hit share `h`.
fn chances(k: f64, w: f64, h: f64) -> Shared {
    let scaled = |chance: f64| (chance * 65_536.0).round() as u32;
    if k <= 1.0 || w == 0.0 {
        return Shared {
            valid: 65_536,
            elsewhere: 0,
        };
    }
    let own = 1.0 / k;
    Shared {
        valid: scaled(own / (1.0 - (1.0 - own) * (1.0 - w))),
        elsewhere: scaled(1.0 - (1.0 - h).powf(k * w)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cache_or_no_stores_change_nothing() {
        let exact = Shared {
            valid: 65_536,
            elsewhere: 0,
        };
        assert_eq!(chances(1.0, 0.7, 0.4), exact);
        assert_eq!(chances(8.0, 0.0, 0.4), exact);
    }

    #[test]
    fn stores_of_others_make_lines_stale() {
        // K = 4, w = 1: the last of all stores was one's own with 1/4.
        assert_eq!(chances(4.0, 1.0, 0.0).valid, 16_384);
        // K = 2, w = 1/2: (1/2) / (1/2 + 1/4) = 2/3 of 65,536.
        assert_eq!(chances(2.0, 0.5, 0.5).valid, 43_691);
        // One other cache's worth of stores (K w = 1) with h = 1/2: half of the lines.
        assert_eq!(chances(2.0, 0.5, 0.5).elsewhere, 32_768);
    }
}
