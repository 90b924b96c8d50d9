//! Language models that are read from a file, layer after layer, for each token: the lazy unmap flush series' load.
//!
//! Each process maps its model read-only and computes tokens one after another. A token needs all
//! weights once: layer by layer, and in each layer matrix by matrix. The threads of a process share the
//! rows of a matrix and wait for each other at its end. For each page of weights a thread reads a line
//! of the vector that is multiplied, stores a line of results elsewhere, and fetches an instruction line
//! of the loop. Vectors and results are anonymous memory of the process, the loop a part of the
//! program's file, which all processes share.

use super::checks::some_threads;
use super::places::START_VPN;
use super::{
    Access, Acts, Filled, Kind, Pattern, Places, Plan, RegionPlan, ThreadPlan, Truth, Wrong, pages,
    want,
};
use crate::page::Slot;
use crate::rng::Rng;
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// The settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceSpec {
    /// How many processes, each with its own model.
    pub processes: u32,
    /// Threads of each.
    pub threads: u32,
    /// The node on whose CPUs they run.
    pub node: u16,
    /// The size of a model.
    pub model: Bytes,
    /// Layers of a model.
    pub layers: u32,
    /// Matrices of a layer.
    pub matrices: u32,
    /// Tokens that each process computes.
    pub tokens: u32,
    /// What a process multiplies its matrices with, and as much for the results.
    pub vectors: Bytes,
    /// The part of the program that runs all the time.
    pub program: Bytes,
    /// Time per page of weights that needs no memory.
    pub think: Nanos,
    /// Misses that a thread has under way at once; the machine's figure for its pattern if left out.
    pub misses_at_once: Option<f64>,
}

/// Accesses for a page of weights.
const PER_PAGE: usize = 4;
/// Regions of a process: model, vectors, results, program.
const REGIONS: usize = 4;

impl InferenceSpec {
    pub(super) fn check(&self, places: &Places) -> Result<(), Wrong> {
        places.has_cpus("node", self.node)?;
        places.has_memory("node", self.node)?;
        some_threads(self.threads)?;
        let some = |key, value| want(value > 0, key, "give at least 1");
        some("processes", self.processes)?;
        want(self.processes <= 1000, "processes", "give at most 1000")?;
        some("layers", self.layers)?;
        some("matrices", self.matrices)?;
        some("tokens", self.tokens)?;
        want(self.model.0 >= 4096, "model", "give at least a page")?;
        places.fit(
            "vectors",
            self.vectors.0.saturating_mul(u64::from(self.processes)),
        )?;
        want(self.program.0 > 0, "program", "give at least a page")
    }

    fn regions(&self, places: &Places, process: u32, scale: u32) -> [RegionPlan; REGIONS] {
        let mut at = START_VPN;
        let mut region = |name: &str, bytes: Bytes, file: Option<u16>| {
            let count = pages(bytes, scale, false);
            let mut region = places.region(name, count, self.node, self.node);
            region.space = process as u16;
            region.name = format!("{name} {process}");
            region.policy = places.default_policy();
            region.policy_after = None;
            region.start_vpn = at;
            region.bandwidth = false;
            if file.is_some() {
                region.kind = Kind::SharedFile;
                region.file = file;
                region.writable = false;
                region.populated_from = None;
            }
            at += u64::from(count).next_multiple_of(512);
            region
        };
        [
            region("model", self.model, Some(process as u16)),
            region("vectors", self.vectors, None),
            region("results", self.vectors, None),
            // Models have the numbers before.
            region("program", self.program, Some(self.processes as u16)),
        ]
    }

