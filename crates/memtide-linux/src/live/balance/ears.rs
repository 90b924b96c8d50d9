//! What tells of accesses, and of who made them.
//!
//! Balancing needs more of a source than tiering does: not only that a page is
//! used but by which thread, on which CPU. What offers that, from the best
//! down:
//!
//! - *ibs*, *pebs*: the processor samples loads and stores. Reads and writes, all
//!   kinds of memory, nothing to provoke.
//! - *hint faults*: where `kernel.numa_balancing` has its bit 0, the kernel takes
//!   pages away from under processes and perf tells who came for them. Reads
//!   and writes of anonymous memory, as often as the kernel scans. The kernel
//!   moves pages, too; memtide does not undo that and it does not mind.
//! - *write faults*: neither hardware nor scans; see
//!   [`crate::source::write_faults`]. Writes only, and only if asked for.
//!
//! DAMON and the page-table scan are not here: they see pages and not threads.

use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use crate::source::hint_faults::{HintFaults, HintFaultsError, Options, Polled};
use crate::source::write_faults::{self, Rounds, WriteFaultsError};
use memtide_core::units::Millis;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// The address, to the byte.
    pub address: u64,
    /// Whether it certainly was a write.
    pub writes: bool,
}

/// What is missing from the accesses since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Samples that the kernel could not hand over.
    pub lost: u64,
    /// How often the kernel stopped an event.
    pub throttled: u64,
}

impl Missing {
    /// Whether nothing is.
    pub fn is_none(&self) -> bool {
        *self == Missing::default()
    }
}

impl From<&Polled> for Missing {
    fn from(polled: &Polled) -> Missing {
        Missing {
            lost: polled.walk.lost,
            throttled: polled.walk.throttled,
        }
    }
}

/// Why there is nothing to hear.
#[derive(Debug, thiserror::Error)]
pub enum EarsError {
    /// Hint faults.
    #[error(transparent)]
    HintFaults(#[from] HintFaultsError),
    /// Write faults.
    #[error(transparent)]
    WriteFaults(#[from] WriteFaultsError),
    /// The kernel's files.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Waiting failed.
    #[error("cannot wait for samples: {0}")]
    Wait(#[from] io::Error),
    /// Another source's own words.
    #[error("{0}")]
    Other(String),
}

/// A source of accesses with their threads.
pub trait Ears {
    /// A word for people.
    fn name(&self) -> &'static str;

    /// From now on these processes, and no others.
    fn listen_to(&mut self, processes: &[Process]) -> Result<(), EarsError>;

    /// Does what provokes accesses, where something must.
    fn provoke(&mut self, _now: Millis) -> Result<(), EarsError> {
        Ok(())
    }

    /// Waits until there may be something, `patience` at most.
    fn wait(&mut self, patience: Duration) -> Result<(), EarsError>;

    /// Adds everything since the last time to `heard`; what is missing.
    fn drain(&mut self, heard: &mut Vec<Heard>) -> Result<Missing, EarsError>;

    /// Operations between two samples, where there is such a thing.
    fn period(&self) -> Option<u64> {
        None
    }

    /// Another number of operations between samples.
    fn set_period(&mut self, _period: u64) -> Result<(), EarsError> {
        Ok(())
    }
}

/// Hint faults of the kernel's own scans.
#[derive(Debug)]
pub struct HintFaultEars {
    options: Options,
    faults: Option<HintFaults>,
}

impl HintFaultEars {
    /// Ears for the machine under `root`, if its kernel scans.
    pub fn open(root: &Root) -> Result<HintFaultEars, EarsError> {
        let options = options(root);
        let mode = HintFaults::available(&options.root)?;
        if !mode.normal {
            return Err(EarsError::Other(format!(
                "{}: bit 0 is not set: the kernel scans slow tiers only and makes no hint faults between sockets",
                root.path("proc/sys/kernel/numa_balancing").display()
            )));
        }
        Ok(HintFaultEars {
            options,
            faults: None,
        })
    }
}

fn options(root: &Root) -> Options {
    Options {
        root: root.path("/"),
        ..Options::default()
    }
}

impl Ears for HintFaultEars {
    fn name(&self) -> &'static str {
        "hint faults"
    }

    fn listen_to(&mut self, processes: &[Process]) -> Result<(), EarsError> {
        attach(&mut self.faults, processes, &self.options)
    }

    fn wait(&mut self, patience: Duration) -> Result<(), EarsError> {
        wait(self.faults.as_ref(), patience)
    }

    fn drain(&mut self, heard: &mut Vec<Heard>) -> Result<Missing, EarsError> {
        let Some(faults) = &mut self.faults else {
            return Ok(Missing::default());
        };
        let polled = faults.poll(&mut |fault| {
            heard.push(Heard {
                pid: fault.pid,
                tid: fault.tid,
                cpu: fault.cpu,
                address: fault.address,
                writes: false,
            });
        })?;
        Ok(Missing::from(&polled))
    }
}

/// Listens to the threads of `processes`; those that are gone are left out.
fn attach(
    faults: &mut Option<HintFaults>,
    processes: &[Process],
    options: &Options,
) -> Result<(), EarsError> {
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    if pids.is_empty() {
        *faults = None;
        return Ok(());
    }
    match faults {
        Some(faults) => faults.watch(&pids)?,
        None => *faults = Some(HintFaults::watching(&pids, options.clone())?),
    }
    Ok(())
}

fn wait(faults: Option<&HintFaults>, patience: Duration) -> Result<(), EarsError> {
    match faults {
        Some(faults) => {
            faults.wait(patience)?;
        }
        None => std::thread::sleep(patience),
    }
    Ok(())
}

/// How write faults are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFaultRate {
    /// Faults a second that are worth their price.
    pub per_second: u64,
    /// The shortest time between two rounds of a process, in ms.
    pub shortest_ms: u64,
    /// Processes with more resident pages are left out: a round faults on all
    /// that they write, at once.
    pub most_pages: u64,
}

/// Faults that are provoked.
#[derive(Debug)]
pub struct WriteFaultEars {
    root: Root,
    options: Options,
    rate: WriteFaultRate,
    faults: Option<HintFaults>,
    processes: BTreeMap<u32, (Process, Rounds)>,
}

impl WriteFaultEars {
    /// Ears for the machine under `root`, if a write of our own is heard.
    pub fn open(root: &Root, rate: WriteFaultRate) -> Result<WriteFaultEars, EarsError> {
        write_faults::prove(root)?;
        Ok(WriteFaultEars {
            root: root.clone(),
            options: options(root),
            rate,
            faults: None,
            processes: BTreeMap::new(),
        })
    }

