//! Runs the swarm for as long as the environment says, and names what repeats a failure.
#![expect(
    clippy::disallowed_methods,
    reason = "it runs as long as it is told to"
)]

#[path = "swarm/mod.rs"]
mod cases;

use cases::{Choices, Ended, case, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: give a whole number")),
    )
}

/// `MEMTIDE_SWARM_SECONDS` (60) from `MEMTIDE_SWARM_SEED` (0) on; `MEMTIDE_SWARM_CASES` instead of a
/// time for the same cases again.
#[test]
fn every_random_scenario_conserves_pages() {
    let seconds = setting("MEMTIDE_SWARM_SECONDS").unwrap_or(60);
    let first = setting("MEMTIDE_SWARM_SEED").unwrap_or(0);
    let cases = setting("MEMTIDE_SWARM_CASES");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut seed, mut out_of_memory) = (first, 0);
    loop {
        let done = seed - first;
        match cases {
            Some(cases) if done >= cases => break,
            None if done > 0 && Instant::now() >= until => break,
            _ => {}
        }
        match catch_unwind(AssertUnwindSafe(|| run(&mut Choices::of_seed(seed)))) {
            Ok(Ended::Done) => {}
            Ok(Ended::OutOfMemory) => out_of_memory += 1,
            Err(_) => {
                let shown = case(&mut Choices::of_seed(seed));
                panic!(
                    "seed {seed} fails with\n{shown:?}\nrepeat with: MEMTIDE_SWARM_SEED={seed} \
                     MEMTIDE_SWARM_CASES=1 cargo test -p memtide-sim --test swarm"
                );
            }
        }
        seed += 1;
    }
    let done = seed - first;
    println!(
        "{done} cases, {out_of_memory} of them out of memory, seeds {first} to {}",
        seed - 1
    );
    assert!(
        out_of_memory * 2 <= done,
        "most cases run out of memory: they show little"
    );
}
