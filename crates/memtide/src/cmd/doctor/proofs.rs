//! What can only be told by trying: page map, mover, sources.
//!
//! A source is a line of [`CANDIDATES`]: what it needs, what can be said of it by
//! reading, and how it is opened. Everything else is the same for all of them.

use super::check::{Check, Figures, Finding, MOVER, SAMPLES, SOURCES, State};
use super::machine::{Machine, refused};
use crate::shared::source::damon_options;
use anyhow::Context as _;
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::fs::Root;
use memtide_linux::fs::numa::{self, Capability, Lockdown};
use memtide_linux::fs::proc;
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::mover::Process;
use memtide_linux::perf::tracepoint::TracepointError;
use memtide_linux::probe::samples as sampled;
use memtide_linux::probe::source::{Conditions, Unproved, words};
use memtide_linux::probe::standing::Standing;
use memtide_linux::probe::toucher::Pace;
use memtide_linux::probe::{mover, pagemap, source};
use memtide_linux::source::damon::{self, Damon};
use memtide_linux::source::from_damon::DamonSource;
use memtide_linux::source::from_hint_faults::HintFaultSource;
use memtide_linux::source::from_page_table::PageTableSource;
use memtide_linux::source::hint_faults::{self, HintFaults};
use memtide_linux::source::observe::Source;
use memtide_linux::source::page_table;
use memtide_linux::source::samples::{Kind, Lack, SampleError, plan};
use memtide_linux::sys::pagemap_scan::ScanError;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long each look of a proof is.
const INTERVAL: Duration = Duration::from_millis(100);

/// That things may be tried, and for how long.
pub struct Trial {
    page: PageSize,
    process: Process,
    limit: Duration,
    stop: Arc<AtomicUsize>,
}

