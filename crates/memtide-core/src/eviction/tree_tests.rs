//! Pages of a tree in a file that is mapped: each look-up reads a leaf and a page of data, and leaves lie
//! scattered among the data that came with them, as in LMDB.

use super::tests::numbers;
use super::*;
use std::collections::BTreeMap;

const GRANULE: u32 = 16;
/// A leaf tells where so many pages of data are, and lies behind them.
const OF_A_LEAF: u32 = 150;

#[derive(Clone, Copy, Default)]
struct Held {
    here: u16,
    mapped: u16,
}

struct Tree {
    eviction: Eviction,
    capacity: u64,
    granules: BTreeMap<u32, Held>,
    held: u64,
    /// Chosen and unmapped.
    unmapped: Vec<Granule>,
    misses: u64,
}

impl Tree {
    fn new(capacity: u64) -> Tree {
        let mut eviction = Eviction::new(Config {
            capacity_pages: capacity,
            keep_main: true,
            second_chance: true,
        });
        eviction.add_region();
        Tree {
            eviction,
            capacity,
            granules: BTreeMap::new(),
            held: 0,
            unmapped: Vec::new(),
            misses: 0,
        }
    }

    fn touch(&mut self, page: u32) {
        let (index, bit) = (page / GRANULE, 1u16 << (page % GRANULE));
        let held = self.granules.entry(index).or_default();
        held.mapped |= bit;
        if held.here & bit != 0 {
            return;
        }
        self.misses += 1;
        held.here |= bit;
        self.held += 1;
        let pages = held.here.count_ones();
        let granules = &self.granules;
        let used = |g: Granule| granules.get(&g.index).is_some_and(|held| held.mapped != 0);
        self.eviction
            .appeared(Granule { region: 0, index }, pages, used);
        let batch = self.capacity / 32;
        if self.held + batch > self.capacity && !self.unmapped.is_empty() {
            self.drop_unmapped();
        }
        if self.held + 2 * batch > self.capacity && self.unmapped.is_empty() {
            self.unmap();
        }
    }

    fn unmap(&mut self) {
        let mut chosen = Vec::new();
        let granules = &self.granules;
        let used = |g: Granule| granules.get(&g.index).is_some_and(|held| held.mapped != 0);
        self.eviction
            .choose(self.capacity / 32, usize::MAX, &mut chosen, used);
        self.unmapped = chosen.clone();
        self.eviction.probe(chosen.len() / 8 + 1, &mut chosen);
        for granule in chosen {
            self.granules.entry(granule.index).or_default().mapped = 0;
        }
    }

    fn drop_unmapped(&mut self) {
        for granule in std::mem::take(&mut self.unmapped) {
            let granules = &self.granules;
            let used = |g: Granule| granules.get(&g.index).is_some_and(|held| held.mapped != 0);
            if used(granule) {
                self.eviction.used(granule, used);
                continue;
            }
            let gone = self.granules.remove(&granule.index).unwrap_or_default();
            self.held -= u64::from(gone.here.count_ones());
            self.eviction.dropped(granule);
        }
    }
}

/// Least recently used, by pages.
fn misses_of_lru(capacity: u64, uses: &[u32]) -> u64 {
    let (mut last, mut order) = (BTreeMap::new(), BTreeMap::new());
    let mut misses = 0;
    for (now, page) in uses.iter().enumerate() {
        match last.insert(page, now) {
            Some(before) => _ = order.remove(&before),
            None => {
                misses += 1;
                if last.len() as u64 > capacity {
                    let (_, oldest) = order.pop_first().unwrap();
                    last.remove(&oldest);
                }
            }
        }
        order.insert(now, page);
    }
    misses
}

/// The first look-ups decide here: what is in memory when it is full for the first time was all used once.
#[test]
fn leaves_stay_soon_after_memory_is_full() {
    const DATA: u32 = 48_000;
    const LOOK_UPS: usize = 50_000;
    let capacity = u64::from(DATA) / 6;
    for seed in 1..=3 {
        let mut number = numbers(seed);
        let mut uses = Vec::new();
        for _ in 0..LOOK_UPS {
            let (leaf, of_leaf) = (
                number(u64::from(DATA / OF_A_LEAF)) as u32,
                number(OF_A_LEAF.into()) as u32,
            );
            let first = leaf * (OF_A_LEAF + 1);
            uses.extend([first + OF_A_LEAF, first + of_leaf]);
        }
        let mut tree = Tree::new(capacity);
        uses.iter().for_each(|page| tree.touch(*page));
        let (ours, least_recent) = (tree.misses, misses_of_lru(capacity, &uses));
        println!("{seed}: {ours} misses, of the least recently used {least_recent}");
        // A sixteenth is kept free, and granules leave as a whole.
        assert!(ours * 100 <= least_recent * 105);
    }
}
