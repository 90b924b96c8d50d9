//! Who of several programs did what, and what becomes of the memory of one that has ended.
//!
//! Accesses are counted by thread already. What memory served is one sum for the machine while a thread
//! runs, so its difference over a thread's turn is the program's: nothing is added to the way of an access.
//! With one workload there are no programs, and nothing is done here.

use super::access::Tally;
use super::threads::Thread;
use super::{PS, Run, Source};
use crate::kernel::Kernel;
use crate::page::MAX_NODES;
use crate::result::{ProgramResult, ProgramSeries};
use crate::workload::ProgramPlan;
use memtide_core::fairness::jain;
use memtide_core::topology::Topology;
use memtide_core::units::NodeId;
use std::collections::BTreeMap;

/// Data lines that memory served, by node.
type Lines = [u64; MAX_NODES];

/// What adds up for a program during a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Accesses made.
    pub accesses: u64,
    /// Data lines that memory served.
    pub served: u64,
    /// Of these, by the top tier.
    pub served_fast: u64,
    /// Pages on the top tier, now.
    pub fast_pages: u64,
}

/// The programs of a run.
pub struct Programs {
    plans: Vec<ProgramPlan>,
    /// By thread: its program.
    of_thread: Vec<u32>,
    served: Vec<Lines>,
    /// Of those that have ended: where their pages were.
    ended: Vec<Option<Lines>>,
}

impl Programs {
    /// Those of a source.
    pub fn new(plans: &[ProgramPlan]) -> Programs {
        let threads = |(n, plan): (u32, &ProgramPlan)| plan.threads.clone().map(move |_| n);
        Programs {
            of_thread: (0..).zip(plans).flat_map(threads).collect(),
            served: vec![[0; MAX_NODES]; plans.len()],
            ended: vec![None; plans.len()],
            plans: plans.to_vec(),
        }
    }

    /// Whether there is one workload and no more.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The program of a thread; all threads are of program 0 if there is one workload.
    #[inline]
    pub fn of_thread(&self, thread: usize) -> usize {
        self.of_thread.get(thread).map_or(0, |&n| n as usize)
    }

    /// The program of an address space.
    pub fn of_space(&self, space: u16) -> Option<&ProgramPlan> {
        self.plans.iter().find(|plan| plan.spaces.contains(&space))
    }

    /// All of them.
    pub fn plans(&self) -> &[ProgramPlan] {
        &self.plans
    }

    /// What memory has served so far this quantum, to be given to [`Programs::ran`].
    #[inline]
    pub fn before(&self, tally: &Tally) -> Option<Lines> {
        (!self.is_empty()).then(|| lines(tally))
    }

    /// A thread ran since `before`.
    #[inline]
    pub fn ran(&mut self, thread: usize, before: Option<Lines>, tally: &Tally) {
        let Some(before) = before else { return };
        let served = &mut self.served[self.of_thread[thread] as usize];
        for ((sum, now), before) in served.iter_mut().zip(lines(tally)).zip(before) {
            *sum += now - before;
        }
    }
}

fn lines(tally: &Tally) -> Lines {
    let of = |node: usize| tally.missed[node][0] + tally.missed[node][1] + tally.streamed[node];
    std::array::from_fn(of)
}

fn on_top(topology: &Topology, by_node: &Lines) -> u64 {
    let top = (0..MAX_NODES as u16).filter(|&node| topology.is_top_tier(NodeId(node)));
    top.map(|node| by_node[usize::from(node)]).sum()
}

fn charged(kernel: &Kernel, plan: &ProgramPlan) -> Lines {
    kernel.charged(plan.regions.clone())
}

impl<W: Source> Run<W> {
    /// Its programs.
    #[must_use]
    pub fn programs(&self) -> &[ProgramPlan] {
        self.programs.plans()
    }

    /// Gives back the memory of programs whose threads are all done. The last one's stays, as that of a
    /// workload does, so that the result says where it was.
    pub(super) fn end_programs(&mut self) {
        if self.programs.is_empty() || self.threads.iter().all(Thread::is_done) {
            return;
        }
        for (plan, ended) in self.programs.plans.iter().zip(&mut self.programs.ended) {
            let threads = &self.threads[plan.threads.clone()];
            if ended.is_some() || !threads.iter().all(Thread::is_done) {
                continue;
            }
            *ended = Some(charged(&self.kernel, plan));
            for region in plan.regions.clone() {
                self.kernel.regions.get_mut(region).plan.freed_at_ns = Some(self.now_ps / PS);
            }
        }
    }

    /// What each program has done so far.
    pub(super) fn parts(&self) -> Vec<Part> {
        let all = self.programs.plans.iter().zip(&self.programs.served);
        let topology = &self.kernel.topology;
        all.map(|(plan, served)| Part {
            accesses: accesses(&self.threads[plan.threads.clone()]),
            served: served.iter().sum(),
            served_fast: on_top(topology, served),
            fast_pages: on_top(topology, &charged(&self.kernel, plan)),
        })
        .collect()
    }

    /// What each program's run was, and how fairly fast memory served them; nothing where a bound
    /// placed their pages.
    pub(super) fn program_results(&self, end_ps: u64) -> (Vec<ProgramResult>, Option<f64>) {
        if self.programs.is_empty() || self.oracle.is_some() {
            return (Vec::new(), None);
        }
        let nodes: Vec<usize> = (self.kernel.topology.nodes().iter())
            .map(|node| node.id.index())
            .collect();
        let series = self.recorder.program_series(self.scale);
        let parts = self.parts();
        let mut results = Vec::new();
        let mut tenants: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (n, (plan, part)) in self.programs.plans.iter().zip(&parts).enumerate() {
            let threads = &self.threads[plan.threads.clone()];
            let done = threads.iter().all(Thread::is_done);
            let last_ps = threads.iter().map(|thread| thread.clock_ps).max();
            let last_ps = last_ps.filter(|_| done).unwrap_or(end_ps);
            let ran_s = last_ps.saturating_sub(plan.start_ns * PS) as f64 * 1e-12;
            let by_node = self.programs.ended[n].unwrap_or_else(|| charged(&self.kernel, plan));
            if !plan.background {
                let tenant = plan.cgroup.as_ref().unwrap_or(&plan.name);
                let sums = tenants.entry(tenant).or_default();
                (sums.0, sums.1) = (sums.0 + part.served_fast, sums.1 + part.served);
            }
            results.push(ProgramResult {
                name: plan.name.clone(),
                cgroup: plan.cgroup.clone(),
                started_s: plan.start_ns as f64 / 1e9,
                seconds: ran_s,
                accesses_per_s: (part.accesses * self.scale) as f64 / ran_s.max(1e-12),
                ratio: None,
                fast_share: share(part.served_fast, part.served),
                pages_by_node: nodes.iter().map(|&n| by_node[n] * self.scale).collect(),
                series: series
                    .get(n)
                    .cloned()
                    .unwrap_or_else(ProgramSeries::default),
            });
        }
        let shares: Vec<f64> = (tenants.values())
            .map(|&(fast, all)| share(fast, all))
            .collect();
        (results, Some(jain(&shares)))
    }
}

fn accesses(threads: &[Thread]) -> u64 {
    threads.iter().map(|thread| thread.accesses).sum()
}

/// Who needed no memory had all of it fast.
fn share(fast: u64, all: u64) -> f64 {
    match all {
        0 => 1.0,
        all => fast as f64 / all as f64,
    }
}
