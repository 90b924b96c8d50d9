//! Accesses straight to the kernel, so that nothing but its own calls decides what happens.

use super::{Case, Choices, check};
use memtide_core::units::NodeId;
use memtide_sim::hardware::{Hardware, Sample, ServedBy};
use memtide_sim::kernel::{Kernel, KernelError, Who};
use memtide_sim::page::Slot;
use memtide_sim::workload::{RegionPlan, ThreadPlan};

pub fn run(case: &Case, choices: &mut Choices<'_>) -> Result<(), KernelError> {
    let mut run = Run::new(case);
    let ended = run.all(case, choices);
    check(&run.kernel, &format!("{} ns", run.now_ns));
    ended
}

struct Run {
    kernel: Kernel,
    hw: Hardware,
    now_ns: u64,
    samples: Vec<Sample>,
}

impl Run {
    fn new(case: &Case) -> Run {
        let Case {
            machine,
            plan,
            configuration,
            scale,
            seed,
            ..
        } = case;
        Run {
            kernel: Kernel::new(machine, plan, configuration, *scale, *seed).expect("a kernel"),
            hw: Hardware::new(machine, plan, configuration, *scale, *seed),
            now_ns: 0,
            samples: Vec::new(),
        }
    }

    fn all(&mut self, case: &Case, choices: &mut Choices<'_>) -> Result<(), KernelError> {
        self.kernel.populate(&mut self.hw)?;
        check(&self.kernel, &format!("{} ns", self.now_ns));
        for _ in 0..case.quanta {
            for (thread, plan) in case.plan.threads.iter().enumerate() {
                self.quantum(case, thread as u32, plan, choices)?;
            }
            self.now_ns += 1_000_000;
            let samples = std::mem::take(&mut self.samples);
            self.kernel.samples(&mut self.hw, &samples, self.now_ns);
            if choices.once_in(10) {
                let node = NodeId(choices.below(case.machine.nodes.len() as u32) as u16);
                let pages = u64::from(choices.within(1, 500));
                let (kernel, hw) = (&mut self.kernel, &mut self.hw);
                kernel.reclaim_proactively(hw, node, pages, self.now_ns);
            }
            if choices.once_in(4) {
                let quantum = (self.now_ns / 1_000_000) as u32;
                super::events::happen(&mut self.kernel, &mut self.hw, &case.plan, choices, quantum);
            }
            self.kernel.background(&mut self.hw, self.now_ns, 1_000_000);
            check(&self.kernel, &format!("{} ns", self.now_ns));
        }
        Ok(())
    }

    /// What one thread does in a millisecond: accesses to a part of a region of its space.
    fn quantum(
        &mut self,
        case: &Case,
        thread: u32,
        plan: &ThreadPlan,
        choices: &mut Choices<'_>,
    ) -> Result<(), KernelError> {
        let mine = |r: &&(usize, &RegionPlan)| r.1.space == plan.space;
        let regions: Vec<_> = case.plan.regions.iter().enumerate().collect();
        let regions: Vec<_> = regions.iter().filter(mine).collect();
        let cpu = self.hw.cpu_of_thread(thread);
        let who = Who {
            thread,
            cpu,
            node: self.hw.node_of_cpu(cpu),
            space: plan.space,
            now_ns: self.now_ns,
        };
        if !regions.is_empty() {
            let &&(at, region) = &regions[choices.below(regions.len() as u32) as usize];
            let first = choices.below(region.pages);
            let span = choices.within(1, region.pages - first);
            let stores = region.writable && choices.once_in(2);
            // The accesses themselves are the generator's, not the fuzzer's: bytes decide the shape.
            for _ in 0..choices.of(&[20, 200, 1000]) {
                let page = first + choices.rng.below(span);
                let slot = self.kernel.regions.get(at).base + page;
                let write = stores && choices.rng.chance(20_000);
                self.access(&who, slot, write)?;
            }
        }
        self.kernel.tick(&mut self.hw, &who, 1_000_000);
        Ok(())
    }

    fn access(&mut self, who: &Who, slot: Slot, write: bool) -> Result<(), KernelError> {
        self.kernel.access(&mut self.hw, who, slot, write)?;
        self.sample(who, slot, write);
        Ok(())
    }

    /// Each eleventh page is one that the sampler happens to pick.
    fn sample(&mut self, who: &Who, slot: Slot, write: bool) {
        if slot.is_multiple_of(11) {
            let node = self.kernel.ptes[slot as usize].node();
            let served = match (node == who.node, self.hw.has_cpus(node)) {
                (true, _) => ServedBy::LocalDram,
                (false, true) => ServedBy::RemoteDram,
                (false, false) => ServedBy::Extension,
            };
            self.samples.push(Sample {
                slot,
                cpu: who.cpu,
                thread: who.thread,
                write,
                latency_ns: 100,
                served,
            });
        }
    }
}
