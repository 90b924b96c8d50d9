//! Many seeds of the swarm: `swarm FIRST SEEDS JOBS`. `cargo xtask swarm` runs it.
//! `swarm mistakes` says which seed finds each deliberate mistake.

use memtide_loop::swarm::{self, Coverage, Mistake};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("mistakes") {
        return mistakes();
    }
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [first, seeds, jobs] = numbers[..] else {
        eprintln!("swarm: wants FIRST SEEDS JOBS");
        return ExitCode::from(2);
    };
    let next = AtomicU64::new(first);
    let sums = Mutex::new((Coverage::default(), 0_u64));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let ran = swarm::run(seed, None);
                    let mut sums = sums.lock().unwrap_or_else(|error| error.into_inner());
                    match ran {
                        Ok(coverage) => sums.0.add(&coverage),
                        Err(violations) => {
                            sums.1 += 1;
                            println!("cargo xtask swarm --first {seed} --seeds 1");
                            violations.iter().for_each(|text| println!("    {text}"));
                        }
                    }
                }
            });
        }
    });
    let (coverage, failed) = sums.into_inner().unwrap_or_else(|error| error.into_inner());
    for (what, times) in &coverage.0 {
        println!("{times:>12}  {what}");
    }
    println!("{seeds} seeds, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Looks for each deliberate mistake.
fn mistakes() -> ExitCode {
    let mut missed = 0;
    for mistake in Mistake::ALL {
        let found = (0..1000).find_map(|seed| {
            let violations = swarm::run(seed, Some(mistake)).err()?;
            Some((seed, violations.into_iter().next()?))
        });
        match found {
            Some((seed, text)) => println!("{mistake:?}: seed {seed}: {text}"),
            None => {
                missed += 1;
                println!("{mistake:?}: not found");
            }
        }
    }
    ExitCode::from(u8::from(missed > 0))
}
