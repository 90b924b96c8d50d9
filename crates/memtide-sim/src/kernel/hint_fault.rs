//! Hint faults: a thread accessed an armed page.
//!
//! The page's policy is asked whether it should be elsewhere; a policy on which hint faults act asks
//! the gate: the core's balancer for memory of the top tier, the promotion gate for slow memory in
//! tiering mode. If so the page moves at once, in the thread's time. Then the touch is recorded, which
//! may ask for the thread to run elsewhere.
//!
//! With hot-page tracking on, a fault on slow memory moves nothing: it is reported to the store, if
//! that listens to hint faults, and a kernel thread moves what is hot.

use super::balance::policy_in_force;
use super::migrate::{Initiator, MoveReason};
use super::{Fault, Kernel, Who};
use crate::hardware::Hardware;
use crate::page::{Flags, Slot};
use crate::workload::Kind;
use memtide_core::access::Source;
use memtide_core::balancing::sampled::Cause;
use memtide_core::balancing::{Balancer, Cpupid, Outcome, TaskId, Touch};
use memtide_core::mempolicy::{HintFault, misplaced};
use memtide_core::promotion::Request;
use memtide_core::units::{Millis, NodeId};
use memtide_core::vmstat::Counter;

impl Kernel {
    /// Answers a hint fault; what it costs the thread.
    pub(super) fn hint_fault(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        write: bool,
    ) -> u64 {
        let mut ns = hw.costs.hint_fault_ns as u64;
        let head = self.head(slot);
        let pte = self.ptes[head as usize];
        let owner = match self.owner(slot) {
            Some(owner) if pte.has(Flags::HINT.with(Flags::PRESENT)) => owner,
            // Somebody was faster.
            _ => {
                self.ptes[head as usize].clear(Flags::HINT);
                self.overhead.hint_fault_ns += ns;
                return ns;
            }
        };
        self.count(Counter::NumaHintFaults, 1);
        self.balance.account.add(Cause::Fault, 1, ns);
        if pte.node() == who.node {
            self.count(Counter::NumaHintFaultsLocal, 1);
        }
        let slow = self.balance.modes.tiering && !self.topology.is_top_tier(pte.node());
        if slow && self.balance.pghot.is_some() {
            self.make_accessible(head);
            ns += self.report_access(owner, Some(who.node), Source::HintFault, who.now_ns);
            self.overhead.hint_fault_ns += ns;
            return ns;
        }
        let Some(mut balancer) = self.balance.take() else {
            self.make_accessible(head);
            self.overhead.hint_fault_ns += ns;
            return ns;
        };
        let task = self.balance.task(who.thread);
        balancer.runs(task, who.cpu);
        let touch = self.touch(task, who, slot, owner, slow);
        let region = self.regions.index_of(slot);
        balancer.faulted_in(task, self.balance.position(region));
        self.overhead.hint_fault_ns += ns;
        let mut outcome = Outcome::Stayed;
        if let Some(target) = self.misplaced_to(&balancer, &touch, who, slot, owner, slow) {
            // Still armed, so in no TLB.
            let (moved, cost) = self.move_to(hw, owner, target, who);
            self.book_move(u64::from(self.folio_pages(owner)), moved, cost);
            outcome = match moved {
                true => Outcome::Moved(target),
                false => Outcome::Failed,
            };
            self.overhead.fault_migration_ns += cost;
            ns += cost;
        }
        self.make_accessible(head);
        if let Outcome::Moved(_) = outcome
            && self.balance.sweeps(who.thread)
        {
            self.hold_up(hw, who, owner, touch.node, write, ns);
        }
        let clock = self.balance.clock(who.thread, who.now_ns);
        let recorded = balancer.record(&touch, outcome, &clock);
        if let Some(node) = recorded.run_on {
            self.run_on(hw, &mut balancer, who, node);
        }
        self.balance.balancer = Some(balancer);
        ns
    }

    /// A hint fault on a page that another thread is moving from `from`: it is counted, and its move
    /// fails. The page has its new node already. What it costs to tell of it.
    pub(super) fn fail_to_move(
        &mut self,
        hw: &mut Hardware,
        who: &Who,
        slot: Slot,
        owner: Slot,
        from: NodeId,
    ) -> u64 {
        let Some(mut balancer) = self.balance.take() else {
            return 0;
        };
        let ns = hw.costs.hint_fault_ns as u64;
        self.count(Counter::NumaHintFaults, 1);
        if from == who.node {
            self.count(Counter::NumaHintFaultsLocal, 1);
        }
        self.overhead.hint_fault_ns += ns;
        self.balance.account.add(Cause::Fault, 1, ns);
        let told_ns = self.hear(who, slot, Fault::Hint);
        let task = self.balance.task(who.thread);
        balancer.runs(task, who.cpu);
        let touch = Touch {
            node: from,
            ..self.touch(task, who, slot, owner, false)
        };
        let mut outcome = Outcome::Stayed;
        if self
            .misplaced_to(&balancer, &touch, who, slot, owner, false)
            .is_some()
        {
            outcome = Outcome::Failed;
            self.balance.account.pages_failed += touch.pages;
        }
        let clock = self.balance.clock(who.thread, who.now_ns);
        let recorded = balancer.record(&touch, outcome, &clock);
        if let Some(node) = recorded.run_on {
            self.run_on(hw, &mut balancer, who, node);
        }
        self.balance.balancer = Some(balancer);
        told_ns
    }

