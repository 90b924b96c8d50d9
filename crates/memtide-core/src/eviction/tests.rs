//! A cache of one-page granules that is told of every use, as a pager would see
//! it: a use of an unmapped granule maps it, one of an absent granule reads it.

use super::*;
use std::collections::HashSet;

pub(super) struct Cache {
    eviction: Eviction,
    config: Config,
    resident: HashSet<u32>,
    /// In memory and not mapped; a use takes it out.
    unmapped: HashSet<u32>,
    /// Chosen and unmapped, in order.
    leaving: VecDeque<u32>,
    batch: usize,
    hits: u64,
    uses: u64,
}

fn granule(index: u32) -> Granule {
    Granule { region: 0, index }
}

impl Cache {
    pub(super) fn new(capacity: u64, keep_main: bool, second_chance: bool) -> Cache {
        let config = Config {
            capacity_pages: capacity,
            keep_main,
            second_chance,
        };
        let mut eviction = Eviction::new(config);
        assert_eq!(eviction.add_region(), 0);
        Cache {
            eviction,
            config,
            resident: HashSet::new(),
            unmapped: HashSet::new(),
            leaving: VecDeque::new(),
            batch: (capacity as usize / 32).max(1),
            hits: 0,
            uses: 0,
        }
    }

    fn use_one(&mut self, index: u32) {
        self.uses += 1;
        if self.resident.contains(&index) {
            self.hits += 1;
            self.unmapped.remove(&index);
            return;
        }
        while self.resident.len() as u64 >= self.config.capacity_pages {
            self.make_room();
        }
        self.resident.insert(index);
        let unmapped = &self.unmapped;
        let used = |g: Granule| !unmapped.contains(&g.index);
        self.eviction.appeared(granule(index), 1, used);
    }

    fn make_room(&mut self) {
        while let Some(index) = self.leaving.pop_front() {
            let unmapped = &self.unmapped;
            let used = |g: Granule| !unmapped.contains(&g.index);
            if used(granule(index)) {
                self.eviction.used(granule(index), used);
            } else {
                self.eviction.dropped(granule(index));
                self.resident.remove(&index);
                self.unmapped.remove(&index);
            }
        }
        let mut chosen = Vec::new();
        let unmapped = &self.unmapped;
        let used = |g: Granule| !unmapped.contains(&g.index);
        let batch = self.batch;
        self.eviction.choose(batch as u64, batch, &mut chosen, used);
        assert!(!chosen.is_empty(), "nothing to choose from a full cache");
        self.leaving.extend(chosen.iter().map(|g| g.index));
        if self.config.second_chance && self.config.keep_main {
            self.eviction.probe(batch / 4 + 1, &mut chosen);
        }
        for g in chosen {
            self.unmapped.insert(g.index);
        }
    }

    pub(super) fn share(&mut self, shared: bool) {
        self.eviction.share(shared);
    }

    pub(super) fn hit_ratio(&mut self, uses: impl Iterator<Item = u32>) -> f64 {
        (self.hits, self.uses) = (0, 0);
        uses.for_each(|index| self.use_one(index));
        self.hits as f64 / self.uses as f64
    }
}

/// SplitMix64, so that the tests need no crate for numbers.
pub(super) fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

fn sweeps(granules: u32, turns: u32) -> impl Iterator<Item = u32> {
    (0..turns).flat_map(move |_| 0..granules)
}

#[test]
fn a_prefix_stays_where_everything_is_used_in_turn() {
    // 4,000 granules, room for 1,000: main holds 875, so at best 875 / 4,000 = 22 %
    // of the uses are hits; in order of arrival none is.
    for second_chance in [true, false] {
        let mut cache = Cache::new(1000, true, second_chance);
        cache.hit_ratio(sweeps(4000, 2));
        let kept = cache.hit_ratio(sweeps(4000, 4));
        assert!(kept > 0.19, "second chance {second_chance}: {kept:.3}");
    }
    let mut fifo = Cache::new(1000, false, true);
    assert!(fifo.hit_ratio(sweeps(4000, 4)) < 0.01);
    // Three quarters resident: 0.875 * 0.75 = 66 %.
    let mut cache = Cache::new(3000, true, true);
    cache.hit_ratio(sweeps(4000, 2));
    let kept = cache.hit_ratio(sweeps(4000, 4));
    assert!(kept > 0.6, "{kept:.3}");
}

