//! What a world that runs on the engine asks of it.

use super::threads::State;
use super::{PS, Run, Source};
use crate::hardware::Sample;
use crate::workload::ProgramPlan;

impl<W: Source> Run<W> {
    /// The end of the last quantum, in nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ps / PS
    }

    /// The address spaces of all mappings and threads, in no order.
    #[must_use]
    pub fn spaces(&self) -> Vec<u16> {
        let regions = self.kernel.regions.iter().map(|region| region.plan.space);
        let threads = self.threads.iter().map(|thread| thread.plan.space);
        regions.chain(threads).collect()
    }

    /// The program of an address space, if there are several.
    #[must_use]
    pub fn program_of(&self, space: u16) -> Option<&ProgramPlan> {
        self.programs.of_space(space)
    }

    /// When the program of `space` starts, in nanoseconds since the start.
    #[must_use]
    pub fn space_starts_ns(&self, space: u16) -> u64 {
        self.programs
            .of_space(space)
            .map_or(0, |plan| plan.start_ns)
    }

    /// Whether a thread of `space` still runs; `None` if it never had one.
    #[must_use]
    pub fn space_runs(&self, space: u16) -> Option<bool> {
        if self.now_ns() < self.space_starts_ns(space) {
            return Some(false);
        }
        let own = |thread: &&super::threads::Thread| thread.plan.space == space;
        let mut threads = self.threads.iter().filter(own).peekable();
        threads.peek()?;
        Some(threads.any(|thread| thread.state != State::Done))
    }

    /// Processor time that the threads of `space` used.
    #[must_use]
    pub fn space_ran_ns(&self, space: u16) -> u64 {
        let threads = self.threads.iter();
        let own = threads.filter(|thread| thread.plan.space == space);
        own.map(|thread| thread.clock_ps / PS).sum()
    }

    /// The space of a thread that is not done, and the processor time that it used; `None` if it is,
    /// or never was.
    #[must_use]
    pub fn thread_runs(&self, thread: u32) -> Option<(u16, u64)> {
        let thread = self.threads.get(thread as usize)?;
        let runs = thread.state != State::Done;
        runs.then_some((thread.plan.space, thread.clock_ps / PS))
    }

    /// The hardware samples of the last quantum.
    #[must_use]
    pub fn last_samples(&self) -> &[Sample] {
        &self.samples
    }
}
