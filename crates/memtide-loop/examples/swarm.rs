//! Many seeds of the swarm: `swarm FIRST SEEDS JOBS [ITEM,ITEM...]`, of whose plans
//! only these items happen. `cargo xtask swarm` runs it. `swarm mistakes` says which
//! seed finds each deliberate mistake.

#![expect(clippy::disallowed_macros, reason = "a program for people: it prints")]

use memtide_loop::swarm::{self, Coverage, Mistake};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failing seeds that are made smaller and told of; more say nothing new.
const TOLD: u64 = 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let numbers = |words: &[&str]| words.iter().map(|word| number(word)).collect();
    let (numbers, only): (Option<Vec<u64>>, _) = match words[..] {
        ["mistakes"] => return mistakes(),
        [_, _, _] => (numbers(&words), None),
        [.., items] => (numbers(&words[..words.len() - 1]), Some(items)),
        [] => (None, None),
    };
    let only: Option<Option<BTreeSet<usize>>> =
        only.map(|items| items.split(',').map(|item| item.parse().ok()).collect());
    let (Some([first, seeds, jobs]), false) = (numbers.as_deref(), only == Some(None)) else {
        eprintln!("swarm: wants FIRST SEEDS JOBS [ITEM,ITEM...]");
        return ExitCode::from(2);
    };
    let only = only.flatten();
    let (next, end) = (AtomicU64::new(*first), first + seeds);
    let sums = Mutex::new((Coverage::default(), 0_u64));
    std::thread::scope(|scope| {
        for _ in 0..*jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    take(seed, only.as_ref(), &sums);
                }
            });
        }
    });
    let (coverage, failed) = sums.into_inner().unwrap_or_else(|error| error.into_inner());
    println!("{coverage}");
    println!("{seeds} seeds, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

fn take(seed: u64, only: Option<&BTreeSet<usize>>, sums: &Mutex<(Coverage, u64)>) {
    let ran = swarm::run(seed, only, None);
    let mut sums = sums.lock().unwrap_or_else(|error| error.into_inner());
    match ran {
        Ok(coverage) => sums.0.add(&coverage),
        Err(failure) => {
            sums.1 += 1;
            if sums.1 <= TOLD {
                drop(sums);
                println!("{}", swarm::smaller(failure, None));
            }
        }
    }
}

/// Looks for each deliberate mistake.
fn mistakes() -> ExitCode {
    let mut missed = 0;
    for mistake in Mistake::ALL {
        let found = (0..1000).find_map(|seed| swarm::run(seed, None, Some(mistake)).err());
        match found {
            Some(failure) => println!(
                "{mistake:?}: seed {}: {}",
                failure.seed, failure.violations[0]
            ),
            None => {
                missed += 1;
                println!("{mistake:?}: not found");
            }
        }
    }
    ExitCode::from(u8::from(missed > 0))
}