    /// Resident pages of a process, by its own count; none if it is gone.
    fn resident(&self, process: Process) -> Result<u64, FsError> {
        match process.status(&self.root) {
            Ok(status) => Ok(status.resident.unwrap_or(0) >> 12),
            Err(FsError::Gone { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl Ears for WriteFaultEars {
    fn name(&self) -> &'static str {
        "write faults"
    }

    fn listen_to(&mut self, processes: &[Process]) -> Result<(), EarsError> {
        attach(&mut self.faults, processes, &self.options)?;
        let old = std::mem::take(&mut self.processes);
        for process in processes {
            let known = old.get(&process.pid).filter(|(known, _)| known == process);
            let entry = known.copied().unwrap_or((*process, Rounds::NEW));
            self.processes.insert(process.pid, entry);
        }
        Ok(())
    }

    fn provoke(&mut self, now: Millis) -> Result<(), EarsError> {
        let rate = self.rate;
        let mut due = Vec::new();
        for (process, rounds) in self.processes.values_mut() {
            if rounds.is_due(now.0, rate.shortest_ms, rate.per_second) {
                due.push(*process);
            }
        }
        for process in due {
            if self.resident(process)? <= rate.most_pages {
                write_faults::protect(&self.root, process)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, patience: Duration) -> Result<(), EarsError> {
        wait(self.faults.as_ref(), patience)
    }

    fn drain(&mut self, heard: &mut Vec<Heard>) -> Result<Missing, EarsError> {
        let Some(faults) = &mut self.faults else {
            return Ok(Missing::default());
        };
        let processes = &mut self.processes;
        let polled = faults.poll(&mut |fault| {
            if let Some((_, rounds)) = processes.get_mut(&fault.pid) {
                rounds.saw(1);
            }
            heard.push(Heard {
                pid: fault.pid,
                tid: fault.tid,
                cpu: fault.cpu,
                address: fault.address,
                writes: true,
            });
        })?;
        Ok(Missing::from(&polled))
    }
}
