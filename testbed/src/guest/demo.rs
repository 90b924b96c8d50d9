//! What the project does, in one screen: a program's hot pages start on the far node and come home.
//!
//! Second by second it prints where the hot and the cold pages are, by asking the kernel for each,
//! beside the kernel's own counters, which cannot flatter us.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::measure::GOAL;
use super::mechanism::Mechanism;
use super::procfs::{dram_nodes, vmstat};
use super::subject::{Victim, census_cold, census_hot};

/// Counters shown, as far as the kernel has them.
const COUNTERS: [&str; 4] = [
    "numa_hint_faults",
    "pgpromote_success",
    "pgmigrate_success",
    "pgmigrate_fail",
];
const LIMIT: Duration = Duration::from_secs(60);

/// How to show it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// Let the kernel's own tiering do it instead of memtide
    #[arg(long)]
    pub kernel: bool,
    /// Show two sets of threads whose memory lies on each other's node
    #[arg(long)]
    pub balance: bool,
    /// MiB of the program, of which a quarter is hot
    #[arg(long, default_value_t = 64)]
    pub size: usize,
}

/// Runs the demonstration until the hot pages are home.
///
/// # Errors
/// When they are not home within a minute, or memtide fails.
pub fn main(options: Options) -> Result<()> {
    if options.balance {
        return super::demo_sets::main(options.kernel);
    }
    let mechanism = if options.kernel {
        Mechanism::Kernel
    } else {
        Mechanism::Memtide(&[])
    };
    if let Some(reason) = mechanism.missing() {
        bail!("{reason}");
    }
    let dram = dram_nodes()?;
    let (size, hot) = (options.size.to_string(), (options.size / 4).to_string());
    let words = format!("--scattered --size {size} --hot {hot}");
    let victim = Victim::start(&words, 1)?;
    let known = victim.known_pages();
    println!("a program with {size} MiB on node 2, {hot} MiB of it in use, page by page at random");
    println!(
        "on DRAM are of its {} hot and {} cold pages:",
        known[0].hot.len(),
        known[0].cold.len()
    );
    println!(
        "{:>4} {:>6} {:>6}  {}",
        "s",
        "hot",
        "cold",
        COUNTERS.join("  ")
    );
    let mut running = mechanism.start(&victim.pids())?;
    let (began, mut cost) = (Instant::now(), 0.0);
    for second in 0_u32.. {
        let (hot, cold) = (census_hot(&known, &dram)?, census_cold(&known, &dram)?);
        let counters = vmstat()?;
        let shown: Vec<String> = COUNTERS
            .iter()
            .map(|name| {
                let value = counters.get(*name).map_or("-".to_owned(), u64::to_string);
                format!("{value:>width$}", width = name.len())
            })
            .collect();
        println!(
            "{second:>4} {:>6} {:>6}  {}",
            hot.there,
            cold.there,
            shown.join("  ")
        );
        cost = running.cpu_seconds();
        if hot.share() >= GOAL {
            println!("home after {:.1} s", began.elapsed().as_secs_f64());
            break;
        }
        running.check()?;
        if began.elapsed() > LIMIT {
            bail!("not home after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(
            Duration::from_secs(u64::from(second) + 1).saturating_sub(began.elapsed()),
        );
    }
    println!("it cost {cost:.2} CPU seconds");
    running.stop().map(drop)
}
