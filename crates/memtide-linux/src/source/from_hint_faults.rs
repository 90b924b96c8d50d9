//! Hint faults as a [`Source`]: single accesses, as the kernel makes them.

use super::hint_faults::{HintFaults, HintFaultsError, Options};
use super::observe::{Abilities, Sink, Source, SourceError, Subject, View};
use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::PageSize;
use std::time::Duration;

/// Hint faults of the processes that are looked at. How often they come, the
/// kernel decides; the interval that is asked for has no meaning here.
#[derive(Debug)]
pub struct HintFaultSource {
    options: Options,
    page: PageSize,
    faults: Option<HintFaults>,
    owners: Vec<(u32, OwnerId)>,
    lost: u64,
}

impl HintFaultSource {
    /// A source that attaches to processes once it is told which.
    ///
    /// # Errors
    ///
    /// Why the kernel makes no hint faults at present.
    pub fn open(options: Options, page: PageSize) -> Result<HintFaultSource, HintFaultsError> {
        HintFaults::available(&options.root)?;
        Ok(HintFaultSource {
            options,
            page,
            faults: None,
            owners: Vec::new(),
            lost: 0,
        })
    }
}

fn failed(error: HintFaultsError) -> SourceError {
    SourceError::Failed(format!("hint faults: {error}"))
}

impl Source for HintFaultSource {
    fn kind(&self) -> access::Source {
        access::Source::HintFault
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn look(&mut self, subjects: &[Subject], _interval: Duration) -> Result<u64, SourceError> {
        let pages = subjects.iter().map(Subject::pages).sum();
        let mut owners: Vec<(u32, OwnerId)> = subjects
            .iter()
            .map(|subject| (subject.process.pid, subject.owner))
            .collect();
        owners.sort_unstable();
        if self.faults.is_some() && owners == self.owners {
            return Ok(pages);
        }
        self.faults = None;
        while !owners.is_empty() {
            let pids: Vec<u32> = owners.iter().map(|(pid, _)| *pid).collect();
            match HintFaults::attach(&pids, self.options.clone()) {
                Ok(faults) => {
                    self.faults = Some(faults);
                    break;
                }
                // One of them has ended; the others are still there.
                Err(HintFaultsError::Process { .. }) => {
                    let root = &self.options.root;
                    let before = owners.len();
                    owners.retain(|(pid, _)| root.join(format!("proc/{pid}")).exists());
                    if owners.len() == before {
                        return Err(SourceError::Failed(
                            "hint faults: a process cannot be read".into(),
                        ));
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.owners = owners;
        Ok(pages)
    }

    fn glance(&mut self, _subjects: &[Subject], _interval: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let Some(faults) = &mut self.faults else {
            std::thread::sleep(timeout);
            return Ok(());
        };
        faults
            .wait(timeout)
            .map_err(|error| SourceError::Failed(format!("waiting for hint faults: {error}")))?;
        let (owners, shift) = (&self.owners, self.page.shift());
        let polled = faults
            .poll(&mut |fault| {
                if let Ok(at) = owners.binary_search_by_key(&fault.pid, |(pid, _)| *pid) {
                    sink.touched(
                        View::Look,
                        owners[at].1,
                        VirtualPage(fault.address >> shift),
                        1,
                    );
                }
            })
            .map_err(failed)?;
        self.lost += polled.walk.lost;
        Ok(())
    }

    fn close(&mut self) -> Result<(), SourceError> {
        self.faults = None;
        Ok(())
    }

    fn kernel_time(&mut self) -> Duration {
        // The faults are paid by the threads that take them, and the kernel
        // takes them whether we listen or not.
        Duration::ZERO
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
