//! Which processes there are, and what was known and is no more.

use super::report::{Event, Reporter};
use super::{Balancing, BalancingError, nanos};
use crate::fs::FsError;
use crate::fs::proc::Process;
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, PageNumber};
use std::time::Instant;

/// How often processes are looked for anew, in ms.
const REFRESH_MS: u64 = 1000;
/// The same while nothing is heard.
const QUIET_REFRESH_MS: u64 = 4000;
/// How often mappings and policies of a process that takes faults are read
/// anew, in ms.
const REREAD_MS: u64 = 10_000;
/// And at most this share of the time: reading them walks its page tables.
const REREAD_SHARE: u64 = 200;
/// How long the answer to where a page is holds, in ms.
const RELOCATE_MS: u64 = 10_000;
/// How often stuck pages get another chance, in ms.
const UNSTICK_MS: u64 = 60_000;
/// How often old records are emptied, in ms: within the record's time range.
const EXPIRE_MS: u64 = 3_000;

/// When a process's mappings were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reread {
    at: Millis,
    faults: u64,
    cost_ms: u64,
}

impl Reread {
    fn is_due(&self, now: Millis, faults: u64) -> bool {
        let wait = REREAD_MS.max(self.cost_ms * REREAD_SHARE);
        faults != self.faults && now.since(self.at) >= wait
    }
}

impl Balancing {
    pub(super) fn refresh(&mut self, reporter: &mut dyn Reporter) -> Result<(), BalancingError> {
        let at = self.at();
        let pause = match self.is_quiet() {
            true => QUIET_REFRESH_MS,
            false => REFRESH_MS,
        };
        if self.refreshed.is_some_and(|last| at.since(last) < pause) {
            return Ok(());
        }
        self.refreshed = Some(at);
        let began = Instant::now();
        self.processes_anew(reporter)?;
        self.threads.sweep(&self.root, at)?;
        for task in self.threads.ended() {
            self.sampled.remove_task(task);
        }
        // A dry run's pages are where it would have moved them.
        if !self.options.dry_run && at.since(self.relocated) >= RELOCATE_MS {
            self.relocated = at;
            let owners = self.owners.iter().map(|(_, owner)| *owner);
            for section in owners.flat_map(|owner| self.space.sections_of(owner)) {
                self.placement.clear_unstuck(section);
            }
        }
        if at.since(self.unstuck) >= UNSTICK_MS {
            self.unstuck = at;
            self.placement.unstick();
        }
        if at.since(self.expired) >= EXPIRE_MS {
            self.expired = at;
            self.sampled.store().expire(0..usize::MAX, self.now());
        }
        self.spent.refresh_ns += nanos(began);
        Ok(())
    }

    fn processes_anew(&mut self, reporter: &mut dyn Reporter) -> Result<(), BalancingError> {
        let at = self.at();
        let began = Instant::now();
        let changes = self.processes.refresh()?;
        let cost_ms = began.elapsed().as_millis() as u64 / changes.came.len().max(1) as u64;
        for owner in &changes.went {
            if let Some(place) = self.owners.iter().position(|(_, of)| of == owner) {
                let (pid, _) = self.owners.remove(place);
                reporter.event(at, Event::ProcessGone { pid });
            }
            self.forget(*owner);
        }
        for owner in &changes.came {
            let Some(watched) = self.processes.get(*owner) else {
                continue;
            };
            let pid = watched.process.pid;
            let reread = Reread {
                at,
                faults: watched.faults,
                cost_ms,
            };
            self.reread.insert(*owner, reread);
            let born = watched.process.start_ticks.saturating_mul(1000);
            let born_ms = born / rustix::param::clock_ticks_per_second().max(1);
            self.spaces.insert(*owner, self.sampled.add_space(born_ms));
            self.owners.push((pid, *owner));
            let name = watched.name.clone();
            reporter.event(at, Event::Process { pid, name });
        }
        self.owners.sort_unstable();
        if !changes.came.is_empty() || !changes.went.is_empty() {
            let all: Vec<Process> = self.processes.iter().map(|w| w.process).collect();
            self.ears.listen_to(&all)?;
        }
        for (_, owner) in self.owners.clone() {
            self.reread_if_due(owner)?;
        }
        Ok(())
    }

    /// Mappings and policies change; so does what may move where.
    fn reread_if_due(&mut self, owner: OwnerId) -> Result<(), BalancingError> {
        let at = self.at();
        let faults = self.processes.get(owner).map_or(0, |w| w.faults);
        let due = self.reread.get(&owner);
        if !due.is_some_and(|reread| reread.is_due(at, faults)) {
            return Ok(());
        }
        let began = Instant::now();
        match self.processes.reread(owner) {
            Ok(()) | Err(FsError::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let cost_ms = began.elapsed().as_millis() as u64;
        let reread = Reread {
            at,
            faults,
            cost_ms,
        };
        self.reread.insert(owner, reread);
        Ok(())
    }

    /// Forgets a process whose slot another one may get.
    fn forget(&mut self, owner: OwnerId) {
        self.reread.remove(&owner);
        self.spaces.remove(&owner);
        self.threads.forget(owner);
        let departed = std::mem::take(&mut self.departed);
        let (own, others) = departed.into_iter().partition(|((of, _), _)| *of == owner);
        self.departed = others;
        let own: std::collections::BTreeMap<_, _> = own;
        for task in own.into_values() {
            self.sampled.remove_task(task);
        }
        for task in self.threads.ended() {
            self.sampled.remove_task(task);
        }
        for section in self.space.release(owner) {
            self.placement.clear_section(section);
            let first = u64::from(section) * SECTION_PAGES as u64;
            for page in first..first + SECTION_PAGES as u64 {
                self.sampled.forget(PageNumber(page));
            }
        }
    }
}
