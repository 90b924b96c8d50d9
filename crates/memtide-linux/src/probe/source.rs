//! Whether a source reports the accesses that are made.
//!
//! A thread touches 64 of 512 pages of this process, the source is told to look
//! at all of them, and a [`Judge`] compares. Works over [`Source`], whatever it
//! is made of; the source is closed afterwards in every case.

use super::judge::{Judge, Sightings, Verdict};
use super::toucher::{Pace, Toucher};
use super::{PAGES, hot_pages, mover as placing};
use crate::live::kernel::RunningKernel;
use crate::mover::Process;
use crate::source::observe::{Source, SourceError, Span, Subject};
use crate::sys::Errno;
use crate::sys::own_memory::OwnPages;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::{NodeId, PageSize};
use memtide_loop::world::ProcessId;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ME: OwnerId = OwnerId(0);
/// How long the proof may be deaf to being stopped.
const POLL: Duration = Duration::from_millis(50);

/// How to prove a source.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The base page.
    pub page: PageSize,
    /// This process.
    pub process: Process,
    /// Where the pages should lie; `None` leaves them where they come up.
    pub node: Option<NodeId>,
    /// How hard they are touched.
    pub pace: Pace,
    /// The interval of a look.
    pub interval: Duration,
    /// How long it may take.
    pub limit: Duration,
}

/// What the source proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// What was seen.
    pub sightings: Sightings,
    /// From the look's beginning to the verdict.
    pub elapsed: Duration,
    /// Reports that were lost.
    pub lost: u64,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum Unproved {
    /// Memory to try it on could not be had.
    #[error("no pages to try it on: {0}")]
    Pages(Errno),
    /// The pages could not be put where the source would see them.
    #[error("only {placed} of {wanted} pages to try it on went to node {node}")]
    NotPlaced {
        /// The pages that arrived.
        placed: usize,
        /// All pages.
        wanted: usize,
        /// Where they should be.
        node: NodeId,
    },
    /// The source itself failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It reported something else than what happened.
    #[error("{}", words(&.0.sightings, .0.elapsed))]
    Wrong(Proof),
    /// The caller did not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
}

/// Proves `source` and closes it. `stopped` is asked several times a second.
///
/// # Errors
///
/// Why it is not proved. That it could not be closed counts most, because then
/// something may be left changed.
pub fn prove(
    source: &mut dyn Source,
    conditions: Conditions,
    stopped: &dyn Fn() -> bool,
) -> Result<Proof, Unproved> {
    let proved = observe(source, conditions, stopped);
    source.close()?;
    proved
}

fn observe(
    source: &mut dyn Source,
    conditions: Conditions,
    stopped: &dyn Fn() -> bool,
) -> Result<Proof, Unproved> {
    let Conditions { page, process, .. } = conditions;
    let pages = Arc::new(OwnPages::map(PAGES).map_err(Unproved::Pages)?);
    (0..PAGES).for_each(|page| pages.write(page, 1));
    if let Some(node) = conditions.node {
        let kernel = RunningKernel::new(crate::fs::Root::default());
        let placed = placing::place(kernel, page, process, &pages, node);
        if placed < PAGES {
            return Err(Unproved::NotPlaced {
                placed,
                wanted: PAGES,
                node,
            });
        }
    }
    let hot = hot_pages(PAGES);
    let first = VirtualPage(pages.address() as u64 >> page.shift());
    let mut judge = Judge::new(ME, first, PAGES, &hot, source.abilities());
    let _toucher = Toucher::start(pages.clone(), hot, conditions.pace).map_err(Unproved::Pages)?;
    let subject = Subject {
        owner: ME,
        process: ProcessId {
            pid: process.pid,
            start_ticks: process.start_ticks,
        },
        spans: vec![Span {
            first,
            pages: PAGES as u64,
        }],
    };
    let began = Instant::now();
    source.look(&[subject], conditions.interval)?;
    loop {
        if stopped() {
            return Err(Unproved::Interrupted);
        }
        source.poll(POLL, &mut judge)?;
        let proof = Proof {
            sightings: judge.sightings(),
            elapsed: began.elapsed(),
            lost: source.lost(),
        };
        match judge.verdict(proof.elapsed, conditions.limit) {
            Verdict::Wait => {}
            Verdict::Proved => return Ok(proof),
            Verdict::Failed => return Err(Unproved::Wrong(proof)),
        }
    }
}

