//! Several readers of the same data, each of them in turn through all of it, who have processors and a
//! disk in common.

use super::tests::{Cache, numbers};

const GRANULES: u32 = 6000;
const READERS: usize = 3;
/// What a granule costs who finds it, and what the disk takes to read it, in microseconds.
const FOUND_US: u64 = 170;
const READ_US: u64 = 180;
/// So often somebody else has the processor, and for how long at most.
const ONE_IN: u64 = 500;
const AWAY_US: u64 = 120_000;

/// Hits a use and the time that all take, where `told` says to the cache that they are several.
fn readers(told: bool, seed: u64) -> (f64, u64) {
    let mut cache = Cache::new(u64::from(GRANULES) / 2, true, true);
    cache.share(told);
    let mut number = numbers(seed);
    let mut times: [u64; READERS] = std::array::from_fn(|_| number(50_000));
    let (mut turns, mut hits, mut disk_us) = ([0u32; READERS], 0.0, 0);
    let uses = READERS as u32 * 16 * GRANULES;
    for _ in 0..uses {
        // Whose turn is not over, and who is the first in time.
        let left = (0..READERS).filter(|reader| turns[*reader] < 16 * GRANULES);
        let reader = left.min_by_key(|reader| times[*reader]).unwrap();
        let hit = cache.hit_ratio(std::iter::once(turns[reader] % GRANULES));
        hits += hit;
        let time = &mut times[reader];
        if hit == 0.0 {
            disk_us = disk_us.max(*time) + READ_US;
            *time = disk_us;
        }
        *time += FOUND_US;
        if number(ONE_IN) == 0 {
            *time += number(AWAY_US);
        }
        turns[reader] += 1;
    }
    (hits / f64::from(uses), times.into_iter().max().unwrap_or(0))
}

/// Alone each of them would find half: all else is that they meet.
#[test]
fn readers_of_the_same_meet_where_what_one_reads_stays_for_the_next() {
    for seed in 1..=3 {
        let (apart, apart_us) = readers(false, seed);
        let (together, together_us) = readers(true, seed);
        println!("{seed}: hits {apart:.2} and {together:.2}, time {apart_us} and {together_us} us");
        assert!(together > 0.6 && together > apart, "{apart} {together}");
        assert!(together_us < apart_us);
    }
}
