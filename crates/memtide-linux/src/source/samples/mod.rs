//! Sampled accesses over `perf_event_open`: who touched which address, and when.
//!
//! # Problem
//!
//! Balancing needs to know which *thread* uses a page, not only that somebody
//! does. Three mechanisms of the kernel tell: AMD's IBS and Intel's PEBS sample
//! loads and stores in hardware; page faults, hint faults among them, are
//! reported by every kernel, also inside virtual machines. They differ in how
//! they are asked for, in what a record holds, and in what they cost.
//!
//! # Approach
//!
//! [`plan`] reads what the kernel describes under a root and makes *streams* of
//! it: an event to open, how to decode its records, and between which bounds
//! its period may lie. [`attach`] keeps an event of each stream open on every
//! thread that is watched, or on every CPU. A [`SampleSource`] drains them: all
//! rings are first looked through, so that it is known whether anything is
//! missing, and then decoded where they lie. [`period`] sets the periods anew
//! so that samples come at the rate that was asked for.
//!
//! # Terms
//!
//! A *window* is what lies between two polls. It is [`Window::Invalid`] if the
//! kernel lost records, throttled an event, or wrote what does not parse: then
//! what did arrive is not a fair share of what happened, and it is counted and
//! not handed on. A loss is told by the first record after it, so a loss at the
//! end of a window makes the next one invalid.
//!
//! # Properties
//!
//! - Nothing is allocated for a sample, and nothing copied but the one record
//!   that straddles a ring's end.
//! - No clock: the caller says how much time went by.
//! - A process whose pid was given to another is not watched any further.
//!
//! Source: *Memory access profiler(IBS) driven NUMA balancing*.

pub mod attach;
pub mod period;
pub mod plan;

use crate::fs::Root;
use crate::fs::proc::Process;
use crate::perf::event::{self, EventError, Wait};
use crate::perf::{MemoryAccess, Refusals, Scratch, Walk};
use attach::Attached;
use period::{Paces, RateTarget};
use plan::Stream;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

pub use attach::{Coverage, Refreshed};
pub use plan::Unavailable;

/// Which mechanism samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// AMD's instruction-based sampling of operations.
    Ibs,
    /// Intel's precise sampling of loads and stores.
    Pebs,
    /// Minor page faults: first touches, and NUMA hint faults while the kernel
    /// balances.
    Faults,
}

impl Kind {
    /// All, the best first.
    pub const ALL: [Kind; 3] = [Kind::Ibs, Kind::Pebs, Kind::Faults];

    /// Its name in the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ibs => "ibs",
            Kind::Pebs => "pebs",
            Kind::Faults => "faults",
        }
    }
}

/// Whose accesses are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These processes and all their threads.
    Processes(Vec<Process>),
    /// Every process.
    Machine,
}

/// How a source is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `/proc` and `/sys` are.
    pub root: Root,
    /// The samples that are wanted.
    pub rate: RateTarget,
    /// The period that streams begin with; `None` is each mechanism's own.
    pub first_period: Option<u64>,
    /// Loads that waited at least so many cycles, where the unit can tell them
    /// apart; `None` is each mechanism's own choice.
    pub latency_cycles: Option<u32>,
    /// Every access, also those that a cache answered: for trying out whether
    /// samples arrive, and for recordings.
    pub cached_too: bool,
    /// The largest ring for one event, in pages; a power of two.
    pub ring_pages: usize,
    /// Pages for all rings together.
    pub ring_budget_pages: usize,
    /// More threads than this are watched through one event for each CPU.
    pub max_thread_events: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            root: Root::default(),
            rate: RateTarget::default(),
            first_period: None,
            latency_cycles: None,
            cached_too: false,
            ring_pages: 1024,
            ring_budget_pages: 16_384,
            max_thread_events: 64,
        }
    }
}

/// Why there is no source, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// This machine does not have the mechanism.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// perf refused.
    #[error("{stream}: {source}")]
    Event {
        /// Which event.
        stream: String,
        /// Why.
        source: EventError,
    },
    /// A file of the kernel's could not be read.
    #[error(transparent)]
    Read(#[from] crate::fs::FsError),
    /// It was opened and never had the unit.
    #[error(
        "{kind}: opened, and never counted; another program has the unit, stop it to use it here"
    )]
    Starved {
        /// Which mechanism.
        kind: &'static str,
    },
    /// There is nothing to watch: every process has ended.
    #[error("every process that was to be watched has ended")]
    NobodyLeft,
}

/// What a refusal comes to, as `memtide doctor` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// This machine or kernel has not got it.
    Absent,
    /// The caller lacks a right.
    Permission,
    /// Somebody else has it.
    Busy,
    /// It is there and does not work.
    Broken,
    /// What was to be watched has ended.
    Ended,
}

impl SampleError {
    /// What it comes to.
    pub fn lack(&self) -> Lack {
        match self {
            SampleError::Unavailable(why) => why.lack(),
            SampleError::Event { source, .. } => match source {
                EventError::NotPermitted { .. } | EventError::Ring { .. } => Lack::Permission,
                EventError::Busy { .. } => Lack::Busy,
                EventError::Gone { .. } => Lack::Ended,
                EventError::Unsupported { .. } => Lack::Absent,
                EventError::Filter { .. } | EventError::Other { .. } => Lack::Broken,
            },
            SampleError::Read(_) => Lack::Broken,
            SampleError::Starved { .. } => Lack::Busy,
            SampleError::NobodyLeft => Lack::Ended,
        }
    }
}

