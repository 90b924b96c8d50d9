//! NUMA balancing by hardware samples.
//!
//! *Each*, as the IBS balancing series has it: a sample is taken to its task, which looks the page up on its way
//! back to user mode, asks the gate that a hint fault would ask, and moves the page there and then.
//! Nothing was armed, so other CPUs may have the page in their TLBs, and each move interrupts them.
//!
//! *Batches*: samples are counted ([`memtide_core::balancing::sampled`]), and every so often a kernel
//! thread moves what was seen often enough, one flush for many pages, beside the application.
//!
//! A sampler is set to its thread's period when the thread comes to run, and is off while the start
//! delay of the thread's space lasts. What each step costs is booked by cause.

use super::balance::policy_in_force;
use super::error::KernelError;
use super::migrate::{Initiator, MoveReason};
use super::page_view::PageView;
use super::{Kernel, Who};
use crate::config::Acts;
use crate::hardware::{Hardware, HardwareCounters, Sample, ServedBy};
use crate::page::{Flags, Slot};
use crate::workload::Kind;
use memtide_core::balancing::sampled::{Cause, Plan, Sampled, SampledAccess, SampledConfig};
use memtide_core::balancing::{BalancerConfig, Outcome};
use memtide_core::hotness::{Config as HotnessConfig, Layout};
use memtide_core::units::{Millis, NodeId, PageNumber};
use memtide_core::vmstat::Counter;

/// Pages that a kernel thread moves with one flush.
const BATCH_PAGES: usize = 512;

/// Batches of samples.
pub(super) struct Batches {
    pub(super) sampled: Sampled,
    interval_ns: u64,
    next_ns: u64,
    plan: Plan,
}

impl Batches {
    /// Batches as `acts` says, over `pages` pages; quantities of the real machine are divided by
    /// `scale`.
    pub(super) fn new(
        balancer: BalancerConfig,
        acts: Acts,
        pages: u64,
        scale: u32,
    ) -> Result<Batches, KernelError> {
        let wrong = |error: String| KernelError::Machine(error);
        let (interval_ms, hotness, young_at_once) = match acts {
            Acts::Batches {
                interval_ms,
                threshold,
                window_ms,
                young_at_once,
            } => {
                let hotness = HotnessConfig::new(Layout::Precise).with_threshold(threshold);
                let hotness = hotness.and_then(|config| config.with_window_ms(window_ms));
                let hotness = hotness.map_err(|error| wrong(error.to_string()))?;
                (interval_ms, hotness, young_at_once)
            }
            Acts::Each => return Err(wrong("samples that act at once make no batches".to_owned())),
        };
        let defaults = SampledConfig::new(balancer, pages);
        let part = |amount: u64| (amount / u64::from(scale.max(1))).max(1);
        let config = SampledConfig {
            hotness,
            young_at_once,
            batch_pages: part(defaults.batch_pages),
            pages_per_s: part(defaults.pages_per_s),
            tasks: true,
            ..defaults
        };
        let interval_ns = u64::from(interval_ms) * 1_000_000;
        Ok(Batches {
            sampled: Sampled::new(config).map_err(|error| wrong(error.to_string()))?,
            interval_ns,
            next_ns: interval_ns,
            plan: Plan::default(),
        })
    }
}

impl Kernel {
    /// A thread comes to run: its CPU's sampler gets its period. What that costs it.
    pub fn set_sampler(&mut self, hw: &mut Hardware, who: &Who) -> u64 {
        let task = self.balance.task(who.thread);
        let now_ms = who.now_ns / 1_000_000;
        let period = match (&self.balance.balancer, &self.balance.batches) {
            (Some(balancer), _) => {
                let task_of = |_: &bool| balancer.task(task).map(|t| t.sample_period());
                Some(balancer.samples(task, now_ms))
                    .filter(|on| *on)
                    .as_ref()
                    .and_then(task_of)
            }
            (None, Some(batches)) => batches.sampled.task_period(task, now_ms),
            (None, None) => None,
        };
        let period = period.map_or(0, |period| period.min(u64::from(u32::MAX)) as u32);
        let sampler = &mut hw.cpus[who.cpu as usize].sampler;
        if sampler.settings().period == period {
            return 0;
        }
        sampler.set_period(period);
        // There are as many switches as on the real machine, and each is multiplied by S.
        if !self.balance.switches.due(1, self.scale) {
            return 0;
        }
        let ns = hw.costs.sampler_switch_ns as u64;
        self.overhead.sampler_ns += ns;
        self.balance.account.add(Cause::Switch, 1, ns);
        ns
    }

