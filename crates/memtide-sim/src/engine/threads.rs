//! Threads: whose turn it is, what their accesses cost, and what happens in between.

use super::access::{BATCH, Path, Prices, Stop};
use super::{PS, QUANTUM_NS, Run, Source};
use crate::hardware::Hardware;
use crate::hardware::memory::Quantum;
use crate::kernel::{Fault, KernelError, Who};
use crate::page::MAX_NODES;
use crate::rng::Rng;
use crate::workload::{Access, Filled, Pattern, SLEEP_NS, ThreadPlan};
use memtide_core::units::NodeId;
use std::ops::Range;

/// Faults of one access, one after the other, that no kernel makes.
const MOST_FAULTS: u32 = 64;
/// Fewest accesses asked for at once.
const LEAST_BATCH: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Waiting,
    Done,
}

/// A thread.
pub struct Thread {
    pub plan: ThreadPlan,
    pub state: State,
    /// Its time, in picoseconds since the start.
    pub clock_ps: u64,
    /// Accesses made.
    pub accesses: u64,
    /// Whether it sleeps until its clock's time, and others may have its CPU.
    asleep: bool,
    rng: Rng,
    batch: Vec<Access>,
    at: usize,
    end: usize,
    /// CPU time since the kernel's last tick.
    since_tick_ps: u64,
    /// What an access took lately, times the scale.
    typical_ps: u64,
}

