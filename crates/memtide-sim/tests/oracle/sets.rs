//! A program of sets of pages: in each phase each set has a weight, and all of a set's pages are alike.

use memtide_core::mempolicy::Mode;
use memtide_sim::engine::Source;
use memtide_sim::page::Slot;
use memtide_sim::rng::Rng;
use memtide_sim::workload::{Access, Filled, Pattern, Plan, RegionPlan, Truth};

/// A set.
#[derive(Clone, Debug)]
pub struct Set {
    pub pages: u32,
    /// How many of 64 accesses store.
    pub stores: u32,
    /// Its share of the accesses by phase, in parts of the phase's sum.
    pub weights: Vec<u32>,
}

/// What runs.
#[derive(Clone, Debug)]
pub struct Program {
    pub threads: u32,
    pub pattern: Pattern,
    pub think_ns: f64,
    /// Accesses of a thread in a phase.
    pub accesses: u64,
    pub phases: usize,
    pub sets: Vec<Set>,
    /// Where its pages begin: of all nodes, in turn, by weight.
    pub places: Vec<(u16, u8)>,
    /// Where all threads run.
    pub node: u16,
}

/// It, running. Every set is a mapping.
#[derive(Clone)]
pub struct Sets {
    program: Program,
    plan: Plan,
    bases: Vec<Slot>,
    made: Vec<u64>,
}

impl Sets {
    pub fn new(program: &Program) -> Sets {
        let nodes: Vec<u16> = program.places.iter().map(|&(node, _)| node).collect();
        let mut policy = match nodes.as_slice() {
            [only] => super::machine::policy(Mode::Preferred, &[*only]),
            several => super::machine::policy(Mode::WeightedInterleave, several),
        };
        policy.on_fault = true;
        let template = super::machine::Uniform::new(1, program.node, 1, 1, policy);
        let plan = template.plan();
        let regions = program.sets.iter().enumerate().map(|(at, set)| RegionPlan {
            name: format!("set {at}"),
            pages: set.pages,
            start_vpn: (at as u64 + 1) << 20,
            ..plan.regions[0].clone()
        });
        let mut thread = plan.threads[0].clone();
        thread.pattern = program.pattern;
        thread.think_ns = program.think_ns;
        Sets {
            plan: Plan {
                regions: regions.collect(),
                threads: vec![thread; program.threads as usize],
                ends_at_ns: None,
            },
            bases: Vec::new(),
            made: vec![0; program.threads as usize],
            program: program.clone(),
        }
    }

    fn all(&self) -> u64 {
        self.program.accesses * self.program.phases as u64
    }

    fn phase_of(&self, thread: usize) -> usize {
        let phase = self.made[thread] / self.program.accesses;
        (phase as usize).min(self.program.phases - 1)
    }

    fn sum(&self, phase: usize) -> u32 {
        self.program.sets.iter().map(|set| set.weights[phase]).sum()
    }
}

impl Source for Sets {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.bases = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let left = self.all() - self.made[thread];
        let phase = self.phase_of(thread);
        let until_next = self.program.accesses - self.made[thread] % self.program.accesses;
        let count = (batch.len() as u64).min(until_next).min(left) as usize;
        let sum = self.sum(phase);
        for access in &mut batch[..count] {
            let mut lot = rng.below(sum);
            let sets = self.program.sets.iter().zip(&self.bases);
            let mut sets = sets.skip_while(|(set, _)| {
                let other = lot >= set.weights[phase];
                lot -= if other { set.weights[phase] } else { 0 };
                other
            });
            let (set, base) = sets.next().expect("a lot below the sum");
            let page = base + rng.below(set.pages);
            let bits = rng.bits();
            let write = (bits >> 6) & 63 < u64::from(set.stores);
            *access = Access::new(page, bits as u32 & 63, 1, write);
        }
        self.made[thread] += count as u64;
        match count {
            0 => Filled::Done,
            _ => Filled::Accesses(count),
        }
    }

    fn done(&self) -> f64 {
        self.made.iter().min().copied().unwrap_or(0) as f64 / self.all() as f64
    }

    fn phase(&self, _: u64) -> u64 {
        let made = self.made.iter();
        made.map(|made| made / self.program.accesses).sum()
    }

    fn truth(&self, region: usize, _: u32, _: u64) -> Truth {
        let set = &self.program.sets[region];
        let threads = 0..self.made.len();
        let rates = threads.map(|thread| {
            let phase = self.phase_of(thread);
            set.weights[phase] as f32 / self.sum(phase) as f32
        });
        Truth {
            rate: rates.sum::<f32>() / set.pages as f32,
            node: self.program.node,
        }
    }
}
