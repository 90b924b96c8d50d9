//! The program for NUMA balancing: sets of threads, each with memory of its own on a chosen node.
//!
//! The IBS balancing series' benchmark in small: the threads of a set run on one node and use the set's pages at
//! random, reading and writing, while the pages lie elsewhere. Whoever balances has to see who uses
//! what, and to bring the pages to the threads (or the threads to the pages, where they are not
//! pinned). The truth is simple: every page of a set belongs on the set's node.
//!
//! One line of JSON for each set tells where its memory is ([`Truth`]; all of it counts as hot). Then
//! the threads work until the process is killed, busy for four fifths of the time as
//! [`super::victim`] explains. The first thread does nothing, and `churn` lets threads of a set end and others
//! take their place all the time, as those of a server do.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::procfs::node_cpus;
use super::random::SplitMix;
use super::sys::{Backing, Mapping, PAGE_SIZE, Policy};
use super::victim::Truth;

/// Touches between two looks at the clock.
const TURN: usize = 256;
/// How long a thread works, and then how long it sleeps.
const WORK: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_millis(5);

/// Which sets.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// A set: the node whose CPUs its threads run on (`any` for all), and the node of its memory;
    /// repeatable
    #[arg(long = "set", value_name = "CPUS:MEMORY", required = true, value_parser = set)]
    pub sets: Vec<(Option<u32>, u32)>,
    /// MiB of each set's memory
    #[arg(long, default_value_t = 16)]
    pub size: usize,
    /// Threads of each set
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Only read after the start
    #[arg(long)]
    pub read_only: bool,
    /// Threads live so many milliseconds, and others take their place
    #[arg(long, value_name = "MS")]
    pub churn: Option<u64>,
}

fn set(text: &str) -> Result<(Option<u32>, u32), String> {
    let bad = || format!("not CPUS:MEMORY, two nodes or any and a node: {text:?}");
    let (cpus, memory) = text.split_once(':').ok_or_else(bad)?;
    let node = |text: &str| text.parse::<u32>().map_err(|_| bad());
    let cpus = match cpus {
        "any" => None,
        cpus => Some(node(cpus)?),
    };
    Ok((cpus, node(memory)?))
}

/// One set's memory and how it is used.
struct Set {
    mapping: Mapping,
    cpus: Option<CpuSet>,
    read_only: bool,
}

/// Runs the sets; returns only on error.
///
/// # Errors
/// When memory or CPUs cannot be had as asked.
pub fn main(options: &Options) -> Result<()> {
    ensure!(options.threads > 0, "--threads starts at 1");
    let sets: Vec<Arc<Set>> = options
        .sets
        .iter()
        .map(|&set| place(options, set).map(Arc::new))
        .collect::<Result<_>>()?;
    for (number, set) in sets.iter().enumerate() {
        for thread in 0..options.threads {
            let set = Arc::clone(set);
            let seed = (number * options.threads + thread + 1) as u64;
            let life = options.churn.map(Duration::from_millis);
            std::thread::spawn(move || keep_working(&set, seed, life));
        }
    }
    for set in &sets {
        tell(&set.mapping)?;
    }
    loop {
        std::thread::park();
    }
}

/// Memory on its node, free of any policy of its own afterwards.
fn place(options: &Options, (cpus, memory): (Option<u32>, u32)) -> Result<Set> {
    let mapping = Mapping::new(options.size << 20, Backing::Anonymous)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.set_policy(Policy::Bind(memory))?;
    for page in 0..mapping.pages() {
        mapping.touch(page, 0);
    }
    mapping
        .set_policy(Policy::Default)
        .context("cannot free the memory of its policy")?;
    let cpus = cpus.map(cpus_of).transpose()?;
    let read_only = options.read_only;
    Ok(Set {
        mapping,
        cpus,
        read_only,
    })
}

fn cpus_of(node: u32) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in node_cpus(node)? {
        set.set(cpu as usize);
    }
    Ok(set)
}

fn tell(mapping: &Mapping) -> Result<()> {
    let truth = Truth {
        event: "ready".to_owned(),
        pid: std::process::id(),
        page_size: PAGE_SIZE,
        start: mapping.start(),
        pages: mapping.pages(),
        hot: vec![(0, mapping.pages())],
    };
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&truth)?)?;
    output.flush().context("nobody reads the sets' lines")
}

/// Works, for ever or in one short-lived thread after the other.
fn keep_working(set: &Arc<Set>, mut seed: u64, life: Option<Duration>) -> Result<()> {
    let Some(life) = life else {
        return work(set, seed, None);
    };
    loop {
        let own = Arc::clone(set);
        let worker = std::thread::spawn(move || work(&own, seed, Some(life)));
        let _ = worker.join();
        seed = seed.wrapping_add(0x9e37);
    }
}

/// Touches pages at random.
fn work(set: &Set, seed: u64, life: Option<Duration>) -> Result<()> {
    if let Some(cpus) = &set.cpus {
        sched_setaffinity(None, cpus).context("cannot run on the set's CPUs")?;
    }
    let (pages, mut random) = (set.mapping.pages() as u64, SplitMix::new(seed));
    let began = Instant::now();
    while life.is_none_or(|life| began.elapsed() < life) {
        let turn = Instant::now();
        while turn.elapsed() < WORK {
            for _ in 0..TURN {
                let page = random.below(pages) as usize;
                match set.read_only {
                    true => set.mapping.read(page),
                    false => set.mapping.touch(page, 1),
                }
            }
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_two_nodes() {
        assert_eq!(set("0:1"), Ok((Some(0), 1)));
        assert_eq!(set("any:3"), Ok((None, 3)));
        for wrong in ["0", "0:", "x:1", "0:any"] {
            assert!(set(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