    /// The samples of a quantum. The engine has charged the interrupts and the look at each sample.
    pub(super) fn balance_by_samples(
        &mut self,
        hw: &mut Hardware,
        samples: &[Sample],
        now_ns: u64,
    ) {
        let ns = hw.costs.sample_work_ns as u64;
        for sample in samples {
            self.balance.account.add(Cause::Sample, 1, ns);
            self.count(Counter::HwhintTotalEvents, 1);
            match sample.served {
                ServedBy::Cache => continue,
                ServedBy::LocalDram | ServedBy::RemoteDram => {
                    self.count(Counter::HwhintDramAccesses, 1);
                }
                ServedBy::Extension => self.count(Counter::HwhintExtmemAccesses, 1),
            }
            let who = Who {
                thread: sample.thread,
                cpu: sample.cpu,
                node: hw.node_of_cpu(sample.cpu),
                space: self
                    .regions
                    .get(self.regions.index_of(sample.slot))
                    .plan
                    .space,
                now_ns,
            };
            let Some(owner) = self
                .owner(sample.slot)
                .filter(|&owner| self.is_in_reach(owner, sample.slot))
            else {
                continue;
            };
            self.count(Counter::HwhintUsefulEvents, 1);
            match self.balance.batches.is_some() {
                true => self.count_sample(owner, sample.slot, &who),
                false => {
                    let ns = self.act_on_sample(hw, owner, sample.slot, &who);
                    hw.cpus[sample.cpu as usize].stolen_ns += ns;
                }
            }
        }
    }

    /// Whether balancing acts on the page's mapping and the page can be had.
    fn is_in_reach(&self, owner: Slot, slot: Slot) -> bool {
        let plan = &self.regions.get(self.regions.index_of(slot)).plan;
        let read_only_file = plan.kind != Kind::Anonymous && !plan.writable;
        let there = self.ptes[owner as usize].has(Flags::PRESENT);
        policy_in_force(plan).on_fault && !read_only_file && there
    }

    /// A sample acts at once; what that costs its task.
    fn act_on_sample(&mut self, hw: &mut Hardware, owner: Slot, slot: Slot, who: &Who) -> u64 {
        let Some(mut balancer) = self.balance.take() else {
            return 0;
        };
        let task = self.balance.task(who.thread);
        balancer.runs(task, who.cpu);
        let touch = self.touch(task, who, slot, owner, false);
        let mut ns = 0;
        let mut outcome = Outcome::Stayed;
        if let Some(target) = self.misplaced_to(&balancer, &touch, who, slot, owner, false) {
            let (moved, cost) = self.move_to(hw, owner, target, who);
            self.book_move(u64::from(self.folio_pages(owner)), moved, cost);
            self.overhead.sample_migration_ns += cost;
            ns += cost;
            outcome = match moved {
                true => Outcome::Moved(target),
                false => Outcome::Failed,
            };
        }
        let clock = self.balance.clock(who.thread, who.now_ns);
        let recorded = balancer.record(&touch, outcome, &clock);
        if let Some(node) = recorded.run_on {
            self.run_on(hw, &mut balancer, who, node);
        }
        self.balance.balancer = Some(balancer);
        ns
    }