    fn make_accessible(&mut self, head: Slot) {
        let pte = &mut self.ptes[head as usize];
        pte.clear(Flags::HINT);
        pte.set(Flags::ACCESSED);
    }

    pub(super) fn touch(
        &self,
        task: TaskId,
        who: &Who,
        slot: Slot,
        owner: Slot,
        slow: bool,
    ) -> Touch {
        let plan = &self.regions.get(self.regions.index_of(slot)).plan;
        let last = Cpupid(self.ptes[owner as usize].last());
        Touch {
            task,
            cpu: who.cpu,
            node: self.ptes[owner as usize].node(),
            pages: u64::from(self.folio_pages(owner)),
            last: if slow {
                self.balance.format.none()
            } else {
                last
            },
            writable: plan.writable,
            shared: plan.kind == Kind::SharedFile && self.mapped_by_several(owner),
        }
    }

    pub(super) fn mapped_by_several(&self, owner: Slot) -> bool {
        let space = |slot| self.regions.get(self.regions.index_of(slot)).plan.space;
        let mut spaces = self.mappers(owner).map(space);
        spaces
            .next()
            .is_some_and(|first| spaces.any(|s| s != first))
    }

    /// The node to which the page should move. Notes on the page what the gate's question leaves there.
    pub(super) fn misplaced_to(
        &mut self,
        balancer: &Balancer,
        touch: &Touch,
        who: &Who,
        slot: Slot,
        owner: Slot,
        slow: bool,
    ) -> Option<NodeId> {
        let region = self.regions.get(self.regions.index_of(slot));
        let policy = policy_in_force(&region.plan);
        let fault = HintFault {
            current: touch.node,
            accessor: who.node,
            index: self.interleave_index(slot),
        };
        let (pte, frames) = (&mut self.ptes[owner as usize], &self.frames);
        let (balance, counters) = (&self.balance, &mut self.counters);
        let gate = || {
            if !slow {
                pte.set_last(balancer.signature(touch).0);
                return balancer.should_move(touch).moves();
            }
            if frames.present(who.node) == 0 {
                return false;
            }
            let now = Millis(who.now_ns / 1_000_000);
            let request = Request {
                latency_ms: balance.format.since_ms(Cpupid(pte.last()), now.0),
                pages: touch.pages,
                space: Some(frames.space(who.node)),
            };
            let verdict = balance.gate.ask(who.node, now, &request);
            if let Some(counter) = memtide_core::promotion::Admit::counter(&balance.gate, verdict) {
                counters.add(counter, touch.pages);
            }
            pte.set_last(balance.format.time(now.0).0);
            verdict.admitted()
        };
        misplaced(policy, fault, &self.machine, &self.weights, gate)
    }

    /// Moves one folio for the thread that faulted; whether it did, and what it cost.
    pub(super) fn move_to(
        &mut self,
        hw: &mut Hardware,
        owner: Slot,
        target: NodeId,
        who: &Who,
    ) -> (bool, u64) {
        if self.regions.is_file(owner) && self.ptes[owner as usize].has(Flags::DIRTY) {
            return (false, 0);
        }
        let by = Initiator {
            cpu: Some(who.cpu),
            now_ns: who.now_ns,
        };
        let moved = self.migrate(hw, &[owner], target, MoveReason::Balancing, by);
        (moved.moved > 0, moved.ns)
    }

    /// Runs the thread on an idle CPU of `node`, or changes places with a thread that would rather be
    /// here, within what both may use.
    pub(super) fn run_on(
        &mut self,
        hw: &mut Hardware,
        balancer: &mut Balancer,
        who: &Who,
        node: NodeId,
    ) {
        let thread = who.thread;
        if !hw.move_thread(thread, node) {
            let willing = hw.running_threads().find(|&(other, cpu)| {
                let task = self.balance.tasks().nth(other as usize);
                let prefers = task
                    .and_then(|t| balancer.task(t))
                    .and_then(|t| t.preferred());
                hw.node_of_cpu(cpu) == node && prefers == Some(who.node)
            });
            match willing {
                Some((other, _)) if hw.swap_threads(thread, other) => {
                    let task = self.balance.task(other);
                    balancer.runs(task, hw.cpu_of_thread(other));
                }
                _ => return,
            }
        }
        balancer.runs(self.balance.task(thread), hw.cpu_of_thread(thread));
    }
}