impl Thread {
    pub fn new(plan: ThreadPlan, seed: u64, index: u64) -> Thread {
        Thread {
            plan,
            state: State::Running,
            clock_ps: 0,
            accesses: 0,
            asleep: false,
            rng: Rng::new(seed, index),
            batch: Vec::new(),
            at: 0,
            end: 0,
            since_tick_ps: 0,
            typical_ps: 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether it sleeps at least until then: it takes no turn before.
    fn sleeps_until(&self, ps: u64) -> bool {
        self.asleep && self.clock_ps >= ps
    }
}

impl<W: Source> Run<W> {
    /// Lets every thread run until `end_ps`.
    pub(super) fn run_threads(&mut self, end_ps: u64) -> Result<(), KernelError> {
        self.renew_order();
        let order = std::mem::take(&mut self.order);
        // Who comes first is first at a storage device: that must not be the same one for ever.
        let first = match self.kernel.has_storage() {
            true => self.quanta as usize % order.len().max(1),
            false => 0,
        };
        for (cpu, threads) in order[first..].iter().chain(&order[..first]) {
            let awake = |index: &&usize| !self.threads[**index].sleeps_until(end_ps);
            let turns = threads.iter().filter(awake).count() as u64;
            let mut from_ps = self.now_ps;
            let mut turn = 0;
            // With several threads another one is first each time.
            for at in 0..threads.len() {
                let index = threads[(at + self.quanta as usize) % threads.len()];
                if self.threads[index].sleeps_until(end_ps) {
                    continue;
                }
                turn += 1;
                let until_ps = match turn == turns {
                    true => end_ps,
                    false => self.now_ps + turn * (QUANTUM_NS * PS / turns),
                };
                self.run_thread(index, *cpu, from_ps, until_ps)?;
                let thread = &self.threads[index];
                if !thread.asleep {
                    from_ps = from_ps.max(thread.clock_ps);
                }
            }
        }
        self.ask_waiting(&order, end_ps)?;
        self.order = order;
        self.take_traffic();
        Ok(())
    }

    /// Threads that wait for others are asked again while that helps. Who goes on does so at the time
    /// when the last one of its program arrived.
    fn ask_waiting(&mut self, order: &[(u32, Vec<usize>)], end_ps: u64) -> Result<(), KernelError> {
        let mut arrived = Vec::new();
        loop {
            let waiting = |(_, thread): &(usize, &Thread)| thread.state == State::Waiting;
            let mut all = self.threads.iter().enumerate().filter(waiting).peekable();
            if all.peek().is_none() {
                return Ok(());
            }
            arrived.clear();
            arrived.resize(self.programs.plans().len().max(1), 0);
            for (index, thread) in all {
                let last_ps = &mut arrived[self.programs.of_thread(index)];
                *last_ps = thread.clock_ps.max(*last_ps);
            }
            let mut went_on = false;
            for (cpu, threads) in order {
                for &index in threads {
                    if self.threads[index].state != State::Waiting {
                        continue;
                    }
                    let arrived_ps = arrived[self.programs.of_thread(index)];
                    let from_ps = arrived_ps.max(self.threads[index].clock_ps);
                    if from_ps >= end_ps {
                        continue;
                    }
                    let before = self.threads[index].accesses;
                    let was_ps = self.threads[index].clock_ps;
                    self.run_thread(index, *cpu, from_ps, end_ps)?;
                    let thread = &mut self.threads[index];
                    if thread.state != State::Waiting || thread.accesses != before {
                        went_on = true;
                    } else {
                        thread.clock_ps = was_ps;
                    }
                }
            }
            if !went_on {
                return Ok(());
            }
        }
    }

    /// When the next thread does anything, in picoseconds; `None` if one waits for another, or none is
    /// left.
    pub(super) fn next_ps(&self) -> Option<u64> {
        let waits = |thread: &Thread| thread.state == State::Waiting;
        let live = self.threads.iter().filter(|thread| !thread.is_done());
        match self.threads.iter().any(waits) {
            true => None,
            false => live.map(|thread| thread.clock_ps).min(),
        }
    }

    fn renew_order(&mut self) {
        if self.generation == Some(self.hw.thread_generation()) {
            return;
        }
        self.generation = Some(self.hw.thread_generation());
        let mut by_cpu: Vec<(u32, u32)> = self
            .hw
            .running_threads()
            .map(|(thread, cpu)| (cpu, thread))
            .collect();
        by_cpu.sort_unstable();
        self.order.clear();
        for (cpu, thread) in by_cpu {
            match self.order.last_mut() {
                Some((last, threads)) if *last == cpu => threads.push(thread as usize),
                _ => self.order.push((cpu, vec![thread as usize])),
            }
        }
    }

    /// Runs a thread on `cpu` from `from_ps` (or its own clock, if that is later) until its clock
    /// passes `until_ps`, it waits, or it is done.
    fn run_thread(
        &mut self,
        index: usize,
        cpu: u32,
        from_ps: u64,
        until_ps: u64,
    ) -> Result<(), KernelError> {
        if self.threads[index].is_done() {
            return Ok(());
        }
        // The threads are out of their place while one runs, so that all else may be borrowed.
        let mut threads = std::mem::take(&mut self.threads);
        let result = self.run_taken(&mut threads[index], index, cpu, from_ps, until_ps);
        self.threads = threads;
        result
    }

    fn run_taken(
        &mut self,
        thread: &mut Thread,
        index: usize,
        cpu: u32,
        from_ps: u64,
        until_ps: u64,
    ) -> Result<(), KernelError> {
        let from_ps = from_ps.max(thread.clock_ps);
        if from_ps >= until_ps {
            return Ok(());
        }
        thread.clock_ps = from_ps;
        thread.state = State::Running;
        thread.asleep = false;
        self.hw.enter_space(thread.plan.space, cpu);
        let prices = self.prices.of(&self.hw, &thread.plan, cpu);
        let mut who = Who {
            thread: index as u32,
            cpu,
            node: self.hw.node_of_cpu(cpu),
            space: thread.plan.space,
            now_ns: from_ps / PS,
        };
        if self.configuration.samples.is_some() {
            let ns = self.kernel.set_sampler(&mut self.hw, &who);
            thread.clock_ps += ns * PS * self.scale;
        }
        if thread.since_tick_ps >= QUANTUM_NS * PS && self.oracle.is_none() {
            let ran_ns = std::mem::take(&mut thread.since_tick_ps) / PS;
            let cost_ns = self.kernel.tick(&mut self.hw, &who, ran_ns);
            thread.clock_ps += cost_ns * PS * self.scale;
        }
        let served = self.programs.before(&self.tally);
        let asked_before = self.tally.asked();
        let (mut faults, mut slept_ps) = (0, 0);
        let mut asked_until_ps = from_ps;
        while thread.clock_ps < until_ps {
            let stolen_ns = std::mem::take(&mut self.hw.cpus[cpu as usize].stolen_ns);
            thread.clock_ps += stolen_ns * PS * self.scale;
            if thread.at == thread.end {
                let wanted = (until_ps.saturating_sub(thread.clock_ps))
                    .checked_div(thread.typical_ps)
                    .map_or(LEAST_BATCH, |n| n.clamp(LEAST_BATCH, BATCH as u64));
                // Most threads of a recording are short.
                if thread.batch.len() < wanted as usize {
                    thread.batch.resize(wanted as usize, Access(0));
                }
                let batch = &mut thread.batch[..wanted as usize];
                let now_ns = thread.clock_ps / PS;
                match self.source.fill(index, now_ns, &mut thread.rng, batch) {
                    Filled::Accesses(count) => (thread.at, thread.end) = (0, count),
                    Filled::Waits => {
                        thread.state = State::Waiting;
                        break;
                    }
                    Filled::Thinks(ns) => {
                        thread.clock_ps += ns * PS;
                        if let Some(oracle) = self.oracle.as_mut().filter(|_| ns <= SLEEP_NS) {
                            oracle.ran(index, 0, ns * PS, 0);
                        }
                        if ns > SLEEP_NS {
                            slept_ps += ns * PS;
                            thread.asleep = true;
                        }
                        continue;
                    }
                    Filled::Done => {
                        thread.state = State::Done;
                        thread.batch = Vec::new();
                        self.hw.end_thread(index as u32);
                        break;
                    }
                }
            }
            let before = thread.at;
            let budget = (until_ps.saturating_sub(thread.clock_ps)).div_ceil(self.scale);
            let processor = &mut self.hw.cpus[cpu as usize];
            processor.tlb.settle();
            let domain = processor.domain as usize;
            let walked = self
                .oracle
                .as_ref()
                .map_or(0, |_| self.tally.walked.iter().sum());
            let links = self.hw.memory.has_links() && self.oracle.is_none();
            let traffic = links.then(|| std::array::from_fn(|node| self.tally.traffic(node)));
            let (hw, kernel) = (&mut self.hw, &mut self.kernel);
            let processor = &mut hw.cpus[cpu as usize];
            let mut path = Path {
                ptes: &mut kernel.ptes,
                cpu: processor,
                cache: &mut hw.caches[domain],
                huge: self.huge,
                groups: &self.groups,
                shared: &self.sharing.shared,
                seen: &mut self.sharing.seen,
                prices: self.prices.at(prices),
                tally: &mut self.tally,
                thread: index as u32,
                cpu_number: cpu,
                contents: kernel.contents.as_deref_mut(),
                census: self.oracle.as_mut().map(|oracle| oracle.census(index)),
            };
            let accesses = &thread.batch[..thread.end];
            let (stop, spent) = path.run(accesses, &mut self.ahead, &mut thread.at, budget);
            thread.clock_ps += spent * self.scale;
            asked_until_ps = thread.clock_ps;
            if let Some(before) = traffic {
                self.cross_links(who.node, &before);
            }
            let made = (thread.at - before) as u64;
            thread.accesses += made;
            if let Some(oracle) = &mut self.oracle {
                let walked = self.tally.walked.iter().sum::<u64>() - walked;
                oracle.ran(index, made, spent * self.scale, walked);
            }
            if let Some(typical_ps) = (spent * self.scale).checked_div(made) {
                faults = 0;
                thread.typical_ps = typical_ps.max(1);
            }
            if let Stop::Fault(why) = stop {
                faults += 1;
                assert!(
                    faults < MOST_FAULTS || why == Fault::Migrating,
                    "access {:?} of thread {index} faults for ever: {why:?}",
                    thread.batch[thread.at]
                );
                who.now_ns = thread.clock_ps / PS;
                let access = thread.batch[thread.at];
                let (slot, write) = (access.slot(), access.is_write());
                if self.kernel.is_given_back(slot) {
                    // A batch that was drawn before: a program makes no access to what it freed.
                    thread.at += 1;
                    faults = 0;
                    continue;
                }
                let cost_ns = self.kernel.fault(&mut self.hw, &who, slot, why, write)?;
                thread.clock_ps += cost_ns.max(1) * PS * self.scale;
            }
        }
        self.programs.ran(index, served, &self.tally);
        self.note_stalls(
            index,
            who.node,
            prices,
            &asked_before,
            from_ps..asked_until_ps,
        );
        if thread.is_done() {
            self.stalls.ended.push(index);
        }
        thread.since_tick_ps += thread.clock_ps - from_ps - slept_ps;
        self.sharing.ran(self.hw.cpus[cpu as usize].domain);
        Ok(())
    }

    /// Notes how long a thread waited for each node since `before`, at these prices, in this time.
    fn note_stalls(
        &mut self,
        thread: usize,
        from: NodeId,
        prices: usize,
        before: &[[u64; 2]; MAX_NODES],
        time_ps: Range<u64>,
    ) {
        let prices = self.prices.at(prices);
        let all = self.tally.asked();
        for (node, (now, before)) in all.iter().zip(before).enumerate() {
            let price = prices.memory[node];
            let waited = [0, 1].map(|kind| (now[kind] - before[kind]) * price[kind]);
            let ps = waited.iter().sum::<u64>() * self.scale;
            if ps > 0 {
                self.stalls.waited.push(Stall {
                    thread,
                    from,
                    to: NodeId(node as u16),
                    ps,
                    time_ps: time_ps.clone(),
                });
            }
        }
    }

    /// Latencies follow the traffic, and who asked for more than memory carries waits for it.
    pub(super) fn wait_for_memory(&mut self) {
        let mut stalls = std::mem::take(&mut self.stalls);
        let waited = &stalls.waited;
        let from_ps = waited.iter().map(|stall| stall.time_ps.start).min();
        let until_ps = waited.iter().map(|stall| stall.time_ps.end).max();
        let span = from_ps.zip(until_ps);
        let active_ps = span.map_or(0, |(from, until)| until.min(self.now_ps) - from);
        // On average of what they wait for.
        let (mut sum, mut until) = (0.0, 0.0);
        for stall in waited {
            let ahead_ps = stall.time_ps.end.saturating_sub(self.now_ps) + QUANTUM_NS * PS;
            sum += stall.ps as f64;
            until += stall.ps as f64 * ahead_ps as f64;
        }
        let under_way_ps = if sum > 0.0 { until / sum } else { 0.0 };
        self.hw.memory.feedback(Quantum {
            ns: QUANTUM_NS,
            active_ns: active_ps.div_ceil(PS).min(QUANTUM_NS),
            under_way_ns: under_way_ps as u64 / PS,
            ended: !stalls.ended.is_empty(),
        });
        stalls.end_quantum(active_ps);
        if self.hw.memory.is_late() {
            self.delay(&stalls);
        }
        stalls.waited.clear();
        stalls.ended.clear();
        self.stalls = stalls;
    }

    /// Who did nothing but wait for a node waits for all that is late there, others for their part of it. A
    /// thread's stalls stand side by side, and it waits for the latest of them.
    fn delay(&mut self, stalls: &Stalls) {
        for of_thread in stalls
            .waited
            .chunk_by(|one, next| one.thread == next.thread)
        {
            let late = of_thread.iter().map(|stall| {
                let part = stall.ps as f64 / stalls.most_ps[stall.to.index()] as f64;
                self.hw.memory.late_ns(stall.from, stall.to) * part
            });
            let late_ps = (late.fold(0.0, f64::max) * PS as f64) as u64;
            let thread = &mut self.threads[of_thread[0].thread];
            thread.clock_ps += late_ps;
            thread.since_tick_ps += late_ps;
        }
    }

    /// Brings what came since `before` to the links of a node's CPUs.
    fn cross_links(&mut self, from: NodeId, before: &[[u64; 2]; MAX_NODES]) {
        for (node, &[read, written]) in before.iter().enumerate() {
            let now = self.tally.traffic(node);
            let (read, written) = (now[0] - read, now[1] - written);
            if read + written > 0 {
                self.hw.memory.add_to_link(
                    from,
                    NodeId(node as u16),
                    read * self.scale,
                    written * self.scale,
                );
            }
        }
    }

    /// Brings the access path's traffic to the memory channels.
    fn take_traffic(&mut self) {
        for node in 0..MAX_NODES {
            let [loads, stores] = std::mem::take(&mut self.tally.missed[node]);
            let walked = std::mem::take(&mut self.tally.walked[node]);
            let streamed = std::mem::take(&mut self.tally.streamed[node]);
            self.tally.served[node] += loads + stores + streamed;
            let (read, written) = (loads + stores + walked, stores + streamed);
            if read + written > 0 {
                let node = NodeId(node as u16);
                self.hw
                    .memory
                    .add_lines(node, read * self.scale, written * self.scale);
            }
        }
    }
}

/// Who waited for memory in a quantum.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    waited: Vec<Stall>,
    /// The same of the last quantum in which anybody did, by thread and node.
    before: Vec<Stall>,
    /// By node, the longest of a thread, and no less than that of one that did nothing else but wait.
    most_ps: [u64; MAX_NODES],
    /// Threads that have ended.
    ended: Vec<usize>,
}

impl Stalls {
    /// Brings the stalls of a thread together. Who ended at the quantum's very beginning waits for what it
    /// asked before.
    fn end_quantum(&mut self, active_ps: u64) {
        if self.waited.is_empty() && self.ended.is_empty() {
            return;
        }
        self.waited.sort_by_key(|stall| (stall.thread, stall.to));
        self.waited.dedup_by(|next, stall| {
            let same = (stall.thread, stall.to) == (next.thread, next.to);
            stall.ps += u64::from(same) * next.ps;
            same
        });
        let of = |stalls: &[Stall], thread: usize| {
            let first = stalls.partition_point(|stall| stall.thread < thread);
            first..stalls.partition_point(|stall| stall.thread <= thread)
        };
        let all = self.waited.len();
        for thread in self.ended.drain(..) {
            if of(&self.waited[..all], thread).is_empty() {
                let own = of(&self.before, thread);
                self.waited.extend_from_slice(&self.before[own]);
            }
        }
        if all > 0 {
            self.before.clear();
            self.before.extend_from_slice(&self.waited[..all]);
        }
        let mut sums_ps = [0; MAX_NODES];
        self.most_ps = [1; MAX_NODES];
        for stall in &self.waited {
            sums_ps[stall.to.index()] += stall.ps;
            let most_ps = &mut self.most_ps[stall.to.index()];
            *most_ps = stall.ps.max(*most_ps);
        }
        let all_ps = sums_ps.iter().sum::<u64>().max(1);
        for (most_ps, ps) in self.most_ps.iter_mut().zip(sums_ps) {
            let share = u128::from(active_ps) * u128::from(ps) / u128::from(all_ps);
            *most_ps = (share as u64).max(*most_ps);
        }
    }
}

/// What a thread waited for memory of one node in a quantum.
#[derive(Clone, Debug)]
struct Stall {
    thread: usize,
    from: NodeId,
    to: NodeId,
    /// Picoseconds, by the latency that was in force.
    ps: u64,
    /// When it asked.
    time_ps: Range<u64>,
}

/// The prices of this quantum. Threads of one kind on one node pay the same, and latencies change
/// between quanta only; so they are reckoned once.
#[derive(Debug, Default)]
pub struct PriceLists(Vec<(Buyer, Prices)>);

/// All that prices depend on besides the load.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Buyer {
    node: NodeId,
    /// The nodes that it may run on, as bits.
    nodes: u32,
    pattern: Pattern,
    misses_at_once: Option<f64>,
    think_ns: f64,
    operations: u32,
}

