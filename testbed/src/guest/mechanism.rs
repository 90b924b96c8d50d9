//! Who moves the pages: the kernel by itself, or memtide.
//!
//! A test case describes a load; a [`Mechanism`] is what is expected to put its pages right. Both
//! are measured by the same code, so that their figures may stand in one row.
//!
//! *CPU time of the kernel's mechanism* is what its work costs, wherever it is charged: hint faults
//! and scanning run in the victim's own system time, demotion in kswapd. The victim's sleeping and
//! TLB flushing are system time too, a few percent of a CPU under emulation, and a server's answers
//! are far more; neither is subtracted, so compare mechanisms within a case and not cases.
//!
//! *memtide's* is its process's time and, because move_pages(2) and accessed-bit work may interrupt the
//! victim, the victim's system time as well: both columns count the same things.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use super::damon_regions::DamonRegions;
use super::memtide::Memtide;
use super::procfs::{cpu_time, threads_named};

/// Kernel threads that work for one mechanism or the other.
const KERNEL_WORKERS: [&str; 4] = ["kswapd", "kdamond", "kmigrated", "kcompactd"];

/// Words with which memtide listens to the accessed bits of the page tables.
pub const PAGE_TABLE: &[&str] = &["--source", "page-table"];

/// What moves the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// NUMA balancing in tiering mode and demotion, set at boot.
    Kernel,
    /// DAMON's scheme that migrates hot regions, to node 0, the kernel's own tiering off.
    DamonRegions,
    /// `memtide tier` with these words, the kernel's own tiering off.
    Memtide(&'static [&'static str]),
}

impl Mechanism {
    /// A column's title.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::DamonRegions => "damon",
            Self::Memtide(words) if *words == *PAGE_TABLE => "memtide-page-table",
            Self::Memtide(_) => "memtide",
        }
    }

    /// Why it cannot be had, if it cannot.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Kernel => None,
            Self::DamonRegions => DamonRegions::missing(),
            Self::Memtide(_) => {
                let help = Command::new("memtide").args(["tier", "--help"]).output();
                match help {
                    Ok(output) if String::from_utf8_lossy(&output.stdout).contains("--pid") => None,
                    Ok(_) => Some("this memtide has no command `tier --pid`".to_owned()),
                    Err(error) => Some(format!("memtide does not run: {error}")),
                }
            }
        }
    }

    /// Sets it to work on these processes; the clock of its CPU time starts.
    ///
    /// # Errors
    /// When memtide does not start, or the kernel refuses the scheme.
    pub fn start(self, pids: &[u32]) -> Result<Running> {
        let mut watched = pids.to_vec();
        watched.extend(threads_named(&KERNEL_WORKERS));
        let before = watched
            .iter()
            .map(|&pid| (pid, system_seconds(pid)))
            .collect();
        let mut running = Running {
            before,
            fresh: BTreeMap::new(),
            memtide: None,
            regions: None,
        };
        match self {
            Self::Kernel => {}
            Self::DamonRegions => running.regions = Some(DamonRegions::start(pids, 0)?),
            Self::Memtide(words) => running.memtide = Some(Memtide::start(words, pids)?),
        }
        Ok(running)
    }
}

fn system_seconds(pid: u32) -> f64 {
    cpu_time(pid).map_or(0.0, |time| time.system)
}

/// A mechanism at work; memtide is ended on drop.
#[derive(Debug)]
pub struct Running {
    before: Vec<(u32, f64)>,
    /// Kernel threads started since then, and what each had used when it was last seen.
    fresh: BTreeMap<u32, f64>,
    memtide: Option<Memtide>,
    regions: Option<DamonRegions>,
}

impl Running {
    /// CPU seconds spent since the start. DAMON's threads come and go: what one used
    /// between the last call and its end is missed.
    pub fn cpu_seconds(&mut self) -> f64 {
        let kernel: f64 = self
            .before
            .iter()
            .filter_map(|&(pid, before)| Some(cpu_time(pid)?.system - before))
            .sum();
        let now = threads_named(&KERNEL_WORKERS)
            .into_iter()
            .filter(|pid| self.before.iter().all(|(known, _)| known != pid))
            .map(|pid| (pid, system_seconds(pid)));
        // One that ends in the midst of it is seen with nothing.
        for (pid, seconds) in now {
            let seen = self.fresh.entry(pid).or_default();
            *seen = seen.max(seconds);
        }
        let fresh: f64 = self.fresh.values().sum();
        kernel + fresh + self.memtide.as_ref().map_or(0.0, Memtide::cpu_seconds)
    }

    /// CPU seconds of memtide's own process since its start; none if it is not at work.
    #[must_use]
    pub fn own_cpu_seconds(&self) -> Option<f64> {
        self.memtide.as_ref().map(Memtide::cpu_seconds)
    }

    /// An error if memtide ended by itself, which it must not.
    ///
    /// # Errors
    /// With its status and last words.
    pub fn check(&mut self) -> Result<()> {
        self.memtide.as_mut().map_or(Ok(()), Memtide::check)
    }

    /// Ends memtide as a person would, and returns its lines.
    ///
    /// # Errors
    /// When it does not end within five seconds or ends with a failure.
    pub fn stop(mut self) -> Result<Vec<String>> {
        drop(self.regions.take());
        self.memtide.take().map_or(Ok(Vec::new()), Memtide::stop)
    }
}