impl Trial {
    /// # Errors
    ///
    /// This process cannot be found in procfs, or its pages are of a strange size.
    pub fn new(root: &Root, limit: Duration, stop: Arc<AtomicUsize>) -> anyhow::Result<Trial> {
        let page = PageSize::new(rustix::param::page_size() as u32).context("unknown page size")?;
        let me = proc::Process::current(root)?;
        Ok(Trial {
            page,
            process: Process {
                pid: me.pid,
                start_ticks: me.start_ticks,
            },
            limit,
            stop,
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}

/// A trial, or why there is none.
pub type MayTry = Result<Trial, &'static str>;

/// A source that could not be opened.
type Opened = Result<Box<dyn Source>, Finding>;

struct Candidate {
    name: &'static str,
    needs: &'static [Capability],
    /// What reading already says against it.
    objection: fn(&Machine) -> Option<Finding>,
    open: fn(&Root, PageSize) -> Opened,
    pace: Pace,
    /// Where pages must lie for it to see them; `None` is anywhere.
    node: fn(&Machine) -> Option<NodeId>,
}

const CANDIDATES: [Candidate; SOURCES.len()] = [
    Candidate {
        name: SOURCES[0],
        needs: &[Capability::SysAdmin],
        objection: damon_objection,
        open: open_damon,
        pace: Pace::Easy,
        node: |_| None,
    },
    Candidate {
        name: SOURCES[1],
        needs: &[Capability::SysAdmin],
        objection: hint_faults_objection,
        open: open_hint_faults,
        pace: Pace::Busy,
        node: |machine| machine.lower_node().filter(|_| only_tiering(machine)),
    },
    Candidate {
        name: SOURCES[2],
        needs: &[Capability::SysAdmin],
        objection: |_| None,
        open: open_page_table,
        pace: Pace::Easy,
        node: |_| None,
    },
];

/// Tries everything, or says of everything why it was not tried.
pub fn checks(machine: &Machine, may_try: &MayTry) -> Vec<Check> {
    let mut checks = vec![
        timed("pagemap_scan", || try_pagemap(machine, may_try)),
        timed(MOVER, || try_mover(machine, may_try)),
    ];
    for candidate in &CANDIDATES {
        let name = candidate.name;
        checks.push(timed(name, || try_source(candidate, machine, may_try)));
    }
    for (name, kind) in SAMPLES.into_iter().zip(Kind::ALL) {
        checks.push(timed(name, || try_samples(kind, machine, may_try)));
    }
    checks
}

fn timed(name: &'static str, check: impl FnOnce() -> Finding) -> Check {
    let began = Instant::now();
    Check {
        name,
        finding: check(),
        elapsed: began.elapsed(),
    }
}

fn not_tried(why: &str) -> Finding {
    Finding::new(State::NotProbed, format!("not tried: {why}"))
}

fn try_pagemap(machine: &Machine, may_try: &MayTry) -> Finding {
    let trial = match may_try {
        Ok(trial) => trial,
        Err(why) => return not_tried(why),
    };
    match pagemap::prove(&machine.root.path("proc"), trial.process) {
        Ok(pages) => Finding::proved(
            format!("shows {pages} of {pages} present pages and no other"),
            figures(pages, pages, 0),
        ),
        Err(pagemap::Unproved::Scan(error @ ScanError::Absent)) => Finding::new(
            State::Unavailable,
            format!("{error}; memtide does so, and cannot tell huge pages"),
        ),
        Err(error) => Finding::new(State::Broken, error.to_string()),
    }
}

fn try_mover(machine: &Machine, may_try: &MayTry) -> Finding {
    let nodes = machine.usable_nodes();
    if nodes.len() < 2 {
        let why = "one node of memory is usable, so pages have nowhere to go";
        return Finding::new(State::Unavailable, why);
    }
    let trial = match may_try {
        Ok(trial) => trial,
        Err(why) => return not_tried(why),
    };
    let kernel = RunningKernel::new(machine.root.clone());
    match mover::prove(kernel, trial.page, trial.process, &nodes) {
        Ok(proof) => Finding::proved(
            format!(
                "{} pages went from node {} to node {} and back in {:.1} ms, contents intact",
                proof.pages,
                proof.from,
                proof.to,
                proof.elapsed.as_secs_f64() * 1000.0
            ),
            figures(proof.pages, proof.pages, 0),
        ),
        Err(error @ mover::Unproved::Full { .. }) => {
            Finding::new(State::Unavailable, error.to_string())
        }
        Err(error @ mover::Unproved::NotAllowed { .. }) => {
            Finding::new(State::NotPermitted, error.to_string())
        }
        Err(error) => Finding::new(State::Broken, error.to_string()),
    }
}

fn try_source(candidate: &Candidate, machine: &Machine, may_try: &MayTry) -> Finding {
    if let Some(objection) = (candidate.objection)(machine) {
        return objection;
    }
    let missing = machine.lacks(candidate.needs);
    if !missing.is_empty() {
        let why = format!("{} is missing; run as root", missing.join(", "));
        return Finding::new(State::NotPermitted, why);
    }
    let trial = match may_try {
        Ok(trial) if trial.stopped() => return not_tried("interrupted"),
        Ok(trial) => trial,
        Err(why) => return not_tried(why),
    };
    let mut source = match (candidate.open)(&machine.root, trial.page) {
        Ok(source) => source,
        Err(finding) => return finding,
    };
    let conditions = Conditions {
        page: trial.page,
        process: trial.process,
        node: (candidate.node)(machine),
        pace: candidate.pace,
        interval: INTERVAL,
        limit: trial.limit,
    };
    match source::prove(&mut *source, conditions, &|| trial.stopped()) {
        Ok(proof) => {
            let seen = proof.sightings;
            let figures = Figures {
                passes: seen.passes,
                ..figures(
                    seen.touched as usize,
                    seen.best.seen as usize,
                    seen.best.unexpected,
                )
            };
            Finding::proved(words(&seen, proof.elapsed), figures)
        }
        Err(Unproved::Interrupted) => not_tried("interrupted"),
        Err(error @ Unproved::NotPlaced { .. }) => {
            Finding::new(State::Unavailable, error.to_string())
        }
        Err(Unproved::Wrong(proof)) => {
            let seen = proof.sightings;
            Finding {
                proof: Some(Figures {
                    passes: seen.passes,
                    ..figures(
                        seen.touched as usize,
                        seen.best.seen as usize,
                        seen.best.unexpected,
                    )
                }),
                ..Finding::new(
                    State::Broken,
                    format!(
                        "{}; do not rely on this source here",
                        words(&seen, proof.elapsed)
                    ),
                )
            }
        }
        Err(error) => Finding::new(State::Broken, error.to_string()),
    }
}

fn try_samples(kind: Kind, machine: &Machine, may_try: &MayTry) -> Finding {
    let root = &machine.root;
    if let Err(why) = plan::available(kind, root) {
        return without_samples(&why.into());
    }
    let trial = match may_try {
        Ok(trial) if trial.stopped() => return not_tried("interrupted"),
        Ok(trial) => trial,
        Err(why) => return not_tried(why),
    };
    let stopped = || trial.stopped();
    match sampled::prove(kind, root, trial.page, trial.limit, &stopped) {
        Ok(proof) => {
            let seen = proof.sightings;
            let counts = (seen.touched as usize, seen.best.seen as usize);
            Finding::proved(
                words(&seen, proof.elapsed),
                figures(counts.0, counts.1, seen.best.unexpected),
            )
        }
        Err(sampled::Unproved::Interrupted) => not_tried("interrupted"),
        Err(sampled::Unproved::Sample(why)) => without_samples(&why),
        Err(why) => Finding::new(
            State::Broken,
            format!("{why}; do not rely on this source here"),
        ),
    }
}

/// The state that a refusal comes to.
fn without_samples(why: &SampleError) -> Finding {
    let state = match why.lack() {
        Lack::Absent => State::Unavailable,
        Lack::Permission => State::NotPermitted,
        Lack::Busy => State::Busy,
        Lack::Broken | Lack::Ended => State::Broken,
    };
    Finding::new(state, why.to_string())
}

fn figures(expected: usize, seen: usize, unexpected: u64) -> Figures {
    Figures {
        expected: expected as u64,
        seen: seen as u64,
        unexpected,
        passes: None,
    }
}

/// Whoever has DAMON keeps it: this is asked before anything is opened.
fn damon_objection(machine: &Machine) -> Option<Finding> {
    let (state, why) = match &machine.damon {
        Ok(Standing::Free) => return None,
        Ok(Standing::Absent { path }) => (
            State::Unavailable,
            format!(
                "{}: absent; the kernel was built without DAMON_SYSFS",
                path.display()
            ),
        ),
        Ok(Standing::Program { kdamonds, path }) => (
            State::Busy,
            format!(
                "{}: {kdamonds} in use by another program; stop it to use DAMON",
                path.display()
            ),
        ),
        Ok(Standing::Module { name, path }) => (
            State::Busy,
            format!(
                "{}: {name} runs and lets nobody else use DAMON; write N there to use it",
                path.display()
            ),
        ),
        Ok(Standing::Memtide { pid }) => (
            State::Busy,
            match pid {
                Some(pid) => format!("memtide process {pid} has it; stop it to have it proved"),
                None => "another memtide has it; stop it to have it proved".to_owned(),
            },
        ),
        Ok(Standing::LeftOver(_)) => (
            State::Busy,
            "a memtide that crashed left it taken; memtide doctor --restore frees it".to_owned(),
        ),
        Err(error) => return Some(refused(error)),
    };
    Some(Finding::new(state, why))
}

fn open_damon(root: &Root, page: PageSize) -> Opened {
    use damon::Unavailable as Why;
    let damon = Damon::open(damon_options(root)).map_err(|why| {
        // It hides tracefs as if it were not mounted.
        let hidden = matches!(&why, Why::Tracepoint(TracepointError::NotMounted { .. }))
            && matches!(numa::lockdown(root), Ok(Some(Lockdown::Confidentiality)));
        if hidden {
            let why = "the kernel is locked down (confidentiality) and hides tracefs; \
                       boot without lockdown to use DAMON";
            return Finding::new(State::NotPermitted, why);
        }
        let state = match &why {
            Why::NoDamon { .. } | Why::NoOperations { .. } | Why::NoField { .. } => {
                State::Unavailable
            }
            Why::Busy { .. } | Why::HeldByMemtide { .. } | Why::Module { .. } => State::Busy,
            Why::Tracepoint(TracepointError::Read { source, .. })
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                State::NotPermitted
            }
            Why::Tracepoint(_) => State::Unavailable,
            Why::NotPermitted(_) => State::NotPermitted,
            Why::Lent(error) if error.is_denied() => State::NotPermitted,
            Why::Knob(_) | Why::Lent(_) => State::Broken,
        };
        Finding::new(state, why.to_string())
    })?;
    Ok(Box::new(DamonSource::new(damon, root.clone(), page)))
}

/// Whether the kernel balances between tiers and not between sockets. Then it
/// makes hint faults only for pages on lower tiers.
fn only_tiering(machine: &Machine) -> bool {
    matches!(&machine.balancing, Ok(Some(mode)) if mode.tiering && !mode.normal)
}

fn hint_faults_objection(machine: &Machine) -> Option<Finding> {
    use hint_faults::HintFaultsError as Why;
    if let Err(why) = HintFaults::available(&machine.root.path("/")) {
        let state = match &why {
            Why::Malformed { .. } => State::Broken,
            _ => State::Unavailable,
        };
        return Some(Finding::new(state, why.to_string()));
    }
    (only_tiering(machine) && machine.lower_node().is_none()).then(|| {
        let why = "kernel.numa_balancing is 2: hint faults only on slower tiers, and there is \
                   none; 1 makes them everywhere";
        Finding::new(State::Unavailable, why)
    })
}

fn open_hint_faults(root: &Root, page: PageSize) -> Opened {
    let options = hint_faults::Options {
        root: root.path("/"),
        ..Default::default()
    };
    match HintFaultSource::open(options, page) {
        Ok(source) => Ok(Box::new(source)),
        Err(why) => Err(Finding::new(State::Unavailable, why.to_string())),
    }
}

fn open_page_table(root: &Root, _: PageSize) -> Opened {
    use page_table::Unavailable as Why;
    match PageTableSource::open(&root.path("/")) {
        Ok(source) => Ok(Box::new(source)),
        Err(why) => {
            let state = match &why {
                Why::NoPermission { .. } | Why::SymbolsHidden { .. } | Why::Lockdown { .. } => {
                    State::NotPermitted
                }
                _ => State::Unavailable,
            };
            Err(Finding::new(state, why.to_string()))
        }
    }
}