impl PriceLists {
    /// Latencies changed.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of the list for a thread of `plan` on `cpu`.
    fn of(&mut self, hw: &Hardware, plan: &ThreadPlan, cpu: u32) -> usize {
        let buyer = Buyer {
            node: hw.node_of_cpu(cpu),
            nodes: plan.nodes.iter().fold(0, |bits, node| bits | 1 << node),
            pattern: plan.pattern,
            misses_at_once: plan.misses_at_once,
            think_ns: plan.think_ns,
            operations: plan.ops_per_access,
        };
        let known = self.0.iter().position(|(known, _)| *known == buyer);
        known.unwrap_or_else(|| {
            self.0.push((buyer, prices(hw, plan, cpu)));
            self.0.len() - 1
        })
    }

    fn at(&self, number: usize) -> &Prices {
        &self.0[number].1
    }
}

/// What things cost a thread of `plan` on `cpu` at the present load.
fn prices(hw: &Hardware, plan: &ThreadPlan, cpu: u32) -> Prices {
    let from = hw.node_of_cpu(cpu);
    let mlp = hw.mlp(plan.pattern, plan.misses_at_once);
    let ps = |ns: f64| (ns * PS as f64) as u64;
    let spec = &hw.cpu_spec;
    let with_cpus = plan.nodes.iter().filter(|&&node| hw.has_cpus(NodeId(node)));
    let with_cpus: Vec<u16> = with_cpus.copied().collect();
    let node = |index: usize| NodeId(index as u16);
    let latency = |index: usize| {
        [false, true].map(|write| match hw.memory.is_still() {
            true => hw.memory.least_ns(&with_cpus, write),
            false => hw.memory.latency_ns(from, node(index), write),
        })
    };
    Prices {
        think: ps(plan.think_ns),
        second_tlb: ps(spec.l2_tlb_ns),
        walk: ps(spec.walk_ns / mlp),
        walk_huge: ps(spec.walk_huge_ns / mlp),
        cache: ps(spec.llc_ns / mlp),
        other_cache: ps(spec.cache_to_cache_ns / mlp),
        memory: std::array::from_fn(|n| latency(n).map(|ns| ps(ns / mlp))),
        latency_ns: std::array::from_fn(|n| latency(n).map(|ns| ns.min(4e9) as u32)),
        cache_latency_ns: spec.llc_ns as u32,
        served: std::array::from_fn(|n| Some(hw.memory.served_by(from, node(n)))),
        interrupt: ps(hw.costs.sample_interrupt_ns),
        operations: i64::from(plan.ops_per_access),
    }
}
