//! Runs the swarm for as long as the environment says, and names what repeats a failure.
#![expect(
    clippy::disallowed_methods,
    reason = "it runs as long as it is told to"
)]

#[path = "swarm/mod.rs"]
mod cases;

use cases::{Choices, Ended, case, run};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: give a whole number")),
    )
}

/// On every processor, for `MEMTIDE_SWARM_SECONDS` (15) from `MEMTIDE_SWARM_SEED` (0) on;
/// `MEMTIDE_SWARM_CASES` instead of a time for the same cases again.
#[test]
fn every_random_scenario_conserves_pages() {
    let seconds = setting("MEMTIDE_SWARM_SECONDS").unwrap_or(15);
    let first = setting("MEMTIDE_SWARM_SEED").unwrap_or(0);
    let cases = setting("MEMTIDE_SWARM_CASES");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (next, out_of_memory) = (AtomicU64::new(first), AtomicU64::new(0));
    let more = |seed: u64| match cases {
        Some(cases) => seed - first < cases,
        None => seed == first || Instant::now() < until,
    };
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if !more(seed) {
                next.fetch_sub(1, Relaxed);
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| run(&mut Choices::of_seed(seed)))) {
                Ok(Ended::Done) => {}
                Ok(Ended::OutOfMemory) => {
                    out_of_memory.fetch_add(1, Relaxed);
                }
                Err(_) => {
                    let shown = case(&mut Choices::of_seed(seed));
                    panic!(
                        "seed {seed} fails with\n{shown:?}\nrepeat with: MEMTIDE_SWARM_SEED={seed} \
                         MEMTIDE_SWARM_CASES=1 cargo test -p memtide-sim --test swarm"
                    );
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    // A thread that panics makes the test fail when all have ended.
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (done, out_of_memory) = (next.into_inner() - first, out_of_memory.into_inner());
    println!("{done} cases, {out_of_memory} of them out of memory, from seed {first} on");
    assert!(
        out_of_memory * 2 <= done,
        "most cases run out of memory: they show little"
    );
}
