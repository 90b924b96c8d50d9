//! What was heard, counted.

use super::report::{Event, Reporter};
use super::threads::Resolved;
use super::{Balancing, BalancingError, nanos, whereabouts};
use crate::source::samples::Window;
use memtide_core::balancing::Clock;
use memtide_core::balancing::TaskId;
use memtide_core::balancing::sampled::SampledAccess;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use std::time::Instant;

/// How often people are told of invalid windows, in ms.
const TELL_INVALID_MS: u64 = 1000;

impl Balancing {
    /// Takes what came since the last turn.
    pub(super) fn listen(&mut self, reporter: &mut dyn Reporter) -> Result<(), BalancingError> {
        let began = Instant::now();
        let mut heard = std::mem::take(&mut self.heard);
        heard.clear();
        let window = self.ears.drain(&mut heard);
        self.counts.turn = heard.len() as u64;
        self.heard = heard;
        if let Window::Invalid {
            lost, throttled, ..
        } = window
        {
            self.invalid(lost, throttled, reporter);
        }
        self.spent.samples_ns += nanos(began);
        if self.heard.is_empty() {
            return Ok(());
        }
        self.locate()?;
        let began = Instant::now();
        let heard = std::mem::take(&mut self.heard);
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let counted = heard.iter().try_for_each(|access| {
            found.extend(self.find(access)?);
            Ok(())
        });
        self.sampled.sample_batch(&found);
        (self.heard, self.found) = (heard, found);
        for task in self.threads.ended() {
            self.sampled.remove_task(task);
        }
        self.spent.samples_ns += nanos(began);
        counted
    }

    /// What is missing may all be of one kind, so the rest is no fair share.
    fn invalid(&mut self, lost: u64, throttled: u64, reporter: &mut dyn Reporter) {
        let at = self.at();
        self.counts.lost += lost;
        self.counts.invalid_windows += 1;
        let told = self.told_invalid;
        if told.is_none_or(|told| at.since(told) >= TELL_INVALID_MS) {
            self.told_invalid = Some(at);
            reporter.event(at, Event::WindowInvalid { lost, throttled });
        }
    }

    fn owner(&self, pid: u32) -> Option<OwnerId> {
        let place = self.owners.binary_search_by_key(&pid, |(pid, _)| *pid);
        place.ok().map(|place| self.owners[place].1)
    }

    /// Finds out where pages are that nothing is known of.
    fn locate(&mut self) -> Result<(), BalancingError> {
        let began = Instant::now();
        let shift = self.page.shift();
        for n in 0..self.heard.len() {
            let access = self.heard[n];
            let Some(owner) = self.owner(access.pid) else {
                continue;
            };
            let page = VirtualPage(access.address >> shift);
            let known = self.space.find(owner, page);
            if known.is_none_or(|dense| self.placement.get(dense).is_none()) {
                self.unknown.add(owner, page);
            }
        }
        self.unknown.ask(
            &self.root.path("proc"),
            &self.processes,
            &mut self.surveyor,
            &mut self.space,
            &mut self.placement,
        )?;
        self.spent.locate_ns += nanos(began);
        Ok(())
    }

    /// Who used which page; `None` for what is not ours to move.
    fn find(
        &mut self,
        access: &super::Heard,
    ) -> Result<Option<(SampledAccess, Clock)>, BalancingError> {
        let Some(owner) = self.owner(access.pid) else {
            return Ok(None);
        };
        let page = VirtualPage(access.address >> self.page.shift());
        // What is nowhere is no memory that could move: the page of zeros, a
        // device's, or it is gone already.
        let Some(dense) = self.space.find(owner, page) else {
            return Ok(None);
        };
        let Some(place) = self.placement.get(dense) else {
            return Ok(None);
        };
        let Some((task, runtime_ns)) = self.task(owner, access)? else {
            return Ok(None);
        };
        self.counts.samples += 1;
        let near = self
            .sampled
            .config()
            .balancer
            .node_of_cpu
            .get(access.cpu as usize);
        self.counts.local += u64::from(near == Some(&place.node()));
        let (first, pages) = whereabouts::folio(&self.placement, dense);
        let clock = Clock {
            now_ns: self.now().0 * 1_000_000,
            runtime_ns,
        };
        let access = SampledAccess {
            task,
            cpu: access.cpu,
            page: first,
            pages,
            node: Some(place.node()),
            // Most memory that threads share is written by somebody; where
            // nothing is known, sharing is the better guess.
            writable: true,
            shared: false,
        };
        Ok(Some((access, clock)))
    }

    /// The balancer's name for a thread, and how long it has run.
    ///
    /// A thread that has ended by now has used its pages all the same, and its
    /// like will: those that ended are one task for each node on which they ran.
    fn task(
        &mut self,
        owner: OwnerId,
        access: &super::Heard,
    ) -> Result<Option<(TaskId, u64)>, BalancingError> {
        let at = self.at();
        let Some(&space) = self.spaces.get(&owner) else {
            return Ok(None);
        };
        let number = (access.pid, access.tid);
        Ok(match self.threads.resolve(&self.root, number, at)? {
            Resolved::Task(task, runtime_ns) => Some((task, runtime_ns)),
            Resolved::New(thread, runtime_ns) => {
                let task = self.sampled.add_task(space, thread.tid, None);
                self.threads.add(thread, owner, task, runtime_ns, at);
                Some((task, runtime_ns))
            }
            Resolved::Gone => {
                let nodes = &self.sampled.config().balancer.node_of_cpu;
                let Some(&node) = nodes.get(access.cpu as usize) else {
                    return Ok(None);
                };
                let known = self.departed.get(&(owner, node)).copied();
                let task = known.unwrap_or_else(|| {
                    let number = access.pid.wrapping_add(u32::from(node.0) << 22);
                    self.sampled.add_task(space, number, None)
                });
                self.departed.insert((owner, node), task);
                Some((task, 0))
            }
        })
    }
}
