//! Accesses through the engine: TLBs, caches, samplers, threads on CPUs.

use super::{Case, Choices, check};
use memtide_core::units::NodeId;
use memtide_sim::engine::{Run as Engine, Source};
use memtide_sim::hardware::Hardware;
use memtide_sim::kernel::{Kernel, KernelError};
use memtide_sim::page::{Flags, Slot};
use memtide_sim::rng::Rng;
use memtide_sim::workload::{Access, Filled, Plan, RegionPlan, Truth};

pub fn run(case: &Case, choices: &mut Choices<'_>) -> Result<(), KernelError> {
    let Case {
        machine,
        plan,
        configuration,
        scale,
        seed,
        ..
    } = case;
    let source = RandomSource::new(plan.clone(), choices);
    let mut engine = Engine::new(machine, source, configuration, *seed, *scale)?;
    let mut ran = 0;
    while ran < case.quanta && engine.quantum()? {
        ran += 1;
        if choices.once_in(10) {
            let node = NodeId(choices.below(machine.nodes.len() as u32) as u16);
            let (kernel, hw) = (&mut engine.kernel, &mut engine.hw);
            kernel.reclaim_proactively(hw, node, 100, u64::from(ran) * 1_000_000);
        }
        if choices.once_in(4) {
            super::events::happen(&mut engine.kernel, &mut engine.hw, plan, choices, ran);
        }
        check(&engine.kernel, &format!("quantum {ran}"));
        // Under lazy flushing translations are old on purpose; what they show is checked instead.
        if configuration.luf.is_none() {
            check_translations(&engine.kernel, &engine.hw, ran);
        }
    }
    Ok(())
}

/// No CPU has a translation to a frame that is not the page's any more, or that lets through what the
/// page table would not: then an access would read or write a wrong page, or go unseen.
fn check_translations(kernel: &Kernel, hw: &Hardware, quantum: u32) {
    for (cpu, hardware) in hw.cpus.iter().enumerate() {
        for (slot, huge, translation) in hardware.tlb.entries() {
            let pte = kernel.ptes[slot as usize];
            // A page on the move, too, may be where it will be for who moves it or waited for it.
            let right = pte.has_any(Flags::PRESENT.with(Flags::MIGRATING))
                && !pte.has(Flags::HINT)
                && pte.has(Flags::HUGE) == huge
                && pte.frame() == translation.frame()
                && pte.node() == translation.node();
            let stores = pte.has(Flags::WRITABLE.with(Flags::DIRTY)) || !translation.stores();
            assert!(
                right && stores,
                "quantum {quantum}: CPU {cpu} has a stale translation of slot {slot}: {translation:?}, {pte:?}"
            );
        }
    }
}

/// Threads that access random parts of random regions of their space.
struct RandomSource {
    plan: Plan,
    slots: Vec<Slot>,
    left: Vec<u32>,
    total: u32,
    /// For each thread and region: first page, pages, stores of 65,536.
    spans: Vec<Vec<(u32, u32, u32)>>,
}

impl RandomSource {
    fn new(plan: Plan, choices: &mut Choices<'_>) -> RandomSource {
        let total = choices.of(&[100, 5_000, 100_000]);
        let span = |choices: &mut Choices<'_>, region: &RegionPlan| {
            let first = choices.below(region.pages);
            let stores = if region.writable {
                choices.of(&[0, 100, 30_000])
            } else {
                0
            };
            (first, choices.within(1, region.pages - first), stores)
        };
        let spans = (0..plan.threads.len())
            .map(|_| plan.regions.iter().map(|r| span(choices, r)).collect())
            .collect();
        RandomSource {
            slots: Vec::new(),
            left: vec![total; plan.threads.len()],
            total,
            spans,
            plan,
        }
    }
}

impl Source for RandomSource {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn mapped(&mut self, slots: &[Slot]) {
        self.slots = slots.to_vec();
    }

    fn fill(&mut self, thread: usize, _: u64, rng: &mut Rng, batch: &mut [Access]) -> Filled {
        let space = self.plan.threads[thread].space;
        let regions = self.plan.regions.iter().enumerate();
        let own: Vec<usize> = regions
            .filter(|(_, r)| r.space == space)
            .map(|(at, _)| at)
            .collect();
        let count = batch.len().min(self.left[thread] as usize);
        if own.is_empty() || count == 0 {
            return Filled::Done;
        }
        for access in &mut batch[..count] {
            let region = own[rng.below(own.len() as u32) as usize];
            let (first, pages, stores) = self.spans[thread][region];
            let slot = self.slots[region] + first + rng.below(pages);
            let line = rng.below(64);
            let lines = 1 + rng.below(64 - line);
            *access = Access::new(slot, line, lines, rng.chance(stores));
        }
        self.left[thread] -= count as u32;
        Filled::Accesses(count)
    }

    fn done(&self) -> f64 {
        let left = self.left.iter().max().copied().unwrap_or(0);
        1.0 - f64::from(left) / f64::from(self.total)
    }

    fn phase(&self, _: u64) -> u64 {
        0
    }

    fn truth(&self, _: usize, _: u32, _: u64) -> Truth {
        Truth { rate: 1.0, node: 0 }
    }
}
