//! An experiment: a machine, what runs on it, the configurations to compare, and what a document
//! reports of it.
//!
//! A scenario is one TOML file (`scenarios/` has those of the documents). It may have several *cases*,
//! such as STREAM's kernels, which differ in their workload only; every case runs under every
//! configuration, and a case's first configuration is what the others are compared with. Instead of one
//! workload there may be several *programs* that run at once (`programs`). The file says
//! what the document measured; what came out here stands beside it. No configuration of a row has a
//! setting that makes the row fit: the machine is described once, and a workload once for all rows.

pub mod balancing;
pub mod coarse;
pub mod confidence;
mod home;
mod programs;
mod published;
mod read;
pub mod reproduction;
mod run;
mod shipped;

pub use home::HomeSpec;
pub use published::{Figure, Mark, Published, PublishedBalancing};
pub use run::{
    Comparison, NotRun, Options, Progress, PublishedBeside, Quiet, Row, RunError, Unit, run,
};
pub use shipped::{MACHINES, SHIPPED, Shipped, ShippedMachine, shipped};

use crate::config::{Bound, Configuration};
use crate::page::HUGE_PAGES;
use crate::spec::MachineSpec;
use crate::workload::{Measure, Places, TraceRow, Workload, WorkloadSpec, spread};
use std::sync::Arc;

/// An experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its short name: that of its file.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Which document describes it; empty if none does.
    pub document: String,
    /// What a reader learns from it.
    pub shows: String,
    /// The machine.
    pub machine: MachineSpec,
    /// S: it runs at scale 1/S unless told otherwise.
    pub scale: u32,
    /// What runs.
    pub cases: Vec<Case>,
    /// What is compared; the bounds are added to each case.
    pub configurations: Vec<Configuration>,
    /// What the document measured.
    pub published: Vec<Published>,
    rows: Arc<Vec<TraceRow>>,
}

/// One workload of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; empty if it is the only one.
    pub name: String,
    /// What runs.
    pub workload: WorkloadSpec,
    /// The configurations that it is run under, by name; all if empty.
    pub only: Vec<String>,
    /// How it is measured by when its hot set is home; `None` if it is measured as its workload says.
    pub home: Option<HomeSpec>,
}

impl Scenario {
    /// The configurations of a case in order, bounds last.
    #[must_use]
    pub fn configurations_of(&self, case: &Case) -> Vec<Configuration> {
        let wanted = |c: &&Configuration| case.only.is_empty() || case.only.contains(&c.name);
        let mut list: Vec<Configuration> =
            self.configurations.iter().filter(wanted).cloned().collect();
        // A bound has nothing to find, and where nothing moves nothing ever is home.
        if case.workload.measure() != Measure::Pages && case.home.is_none() {
            // The oracle serves all programs alike, and where some are there for their load only, they are
            // not to be served.
            let wanted = |bound: &Configuration| {
                bound.bound != Some(Bound::Oracle) || !case.workload.has_background()
            };
            list.extend(Configuration::bounds().into_iter().filter(wanted));
        }
        list
    }

    /// The file with its trace, if it replays one.
    #[must_use]
    pub fn trace_file(&self) -> Option<&str> {
        let mut traces = self.cases.iter().filter_map(|case| case.workload.trace());
        traces.next().map(|trace| trace.file.as_str())
    }

    /// The same with the rows of its trace.
    #[must_use]
    pub fn with_trace(mut self, rows: Vec<TraceRow>) -> Scenario {
        self.rows = Arc::new(rows);
        self
    }

    /// Pages that its recording is spread over at scale 1/`scale`: a mapping is all of its pages, however
    /// few were accessed. 0 without one.
    #[must_use]
    pub fn recorded_pages(&self, scale: u32) -> u64 {
        spread(&self.rows, scale, self.has_huge_recording())
    }

    fn has_huge_recording(&self) -> bool {
        let mut traces = self.cases.iter().filter_map(|case| case.workload.trace());
        traces.any(|trace| trace.huge)
    }

    /// The largest S at which it still means something.
    #[must_use]
    pub fn max_scale(&self) -> u32 {
        largest_scale(&self.cases, &self.machine)
    }

    /// Whether the huge pages of its recording fit into the machine at scale 1/`scale`: they are the larger the
    /// coarser that is.
    #[must_use]
    pub fn recording_fits(&self, scale: u32) -> bool {
        if !self.has_huge_recording() {
            return true;
        }
        let bytes: u64 = self
            .machine
            .nodes
            .iter()
            .map(|node| node.capacity_bytes)
            .sum();
        self.recorded_pages(scale) <= bytes / 4096 / u64::from(scale.max(1))
    }

    /// The workload of a case as a configuration runs it: at scale 1/`scale`, with the configuration's
    /// interleave and balancing flag in its policies.
    #[must_use]
    pub fn workload(&self, case: &Case, configuration: &Configuration, scale: u32) -> Workload {
        let places = Places::new(&self.machine);
        let mut workload = case.workload.build(&places, scale, &self.rows);
        if let Some(interleave) = &configuration.interleave {
            workload.interleave(&places, interleave);
        }
        for region in workload.regions_mut() {
            let bound = region.policy.mode == memtide_core::mempolicy::Mode::Bind;
            if configuration.bind_balancing && bound && region.policy.nodes.len() > 1 {
                let nodes: Vec<u16> = region.policy.nodes.iter().map(|node| node.0).collect();
                region.policy = places.bind(&nodes, true);
            }
        }
        workload
    }
}

/// The largest S at which workloads still mean something on a machine. Where there are huge pages, each node of
/// memory has some.
fn largest_scale(cases: &[Case], machine: &MachineSpec) -> u32 {
    const SOME: u64 = 4;
    let limits = cases.iter().map(|case| case.workload.max_scale());
    let limit = limits.min().unwrap_or(1);
    if !cases.iter().any(|case| case.workload.any_huge()) {
        return limit;
    }
    let nodes = machine.nodes.iter().map(|node| node.capacity_bytes);
    let smallest = nodes.filter(|&bytes| bytes > 0).min().unwrap_or(0);
    let most = smallest / 4096 / u64::from(HUGE_PAGES) / SOME;
    let most = u32::try_from(most).unwrap_or(u32::MAX).max(1);
    limit.min(1 << most.ilog2())
}

#[cfg(test)]
mod tests;
