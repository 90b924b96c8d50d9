//! The running machine as spreading sees it.

use super::{Machine, Member};
use crate::shared::outside::causes;
use crate::shared::pacing::Budget;
use crate::shared::spread::as_the_kernel_counts;
use crate::shared::tending::{Done, Pages, Spreader};
use memtide_core::units::PageSize;
use memtide_linux::fs::Root;
use memtide_linux::fs::proc::Process;
use memtide_linux::live::processes::{Selected, Selection};
use memtide_linux::respread::{Options, RespreadError, Spread};
use memtide_loop::options::Rules;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Of one thread.
pub struct Running {
    root: Root,
    selected: Selected,
}

impl Running {
    /// The processes of `selection`, in classes by `rules`.
    pub fn new(root: Root, page: PageSize, selection: Selection, rules: Rules) -> Running {
        let mut selected = Selected::new(root.clone(), page, selection);
        selected.set_classes(rules);
        Running { root, selected }
    }
}

impl Spreader for Running {
    fn spread(
        &mut self,
        process: Process,
        options: &Options,
        budget: &mut Budget,
        pause: &mut dyn FnMut(Duration, u64) -> bool,
    ) -> Result<Done, RespreadError> {
        Pages(&self.root).spread(process, options, budget, pause)
    }
}

impl Machine for Running {
    fn members(&mut self) -> Result<Vec<Member>, String> {
        let (mut seen, mut notices) = (Vec::new(), Vec::new());
        // Tiering tells of what there is to notice.
        let listed = self.selected.list(&mut seen, &mut notices);
        listed.map_err(|error| causes(&error.into()))?;
        let member = seen.iter().filter_map(|seen| {
            let process = Process {
                pid: seen.process.pid,
                start_ticks: seen.process.start_ticks,
            };
            Some((process, seen.faults, seen.class?))
        });
        Ok(member.collect())
    }

    fn counted(&mut self, spread: &Spread) -> Spread {
        as_the_kernel_counts(&self.root, spread.clone()).unwrap_or_else(|_| spread.clone())
    }

    fn cpu(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    }
}
