//! NUMA hint faults, seen from user space.
//!
//! Problem. With `kernel.numa_balancing` on, the kernel takes pages away from
//! under a process at intervals and learns from the fault who touches them.
//! memtide wants the same knowledge, page by page and with the thread.
//!
//! Approach. A hint fault is a minor page fault, and the kernel offers every
//! page fault to perf: the software event `PAGE_FAULTS_MIN` with a sample
//! period of 1. (`PAGE_FAULTS` without `_MIN` leaves the physical address
//! zero.) An event watches one thread; `inherit` covers neither threads that
//! exist already nor events with one ring for all CPUs. So there is an event
//! for each thread, found in `/proc/PID/task`, looked for again on each poll.
//! Beyond a bound on their number (each costs a ring and some time in every
//! context switch), one event for each CPU takes over, and the faults of other
//! processes are dropped here.
//!
//! What to know about the samples. First touches of new memory are minor
//! faults too; they are accesses, and they are reported. A huge page gives one
//! fault. Read-only file mappings never give a hint fault, shared memory only
//! on newer kernels. A thread that lives shorter than the time between two
//! polls is not seen by thread events.
//!
//! Sources: *mm: Hot page tracking and promotion infrastructure* (hint faults as the first source of hot
//! pages), *Memory access profiler(IBS) driven NUMA balancing* (what hint faults cost).

use crate::perf::event::{self, Event, EventError, Wait};
use crate::perf::{SampleLayout, Scratch, Walk};
use crate::sys::perf_event::Watch;
use perf_event_open_sys::bindings as b;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The smallest ring worth having, in pages.
const MIN_RING_PAGES: usize = 64;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The address that was touched, to the byte.
    pub address: u64,
    /// The physical address behind it, or `None` if the kernel could not tell.
    pub physical: Option<u64>,
    /// Nanoseconds on perf's clock.
    pub time_ns: u64,
    /// The CPU that touched it.
    pub cpu: u32,
}

/// Why there are no hint faults here.
#[derive(Debug, thiserror::Error)]
pub enum HintFaultsError {
    /// The kernel was built without NUMA balancing.
    #[error("{}: {source}; this kernel has no NUMA balancing, so no hint faults", path.display())]
    NoBalancing {
        /// The missing file.
        path: PathBuf,
        /// Why it could not be read.
        source: io::Error,
    },
    /// NUMA balancing is off.
    #[error("{} is 0: no hint faults unless it is turned on (1 balances between sockets, 2 promotes between tiers)", path.display())]
    BalancingOff {
        /// The setting.
        path: PathBuf,
    },
    /// The setting is not a number.
    #[error("{}: {value:?} is not a mode", path.display())]
    Malformed {
        /// The setting.
        path: PathBuf,
        /// What it says.
        value: String,
    },
    /// A process is not there.
    #[error("{}: {source}", path.display())]
    Process {
        /// The folder that could not be listed.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// perf refused.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// What `kernel.numa_balancing` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancingMode {
    /// Bit 0: between the sockets.
    pub normal: bool,
    /// Bit 1: between the tiers.
    pub tiering: bool,
}

/// Bounds on what the source takes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The root of `/proc` and `/sys`.
    pub root: PathBuf,
    /// The largest ring for one event, in pages; a power of two.
    pub ring_pages: usize,
    /// Pages for all rings of a source together. Rings get smaller, down to
    /// 64 pages, when there are many.
    pub ring_budget_pages: usize,
    /// More threads than this are watched through one event for each CPU.
    pub max_thread_events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            root: "/".into(),
            ring_pages: 1024,
            ring_budget_pages: 16_384,
            max_thread_events: 64,
        }
    }
}

/// What is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One event for each thread.
    Threads,
    /// One event for each CPU.
    Cpus,
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Faults handed to the sink.
    pub faults: u64,
    /// Faults of processes that nobody asked for.
    pub foreign: u64,
    /// What the rings said, losses included.
    pub walk: Walk,
    /// Watched processes that are still there.
    pub processes_alive: usize,
}

