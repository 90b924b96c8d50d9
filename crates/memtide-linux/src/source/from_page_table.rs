//! Accessed bits from the page tables as a [`Source`]: exact looks at whole
//! processes, cheap enough that glances have no use.
//!
//! A look clears the bits, waits for its interval, and reads them. All of its
//! cost falls on this process; the kernel does nothing in the background.

use super::observe::{Abilities, Sink, Source, SourceError, Subject, View};
use super::page_table::{PageTableScan, ScanError, Unavailable};
use crate::mover::Process;
use memtide_core::access;
use memtide_core::tiering::space::VirtualPage;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// The scan, and what it is looking at.
pub struct PageTableSource {
    scan: PageTableScan,
    subjects: Vec<Looked>,
    interval: Duration,
    /// When the present pass is over; `None` while nothing is looked at.
    due: Option<Instant>,
    /// Processor time that clearing and scanning took.
    spent: Duration,
}

struct Looked {
    subject: Subject,
    process: Process,
    ranges: Vec<Range<u64>>,
}

impl PageTableSource {
    /// Reads what is needed of the kernel below `root`.
    ///
    /// # Errors
    ///
    /// Why this machine has no such scan.
    pub fn open(root: &Path) -> Result<PageTableSource, Unavailable> {
        Ok(PageTableSource {
            scan: PageTableScan::open(root)?,
            subjects: Vec::new(),
            interval: Duration::ZERO,
            due: None,
            spent: Duration::ZERO,
        })
    }

    /// Begins the next pass: whoever cannot be cleared is left out from now on.
    fn clear(&mut self) -> Result<(), SourceError> {
        let before = thread_time();
        let scan = &mut self.scan;
        let mut failed = None;
        self.subjects.retain(|looked| {
            let cleared = scan
                .attach(looked.process)
                .and_then(|()| scan.clear(looked.process));
            cleared
                .map_err(|error| failed = failed.take().or(unexpected(error)))
                .is_ok()
        });
        self.due = Some(Instant::now() + self.interval);
        self.spent += thread_time().saturating_sub(before);
        failed.map_or(Ok(()), Err)
    }
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The error, unless it only says that the process has ended.
fn unexpected(error: ScanError) -> Option<SourceError> {
    match error {
        ScanError::Gone { .. } | ScanError::NoMemory { .. } | ScanError::Changed { .. } => None,
        error => Some(SourceError::Failed(format!("page-table scan: {error}"))),
    }
}

impl Source for PageTableSource {
    fn kind(&self) -> access::Source {
        access::Source::PageTableScan
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            passes: true,
            glances: false,
            ..Abilities::default()
        }
    }

    fn look(&mut self, subjects: &[Subject], interval: Duration) -> Result<u64, SourceError> {
        for looked in self.subjects.drain(..) {
            if !subjects
                .iter()
                .any(|subject| subject.process.pid == looked.subject.process.pid)
            {
                self.scan.detach(looked.process);
            }
        }
        self.due = None;
        self.interval = interval;
        self.subjects = subjects
            .iter()
            .map(|subject| Looked {
                process: Process {
                    pid: subject.process.pid,
                    start_ticks: subject.process.start_ticks,
                },
                ranges: subject
                    .spans
                    .iter()
                    .map(|span| span.first.0..span.first.0 + span.pages)
                    .collect(),
                subject: subject.clone(),
            })
            .collect();
        if self.subjects.is_empty() {
            return Ok(0);
        }
        self.clear()?;
        Ok(subjects.iter().map(Subject::pages).sum())
    }

    fn glance(&mut self, _subjects: &[Subject], _interval: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let left = self
            .due
            .map(|due| due.saturating_duration_since(Instant::now()));
        std::thread::sleep(left.map_or(timeout, |left| left.min(timeout)));
        if self.due.is_none_or(|due| Instant::now() < due) {
            return Ok(());
        }
        let before = thread_time();
        let mut failed = None;
        let scan = &mut self.scan;
        for looked in &self.subjects {
            let owner = looked.subject.owner;
            let scanned = scan.scan(looked.process, &looked.ranges, |run| {
                let first = VirtualPage(run.vpn);
                if run.accessed {
                    sink.touched(View::Look, owner, first, run.pages);
                } else {
                    sink.untouched(owner, first, run.pages);
                }
            });
            if let Err(error) = scanned {
                failed = failed.or(unexpected(error));
            }
        }
        self.spent += thread_time().saturating_sub(before);
        if let Some(error) = failed {
            return Err(error);
        }
        sink.pass_complete(View::Look);
        self.clear()
    }

    fn close(&mut self) -> Result<(), SourceError> {
        self.look(&[], Duration::ZERO).map(drop)
    }

    fn kernel_time(&mut self) -> Duration {
        Duration::ZERO
    }

    fn own_time(&self) -> Duration {
        self.spent
    }

    fn lost(&self) -> u64 {
        0
    }
}