    pub(super) fn build(&self, places: &Places, scale: u32) -> (Plan, Inference) {
        let processes = 0..self.processes;
        let regions: Vec<RegionPlan> = processes
            .clone()
            .flat_map(|process| self.regions(places, process, scale))
            .collect();
        let thread = |process: u32| ThreadPlan {
            space: process as u16,
            nodes: vec![self.node],
            pattern: Pattern::Sequential,
            // Some twenty instructions for each of a page's 64 lines.
            ops_per_access: 64 * 20 / PER_PAGE as u32,
            think_ns: self.think.0 / PER_PAGE as f64,
            misses_at_once: None,
            group: process as u16,
        };
        let count = self.threads as usize;
        let inference = Inference {
            sizes: std::array::from_fn(|n| regions[n].pages),
            matrices: self.layers * self.matrices,
            steps: u64::from(self.tokens) * u64::from(self.layers * self.matrices),
            threads: count,
            node: self.node,
            bases: Vec::new(),
            workers: vec![Worker::default(); count * self.processes as usize],
            processes: vec![Process::default(); self.processes as usize],
        };
        let plan = Plan {
            regions,
            threads: processes.flat_map(|p| vec![thread(p); count]).collect(),
            ends_at_ns: None,
        };
        (plan, inference)
    }
}

/// The workload, running.
#[derive(Clone, Debug)]
pub(super) struct Inference {
    /// Pages of model, vectors, results and program.
    sizes: [u32; REGIONS],
    /// Matrices of a model.
    matrices: u32,
    /// Matrices that each process multiplies in all.
    steps: u64,
    /// Threads of a process.
    threads: usize,
    node: u16,
    /// By process.
    bases: Vec<[Slot; REGIONS]>,
    workers: Vec<Worker>,
    processes: Vec<Process>,
}

/// A thread: the matrix at hand, and the pages of its part that are done.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    step: u64,
    pages: u32,
}

/// A process: the matrix at hand, and the threads that are through with it.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    step: u64,
    through: usize,
}

impl Inference {
    /// The pages of the model that are a thread's part of a matrix.
    fn part(&self, step: u64, thread: usize) -> std::ops::Range<u32> {
        let (matrices, threads) = (u64::from(self.matrices), self.threads as u64);
        let parts = matrices * threads;
        let part = step % matrices * threads + thread as u64;
        let begin = |part| (part * u64::from(self.sizes[0]) / parts) as u32;
        begin(part)..begin(part + 1)
    }

    /// What one page of weights takes.
    fn page(&self, process: usize, page: u32, rng: &mut Rng) -> [Access; PER_PAGE] {
        let [model, vectors, results, program] = self.bases[process];
        let line = rng.below(64);
        [
            Access::fetch(program + rng.below(self.sizes[3]), line),
            Access::new(model + page, 0, 64, false),
            Access::new(vectors + rng.below(self.sizes[1]), line, 1, false),
            Access::new(results + rng.below(self.sizes[2]), line, 1, true),
        ]
    }
}

impl Acts for Inference {
    fn mapped(&mut self, slots: &[Slot]) {
        let (of_processes, _) = slots.as_chunks::<REGIONS>();
        self.bases = of_processes.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let (process, member) = (thread / self.threads, thread % self.threads);
        let mut count = 0;
        loop {
            let Worker { step, pages } = self.workers[thread];
            if step >= self.steps {
                return Filled::of(count);
            }
            if step > self.processes[process].step {
                return match count {
                    0 => Filled::Waits,
                    _ => Filled::Accesses(count),
                };
            }
            let part = self.part(step, member);
            let room = (batch.len() - count) / PER_PAGE;
            let now = part.len().saturating_sub(pages as usize).min(room);
            for page in part.start + pages..part.start + pages + now as u32 {
                batch[count..count + PER_PAGE].copy_from_slice(&self.page(process, page, rng));
                count += PER_PAGE;
            }
            self.workers[thread].pages += now as u32;
            if self.workers[thread].pages < part.len() as u32 {
                return Filled::Accesses(count);
            }
            self.workers[thread] = Worker {
                step: step + 1,
                pages: 0,
            };
            let own = &mut self.processes[process];
            own.through += 1;
            if own.through == self.threads {
                *own = Process {
                    step: step + 1,
                    through: 0,
                };
            }
        }
    }

    fn done(&self) -> f64 {
        let slowest = self.processes.iter().map(|process| process.step).min();
        slowest.unwrap_or(0) as f64 / self.steps as f64
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        // A page of weights is read once a token; each time a page of the others is accessed too.
        let size = self.sizes[region % REGIONS];
        Truth {
            rate: (f64::from(self.sizes[0]) / f64::from(size)) as f32,
            node: self.node,
        }
    }
}