/// A running source of hint faults.
#[derive(Debug)]
pub struct HintFaults {
    options: Options,
    layout: SampleLayout,
    attr: b::perf_event_attr,
    /// Sorted. Empty means every process.
    pids: Vec<u32>,
    scope: Scope,
    events: Vec<Event>,
    scratch: Scratch,
}

impl HintFaults {
    /// Whether the kernel makes hint faults at present, under `root`.
    ///
    /// # Errors
    ///
    /// The reason why not: no NUMA balancing in this kernel, or turned off.
    pub fn available(root: &Path) -> Result<BalancingMode, HintFaultsError> {
        let path = root.join("proc/sys/kernel/numa_balancing");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(HintFaultsError::NoBalancing { path, source }),
        };
        match text.trim().parse::<u32>() {
            Ok(0) => Err(HintFaultsError::BalancingOff { path }),
            Ok(bits) => Ok(BalancingMode {
                normal: bits & 1 != 0,
                tiering: bits & 2 != 0,
            }),
            Err(_) => Err(HintFaultsError::Malformed {
                path,
                value: text.trim().to_owned(),
            }),
        }
    }

    /// Watches every thread of the processes `pids`.
    ///
    /// # Errors
    ///
    /// A process is gone, or perf refused.
    pub fn attach(pids: &[u32], options: Options) -> Result<HintFaults, HintFaultsError> {
        let mut source = HintFaults::new(pids, options);
        for &pid in pids {
            threads(&source.options.root, pid)?;
        }
        source.rescan()?;
        Ok(source)
    }

    /// Watches every CPU, and so every process.
    ///
    /// # Errors
    ///
    /// perf refused.
    pub fn system_wide(options: Options) -> Result<HintFaults, HintFaultsError> {
        let mut source = HintFaults::new(&[], options);
        source.take_over_cpus()?;
        Ok(source)
    }

    fn new(pids: &[u32], options: Options) -> HintFaults {
        let fields = b::PERF_SAMPLE_TID
            | b::PERF_SAMPLE_TIME
            | b::PERF_SAMPLE_ADDR
            | b::PERF_SAMPLE_CPU
            | b::PERF_SAMPLE_PHYS_ADDR;
        let layout = SampleLayout::new(fields.into()).expect("all five fields are known");
        let mut attr = b::perf_event_attr::default();
        attr.type_ = b::PERF_TYPE_SOFTWARE;
        attr.config = b::PERF_COUNT_SW_PAGE_FAULTS_MIN.into();
        attr.sample_type = layout.sample_type();
        attr.sample_period = 1;
        let mut pids = pids.to_vec();
        pids.sort_unstable();
        pids.dedup();
        HintFaults {
            options,
            layout,
            attr,
            pids,
            scope: Scope::Threads,
            events: Vec::new(),
            scratch: Scratch::new(),
        }
    }

    /// Whether threads or CPUs are watched at present.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// How many events are open.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Waits until there may be something to poll. The rings wake the waiter
    /// when they are half full, so the timeout bounds the samples' age.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub fn wait(&self, timeout: Duration) -> io::Result<Wait> {
        event::wait(self.events.iter().map(AsFd::as_fd), timeout)
    }

    /// Hands every fault since the last poll to `sink`, then looks for threads
    /// that have come or gone. Nothing is allocated for a fault.
    ///
    /// # Errors
    ///
    /// perf refused an event for a new thread.
    pub fn poll(&mut self, sink: &mut impl FnMut(HintFault)) -> Result<Polled, HintFaultsError> {
        let mut polled = Polled::default();
        self.drain(&mut polled, sink);
        polled.processes_alive = match self.scope {
            Scope::Threads => {
                let before = self.scope;
                let alive = self.rescan()?;
                if self.scope != before {
                    self.drain(&mut polled, sink);
                    self.events
                        .retain(|event| matches!(event.watch(), Watch::Cpu(_)));
                }
                alive
            }
            Scope::Cpus => self
                .pids
                .iter()
                .filter(|pid| self.options.root.join(format!("proc/{pid}")).is_dir())
                .count(),
        };
        Ok(polled)
    }

    fn drain(&mut self, polled: &mut Polled, sink: &mut impl FnMut(HintFault)) {
        let HintFaults {
            layout,
            pids,
            events,
            scratch,
            ..
        } = self;
        for event in events {
            polled.walk += event.drain(scratch, |record| {
                let Some(fault) = record
                    .is_sample()
                    .then(|| decode(*layout, record.body))
                    .flatten()
                else {
                    return;
                };
                if pids.is_empty() || pids.binary_search(&fault.pid).is_ok() {
                    polled.faults += 1;
                    sink(fault);
                } else {
                    polled.foreign += 1;
                }
            });
        }
    }

    /// Opens events for threads that have none, closes those of threads that
    /// are gone, and gives way to CPU events when there are too many. Returns
    /// how many processes are there.
    fn rescan(&mut self) -> Result<usize, HintFaultsError> {
        let mut alive = 0;
        let mut tids = Vec::new();
        for &pid in &self.pids {
            if let Ok(found) = threads(&self.options.root, pid) {
                alive += usize::from(!found.is_empty());
                tids.extend(found);
            }
        }
        tids.sort_unstable();
        if tids.len() > self.options.max_thread_events {
            // The thread events stay for one more drain, so that no fault falls
            // between the two kinds. What both saw is reported twice, once in a
            // source's life.
            self.take_over_cpus()?;
            return Ok(alive);
        }
        self.events.retain(|event| match event.watch() {
            Watch::Thread(tid) => tids.binary_search(&tid).is_ok(),
            Watch::Cpu(_) => true,
        });
        let pages = ring_pages(&self.options, tids.len());
        for tid in tids {
            let watch = Watch::Thread(tid);
            if self.events.iter().any(|event| event.watch() == watch) {
                continue;
            }
            match Event::open(&self.attr, watch, pages) {
                Ok(event) => self.events.push(event),
                Err(EventError::Gone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(alive)
    }

    fn take_over_cpus(&mut self) -> Result<(), HintFaultsError> {
        let cpus = online_cpus(&self.options.root)?;
        let pages = ring_pages(&self.options, cpus.len());
        let events = cpus
            .into_iter()
            .map(|cpu| Event::open(&self.attr, Watch::Cpu(cpu), pages))
            .collect::<Result<Vec<_>, _>>()?;
        self.events.extend(events);
        self.scope = Scope::Cpus;
        Ok(())
    }
}

fn decode(layout: SampleLayout, body: &[u8]) -> Option<HintFault> {
    let sample = layout.decode(body)?;
    let (pid, tid) = sample.pid_tid?;
    Some(HintFault {
        pid,
        tid,
        address: sample.addr?,
        physical: sample.phys_addr.filter(|&address| address != 0),
        time_ns: sample.time?,
        cpu: sample.cpu?,
    })
}

/// The ring's size when `events` share the budget: a power of two between
/// [`MIN_RING_PAGES`] and the largest allowed.
fn ring_pages(options: &Options, events: usize) -> usize {
    let share = (options.ring_budget_pages / events.max(1)).max(1);
    let power = 1 << share.ilog2();
    let largest = options.ring_pages.max(1);
    power.max(MIN_RING_PAGES).min(1 << largest.ilog2())
}

/// The threads of a process.
fn threads(root: &Path, pid: u32) -> Result<Vec<u32>, HintFaultsError> {
    let path = root.join(format!("proc/{pid}/task"));
    let list = std::fs::read_dir(&path).map_err(|source| HintFaultsError::Process {
        path: path.clone(),
        source,
    })?;
    Ok(list
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// The CPUs that are online, from the kernel's list format (`0-3,6`).
fn online_cpus(root: &Path) -> Result<Vec<u32>, HintFaultsError> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path).map_err(|source| HintFaultsError::Process {
        path: path.clone(),
        source,
    })?;
    parse_cpu_list(text.trim()).ok_or_else(|| HintFaultsError::Malformed {
        path,
        value: text.trim().to_owned(),
    })
}

fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; a wrong file must not fill memory.
        if last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests;
