//! Where accesses come from: the workloads of scenarios, or a test's own.

use crate::page::Slot;
use crate::rng::Rng;
use crate::workload::{Access, Filled, Plan, ProgramPlan, Truth, Workload};

/// A source of accesses; see [`Workload`], which is one.
pub trait Source {
    /// Regions, threads and end.
    fn plan(&self) -> &Plan;
    /// The first slot of each region.
    fn mapped(&mut self, slots: &[Slot]);
    /// The next accesses of a thread.
    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled;
    /// The share done.
    fn done(&self) -> f64;
    /// Changes whenever the true rates do.
    fn phase(&self, now_ns: u64) -> u64;
    /// The true rate of a page.
    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth;
    /// Whether its accesses were recorded, so that nobody knows their true rates.
    fn is_recorded(&self) -> bool {
        false
    }
    /// The programs that the plan consists of; none if it is one.
    fn programs(&self) -> &[ProgramPlan] {
        &[]
    }
}

impl Source for Workload {
    fn plan(&self) -> &Plan {
        self.plan()
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.mapped(slots);
    }

    #[inline]
    fn fill(&mut self, thread: usize, now_ns: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        self.fill(thread, now_ns, rng, batch)
    }

    fn done(&self) -> f64 {
        self.done()
    }

    fn phase(&self, now_ns: u64) -> u64 {
        self.phase(now_ns)
    }

    fn truth(&self, region: usize, page: u32, now_ns: u64) -> Truth {
        self.truth(region, page, now_ns)
    }

    fn is_recorded(&self) -> bool {
        self.is_recorded()
    }

    fn programs(&self) -> &[ProgramPlan] {
        self.programs()
    }
}