    /// A sample counts.
    fn count_sample(&mut self, owner: Slot, slot: Slot, who: &Who) {
        let plan = &self.regions.get(self.regions.index_of(slot)).plan;
        let access = SampledAccess {
            task: self.balance.task(who.thread),
            cpu: who.cpu,
            page: PageNumber(u64::from(owner)),
            pages: self.folio_pages(owner),
            node: Some(self.ptes[owner as usize].node()),
            writable: plan.writable,
            shared: plan.kind == Kind::SharedFile && self.mapped_by_several(owner),
        };
        let clock = self.balance.clock(who.thread, who.now_ns);
        if let Some(batches) = &mut self.balance.batches {
            batches.sampled.sample(&access, &clock);
        }
    }

    /// The kernel thread of batches, if it is time.
    pub(super) fn act_on_samples(&mut self, hw: &mut Hardware, now_ns: u64) {
        let Some(mut batches) = self.balance.batches.take() else {
            return;
        };
        if now_ns >= batches.next_ns {
            let queued = batches.sampled.pending().len() as u64;
            let view = PageView {
                ptes: &self.ptes,
                frames: &self.frames,
                regions: &self.regions,
            };
            let now = Millis(now_ns / 1_000_000);
            batches.sampled.act(now, &view, &mut batches.plan);
            let decided = (queued as f64 * self.costs.record_ns) as u64;
            self.balance.account.add(Cause::Decide, queued, decided);
            let mut ns = decided;
            let plan = std::mem::take(&mut batches.plan);
            for moves in plan.moves.chunk_by(|a, b| a.to == b.to) {
                for batch in moves.chunks(BATCH_PAGES) {
                    let owners: Vec<Slot> = batch.iter().map(|m| m.page.0 as Slot).collect();
                    let by = Initiator { cpu: None, now_ns };
                    let moved = self.migrate(hw, &owners, batch[0].to, MoveReason::Balancing, by);
                    ns += moved.ns;
                    self.balance.account.add(Cause::Move, moved.moved, moved.ns);
                    self.balance.account.pages_moved += moved.moved;
                    self.balance.account.pages_failed += moved.busy + moved.no_memory;
                    for done in batch {
                        let there = self.ptes[done.page.0 as usize].node() == done.to;
                        batches.sampled.outcome(done, there, now);
                    }
                }
            }
            self.overhead.kmigrated_ns += ns;
            for wish in &plan.tasks {
                self.move_task(hw, &mut batches.sampled, wish.task.0, wish.to, now_ns);
            }
            batches.plan = plan;
            let busy_until = now_ns + ns * u64::from(self.scale);
            batches.next_ns = (batches.next_ns + batches.interval_ns).max(busy_until);
        }
        self.balance.batches = Some(batches);
    }

    /// A task is to run elsewhere. Tasks are numbered as threads are.
    fn move_task(
        &mut self,
        hw: &mut Hardware,
        sampled: &mut Sampled,
        thread: u32,
        node: NodeId,
        now_ns: u64,
    ) {
        let cpu = hw.cpu_of_thread(thread);
        let who = Who {
            thread,
            cpu,
            node: hw.node_of_cpu(cpu),
            space: 0,
            now_ns,
        };
        if who.node != node {
            self.run_on(hw, sampled.balancer_mut(), &who, node);
        }
    }

    /// Books what other CPUs lost by a flush for balancing, from what was counted before it.
    pub(super) fn book_shootdown(&mut self, hw: &Hardware, before: HardwareCounters, sent_ns: u64) {
        let received = hw.counters.tlb_shootdowns - before.tlb_shootdowns;
        let ns = (hw.counters.shootdown_ns - before.shootdown_ns).saturating_sub(sent_ns);
        if received > 0 {
            self.balance.account.add(Cause::Shootdown, received, ns);
        }
    }

    /// Books a move of balancing that a thread made.
    pub(super) fn book_move(&mut self, pages: u64, moved: bool, ns: u64) {
        let account = &mut self.balance.account;
        account.add(Cause::Move, pages, ns);
        match moved {
            true => account.pages_moved += pages,
            false => account.pages_failed += pages,
        }
    }
}