#[test]
fn a_hot_set_stays_and_a_scan_does_not_take_its_place() {
    // 98 % of the uses to 500 of 4,000 granules, room for 1,000. At best
    // 0.98 + 0.02 * (1,000 - 500) / 3,500 = 98.3 %.
    for second_chance in [true, false] {
        let mut cache = Cache::new(1000, true, second_chance);
        let mut number = numbers(1);
        let mut hot = move |_| match number(100) < 98 {
            true => number(500) as u32,
            false => 500 + number(3500) as u32,
        };
        cache.hit_ratio((0..100_000).map(&mut hot));
        let ratio = cache.hit_ratio((0..100_000).map(&mut hot));
        assert!(ratio > 0.97, "second chance {second_chance}: {ratio:.3}");
        cache.hit_ratio(sweeps(4000, 1));
        let after = cache.hit_ratio((0..20_000).map(&mut hot));
        // Without a second chance every sixteenth victim of the scan was a sample of main.
        let least = if second_chance { 0.95 } else { 0.93 };
        assert!(after > least, "second chance {second_chance}: {after:.3}");
    }
}

#[test]
fn a_set_that_is_used_no_more_is_replaced() {
    for second_chance in [true, false] {
        let mut cache = Cache::new(1000, true, second_chance);
        let mut number = numbers(2);
        cache.hit_ratio((0..50_000).map(|_| number(800) as u32));
        let mut later = (0..400_000).map(|_| 2000 + number(800) as u32);
        cache.hit_ratio(later.by_ref().take(350_000));
        let ratio = cache.hit_ratio(later);
        assert!(ratio > 0.9, "second chance {second_chance}: {ratio:.3}");
    }
}

#[test]
fn uniform_use_hits_as_often_as_memory_holds() {
    // 1,000 of 4,000: a quarter, whatever is kept.
    for second_chance in [true, false] {
        let mut cache = Cache::new(1000, true, second_chance);
        let mut number = numbers(3);
        let ratio = cache.hit_ratio((0..100_000).map(|_| number(4000) as u32));
        assert!((0.22..0.28).contains(&ratio), "{second_chance}: {ratio:.3}");
    }
}

#[test]
fn random_events_keep_the_books() {
    let mut number = numbers(4);
    for _ in 0..200 {
        let config = Config {
            capacity_pages: 64 + number(200),
            keep_main: number(4) > 0,
            second_chance: number(2) > 0,
        };
        let mut eviction = Eviction::new(config);
        let mut regions = vec![eviction.add_region()];
        let mut chosen = Vec::new();
        for _ in 0..400 {
            let region = regions[number(regions.len() as u64) as usize];
            let some = Granule {
                region,
                index: number(64) as u32,
            };
            let bits = number(u64::MAX);
            let used = |g: Granule| bits >> (g.index % 64) & 1 == 1;
            match number(8) {
                0..4 => {
                    eviction.appeared(some, 1 + number(16) as u32, used);
                }
                4 => eviction.choose(number(200), 8, &mut chosen, used),
                5 => eviction.probe(4, &mut Vec::new()),
                6 => match chosen.pop() {
                    Some(g) if number(3) == 0 => eviction.used(g, used),
                    Some(g) if number(3) == 0 => eviction.put_back(g),
                    Some(g) => eviction.dropped(g),
                    None => {}
                },
                _ if number(20) == 0 => {
                    eviction.remove_region(region);
                    chosen.retain(|g| g.region != region);
                    let again = eviction.add_region();
                    assert_eq!(again, region, "numbers are used again");
                }
                _ if regions.len() < 3 => regions.push(eviction.add_region()),
                _ => {}
            }
            let of_main = |r: &&Record| matches!(r.place, Place::Main | Place::Probed);
            let records = eviction.regions.iter().flatten().flat_map(Records::iter);
            let main: u64 = records.filter(of_main).map(|r| u64::from(r.pages)).sum();
            assert_eq!(main, eviction.main_pages);
            assert!(chosen.iter().all(|g| eviction.holds(*g)));
        }
        // Whatever is in memory can be chosen.
        eviction.choose(u64::MAX, usize::MAX, &mut chosen, |_| false);
        let records = eviction.regions.iter().flatten().flat_map(Records::iter);
        let places = records.map(|r| r.place);
        assert!(
            places
                .into_iter()
                .all(|p| matches!(p, Place::Absent | Place::Chosen))
        );
    }
}
