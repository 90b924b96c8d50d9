//! The other demonstration: two sets of threads with their memory on each other's node, and the pages
//! that come to the threads that use them.
//!
//! As in [`super::demo`], the kernel is asked for each page where it is.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::Signal;

use super::memtide::Memtide;
use super::procfs::vmstat;
use super::subject::{Victim, census_hot};

/// Counters shown, as far as the kernel has them.
const COUNTERS: [&str; 3] = [
    "numa_hint_faults",
    "numa_pages_migrated",
    "pgmigrate_success",
];
/// The share of each set's pages that ends it.
const GOAL: f64 = 0.95;
const LIMIT: Duration = Duration::from_secs(60);
/// The sets, and the words for memtide.
const SETS: [&str; 5] = ["sets", "--set", "0:1", "--set", "1:0"];
const BALANCE: [&str; 4] = ["balance", "--source", "writes", "--pid"];

/// Runs it until each set has its pages; `kernel` leaves it to the kernel's own balancing.
///
/// # Errors
/// When the pages are not where they belong within a minute, or memtide fails.
pub fn main(kernel: bool) -> Result<()> {
    let mut command = Command::new("/init");
    command.args(SETS);
    let victim = Victim::spawn(command, 2)?;
    let known = victim.known_pages();
    println!("two threads on node 0 use 16 MiB of node 1, two on node 1 use 16 MiB of node 0");
    println!(
        "on their own node are of {} pages each:",
        known[0].hot.len()
    );
    println!(
        "{:>4} {:>8} {:>8}  {}",
        "s",
        "node 0's",
        "node 1's",
        COUNTERS.join("  ")
    );
    let mut memtide = match kernel {
        true => None,
        false => {
            let mut command = Command::new("memtide");
            command.args(BALANCE).arg(victim.truth().pid.to_string());
            Some(Memtide::spawn(command)?)
        }
    };
    let began = Instant::now();
    for second in 0_u64.. {
        let there = [0, 1].map(|set| census_hot(&known[set..=set], &[set as u32]));
        let [first, other] = there;
        let (first, other) = (first?, other?);
        let counters = vmstat()?;
        let shown = COUNTERS.map(|name| {
            let value = counters.get(name).map_or("-".to_owned(), u64::to_string);
            format!("{value:>width$}", width = name.len())
        });
        println!(
            "{second:>4} {:>8} {:>8}  {}",
            first.there,
            other.there,
            shown.join("  ")
        );
        if first.share().min(other.share()) >= GOAL {
            println!("home after {:.1} s", began.elapsed().as_secs_f64());
            break;
        }
        if let Some(memtide) = &mut memtide {
            memtide.check()?;
        }
        if began.elapsed() > LIMIT {
            bail!("not home after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_secs(second + 1).saturating_sub(began.elapsed()));
    }
    let Some(memtide) = memtide else {
        return Ok(());
    };
    println!("$ memtide {} {}", BALANCE.join(" "), victim.truth().pid);
    for line in memtide.end(Signal::INT)?.lines {
        println!("{line}");
    }
    Ok(())
}
