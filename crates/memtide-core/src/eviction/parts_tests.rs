//! A cache whose granules come in page by page and leave as a whole, as a strict
//! region of the pager does.

use super::tests::numbers;
use super::*;
use std::collections::BTreeMap;

const GRANULE: u32 = 16;

struct Parts {
    eviction: Eviction,
    capacity: u64,
    /// Pages of each granule that are in memory, one bit each.
    here: BTreeMap<u32, u16>,
    held: u64,
    hits: u64,
    uses: u64,
}

impl Parts {
    fn new(capacity: u64) -> Parts {
        let mut eviction = Eviction::new(Config {
            capacity_pages: capacity,
            keep_main: true,
            second_chance: false,
        });
        eviction.add_region();
        Parts {
            eviction,
            capacity,
            here: BTreeMap::new(),
            held: 0,
            hits: 0,
            uses: 0,
        }
    }

    fn use_one(&mut self, page: u32) {
        self.uses += 1;
        let (index, bit) = (page / GRANULE, 1u16 << (page % GRANULE));
        if self.here.get(&index).is_some_and(|pages| pages & bit != 0) {
            self.hits += 1;
            return;
        }
        if self.held == self.capacity {
            self.make_room();
        }
        self.held += 1;
        let pages = self.here.entry(index).or_default();
        *pages |= bit;
        let granule = Granule { region: 0, index };
        let pages = pages.count_ones();
        self.eviction.appeared(granule, pages, |_| false);
        assert!(self.held <= self.capacity);
    }

    fn make_room(&mut self) {
        let mut chosen = Vec::new();
        self.eviction
            .choose(self.capacity / 32, 1024, &mut chosen, |_| false);
        assert!(!chosen.is_empty(), "nothing to choose from a full cache");
        for granule in chosen {
            let pages = self.here.remove(&granule.index).unwrap_or(0);
            assert_eq!(pages.count_ones(), self.eviction.pages(granule));
            self.held -= u64::from(pages.count_ones());
            self.eviction.dropped(granule);
        }
    }

    fn hit_ratio(&mut self, uses: impl Iterator<Item = u32>) -> f64 {
        (self.hits, self.uses) = (0, 0);
        uses.for_each(|page| self.use_one(page));
        self.hits as f64 / self.uses as f64
    }
}

/// 65,536 pages, room for a quarter.
const PAGES: u64 = 1 << 16;
const ROOM: u64 = PAGES / 4;

#[test]
fn a_hot_set_that_comes_page_by_page_stays() {
    // 98 % of the uses to half of what there is room for. At best
    // 0.98 + 0.02 * (16,384 - 8,192) / 57,344 = 98.3 %.
    let mut number = numbers(3);
    let mut hot = move |_| match number(100) < 98 {
        true => number(ROOM / 2) as u32,
        false => (ROOM / 2 + number(PAGES - ROOM / 2)) as u32,
    };
    let mut cache = Parts::new(ROOM);
    cache.hit_ratio((0..400_000).map(&mut hot));
    let kept = cache.hit_ratio((0..2_000_000).map(&mut hot));
    assert!(kept > 0.975, "{kept:.4}");
}

#[test]
fn uniform_use_by_pages_hits_as_often_as_memory_holds() {
    let mut number = numbers(4);
    let mut cache = Parts::new(ROOM);
    cache.hit_ratio((0..200_000).map(|_| number(PAGES) as u32));
    let kept = cache.hit_ratio((0..400_000).map(|_| number(PAGES) as u32));
    assert!((0.23..0.27).contains(&kept), "{kept:.4}");
}

#[test]
fn a_prefix_of_a_sweep_stays_though_it_comes_page_by_page() {
    // Main holds fifteen sixteenths of seven eighths of a quarter, 20 %, and is sampled.
    let mut cache = Parts::new(ROOM);
    cache.hit_ratio((0..3).flat_map(|_| 0..PAGES as u32));
    let kept = cache.hit_ratio((0..4).flat_map(|_| 0..PAGES as u32));
    assert!(kept > 0.17, "{kept:.4}");
}