/// The figures in a sentence.
pub fn words(sightings: &Sightings, elapsed: Duration) -> String {
    let Sightings {
        pages,
        touched,
        best,
        passes,
        exact,
    } = sightings;
    let seconds = elapsed.as_secs_f64();
    let passes = match passes {
        Some(passes) => format!("; {exact} of {passes} passes exact"),
        None => String::new(),
    };
    format!(
        "saw {} of {touched} touched pages and {} of {} untouched ones in {seconds:.1} s{passes}",
        best.seen,
        best.unexpected,
        pages - touched
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::toucher::Pace;
    use crate::source::observe::{Abilities, Sink, View};

    /// A source that reports what it is told to, for pages that it was given.
    struct Told {
        offsets: Vec<usize>,
        looking: Option<(OwnerId, VirtualPage)>,
        fails: bool,
        closed: bool,
    }

    impl Told {
        fn new(offsets: Vec<usize>) -> Told {
            Told {
                offsets,
                looking: None,
                fails: false,
                closed: false,
            }
        }
    }

    impl Source for Told {
        fn kind(&self) -> memtide_core::access::Source {
            memtide_core::access::Source::PageTableScan
        }
        fn abilities(&self) -> Abilities {
            Abilities {
                passes: true,
                ..Abilities::default()
            }
        }
        fn look(&mut self, subjects: &[Subject], _: Duration) -> Result<u64, SourceError> {
            let subject = &subjects[0];
            self.looking = Some((subject.owner, subject.spans[0].first));
            Ok(0)
        }
        fn glance(&mut self, _: &[Subject], _: Duration) -> Result<(), SourceError> {
            Ok(())
        }
        fn poll(&mut self, _: Duration, sink: &mut dyn Sink) -> Result<(), SourceError> {
            if self.fails {
                return Err(SourceError::Failed("out of order".into()));
            }
            let (owner, first) = self.looking.expect("poll follows look");
            for &offset in &self.offsets {
                let page = VirtualPage(first.0 + offset as u64);
                sink.touched(View::Look, owner, page, 1);
            }
            sink.pass_complete(View::Look);
            Ok(())
        }
        fn close(&mut self) -> Result<(), SourceError> {
            self.closed = true;
            Ok(())
        }
        fn kernel_time(&mut self) -> Duration {
            Duration::ZERO
        }
        fn lost(&self) -> u64 {
            0
        }
    }

    fn conditions(limit: Duration) -> Conditions {
        Conditions {
            page: PageSize::KIB_4,
            process: Process {
                pid: std::process::id(),
                start_ticks: 0,
            },
            node: None,
            pace: Pace::Easy,
            interval: Duration::from_millis(1),
            limit,
        }
    }

    #[test]
    fn a_true_source_is_proved_and_closed() {
        let mut source = Told::new(hot_pages(PAGES));
        let proof = prove(&mut source, conditions(Duration::MAX), &|| false).unwrap();
        assert_eq!(proof.sightings.best.seen, 64);
        assert_eq!(proof.sightings.passes, Some(2));
        assert!(source.closed);
    }

    #[test]
    fn a_false_one_is_not_and_is_closed_all_the_same() {
        let mut source = Told::new(vec![0, 1, 2]);
        let error = prove(&mut source, conditions(Duration::ZERO), &|| false).unwrap_err();
        // Page 0 is touched, 1 and 2 are not.
        assert_eq!(
            error.to_string(),
            "saw 1 of 64 touched pages and 2 of 448 untouched ones in 0.0 s; 0 of 1 passes exact"
        );
        assert!(source.closed);
    }

    #[test]
    fn failure_and_impatience_close_it_too() {
        let mut source = Told::new(Vec::new());
        let stopped = prove(&mut source, conditions(Duration::MAX), &|| true);
        assert!(matches!(stopped, Err(Unproved::Interrupted)));
        assert!(source.closed);
        let mut source = Told::new(Vec::new());
        source.fails = true;
        let failed = prove(&mut source, conditions(Duration::MAX), &|| false);
        assert_eq!(failed.unwrap_err().to_string(), "out of order");
        assert!(source.closed);
    }
}