/// Whether what arrived between two polls is a fair share of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Nothing is missing.
    #[default]
    Valid,
    /// Something is, and what did arrive is not handed on.
    Invalid {
        /// Records that the kernel lost.
        lost: u64,
        /// Events that were throttled during the window.
        throttled: u64,
        /// Bytes that did not parse.
        malformed_bytes: u64,
    },
}

impl Window {
    /// Whether nothing is missing.
    pub fn is_valid(self) -> bool {
        self == Window::Valid
    }
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Whether anything is missing.
    pub window: Window,
    /// Accesses handed on.
    pub accesses: u64,
    /// Samples of an invalid window, not handed on.
    pub withheld: u64,
    /// Accesses of processes that nobody asked for.
    pub foreign: u64,
    /// Samples that were no evidence of an access, by reason.
    pub refused: Refusals,
    /// What the rings said.
    pub walk: Walk,
}

/// Everything since the source was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Windows in which nothing was missing.
    pub valid_windows: u64,
    /// Windows in which something was.
    pub invalid_windows: u64,
    /// As [`Polled::accesses`].
    pub accesses: u64,
    /// As [`Polled::withheld`].
    pub withheld: u64,
    /// As [`Polled::foreign`].
    pub foreign: u64,
    /// As [`Polled::refused`].
    pub refused: Refusals,
    /// As [`Polled::walk`].
    pub walk: Walk,
}

impl Tally {
    fn add(&mut self, polled: &Polled) {
        match polled.window.is_valid() {
            true => self.valid_windows += 1,
            false => self.invalid_windows += 1,
        }
        self.accesses += polled.accesses;
        self.withheld += polled.withheld;
        self.foreign += polled.foreign;
        self.refused += polled.refused;
        self.walk += polled.walk;
    }
}

/// A running source of sampled accesses. It ends when it is dropped.
#[derive(Debug)]
pub struct SampleSource {
    kind: Kind,
    streams: Vec<Stream>,
    attached: Attached,
    paces: Paces,
    scratch: Scratch,
    tally: Tally,
}

impl SampleSource {
    /// Opens `kind` for `scope`.
    ///
    /// # Errors
    ///
    /// Why it cannot be had; [`SampleError::lack`] says what that comes to.
    pub fn open(kind: Kind, scope: Scope, options: &Options) -> Result<SampleSource, SampleError> {
        let mut streams = plan::streams(kind, options)?;
        let attached = Attached::open(&mut streams, scope, options)?;
        Ok(SampleSource {
            kind,
            paces: Paces::new(options.rate, streams.len()),
            streams,
            attached,
            scratch: Scratch::new(),
            tally: Tally::default(),
        })
    }

    /// Which mechanism it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its events by name, with the period that each has at present.
    pub fn periods(&self) -> impl Iterator<Item = (&str, u64)> {
        let of = |stream: &'_ Stream| stream.period();
        (self.streams.iter()).map(move |stream| (stream.name.as_str(), of(stream)))
    }

    /// What is watched, and through how many events.
    pub fn coverage(&self) -> Coverage {
        self.attached.coverage()
    }

    /// Everything since the source was opened.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Waits until there may be something to poll. Rings wake the waiter when
    /// they are half full, so the timeout bounds the samples' age.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub fn wait(&self, timeout: Duration) -> io::Result<Wait> {
        let fds = self.attached.events().map(AsFd::as_fd);
        event::wait(fds, timeout)
    }

    /// Hands every access since the last poll to `sink`, each ring's in the
    /// order of their times.
    pub fn poll(&mut self, sink: &mut impl FnMut(&MemoryAccess)) -> Polled {
        let polled = self
            .attached
            .drain(&self.streams, &mut self.paces, &mut self.scratch, sink);
        self.tally.add(&polled);
        polled
    }

    /// Looks for threads and CPUs that came or went. Call it a few times a
    /// second, before [`poll`](Self::poll).
    ///
    /// # Errors
    ///
    /// perf refused an event, or a file could not be read. That processes ended
    /// is no error: see [`Refreshed::processes_alive`]; nor is it that another
    /// program keeps the unit: see [`Refreshed::is_starved`].
    pub fn refresh(&mut self) -> Result<Refreshed, SampleError> {
        self.attached.refresh(&mut self.streams)
    }

    /// Watches other processes from now on, the same threads with the same
    /// events. Only of a source that was opened for processes.
    ///
    /// # Errors
    ///
    /// As [`refresh`](Self::refresh).
    pub fn watch(&mut self, processes: Vec<Process>) -> Result<Refreshed, SampleError> {
        self.attached.set_processes(processes);
        self.refresh()
    }

    /// Sets the periods so that samples come at the rate that was asked for,
    /// from what came during the last `elapsed`. `percent` scales that rate: 100
    /// is the rate itself, 200 twice as many samples. It is where the document's
    /// feedback comes in: a period half as long is a rate twice as high. True if
    /// any period changed.
    pub fn adapt(&mut self, elapsed: Duration, percent: u32) -> bool {
        let cpus = self.coverage().cpus;
        let SampleSource {
            streams,
            attached,
            paces,
            ..
        } = self;
        paces.adapt(streams, cpus, elapsed, percent, |stream, period| {
            attached.set_period(stream, period);
        })
    }
}

#[cfg(test)]
mod tests;
